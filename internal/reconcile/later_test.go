package reconcile_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// slow is a client that has time for some changes of a batch only.
type slow struct {
	client
	most    int
	batches *atomic.Int64
}

func (s slow) BatchSize() int { return 64 }

func (s slow) ChangeAll(ctx context.Context, changes []provider.Change) (errs []error) {
	s.batches.Add(1)
	<-time.After(provider.WriteTime * 3 / 4)
	for i, change := range changes {
		if i < s.most {
			errs = append(errs, s.Change(ctx, change))
		} else {
			errs = append(errs, &provider.Error{Kind: provider.Temporary, Err: provider.ErrLater, Unmade: true})
		}
	}
	return errs
}

// TestRestIsTheNextBatch has a provider that takes so long for a call that a batch ends before its last names:
// they are the next batches. Nothing fails, nothing is in doubt, and a caller waits for the name's own batch.
func TestRestIsTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		var batches atomic.Int64
		w.open = func(c client) provider.DNS { return slow{c, 20, &batches} }
		w.service("example.com", w.account("key"))
		var names []string
		for n := range 64 {
			name := w.reserve("example.com", fmt.Sprintf("p%02d", n))
			w.due(name, reconcile.LaneChanged)
			names = append(names, name)
		}
		waiter := w.engine.Expect(names[40]) // in the first batch, and behind its 20 changes
		defer waiter.Close()
		go func() {
			if waiter.Wait(t.Context(), 1); !w.vendor.stands(names[40]) {
				t.Error("the caller does not wait for the batch of its name")
			}
		}()
		r := w.sync(3 * time.Minute)
		if !r.OK() || r.Names != 65 || r.Counts[reconcile.ActionCreate] != 65 || batches.Load() != 4 {
			t.Errorf("%d batches, %+v", batches.Load(), r)
		}
		for _, name := range names {
			if !w.vendor.stands(name) {
				t.Errorf("%s does not stand", name)
			}
		}
		if n := w.count(`SELECT count(*) FROM places WHERE state <> 'published' OR doubt <> '' OR attempts <> 1`); n > 0 || w.count(`SELECT count(*) FROM zones_down`) > 0 {
			t.Errorf("%d places are in doubt, or not published at the first attempt\n%s", n, w.log.String())
		}
	})
}
