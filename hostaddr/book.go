package hostaddr

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"meshddns/crash"
	"meshddns/meshtxt"
)

// Book knows this host's public addresses. Only its watcher looks them up: who
// asks the book is told at once what is known.
type Book struct {
	sources [2]Source
	save    func(ctx context.Context, last meshtxt.Addresses) error
	log     *slog.Logger
	ready   chan struct{}

	mu        sync.Mutex
	last, now meshtxt.Addresses
	saved     meshtxt.Addresses // of last, what save has taken
	fault     string            // of the last look
}

// NewBook makes a book that begins with the last known addresses, and hands the
// changed ones to save. What a source of none once found is forgotten.
func NewBook(ipv4, ipv6 Source, last meshtxt.Addresses, save func(context.Context, meshtxt.Addresses) error, log *slog.Logger) *Book {
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

// Known gives the last known addresses, and those that are known at this moment.
func (b *Book) Known() (last, now meshtxt.Addresses) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.now
}

// All gives the last known addresses as a list.
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
		return !a.IsPrivate() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !shared.Contains(a)
	})
}

// shared is what carriers share among their customers (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// Ready is closed when the addresses have been looked up once.
func (b *Book) Ready() <-chan struct{} { return b.ready }

// Watch keeps the book up to date until ctx ends: at start, at every interval,
// and when the kernel reports a change.
func (b *Book) Watch(ctx context.Context, interval time.Duration) error {
	reported := make(chan struct{}, 1)
	failed := make(chan error, 1)
	go func() {
		failed <- crash.Call(func() error {
			return Watch(ctx, func() {
				select {
				case reported <- struct{}{}:
				default:
				}
			})
		})
	}()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	b.look(ctx)
	close(b.ready)
	for ctx.Err() == nil {
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

// look looks the addresses up. One that is not found now stays the last known:
// a service that is down, or a moment without a route, must not empty a record.
func (b *Book) look(ctx context.Context) {
	ipv4, err4 := b.sources[0].Addr(ctx)
	ipv6, err6 := b.sources[1].Addr(ctx)
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	b.now = meshtxt.Addresses{IPv4: ipv4, IPv6: ipv6}
	if ipv4.IsValid() {
		b.last.IPv4 = ipv4
	}
	if ipv6.IsValid() {
		b.last.IPv6 = ipv6
	}
	last, saved := b.last, b.saved
	fault, old := errorText(errors.Join(err4, err6)), b.fault
	b.fault = fault
	b.mu.Unlock()
	if fault != old && fault != "" {
		b.log.Warn("look up public address", "error", fault)
	}
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

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
