package ledger

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"meshddns/internal/metrics"
	"meshddns/internal/reconcile"
)

// Budget bounds the writes at providers that nodes and checks cause, so that they do not use up what a vendor grants
// an account. At an account they may cause a number of writes at once, and the same number in each hour.
// A name may change changesAtOnce times at once, and then once in ChangeEvery, so that one name leaves writes for
// the others. A change beyond a bound waits for its turn. The changes of a name that waits already wait with it.
//
// The bounds begin anew at a start of the program.
type Budget struct {
	writes func(provider string) int // in an hour; 0: no limit
	log    *slog.Logger

	mu       sync.Mutex
	accounts map[int64]*spending
	names    map[string]*bucket
	pruned   int // names that were left when those that may change at once were forgotten last
}

// Bounds of a name.
const changesAtOnce = 3

// spending is the writes of an account.
type spending struct {
	bucket
	provider string
	told     bool // that changes wait
}

// NewBudget returns a Budget. writes gives the writes of an hour at an account of a provider, 0 for no limit.
func NewBudget(writes func(provider string) int, log *slog.Logger) *Budget {
	return &Budget{writes: writes, log: log, accounts: map[int64]*spending{}, names: map[string]*bucket{}}
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

// costOf returns what a change of a name costs. The built-in server costs nothing.
func costOf(n reconcile.Name) cost {
	all := cost{}
	for _, u := range n.Usages {
		if u.Account == nil || u.Account.Provider == builtinProvider {
			continue
		}
		at := all[u.Account.ID]
		at.provider, at.writes = u.Account.Provider, at.writes+max(1, len(u.Formats))
		all[u.Account.ID] = at
	}
	return all
}

// spend takes what a change of a name costs, and returns how long the change has to wait.
func (b *Budget) spend(name string, c cost, now time.Time) (wait time.Duration) {
	if len(c) == 0 {
		return 0
	}
	wait, usedUp := b.take(name, c, now)
	for _, provider := range usedUp {
		b.log.Warn("the writes that nodes and checks may cause at an account are used up: their changes wait", "provider", provider, "writes_an_hour", b.writes(provider))
	}
	return min(wait, reconcile.LaneLater.LongestWait())
}

// take is spend without its log lines. It returns the providers with an account that had writes left until now.
func (b *Budget) take(name string, c cost, now time.Time) (wait time.Duration, usedUp []string) {
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
	return wait, usedUp
}

// change takes a change of a name, and returns how long it has to wait. It forgets the names that may change at once
// when their number has doubled. The caller holds the lock.
func (b *Budget) change(name string, now time.Time) time.Duration {
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

// left returns the writes that are left at the account of each provider that has the fewest.
func (b *Budget) left(now time.Time) map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]uint64{}
	for _, a := range b.accounts {
		most := b.writes(a.provider)
		left := uint64(max(0, a.left(now, most, time.Hour/time.Duration(most))))
		if least, ok := all[a.provider]; !ok || left < least {
			all[a.provider] = left
		}
	}
	return all
}

// WriteMetrics writes what is left of the Budget, and how many names wait for it.
func (g *Ledger) WriteMetrics(ctx context.Context, page *metrics.Page) error {
	left := g.budget.left(g.now())
	page.Family("meshddns_node_writes_left", "gauge", "Writes that nodes and checks may still cause at once, the least of the accounts of a provider.")
	for _, provider := range slices.Sorted(maps.Keys(left)) {
		page.Figure(left[provider], metrics.Label{Name: "provider", Value: provider})
	}
	var waiting uint64
	err := g.reader.QueryRowContext(ctx, `SELECT count(*) FROM names WHERE lane = 'later' AND due > 0`).Scan(&waiting)
	page.Family("meshddns_node_changes_waiting", "gauge", "Names whose changes by nodes and checks wait for their share of the writes at a provider.")
	page.Figure(waiting)
	return err
}
