// Package groupcommit lets functions that change a database share a transaction.
// What comes while one is being committed waits, and is committed together: one
// sync of the disk for all. Who comes alone is committed alone, at once.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"sync"
)

// TxFunc does its work in a transaction. It may run twice, the first time in vain:
// what it leaves outside of the transaction, the second run must leave anew.
type TxFunc = func(ctx context.Context, tx *sql.Tx) error

// Refusal is the error of a Func that has changed nothing in its transaction, so
// that nothing needs to be undone: what others do in it is committed all the same.
// It counts only as it is, neither wrapped nor joined.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// maxGroup bounds how many wait for the slowest of a group.
const maxGroup = 256

// Queue runs functions in the order in which they come. There is no goroutine
// behind it: one of the callers leads, and runs and commits what waits.
type Queue struct {
	// Confirm is asked after each commit, before anybody is told of it: an error is
	// the result of all whose work it was, which is committed all the same. It is asked
	// by one goroutine at a time.
	Confirm func() error

	db        *sql.DB
	committed func()

	mu      sync.Mutex
	led     bool // somebody leads
	waiting []*call
}

// NewQueue makes a queue for a database, best with a single connection. committed is
// called after each commit that Confirm has confirmed.
func NewQueue(db *sql.DB, committed func()) *Queue {
	return &Queue{Confirm: func() error { return nil }, db: db, committed: committed}
}

// call is one caller of Do, who waits for turn.
type call struct {
	ctx  context.Context
	f    TxFunc
	turn chan turn
	last *running

	err    error
	stored bool // its work is committed, whatever Confirm has said
}

// running is the transaction that a Func runs in.
type running struct {
	queue *Queue
	tx    *sql.Tx
	after []func(context.Context)
}

type runningKey struct{}

// Tx gives the transaction that a context was made for, nil outside of one.
func Tx(ctx context.Context) *sql.Tx {
	if r, ok := ctx.Value(runningKey{}).(*running); ok {
		return r.tx
	}
	return nil
}

// After calls f when the transaction that the context was made for is committed,
// confirmed or not, before Do returns, and at once outside of one. f gets a context of no
// transaction.
func After(ctx context.Context, f func(context.Context)) {
	if r, ok := ctx.Value(runningKey{}).(*running); ok {
		r.after = append(r.after, f)
		return
	}
	f(ctx)
}

// turn is what a caller is told to do.
type turn int

const (
	lead   turn = iota // run and commit what waits, itself included
	finish             // err is the result
	redo               // the group has come to nothing: run alone
)

// Do runs f in a transaction, which is committed when f returns no error, and
// gives the error of f or of the commit. Nobody pays for another's fault: when a
// function of a group fails or panics, or the commit fails, each runs again in a
// transaction of its own. A transaction that cannot begin is the fault of none: its
// error is the result of all that wait. The end of ctx does not end what has begun.
//
// With the context of a function that runs in a transaction, f runs in that one, so
// that several changes become one. Who gets an error of such an f, a Refusal too,
// has to fail as well, and not with a Refusal, when anything was changed before.
func (q *Queue) Do(ctx context.Context, f TxFunc) error {
	if r, ok := ctx.Value(runningKey{}).(*running); ok && r.queue == q {
		return f(ctx, r.tx)
	}
	c := &call{ctx: context.WithoutCancel(ctx), f: f, turn: make(chan turn, 1)}
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
		runtime.Gosched() // who is about to come comes along, and nobody waits
		tx, err := q.begin()
		group := q.take()
		if err == nil && len(group) == 1 {
			return q.single(c, tx, q.handOn)
		}
		q.lead(group, tx, err)
	}
}

// join takes a place in the queue. Who finds nobody leading leads.
func (q *Queue) join(c *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	if !q.led {
		q.led = true
		c.turn <- lead
	}
}

// take gives the calls that waited longest; the first is the leader's own.
func (q *Queue) take() (group []*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), maxGroup)
	group, q.waiting = q.waiting[:n:n], q.waiting[n:]
	return group
}

// handOn makes the one leader who has waited longest.
func (q *Queue) handOn() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.led = len(q.waiting) > 0; q.led {
		q.waiting[0].turn <- lead
	}
}

// lead commits a group in a transaction that has begun, or has failed to, hands on the
// lead, and tells each, the leader too, how to go on.
func (q *Queue) lead(group []*call, tx *sql.Tx, err error) {
	next := finish
	defer func() {
		q.handOn()
		for _, c := range group {
			c.turn <- next
		}
	}()
	if err == nil {
		if !q.together(group, tx) {
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

// together runs a group in one transaction, and reports whether it is committed.
// An error that is no Refusal ends it at once: SQLite may have rolled back already,
// and what ran now would be committed statement by statement.
func (q *Queue) together(group []*call, tx *sql.Tx) bool {
	defer tx.Rollback()
	for _, c := range group {
		c.err = c.run(q, tx)
		if _, refused := c.err.(Refusal); c.err != nil && !refused {
			return false
		}
	}
	return tx.Commit() == nil
}

// run runs a function of a group. Should it panic, it will once more, in the
// goroutine of its own caller.
func (c *call) run(q *Queue, tx *sql.Tx) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	return c.in(q, tx)
}

// in runs the function of a call in a transaction. What an earlier run has left to
// be done after it is forgotten.
func (c *call) in(q *Queue, tx *sql.Tx) error {
	c.last = &running{queue: q, tx: tx}
	return c.f(context.WithValue(c.ctx, runningKey{}, c.last), tx)
}

// committed does what was to be done after the transaction.
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

// single runs and commits a call in a transaction that has begun, calls end, and then
// does what was to be done after the transaction: that may call Do, which waits for the
// leader.
func (q *Queue) single(c *call, tx *sql.Tx, end func()) error {
	err := q.commit(c, tx, end)
	if c.stored {
		c.committed()
	}
	return err
}

// commit runs and commits a call. It calls end also when the function panics.
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
