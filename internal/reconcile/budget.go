package reconcile

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"meshddns/internal/metrics"
)

// budget bounds the writes at providers that nodes and checks cause, so that they do not use up what a vendor grants
// an account. At an account they may cause a number of writes at once, and the same number in each hour.
// A name may change changesAtOnce times at once, and then once in ChangeEvery, so that one name leaves writes for
// the others. A change beyond a bound waits for its turn in LaneLater. What is added to a change that is not in work yet
// costs nothing. The bounds begin anew at a start of the program.
type budget struct {
	writes func(provider string) int // in an hour; 0: no limit

	mu       sync.Mutex
	accounts map[int64]*spending
	names    map[string]*bucket
	pruned   int // names that were left when those that may change at once were forgotten last
}

const changesAtOnce = 3

// spending is the writes of an account.
type spending struct {
	bucket
	provider string
	told     bool // that changes wait
}

func newBudget(writes func(provider string) int) *budget {
	return &budget{writes: writes, accounts: map[int64]*spending{}, names: map[string]*bucket{}}
}

// bucket has tokens, of which one more comes in each period. It lends those that it has not.
type bucket struct {
	tokens float64
	at     time.Time // of the last change of tokens
}

// take takes tokens, and returns the time until the bucket has paid back what it has lent. most is the number of
// tokens that it can have.
func (b *bucket) take(tokens int, now time.Time, most int, period time.Duration) (wait time.Duration) {
	b.tokens = b.left(now, most, period) - float64(tokens)
	b.at = now
	return time.Duration(max(0, -b.tokens) * float64(period))
}

// left returns the tokens that a bucket has. A new one is full. No token comes while the clock is set back.
func (b *bucket) left(now time.Time, most int, period time.Duration) float64 {
	if b.at.IsZero() {
		return float64(most)
	}
	return min(float64(most), b.tokens+float64(max(0, now.Sub(b.at)))/float64(period))
}

// cost is what a change of a name costs: the writes at each account.
type cost map[int64]struct {
	provider string
	writes   int
}

// costOf returns the records that the work on a target writes. The built-in server costs nothing.
func costOf(t Target) cost {
	all := cost{}
	for _, r := range t.Records {
		switch state := r.Now().State; {
		case r.Account.Provider == builtinProvider, state != Pending && state != Failed && state != Withdrawing:
			continue
		}
		at := all[r.Account.ID]
		at.provider, at.writes = r.Account.Provider, at.writes+1
		all[r.Account.ID] = at
	}
	return all
}

// spend takes what a change of a name costs, and returns how long the change has to wait, and the providers of which
// an account had writes left until now. give takes it back.
func (b *budget) spend(name string, c cost, now time.Time) (wait time.Duration, usedUp []string) {
	if len(c) == 0 {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	wait = b.change(name, now)
	for id, at := range c {
		most := b.writes(at.provider)
		if most == 0 {
			continue
		}
		a := b.accounts[id]
		if a == nil {
			a = &spending{provider: at.provider}
			b.accounts[id] = a
		}
		owed := a.take(at.writes, now, most, time.Hour/time.Duration(most))
		if owed > 0 && !a.told {
			usedUp = append(usedUp, at.provider)
		}
		wait, a.told = max(wait, owed), owed > 0
	}
	return min(wait, LaneLater.LongestWait()), usedUp
}

// give gives back what spend has taken, because the time could not be stored.
func (b *budget) give(name string, c cost) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.names[name]; n != nil {
		n.tokens++
	}
	for id, at := range c {
		if a := b.accounts[id]; a != nil {
			a.tokens += float64(at.writes)
		}
	}
}

// change takes a change of a name, and returns how long it has to wait. It forgets the names that may change at once
// when their number has doubled. The caller holds the lock.
func (b *budget) change(name string, now time.Time) time.Duration {
	if len(b.names) > 2*b.pruned+100 {
		maps.DeleteFunc(b.names, func(_ string, n *bucket) bool { return n.left(now, changesAtOnce, ChangeEvery) >= changesAtOnce })
		b.pruned = len(b.names)
	}
	n := b.names[name]
	if n == nil {
		n = &bucket{}
		b.names[name] = n
	}
	return n.take(1, now, changesAtOnce, ChangeEvery)
}

// writeMetrics writes the writes that are left at the account of each provider that has the fewest.
func (b *budget) writeMetrics(page *metrics.Page, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := map[string]uint64{}
	for _, a := range b.accounts {
		most := b.writes(a.provider)
		n := uint64(max(0, a.left(now, most, time.Hour/time.Duration(most))))
		if least, ok := left[a.provider]; !ok || n < least {
			left[a.provider] = n
		}
	}
	page.Family("meshddns_node_writes_left", "gauge", "Writes that nodes and checks may still cause at once, the least of the accounts of a provider.")
	for _, provider := range slices.Sorted(maps.Keys(left)) {
		page.Figure(left[provider], metrics.Label{Name: "provider", Value: provider})
	}
}

// shortage is the changes by nodes and checks that have to wait.
type shortage struct {
	names  []Due
	costs  []cost
	usedUp []string // providers of which an account had writes left until now
}

// hasToWait takes what a change by a node or a check costs from the budget. It reports whether the change has to wait, and
// then adds it to the shortage.
func (e *Engine) hasToWait(t Target, short *shortage) bool {
	c, now := costOf(t), e.config.Now()
	wait, usedUp := e.budget.spend(t.Name.Name, c, now)
	if wait == 0 {
		return false
	}
	short.names = append(short.names, Due{Name: t.Name.Name, Version: t.Name.Version, At: now.Add(wait)})
	short.costs, short.usedUp = append(short.costs, c), append(short.usedUp, usedUp...)
	return true
}

// deferAll stores the times of the changes that have to wait.
func (e *Engine) deferAll(ctx context.Context, short shortage) error {
	for _, provider := range short.usedUp {
		e.config.Log.Warn("the writes that nodes and checks may cause at an account are used up: their changes wait", "provider", provider, "writes_an_hour", e.config.Writes(provider))
	}
	if len(short.names) == 0 {
		return nil
	}
	err := e.config.Database.Defer(ctx, short.names)
	if err != nil {
		for i, d := range short.names {
			e.budget.give(d.Name, short.costs[i])
		}
	}
	return err
}
