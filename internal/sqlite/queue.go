package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// TxFunc does its work in a transaction. It may run a second time after the first run was rolled
// back, so that it must set all variables outside the transaction anew.
type TxFunc = func(ctx context.Context, tx *sql.Tx) error

// Refusal is the error of a TxFunc that changed nothing in its transaction. Other functions in the
// same transaction are still committed. A wrapped or joined Refusal is an ordinary error.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// maxGroup limits the size of a group, and so the number of callers that wait for its slowest
// function.
const maxGroup = 256

// longGroup is how long a group runs while a request waits: then it commits without the rest of its
// background functions. One of them runs in every group, so requests without end do not stop the rest.
const longGroup = 4 * time.Millisecond

// Queue runs functions in order and commits them in groups. Functions that arrive during a commit
// share the next transaction, with one fsync. The queue has no goroutine of its own: one caller is
// the leader, which runs and commits the functions of all waiting callers. Functions of requests go
// before background functions.
type Queue struct {
	// Confirm is called after each commit, before a caller gets its result. If it fails, every caller
	// of the group gets its error, although their changes are committed. Calls never overlap.
	Confirm func() error
	// Lost returns why every further commit would fail, nil without a reason. Then no function begins.
	Lost func() error

	db        *sql.DB
	committed func()

	mu         sync.Mutex
	led        bool // there is a leader
	waiting    []*call
	background []*call // they wait too, behind those
}

// NewQueue makes a queue for a database, best with a single connection. The queue calls committed
// after each commit for which Confirm succeeded.
func NewQueue(db *sql.DB, committed func()) *Queue {
	none := func() error { return nil }
	return &Queue{Confirm: none, Lost: none, db: db, committed: committed}
}

// call is one call of Do.
type call struct {
	ctx  context.Context
	f    TxFunc
	turn chan turn
	last *running

	background bool

	err    error
	stored bool // its changes are committed, even if Confirm failed
}

// running is the transaction that a TxFunc runs in.
type running struct {
	queue *Queue
	tx    *sql.Tx
	after []func(context.Context)
}

type runningKey struct{}

// Tx returns the transaction that ctx belongs to, nil outside a transaction.
func Tx(ctx context.Context) *sql.Tx {
	if r, ok := ctx.Value(runningKey{}).(*running); ok {
		return r.tx
	}
	return nil
}

// After calls f when the transaction that ctx belongs to is committed, confirmed or not, before Do
// returns. It never calls f when the transaction is rolled back. Outside a transaction it calls f at
// once. f gets a context without a transaction.
func After(ctx context.Context, f func(context.Context)) {
	if r, ok := ctx.Value(runningKey{}).(*running); ok {
		r.after = append(r.after, f)
		return
	}
	f(ctx)
}

type backgroundKey struct{}

// Background marks the functions of ctx as work of the program itself, which requests overtake.
func Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

// turn is the next action of a waiting caller.
type turn int

const (
	lead   turn = iota // run and commit the waiting functions, its own included
	finish             // return err
	redo               // the group was rolled back: run alone
)

// Do runs f in a transaction, commits it if f returns nil, and returns the error of f or of the
// commit. If a function of a group fails or panics, or the commit fails, the group is rolled back and
// each function runs again in a transaction of its own. If no transaction can begin, every caller of
// the group gets that error. The end of ctx does not cancel f.
//
// With the context of a transaction, f runs in that transaction. If such an f fails, even with a
// Refusal, the function around it must fail too. Its error must not be a Refusal if it changed
// anything before.
func (q *Queue) Do(ctx context.Context, f TxFunc) error {
	if r, ok := ctx.Value(runningKey{}).(*running); ok && r.queue == q {
		return f(ctx, r.tx)
	}
	c := &call{ctx: context.WithoutCancel(ctx), f: f, turn: make(chan turn, 1), background: ctx.Value(backgroundKey{}) != nil}
	q.join(c)
	for {
		switch <-c.turn {
		case finish:
			if c.stored {
				c.committed()
			}
			return c.err
		case redo:
			return q.alone(c)
		}
		runtime.Gosched() // lets callers join that are about to; no caller waits for others
		tx, err := q.begin()
		group := q.take()
		if err == nil && len(group) == 1 && group[0] == c {
			return q.single(c, tx, q.handOn)
		}
		q.lead(group, tx, err)
	}
}

// join enters the queue. A caller that finds no leader becomes the leader.
func (q *Queue) join(c *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.background {
		q.background = append(q.background, c)
	} else {
		q.waiting = append(q.waiting, c)
	}
	if !q.led {
		q.led = true
		c.turn <- lead
	}
}

// take removes the longest waiting calls from the queue, those of requests first. The leader's own
// call may not be among them: then the leader waits again.
func (q *Queue) take() (group []*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), maxGroup)
	group, q.waiting = q.waiting[:n:n], q.waiting[n:]
	n = min(len(q.background), maxGroup-n)
	group, q.background = append(group, q.background[:n]...), slices.Clone(q.background[n:])
	return group
}

// putBack returns background calls of a group to the queue if a request waits, and reports whether it
// did.
func (q *Queue) putBack(calls []*call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return false
	}
	q.background = slices.Concat(calls, q.background)
	return true
}

// handOn makes the longest waiting caller the leader.
func (q *Queue) handOn() {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := q.waiting
	if len(next) == 0 {
		next = q.background
	}
	if q.led = len(next) > 0; q.led {
		next[0].turn <- lead
	}
}

// lead commits a group in tx. If no transaction could begin, the group fails with err. Then lead
// hands on the lead and gives each caller of the group its turn.
func (q *Queue) lead(group []*call, tx *sql.Tx, err error) {
	next := finish
	defer func() {
		q.handOn()
		for _, c := range group {
			c.turn <- next
		}
	}()
	if err == nil {
		var stored bool
		if group, stored = q.together(group, tx); !stored {
			next = redo
			return
		}
		for _, c := range group {
			c.stored = c.err == nil
		}
		if err = q.confirm(); err == nil {
			q.committed()
			return
		}
	}
	for _, c := range group {
		c.err = cmp.Or(c.err, err)
	}
}

func (q *Queue) begin() (*sql.Tx, error) {
	if err := q.Lost(); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	tx, err := q.db.BeginTx(context.Background(), nil)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	return tx, nil
}

func (q *Queue) confirm() error {
	if err := q.Confirm(); err != nil {
		return fmt.Errorf("after the commit: %w", err)
	}
	return nil
}

// together runs a group in one transaction. It returns the calls that have run, without background
// calls that it has put back, and reports whether they are committed. An error other than a Refusal
// ends it at once: SQLite may have rolled back already, and would commit each further statement by
// itself.
func (q *Queue) together(group []*call, tx *sql.Tx) (ran []*call, stored bool) {
	defer tx.Rollback()
	began := time.Now()
	for n, c := range group {
		if n > 0 && group[n-1].background && time.Since(began) > longGroup && q.putBack(group[n:]) {
			group = group[:n]
			break
		}
		c.err = c.run(q, tx)
		if _, refused := c.err.(Refusal); c.err != nil && !refused {
			return group, false
		}
	}
	return group, tx.Commit() == nil
}

// run runs a function of a group. A panic becomes an error here, so that the function runs again, and
// panics again, in the goroutine of its own caller.
func (c *call) run(q *Queue, tx *sql.Tx) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	return c.in(q, tx)
}

// in runs the function of a call in a transaction. It drops the After functions of an earlier run.
func (c *call) in(q *Queue, tx *sql.Tx) error {
	c.last = &running{queue: q, tx: tx}
	return c.f(context.WithValue(c.ctx, runningKey{}, c.last), tx)
}

// committed calls the After functions of the call.
func (c *call) committed() {
	for _, f := range c.last.after {
		f(c.ctx)
	}
}

// alone runs a call in a transaction of its own.
func (q *Queue) alone(c *call) error {
	tx, err := q.begin()
	if err != nil {
		return err
	}
	return q.single(c, tx, func() {})
}

// single runs and commits a call in an open transaction, calls end, and then calls the After
// functions. end comes first, because an After function may call Do, which waits for the leader.
func (q *Queue) single(c *call, tx *sql.Tx, end func()) error {
	err := q.commit(c, tx, end)
	if c.stored {
		c.committed()
	}
	return err
}

// commit runs and commits a call. It calls end even if the function panics.
func (q *Queue) commit(c *call, tx *sql.Tx, end func()) error {
	defer end()
	defer tx.Rollback()
	if err := c.in(q, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	c.stored = true
	err := q.confirm()
	if err == nil {
		q.committed()
	}
	return err
}
