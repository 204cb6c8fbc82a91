package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// hiding is a client of a vendor that shows a challenge some time after it was written: until then a read misses it, or fails.
type hiding struct {
	client
	owner string
	until *time.Time // the vendor shows everything from then on
	fails provider.Kind
}

func (h hiding) Read(ctx context.Context, zone, name string, t provider.Type) (provider.RRset, error) {
	set, err := h.client.Read(ctx, zone, name, t)
	if name != h.owner || !time.Now().Before(*h.until) || !h.v.changedBefore(name) {
		return set, err
	}
	if h.fails != "" {
		return provider.RRset{}, &provider.Error{Kind: h.fails}
	}
	return provider.RRset{}, err
}

// changedBefore reports whether a name was written.
func (v *vendor) changedBefore(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed(name)
}

// challenge stores a challenge of a new lease for the newest usage, and makes its name due.
func (w *world) challenge(name, value string) {
	w.t.Helper()
	w.exec(`INSERT OR IGNORE INTO leases (id, usage, slot, token, schemes, cidrs, ttl, template, peer_id, endpoints, renewed_at, renewed_by, acme)
		VALUES ('l', ?, 'a', x'01', '[]', '[]', 60, '[]', '', '[]', 0, '', 1)`, w.last)
	w.exec(`INSERT INTO challenges (usage, lease, value, put_at) SELECT usage, seq, ?, 1 FROM leases`, value)
	w.due(name, reconcile.LaneChanged)
}

// challengePlace gives the state, what stands and what is in doubt of the record of challenges.
func (w *world) challengePlace() (state, standing, doubt string) {
	w.t.Helper()
	if err := w.db.QueryRow(`SELECT state, standing, doubt || gone FROM places WHERE owner LIKE '_acme-challenge.%'`).Scan(&state, &standing, &doubt); err != nil {
		w.t.Fatal(err)
	}
	return state, standing, doubt
}

// TestChallengeShownLate: a provider that shows a write late, or fails to show it in any way, leaves a doubt. A later try
// succeeds without a second write, and the value is ours then: it is withdrawn, and a value of others beside it stays.
func TestChallengeShownLate(t *testing.T) {
	for _, kind := range []provider.Kind{"", provider.Network, provider.Throttled, provider.BadCredentials, provider.Conflict, provider.ZoneNotFound} {
		for _, others := range []bool{true, false} {
			if !others && kind != "" {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "auto")
				const owner, value, foreign = "_acme-challenge.p.example.com", "ours-ours-ours", "others-others"
				until := time.Now().Add(3 * time.Second)
				w.open = func(c client) provider.DNS { return hiding{c, owner, &until, kind} }
				w.service("example.com", w.account("key"))
				name := w.reserve("example.com", "p")
				if others {
					w.vendor.put(owner, foreign)
				}
				w.challenge(name, value)
				w.start()
				after(time.Second)
				state, standing, doubt := w.challengePlace()
				if !strings.Contains(doubt, value) || strings.Contains(standing, value) || state == string(reconcile.Published) {
					t.Errorf("%q: not shown: it is %s, %q stands, %q is in doubt", kind, state, standing, doubt)
				}
				after(30 * time.Minute)
				state, standing, doubt = w.challengePlace()
				if !strings.Contains(standing, value) || state != string(reconcile.Published) || doubt != "" || strings.Contains(standing, foreign) {
					t.Errorf("%q: shown: it is %s, %q stands, %q is in doubt", kind, state, standing, doubt)
				}
				if n := slices.Compact(slices.Clone(w.vendor.values[owner])); w.vendor.called("change "+owner) != 1 && len(n) != len(w.vendor.values[owner]) {
					t.Errorf("%q: it was written twice: %q", kind, w.vendor.values[owner])
				}
				w.exec(`DELETE FROM challenges`)
				w.due(name, reconcile.LaneChanged)
				after(30 * time.Minute)
				want := "[]"
				if others {
					want = "[" + foreign + "]"
				}
				if left := fmt.Sprint(w.vendor.values[owner]); left != want {
					t.Errorf("%q: %s is left, want %s\n%s", kind, left, want, w.log.String())
				}
				if n := w.count(`SELECT count(*) FROM places WHERE owner LIKE '_acme-challenge.%'`); n > 0 {
					t.Errorf("%q: the place is left", kind)
				}
			})
		}
	}
}

// repeating is a client that makes every change of a batch by a retry.
type repeating struct{ hiding }

func (r repeating) BatchSize() int { return 64 }

func (r repeating) ChangeAll(ctx context.Context, changes []provider.Change) (errs []error) {
	for _, change := range changes {
		if err := r.Change(ctx, change); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, provider.ErrRepeated)
		}
	}
	return errs
}

// TestChallengeByARetry: a change that a batch made by a retry is read again too, before it counts as shown.
func TestChallengeByARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		const owner, value = "_acme-challenge.p.example.com", "ours-ours-ours"
		until := time.Now().Add(3 * time.Second)
		w.open = func(c client) provider.DNS { return repeating{hiding{c, owner, &until, ""}} }
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "p")
		w.challenge(name, value)
		w.start()
		after(time.Second)
		if state, standing, doubt := w.challengePlace(); strings.Contains(standing, value) || state == string(reconcile.Published) {
			t.Errorf("not shown: it is %s, %q stands, %q is in doubt", state, standing, doubt)
		}
		after(30 * time.Minute)
		if state, standing, doubt := w.challengePlace(); !strings.Contains(standing, value) || state != string(reconcile.Published) {
			t.Errorf("shown: it is %s, %q stands, %q is in doubt", state, standing, doubt)
		}
	})
}
