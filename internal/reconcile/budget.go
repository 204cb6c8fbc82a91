package reconcile

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"meshddns/internal/daemon"
)

// budget bounds the writes at providers that nodes and checks cause, so that they do not use up what a vendor grants
// an account. At an account they may cause a number of writes at once, and the same number in each hour; the changes of
// one name a quarter of that, so that it leaves writes for the others. A name may change changesAtOnce times at
// once, and then once in ChangeEvery. A change beyond a bound waits for its turn in LaneLater: first until its name may
// change, and then for the account. It is charged when it begins to wait for the account, so that the turns are in the
// order of the changes; at its turn it is charged for what further changes have added. The bounds begin anew at a start
// of the program.
type budget struct {
	writes func(provider string) int // in an hour; 0: no limit

	mu       sync.Mutex
	accounts map[int64]*spending
	names    map[string]*spender
	pruned   int // names and accounts that were left when those that may change at once were forgotten last
}

const changesAtOnce = 8 // as many as the challenges of an order

// spending is the writes of an account.
type spending struct {
	bucket
	provider string
	told     bool // that changes wait
}

// spender is the changes of a name.
type spender struct {
	changes bucket
	shares  map[int64]*bucket // of the writes at each account
	charged cost              // what the change that waits, or was begun last, was charged for; nil: it was not
	until   time.Time         // its turn; zero: it was begun
}

func newBudget(writes func(provider string) int) *budget {
	return &budget{writes: writes, accounts: map[int64]*spending{}, names: map[string]*spender{}}
}

// bucket has tokens, of which one more comes in each period. It lends those that it has not.
type bucket struct {
	tokens float64
	at     time.Time // of the last change of tokens
}

// take takes tokens, and returns the time until the bucket has paid back what it has lent. A negative number gives
// tokens back. most is the number of tokens that the bucket can have.
func (b *bucket) take(tokens int, now time.Time, most int, period time.Duration) (wait time.Duration) {
	wait = b.lacks(tokens, now, most, period)
	b.tokens, b.at = b.left(now, most, period)-float64(tokens), now
	return wait
}

// lacks returns the time until the bucket has tokens.
func (b *bucket) lacks(tokens int, now time.Time, most int, period time.Duration) time.Duration {
	return time.Duration(max(0, float64(tokens)-b.left(now, most, period)) * float64(period))
}

// left returns the tokens that a bucket has. A new one is full. No token comes while the clock is set back.
func (b *bucket) left(now time.Time, most int, period time.Duration) float64 {
	if b.at.IsZero() {
		return float64(most)
	}
	return min(float64(most), b.tokens+float64(max(0, now.Sub(b.at)))/float64(period))
}

// cost is what a change of a name costs: the writes at each account.
type cost map[int64]charge

type charge struct {
	provider string
	writes   int
}

// costOf returns the records that the work on a target writes, or looks at because another value stands there. The
// built-in server costs nothing.
func costOf(t Target) cost {
	all := cost{}
	for _, r := range t.Records {
		if r.Account.Builtin() || r.settled() {
			continue
		}
		at := all[r.Account.ID]
		all[r.Account.ID] = charge{r.Account.Provider, at.writes + 1}
	}
	return all
}

// settled reports whether the record is as it should be, as far as is known.
func (r Record) settled() bool {
	state := r.Now().State
	return state == Published || state == Withdrawn
}

// spend charges a change of a name, and returns how long the change has to wait, and the providers of which
// an account had writes left until now. waited means that it waited before. release takes the charge back.
func (b *budget) spend(name string, c cost, now time.Time, waited bool) (wait time.Duration, usedUp []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.spender(name, now)
	if !waited && n.until.IsZero() {
		n.charged = nil
	}
	if n.charged == nil {
		if wait = b.lacks(n, c, now); wait > 0 {
			n.until = now.Add(wait)
			return min(wait, LaneLater.LongestWait()), nil
		}
		if n.charged, n.until = (cost{}), (time.Time{}); len(c) > 0 {
			n.changes.take(1, now, changesAtOnce, ChangeEvery)
		}
	}
	owed, usedUp := b.charge(n, c, now)
	if turn := now.Add(owed); turn.After(n.until) {
		n.until = turn
	}
	if wait = n.until.Sub(now); wait <= 0 || len(c) == 0 {
		n.until = time.Time{}
		return 0, usedUp
	}
	return min(wait, LaneLater.LongestWait()), usedUp
}

// lacks returns the time until a name may change. The caller holds the lock.
func (b *budget) lacks(n *spender, c cost, now time.Time) (wait time.Duration) {
	if len(c) > 0 {
		wait = n.changes.lacks(1, now, changesAtOnce, ChangeEvery)
	}
	for id, at := range c {
		if share := b.share(at.provider); n.shares[id] != nil && share > 0 {
			wait = max(wait, n.shares[id].lacks(min(at.writes, share), now, share, time.Hour/time.Duration(share)))
		}
	}
	return wait
}

// share returns the writes an hour of one name at an account of a provider, 0 for no limit.
func (b *budget) share(provider string) int { return (b.writes(provider) + 3) / 4 }

// charge charges a name for writes instead of those that it was charged for, and returns how long it has to
// wait for what that takes more. The caller holds the lock.
func (b *budget) charge(n *spender, c cost, now time.Time) (wait time.Duration, usedUp []string) {
	both := maps.Clone(n.charged)
	maps.Copy(both, c)
	for id, at := range both {
		most, more := b.writes(at.provider), c[id].writes-n.charged[id].writes
		if most == 0 || more == 0 {
			continue
		}
		if b.accounts[id] == nil {
			b.accounts[id] = &spending{provider: at.provider}
		}
		if n.shares[id] == nil {
			n.shares[id] = &bucket{}
		}
		a, share := b.accounts[id], b.share(at.provider)
		n.shares[id].take(more, now, share, time.Hour/time.Duration(share))
		owed := a.take(more, now, most, time.Hour/time.Duration(most))
		if owed > 0 && !a.told {
			usedUp = append(usedUp, at.provider)
		}
		wait, a.told = max(wait, owed), owed > 0
	}
	n.charged = c
	return wait, usedUp
}

// join charges a change of a node or a check that was begun, and that further changes have joined while its zone was down.
func (b *budget) join(name string, c cost, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.names[name]
	if n == nil || n.charged == nil {
		return
	}
	for id, before := range n.charged {
		if before.writes > c[id].writes {
			c[id] = before // some of it is written
		}
	}
	b.charge(n, c, now)
}

// release takes back what a change was charged that waits, because a person writes it now, or its turn could
// not be stored.
func (b *budget) release(name string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.names[name]
	if n == nil {
		return
	}
	if !n.until.IsZero() && n.charged != nil {
		b.charge(n, cost{}, now)
		n.changes.take(-1, now, changesAtOnce, ChangeEvery)
	}
	n.charged, n.until = nil, time.Time{}
}

// spender returns the changes of a name. It forgets the names that may change at once, and the accounts that only those have
// written to and that have all writes left, when their number has doubled. The caller holds the lock.
func (b *budget) spender(name string, now time.Time) *spender {
	if len(b.names)+len(b.accounts) > 2*b.pruned+100 {
		maps.DeleteFunc(b.names, func(_ string, n *spender) bool { return b.idle(n, now) })
		used := map[int64]*bucket{}
		for _, n := range b.names {
			maps.Copy(used, n.shares)
		}
		maps.DeleteFunc(b.accounts, func(id int64, a *spending) bool {
			return used[id] == nil && b.writesLeft(a, now) == b.writes(a.provider)
		})
		b.pruned = len(b.names) + len(b.accounts)
	}
	n := b.names[name]
	if n == nil {
		n = &spender{shares: map[int64]*bucket{}}
		b.names[name] = n
	}
	return n
}

// idle reports whether a name waits for nothing and has its whole share again.
func (b *budget) idle(n *spender, now time.Time) bool {
	if !n.until.IsZero() || n.changes.left(now, changesAtOnce, ChangeEvery) < changesAtOnce {
		return false
	}
	for id, s := range n.shares {
		share := b.share(b.accounts[id].provider)
		if s.left(now, share, time.Hour/time.Duration(share)) < float64(share) {
			return false
		}
	}
	return true
}

// writesLeft returns the writes that are left at an account.
func (b *budget) writesLeft(a *spending, now time.Time) int {
	most := b.writes(a.provider)
	return int(max(0, a.left(now, most, time.Hour/time.Duration(most))))
}

// left returns the writes that are left at the account of each provider that has the fewest.
func (b *budget) left(now time.Time) map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := map[string]uint64{}
	for _, a := range b.accounts {
		n := uint64(b.writesLeft(a, now))
		if least, ok := left[a.provider]; !ok || n < least {
			left[a.provider] = n
		}
	}
	return left
}

func (b *budget) writeMetrics(page *daemon.Page, now time.Time) {
	left := b.left(now)
	page.Family("meshddns_node_writes_left", "gauge", "Writes that nodes and checks may still cause at once, the least of the accounts of a provider.")
	for _, provider := range slices.Sorted(maps.Keys(left)) {
		page.Figure(left[provider], daemon.Label{Name: "provider", Value: provider})
	}
}

// shortage is the changes by nodes and checks that have to wait.
type shortage struct {
	names  []Due
	usedUp []string // providers of which an account had writes left until now
}

// hasToWait charges the budget for a change by a node or a check. It reports whether the change has to wait, and
// then adds it to the shortage.
func (e *Engine) hasToWait(t Target, why taking, short *shortage) bool {
	name, now := t.Name.Name, e.config.Now()
	switch {
	case why.lane == LaneLook:
		return false
	case why.lane.OfZone():
		e.budget.join(name, costOf(t), now)
		return false
	case !why.byNode():
		e.budget.release(name, now)
		return false
	}
	wait, usedUp := e.budget.spend(name, costOf(t), now, why.lane == LaneLater)
	short.usedUp = append(short.usedUp, usedUp...)
	if wait == 0 {
		return false
	}
	short.names = append(short.names, Due{Name: name, Version: t.Name.Version, At: now.Add(wait)})
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
		for _, d := range short.names {
			e.budget.release(d.Name, e.config.Now())
		}
	}
	return err
}
