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
// same transaction are still committed. A wrapped or joined Refusal is an ordinary error. Its text is the
// code that a client gets (package msg).
type Refusal string

func (r Refusal) Error() string { return string(r) }

// Code returns the text.
func (r Refusal) Code() string { return string(r) }

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
	db        *sql.DB
	guard     Guard
	committed func(Notice)

	mu         sync.Mutex
	led        bool // there is a leader
	waiting    []*call
	background []*call         // they wait too, behind those
	delivered  <-chan struct{} // closed when the notices of all commits so far are delivered
}

// Guard watches over the file of a Queue.
type Guard interface {
	// Lost returns why every further commit would fail, nil without a reason. Then no function begins.
	Lost() error
	// CheckLogged is called after each commit, before a caller gets its result. If it fails, every caller
	// of the group gets its error, although their changes are committed. Calls may overlap.
	CheckLogged() error
}

type unguarded struct{}

func (unguarded) Lost() error        { return nil }
func (unguarded) CheckLogged() error { return nil }

// Notice is what the functions of a commit have touched: the values that they gave to Touch, in their order.
type Notice []any

// NewQueue makes a queue for a database, best with a single connection. The queue calls committed
// after each commit, in the order of the commits, and before a caller gets its result. Meanwhile
// the next functions run. committed must not call Do. guard may be nil.
func NewQueue(db *sql.DB, guard Guard, committed func(Notice)) *Queue {
	if guard == nil {
		guard = unguarded{}
	}
	delivered := make(chan struct{})
	close(delivered)
	return &Queue{db: db, guard: guard, committed: committed, delivered: delivered}
}

// call is one call of Do.
type call struct {
	ctx  context.Context
	f    TxFunc
	next chan action
	last *running

	background bool

	err error
}

// running is the transaction that a TxFunc runs in.
type running struct {
	queue   *Queue
	tx      *sql.Tx
	touched Notice
}

type runningKey struct{}

// Tx returns the transaction that ctx belongs to, nil outside a transaction.
func Tx(ctx context.Context) *sql.Tx {
	if r, ok := ctx.Value(runningKey{}).(*running); ok {
		return r.tx
	}
	return nil
}

// Touch puts a value into the notice of the commit of the transaction that ctx belongs to. A rollback
// drops the value. Outside of the transactions of a Queue Touch does nothing.
func Touch(ctx context.Context, what any) {
	if r, ok := ctx.Value(runningKey{}).(*running); ok {
		r.touched = append(r.touched, what)
	}
}

type backgroundKey struct{}

// Background marks the functions of ctx as work of the program itself, which requests overtake.
func Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

// action is what a waiting caller does next.
type action int

const (
	lead   action = iota // run and commit the waiting functions, its own included
	finish               // return err
	redo                 // the group was rolled back: run alone
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
	c := &call{ctx: context.WithoutCancel(ctx), f: f, next: make(chan action, 1), background: ctx.Value(backgroundKey{}) != nil}
	q.join(c)
	for {
		switch <-c.next {
		case finish:
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
		c.next <- lead
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
		next[0].next <- lead
	}
}

// lead commits a group in tx. If no transaction could begin, the group fails with err. Then lead
// tells each caller of the group what to do.
func (q *Queue) lead(group []*call, tx *sql.Tx, err error) {
	next := finish
	defer func() {
		for _, c := range group {
			c.next <- next
		}
	}()
	if err != nil {
		q.handOn()
	} else {
		var stored bool
		if group, stored, err = q.together(group, tx); !stored {
			next = redo
			return
		}
	}
	for _, c := range group {
		c.err = cmp.Or(c.err, err)
	}
}

func (q *Queue) begin() (*sql.Tx, error) {
	if err := q.guard.Lost(); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	tx, err := q.db.BeginTx(context.Background(), nil)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	return tx, nil
}

func (q *Queue) confirm() error {
	if err := q.guard.CheckLogged(); err != nil {
		return fmt.Errorf("after the commit: %w", err)
	}
	return nil
}

// together runs and commits a group in one transaction, and hands on the lead. It returns the calls
// that have run, without background calls that it has put back. An error other than a Refusal
// ends the transaction at once: SQLite may have rolled back already, and would commit each further
// statement by itself.
func (q *Queue) together(group []*call, tx *sql.Tx) (ran []*call, stored bool, err error) {
	began := time.Now()
	for n, c := range group {
		if n > 0 && group[n-1].background && time.Since(began) > longGroup && q.putBack(group[n:]) {
			group = group[:n]
			break
		}
		c.err = c.run(q, tx)
		if _, refused := c.err.(Refusal); c.err != nil && !refused {
			tx.Rollback()
			q.handOn()
			return group, false, nil
		}
	}
	stored, err = q.commit(tx, group, q.handOn)
	return group, stored, err
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

// in runs the function of a call in a transaction. It drops what an earlier run has touched.
func (c *call) in(q *Queue, tx *sql.Tx) error {
	c.last = &running{queue: q, tx: tx}
	return c.f(context.WithValue(c.ctx, runningKey{}, c.last), tx)
}

// alone runs a call in a transaction of its own.
func (q *Queue) alone(c *call) error {
	tx, err := q.begin()
	if err != nil {
		return err
	}
	return q.single(c, tx, func() {})
}

// single runs and commits a call in an open transaction. It calls end even if the function panics.
func (q *Queue) single(c *call, tx *sql.Tx, end func()) error {
	ran := false
	defer func() {
		if !ran {
			tx.Rollback()
			end()
		}
	}()
	if err := c.in(q, tx); err != nil {
		return err
	}
	ran = true
	_, err := q.commit(tx, []*call{c}, end)
	return err
}

// commit commits a transaction in which calls have run, and delivers the notice of what they have touched
// after the notices of earlier commits. Before that it calls end, so that the next functions run meanwhile.
func (q *Queue) commit(tx *sql.Tx, calls []*call, end func()) (stored bool, err error) {
	before, done := q.place()
	defer close(done)
	if err = tx.Commit(); err == nil {
		stored, err = true, q.confirm()
	} else {
		err = fmt.Errorf("commit: %w", err)
	}
	end()
	<-before
	if stored {
		q.committed(touched(calls))
	}
	return stored, err
}

// place takes the next place in the order of the notices. An open transaction takes it before its commit,
// and there is only one at a time.
func (q *Queue) place() (before <-chan struct{}, done chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before, done = q.delivered, make(chan struct{})
	q.delivered = done
	return before, done
}

// touched returns the notice of calls that have run in a transaction. A refused one has changed nothing.
func touched(calls []*call) (n Notice) {
	for _, c := range calls {
		if c.err == nil {
			n = append(n, c.last.touched...)
		}
	}
	return n
}
