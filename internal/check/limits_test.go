package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/reconcile"
)

// TestProbesAtOnce: 64 probes run at a time.
func TestProbesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, every5)
		var running atomic.Int64
		free, ended := make(chan struct{}), make(chan struct{})
		w.Watch.probe = func(context.Context, target) error { running.Add(1); <-free; return nil }
		go func() { w.probeAll(t.Context(), make([]target, 65)); close(ended) }()
		synctest.Wait()
		if n := running.Load(); n != 64 {
			t.Errorf("%d probes at once", n)
		}
		close(free)
		<-ended
	})
}

// TestLimits reaches the documented numbers of usages with a check and of their endpoints. The first ones are checked
// at the limit and beyond it. What is beyond it is unchecked: it is published, also if it was dead.
func TestLimits(t *testing.T) {
	for _, limit := range []struct {
		what, other string // the other endpoint of each usage
		usages      int    // at the limit
	}{
		{"usages", "udp://192.0.2.2:1", 4096},
		{"endpoints", "tcp://192.0.2.2:1", 2048},
	} {
		t.Run(limit.what, func(t *testing.T) {
			w := newWorld(t, `{"kind":"tcp","interval":5,"fall":1,"rise":1}`)
			w.db.Exec(`DELETE FROM usages`)
			w.reserve(1, limit.usages, limit.other)
			w.pass(time.Second)
			w.wantChecked(1, limit.usages)
			if strings.Contains(w.said.String(), "more endpoints") {
				t.Errorf("the limit is not passed: %s", &w.said)
			}
			w.reserve(5000, 5000, "udp://192.0.2.2:1")
			w.db.Exec(`INSERT INTO dead_endpoints (usage, endpoint, since, error) VALUES (5000, ?, 1, 'refused')`, endpointOf(5000))
			w.wantChecked(1, limit.usages)
			if n := w.count(`SELECT count(*) FROM names WHERE name = '_mesh.p5000.example.com' AND due IS NOT NULL`); n != 1 {
				t.Error("what is dead and unchecked is not published again")
			}
			if n := strings.Count(w.said.String(), "more endpoints"); n != 1 {
				t.Errorf("%d warnings, want one: %s", n, &w.said)
			}
		})
	}
}

// reserve makes usages, each with an endpoint of its own and another one.
func (w *world) reserve(from, to int, other string) {
	w.t.Helper()
	const numbers = `WITH RECURSIVE numbers (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?2) `
	w.db.Exec(numbers+`
		INSERT INTO usages (seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		SELECT n, 'u' || n, 's', '', 'auto', 'p' || n, 'TXT', '', 1, json_array('tcp://192.0.2.1:' || n, ?3), '_mesh.p' || n || '.example.com', '' FROM numbers`, from, to, other)
	w.db.Exec(numbers+`INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) SELECT n, n, 7, 'u' || n, 's', 'active' FROM numbers`, from, to)
}

func endpointOf(usage int) string { return fmt.Sprintf("tcp://192.0.2.1:%d", usage) }

// wantChecked fails unless the endpoints of usages are taken out when they die, and put back when they live again.
func (w *world) wantChecked(usages ...int) {
	w.t.Helper()
	var dying []string
	for _, u := range usages {
		dying = append(dying, endpointOf(u))
	}
	for _, dead := range [][]string{nil, dying, nil} {
		w.Watch.probe = func(_ context.Context, t target) error {
			if slices.Contains(dead, t.endpoint) {
				return errors.New("refused")
			}
			return nil
		}
		w.at = w.at.Add(reconcile.ChangeEvery)
		w.pass(time.Second)
		w.wantDead(dead...)
	}
}

// TestWitnessesAtTheLimit: to find the witnesses takes no time for each pair of endpoints when all but one are dying. The floor
// is the same search when one is dying.
func TestWitnessesAtTheLimit(t *testing.T) {
	w := New(&Table{}, &Control{}, nil, nil)
	for i := range maxEndpoints {
		k := key{int64(i), "tcp://192.0.2.1:1"}
		w.targets = append(w.targets, target{key: k})
		w.states[k] = &health{wins: 1}
	}
	took := func(deaths []target) time.Duration {
		least := time.Hour
		for range 5 {
			began := time.Now()
			if n := len(w.witnesses(deaths)); n != min(maxWitnesses, maxEndpoints-len(deaths)) {
				t.Fatalf("%d witnesses", n)
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	if floor, all := took(w.targets[:1]), took(w.targets[:maxEndpoints-1]); all > 50*floor {
		t.Errorf("%v for %d deaths, %v for one", all, maxEndpoints-1, floor)
	}
}
