package hostaddr

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/tasks"
)

// Book knows this host's public addresses. Only its watcher looks them up: the other methods
// give the known addresses at once.
type Book struct {
	sources [2]Source
	save    func(ctx context.Context, last mesh.Addresses) error
	log     *slog.Logger
	ready   chan struct{}

	mu        sync.Mutex
	last, now mesh.Addresses
	saved     mesh.Addresses // of last, what save has taken
	told      [2]string      // what was logged of the last look at each source
}

// The kernel may report changes without an end, as containers come and go.
const (
	lookPause = time.Second      // between looks
	askPause  = 10 * time.Second // between looks that ask a service on the web
)

// NewBook makes a book that begins with the last known addresses, and hands the
// changed ones to save. What a source of none once found is forgotten.
func NewBook(ipv4, ipv6 Source, last mesh.Addresses, save func(context.Context, mesh.Addresses) error, log *slog.Logger) *Book {
	b := &Book{sources: [2]Source{ipv4, ipv6}, save: save, log: log, ready: make(chan struct{}), last: last, saved: last}
	if ipv4.isNone() {
		b.last.IPv4 = netip.Addr{}
	}
	if ipv6.isNone() {
		b.last.IPv6 = netip.Addr{}
	}
	return b
}

// isNone reports whether the source never has an address.
func (s Source) isNone() bool { return s == Source{family: s.family} }

// Known returns the last known addresses, and those that are known at this moment.
func (b *Book) Known() (last, now mesh.Addresses) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.now
}

// All returns the last known addresses as a list.
func (b *Book) All() (all []netip.Addr) {
	last, _ := b.Known()
	for _, address := range []netip.Addr{last.IPv4, last.IPv6} {
		if address.IsValid() {
			all = append(all, address)
		}
	}
	return all
}

// Reachable reports whether the last known addresses have one that is not private.
func (b *Book) Reachable() bool {
	return slices.ContainsFunc(b.All(), func(a netip.Addr) bool {
		return !isPrivate(a) && !a.IsLoopback() && !a.IsLinkLocalUnicast()
	})
}

// Ready is closed when the addresses have been looked up once.
func (b *Book) Ready() <-chan struct{} { return b.ready }

// Watch keeps the book up to date until ctx ends: at start, at every interval,
// and when the kernel reports a change.
func (b *Book) Watch(ctx context.Context, interval time.Duration) error {
	reported := make(chan struct{}, 1)
	failed := make(chan error, 1)
	go func() {
		failed <- tasks.Call(func() error {
			return watchKernel(ctx, func() {
				select {
				case reported <- struct{}{}:
				default:
				}
			})
		})
	}()
	b.look(ctx)
	close(b.ready)
	return b.keep(ctx, interval, reported, failed)
}

// keep looks at every interval, and when a change is reported, with a pause after each look:
// what changes in the pause is looked up once, at its end.
func (b *Book) keep(ctx context.Context, interval time.Duration, reported <-chan struct{}, failed <-chan error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-time.After(b.pause()):
		case <-ctx.Done():
			return nil
		}
		select {
		case <-reported:
			b.look(ctx)
		case <-ticker.C:
			b.look(ctx)
		case err := <-failed:
			if err == nil { // ctx has ended
				return nil
			}
			b.log.Warn("changes of addresses are seen at the next interval only", "error", err)
			failed = nil
		case <-ctx.Done():
		}
	}
	return nil
}

// pause is the least time between two looks.
func (b *Book) pause() time.Duration {
	if b.sources[0].url != nil || b.sources[1].url != nil {
		return askPause
	}
	return lookPause
}

// look looks the addresses up. One that is not found now stays the last known:
// a service that is down, or a moment without a route, must not empty a record.
func (b *Book) look(ctx context.Context) {
	ipv4, err4 := b.sources[0].look(ctx)
	ipv6, err6 := b.sources[1].look(ctx)
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	b.now = mesh.Addresses{IPv4: ipv4.addr, IPv6: ipv6.addr}
	if ipv4.addr.IsValid() {
		b.last.IPv4 = ipv4.addr
	}
	if ipv6.addr.IsValid() {
		b.last.IPv6 = ipv6.addr
	}
	last, saved := b.last, b.saved
	b.mu.Unlock()
	b.tell(0, ipv4, err4, last.IPv4)
	b.tell(1, ipv6, err6, last.IPv6)
	if last == saved {
		return
	}
	b.log.Info("public addresses", "ipv4", last.IPv4, "ipv6", last.IPv6)
	if err := b.save(ctx, last); err != nil {
		b.log.Error("store public addresses", "error", err)
		return // the next look tries again
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved = last
}

// tell logs what a look at a source has found when it is not a public address, and
// again when it becomes something else. Only the watcher calls it.
func (b *Book) tell(number int, f finding, err error, last netip.Addr) {
	source, message, level := b.sources[number], "no public address", slog.LevelInfo
	switch {
	case err != nil:
		f.note, message, level = err.Error(), "look up public address", slog.LevelWarn
	case f.addr.IsValid():
		message, level = "private address", slog.LevelWarn
	case f.seen:
		level = slog.LevelWarn
	}
	if old := b.told[number]; f.note == old {
		return
	}
	if b.told[number] = f.note; f.note == "" {
		return
	}
	attrs := []slog.Attr{slog.String("family", fmt.Sprintf("IPv%d", source.family)), slog.String("source", source.String()), slog.String("reason", f.note)}
	if last.IsValid() {
		attrs = append(attrs, slog.Any("published", last))
	}
	b.log.LogAttrs(context.Background(), level, message, attrs...)
}
