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

// Book has this host's public addresses. Only Watch looks them up; the other methods
// return the known addresses at once.
type Book struct {
	sources [2]Source
	save    func(ctx context.Context, last mesh.Addresses) error
	log     *slog.Logger
	ready   chan struct{}

	mu        sync.Mutex
	last, now mesh.Addresses
	saved     mesh.Addresses // the last addresses that save has stored
	told      [2]string      // the note of each source that was logged last
}

// The pauses bound the lookups, because the kernel may report changes continuously, as when containers start and stop.
const (
	lookPause = time.Second      // between lookups
	askPause  = 10 * time.Second // between lookups that ask a web service
)

// NewBook returns a book that starts with the last known addresses, and passes changed
// ones to save. It drops the last address of a family whose source is none.
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

// isNone reports whether the source is none.
func (s Source) isNone() bool { return s == Source{family: s.family} }

// Known returns the last known addresses, and those that the last lookup found.
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

// Reachable reports whether one of the last known addresses is not private, loopback or link-local.
func (b *Book) Reachable() bool {
	return slices.ContainsFunc(b.All(), func(a netip.Addr) bool {
		return !isPrivate(a) && !a.IsLoopback() && !a.IsLinkLocalUnicast()
	})
}

// Ready returns a channel that is closed after the first lookup.
func (b *Book) Ready() <-chan struct{} { return b.ready }

// Watch looks the addresses up until ctx ends: at start, at every interval,
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

// keep calls look at every interval and after a reported change. It pauses after each look;
// changes in the pause cause one look at its end.
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

// pause returns the least time between two lookups.
func (b *Book) pause() time.Duration {
	if b.sources[0].url != nil || b.sources[1].url != nil {
		return askPause
	}
	return lookPause
}

// look looks the addresses up. If it does not find one, the last known address stays, so that
// a web service that is down, or a short time without a route, does not empty a record.
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

// tell logs the result of a lookup that found no public address, once until the
// result changes. Only Watch calls it.
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
