package provider

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/test/cloudtest"
	"meshddns/test/servertest"
)

// slowVendor keeps the records of one zone in memory, and takes a time for each call.
type slowVendor struct {
	takes time.Duration
	mu    sync.Mutex
	sets  map[setKey]recordSet
}

// slowLister is a slowVendor that lists its zone.
type slowLister struct{ *slowVendor }

// call takes the time of a call and then does it.
func (v *slowVendor) call(ctx context.Context, do func()) error {
	if !pause(ctx, v.takes) {
		return &Error{Kind: Network, Err: ctx.Err()}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	do()
	return nil
}

func (v *slowVendor) zone(ctx context.Context, name string) (zone, bool, error) {
	return zone{name: cloudtest.Zone}, name == cloudtest.Zone, v.call(ctx, func() {})
}

func (v *slowVendor) list(ctx context.Context, _ zone, at setKey) (set recordSet, err error) {
	err = v.call(ctx, func() { set = v.sets[at] })
	return set, err
}

func (v slowLister) listZone(ctx context.Context, _ zone, sets *zoneSets) error {
	return v.call(ctx, func() {
		for at, set := range v.sets {
			for _, r := range set.records {
				sets.add(at, r)
			}
		}
	})
}

func (v *slowVendor) create(ctx context.Context, _ zone, at setKey, value Value, ttl uint32) error {
	return v.call(ctx, func() { v.sets[at] = recordSet{records: []record{{value: value, ttl: ttl}}} })
}

func (v *slowVendor) update(ctx context.Context, z zone, at setKey, _ record, value Value, ttl uint32) error {
	return v.create(ctx, z, at, value, ttl)
}

func (v *slowVendor) remove(ctx context.Context, _ zone, at setKey, _ record) error {
	return v.call(ctx, func() { delete(v.sets, at) })
}

func (v *slowVendor) fits(Type, Value) error { return nil }

// TestChangeAllEndsInTime has vendors that take long for a call, up to a third of the time of a write, so
// that each change by itself succeeds. Each ChangeAll makes some changes, knows the outcome of all, and
// leaves the rest to the next one.
func TestChangeAllEndsInTime(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, 1300 * time.Millisecond, 2500 * time.Millisecond, 4 * time.Second, WriteTime/3 - time.Millisecond} {
		for what, open := range map[string]func(v *slowVendor) *Client{
			"by name": func(v *slowVendor) *Client { return vendorClient(v) },
			"listed":  func(v *slowVendor) *Client { return vendorClient(slowLister{v}) },
		} {
			t.Run(fmt.Sprint(what, " ", takes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					v := &slowVendor{takes: takes, sets: map[setKey]recordSet{}}
					client := open(v)
					if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
						t.Fatal(err)
					}
					todo := newNames(64, cloudtest.Zone)
					for round := 1; len(todo) > 0; round++ {
						ctx, cancel := WriteContext(t.Context())
						var later []Change
						for i, err := range client.ChangeAll(ctx, todo) {
							switch stands := len(v.sets[todo[i].at()].records) > 0; {
							case errors.Is(err, ErrLater) && Unmade(err) && !stands:
								later = append(later, todo[i])
							case err != nil || !stands:
								t.Fatalf("round %d: %s: %v, stands %t", round, todo[i].Name, err, stands)
							}
						}
						cancel()
						if len(later) == len(todo) || round == 1 && takes == 10*time.Millisecond && len(later) > 0 {
							t.Fatalf("round %d leaves %d of %d changes", round, len(later), len(todo))
						}
						todo = later
					}
				})
			})
		}
	}
}

// TestInSyncLeavesTime has Route 53 never say that all servers have some changes: they are confirmed all the same.
func TestInSyncLeavesTime(t *testing.T) {
	c, client := route53Cloud(t)
	c.SetLag(1 << 30)
	client.vendor.(*route53).patience = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), WriteTime/4)
	defer cancel()
	for _, err := range client.ChangeAll(ctx, newNames(2, cloudtest.Zone)) {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestInBatchesEndsInTime has a batch begin when half of the time is used up: single plans that are refused are
// found first, and what did not begin is left, in doubt only if an attempt was made before.
func TestInBatchesEndsInTime(t *testing.T) {
	plans := make([]plan, 8)
	for i := range plans {
		plans[i].ttl = uint32(i)
	}
	refused, lost := &Error{Kind: Invalid, Unmade: true}, &Error{Kind: Temporary}
	for what, test := range map[string]struct {
		refuse func(batch []plan) error
		calls  int
		later  int  // the first plan that is left
		doubt  bool // what is left is in doubt
	}{
		"all go well":       {func([]plan) error { return nil }, 1, 4, false},
		"the first is bad":  {func(b []plan) error { return when(b[0].ttl == 0, refused) }, 3, 1, false},
		"a batch is lost":   {func(b []plan) error { return when(len(b) > 2, lost) }, 2, 2, true},
		"the vendor is bad": {func([]plan) error { return &Error{Kind: Throttled, Unmade: true} }, 1, 8, false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), WriteTime/2)
		calls := 0
		errs := inBatches(ctx, plans, func(left []plan) int { return min(4, len(left)) }, func(batch []plan) error { calls++; return test.refuse(batch) })
		cancel()
		for i, err := range errs {
			if later := errors.Is(err, ErrLater); later != (i >= test.later) || later && Unmade(err) == (test.doubt && i < 4) {
				t.Errorf("%s: %d: %v, unmade %t", what, i, err, Unmade(err))
			}
		}
		if calls != test.calls {
			t.Errorf("%s: %d calls, want %d", what, calls, test.calls)
		}
	}
}

// TestCallsAtATime: four calls of a batch are under way at a time.
func TestCallsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		open, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			each(t.Context(), 0, 9, func(int) error { calls.Add(1); <-open; return nil })
		}()
		synctest.Wait()
		if n := calls.Load(); n != 4 {
			t.Errorf("%d calls, want 4", n)
		}
		close(open)
		<-ended
		if n := calls.Load(); n != 9 {
			t.Errorf("%d calls in all, want 9", n)
		}
	})
}

// when returns an error if it applies.
func when(applies bool, err *Error) error {
	if applies {
		return err
	}
	return nil
}

// TestRFC2136EndsInTime has half of the time used up before the first message: it is sent, and the others are left.
func TestRFC2136EndsInTime(t *testing.T) {
	s := servertest.BIND(t)
	c := rightClient(t, s)
	changes := newNames(maxBatch+1, servertest.Zone)
	for i := range changes {
		changes[i].Add = []Value{{"ours"}}
	}
	ctx, cancel := context.WithTimeout(t.Context(), WriteTime/2)
	defer cancel()
	for i, err := range c.ChangeAll(ctx, changes) {
		if i < maxBatch && err != nil || i == maxBatch && !(errors.Is(err, ErrLater) && Unmade(err)) {
			t.Errorf("%d: %v", i, err)
		}
	}
	wantValues(t, c, s, changes[maxBatch].Name)
}
