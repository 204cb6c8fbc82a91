package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meshddns/test/support"
)

// termCost compares reservations in a term, which is renewed every second, with those of a program without -term.
func termCost(t *testing.T, b *table) {
	s := speedScale()
	inTerm, bare := reserved(t, account{}, s.names), reserved(t, account{}, s.names)
	path := filepath.Join(t.TempDir(), "term")
	renewTerm(t, path)
	with, without := startAs(t, inTerm, way{env: []string{"MESHDDNS_TERM=" + path}}), start(t, bare)
	numbers := numbered()
	var ours, theirs turns
	for i := range s.rounds + 1 {
		ours.take(t, posts(64, numbers), with.http, with.process, s.turn)
		theirs.take(t, posts(64, numbers), without.http, without.process, s.turn)
		if i == 0 {
			ours, theirs = turns{}, turns{}
		}
	}
	b.compare(t, contest{
		row: "POST usages, 64 clients, with -term / without", measured: s.there("usages"), bound: least(0.95, 0.98), show: perSecond,
	}, ours.rates, theirs.rates)
	ours.describe(t, b, "POST usages, 64 clients, with -term")
	theirs.describe(t, b, "POST usages, 64 clients, without -term")
}

// renewTerm writes a term file, and again every second until the end of the test.
func renewTerm(t *testing.T, path string) {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	support.Must(t, err)
	write := func() {
		uptime, err := os.ReadFile("/proc/uptime")
		support.Must(t, err)
		var now float64
		fmt.Sscan(string(uptime), &now)
		support.WriteFile(t, path+".new", fmt.Sprintf(`{"term": 1, "asked": %f, "until": %f, "boot_id": %q}`, now, now+60, strings.TrimSpace(string(boot))))
		support.Must(t, os.Rename(path+".new", path))
	}
	write()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(time.Second); ctx.Err() == nil; {
			select {
			case <-tick.C:
				write()
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}
