package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
)

// bench is a queue on a database whose rows show the committed calls. A child row without a parent
// makes the commit fail, and no statement before it.
type bench struct {
	t       *testing.T
	source  string
	db      *sql.DB
	queue   *Queue
	guard   *guard
	commits atomic.Int64

	touched Notice // of all commits
}

// guard gives the errors that a test sets.
type guard struct {
	lost    error
	confirm func() error
}

func (g *guard) Lost() error { return g.lost }

func (g *guard) CheckLogged() error {
	if g.confirm == nil {
		return nil
	}
	return g.confirm()
}

// committed notes a notice. The race detector sees whether two overlap.
func (b *bench) committed(n Notice) {
	b.commits.Add(1)
	b.touched = append(b.touched, n...)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, source: "file:" + filepath.Join(t.TempDir(), "x.db") + "?_journal_mode=WAL&_foreign_keys=1&_txlock=immediate"}
	var err error
	b.db, err = sql.Open("sqlite3", b.source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.db.Close() })
	b.db.SetMaxOpenConns(1)
	b.exec(`CREATE TABLE calls (id INTEGER PRIMARY KEY);
		CREATE TABLE children (id INTEGER REFERENCES calls (id) DEFERRABLE INITIALLY DEFERRED)`)
	b.guard = &guard{}
	b.queue = NewQueue(b.db, b.guard, b.committed)
	return b
}

func (b *bench) exec(statement string) {
	b.t.Helper()
	if _, err := b.db.Exec(statement); err != nil {
		b.t.Fatal(err)
	}
}

// insert returns a TxFunc that inserts a row.
func insert(id int) TxFunc {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO calls (id) VALUES (?)`, id)
		return err
	}
}

// group runs functions as one group, behind a call that leads until all wait, and returns their
// errors. A panic counts as an error.
func (b *bench) group(all ...TxFunc) []error {
	b.t.Helper()
	errs := make([]error, len(all))
	var running sync.WaitGroup
	err := b.queue.Do(b.t.Context(), func(context.Context, *sql.Tx) error {
		for i, f := range all {
			running.Go(func() {
				defer func() {
					if fault := recover(); fault != nil {
						errs[i] = fmt.Errorf("panic: %v", fault)
					}
				}()
				errs[i] = b.queue.Do(b.t.Context(), f)
			})
			b.waitFor(i + 1)
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	running.Wait()
	return errs
}

// waitFor returns when count calls wait.
func (b *bench) waitFor(count int) {
	for waiting := 0; waiting < count; {
		runtime.Gosched()
		b.queue.mu.Lock()
		waiting = len(b.queue.waiting)
		b.queue.mu.Unlock()
	}
}

// rows returns the ids of the committed calls.
func (b *bench) rows() (ids string) {
	b.t.Helper()
	if err := b.db.QueryRow(`SELECT coalesce(group_concat(id), '') FROM (SELECT id FROM calls ORDER BY id)`).Scan(&ids); err != nil {
		b.t.Fatal(err)
	}
	return ids
}

const errRefused = Refusal("refused")

func TestGroups(t *testing.T) {
	failed := errors.New("failed")
	fail := func(ctx context.Context, tx *sql.Tx) error { return errors.Join(insert(7)(ctx, tx), failed) }
	refuse := func(context.Context, *sql.Tx) error { return errRefused }
	burst := func(ctx context.Context, tx *sql.Tx) error { insert(7)(ctx, tx); panic("burst") }
	orphan := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO children (id) VALUES (99)`)
		return err
	}
	back := func(ctx context.Context, tx *sql.Tx) error { // rolls back, as SQLite does when the disk is full
		_, err := tx.ExecContext(ctx, `ROLLBACK`)
		return errors.Join(err, failed)
	}
	for name, test := range map[string]struct {
		odd     TxFunc
		want    string // error
		commits int64  // without that of the call that leads until all wait
	}{
		"all succeed":             {insert(7), "<nil>", 1},
		"one refuses":             {refuse, "refused", 1},
		"one fails":               {fail, "failed", 3},
		"one wraps a refusal":     {func(ctx context.Context, tx *sql.Tx) error { return fmt.Errorf("x: %w", refuse(ctx, tx)) }, "x: refused", 3},
		"one panics":              {burst, "panic: burst", 3},
		"the commit fails":        {orphan, "commit: FOREIGN KEY constraint failed", 3},
		"the database rolls back": {back, "failed", 3},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			errs := b.group(insert(1), insert(2), test.odd, insert(3))
			if got := fmt.Sprint(errs[2]); got != test.want {
				t.Errorf("error %q, want %q", got, test.want)
			}
			want := "1,2,3"
			if errs[2] == nil {
				want = "1,2,3,7"
			}
			if rows := b.rows(); rows != want || errors.Join(errs[0], errs[1], errs[3]) != nil {
				t.Errorf("rows %s and errors %v, want %s and the others without", rows, errs, want)
			}
			if commits := b.commits.Load() - 1; commits != test.commits {
				t.Errorf("%d commits, want %d", commits, test.commits)
			}
			if err := b.queue.Do(t.Context(), insert(8)); err != nil || !strings.HasSuffix(b.rows(), "8") {
				t.Errorf("afterwards: %v, rows %s", err, b.rows())
			}
		})
	}
}

// TestAlone: a single caller's function runs once, even if it fails, and the caller gives up the lead.
func TestAlone(t *testing.T) {
	b := newBench(t)
	runs := 0
	for range 2 {
		func() {
			defer func() { recover() }()
			b.queue.Do(t.Context(), func(context.Context, *sql.Tx) error { runs++; panic("burst") })
		}()
		b.queue.Do(t.Context(), func(context.Context, *sql.Tx) error { runs++; return errors.New("failed") })
	}
	if runs != 4 {
		t.Errorf("%d runs, want 4", runs)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.queue.Do(gone, insert(1)); err != nil || b.rows() != "1" {
		t.Errorf("for a caller that has gone: %v, rows %s", err, b.rows())
	}
	b.db.Close()
	if err := b.queue.Do(t.Context(), insert(2)); err == nil || !strings.HasPrefix(err.Error(), "begin: ") {
		t.Errorf("without a database: %v", err)
	}
}

// TestManyCallers: with any grouping, callers get their own errors, and only successful calls are committed.
func TestManyCallers(t *testing.T) {
	b := newBench(t)
	const callers, rounds = 64, 30
	var running sync.WaitGroup
	for caller := range callers {
		running.Go(func() {
			for round := range rounds {
				id, got := caller*rounds+round, -1
				err := b.queue.Do(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					if id%5 == 0 {
						return errRefused
					}
					err := tx.QueryRowContext(ctx, `INSERT INTO calls (id) VALUES (?) RETURNING id`, id).Scan(&got)
					if id%97 == 1 {
						err = errors.Join(err, fmt.Errorf("failure %d", id))
					}
					return err
				})
				switch want := fmt.Sprintf("failure %d", id); {
				case id%5 == 0 && err != errRefused,
					id%5 != 0 && id%97 == 1 && (err == nil || err.Error() != want),
					id%5 != 0 && id%97 != 1 && (err != nil || got != id):
					t.Errorf("call %d: %v, %d", id, err, got)
				}
			}
		})
	}
	running.Wait()
	want := 0
	for id := range callers * rounds {
		if id%5 != 0 && id%97 != 1 {
			want++
		}
	}
	var rows int
	if err := b.db.QueryRow(`SELECT count(*) FROM calls`).Scan(&rows); err != nil || rows != want {
		t.Errorf("%d rows, %v, want %d", rows, err, want)
	}
}

// TestLimit: a group has at most maxGroup calls, and the longest waiting caller leads the next group.
func TestLimit(t *testing.T) {
	b := newBench(t)
	var all []TxFunc
	var order []int
	for i := range maxGroup + 2 {
		all = append(all, func(context.Context, *sql.Tx) error { order = append(order, i); return nil })
	}
	for _, err := range b.group(all...) {
		if err != nil {
			t.Error(err)
		}
	}
	for i, n := range order {
		if i != n {
			t.Fatalf("call %d came in place %d", n, i)
		}
	}
	if commits := b.commits.Load(); commits != 3 || len(order) != len(all) {
		t.Errorf("%d commits of %d calls, want 3 of %d", commits, len(order), len(all))
	}
}

// TestNested: work with the context of a transaction is committed or rolled back with it, and what it has
// touched is in the notice once, only after the commit.
func TestNested(t *testing.T) {
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		end     error
		other   TxFunc // of the same group
		rows    string
		touched int
	}{
		"committed":   {nil, func(context.Context, *sql.Tx) error { return errRefused }, "1,2", 2},
		"run twice":   {nil, func(context.Context, *sql.Tx) error { return failed }, "1,2", 2},
		"rolled back": {failed, func(context.Context, *sql.Tx) error { return errRefused }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			nest := func(ctx context.Context, tx *sql.Tx) error {
				for id := range 2 {
					err := b.queue.Do(ctx, func(ctx context.Context, inner *sql.Tx) error {
						if inner != tx || Tx(ctx) != tx {
							t.Error("another transaction")
						}
						Touch(ctx, id)
						return insert(id+1)(ctx, inner)
					})
					if err != nil {
						return err
					}
				}
				if err := b.queue.Do(ctx, func(context.Context, *sql.Tx) error { return errRefused }); !errors.Is(err, errRefused) {
					t.Errorf("a refusal is %v", err)
				}
				return test.end
			}
			if errs := b.group(nest, test.other); !errors.Is(errs[0], test.end) || b.rows() != test.rows || len(b.touched) != test.touched {
				t.Errorf("%v, rows %q, touched %v; want %q, %d", errs[0], b.rows(), b.touched, test.rows, test.touched)
			}
		})
	}
	if Touch(t.Context(), "outside of a transaction"); Tx(t.Context()) != nil {
		t.Error("there is a transaction")
	}
}

// TestLost begins nothing once every commit would fail.
func TestLost(t *testing.T) {
	b := newBench(t)
	b.guard.lost = errors.New("gone")
	if err := b.queue.Do(t.Context(), insert(2)); !errors.Is(err, b.guard.lost) {
		t.Errorf("after it: %v", err)
	}
	if rows := b.rows(); rows != "" {
		t.Errorf("rows %s are stored", rows)
	}
}

// TestConfirm: without confirmation every caller gets an error, alone or in a group; a refused caller
// gets its Refusal. The changes are committed, and their notices are delivered.
func TestConfirm(t *testing.T) {
	b := newBench(t)
	gone := errors.New("gone")
	asked := 0
	insert := func(id int) TxFunc {
		return func(ctx context.Context, tx *sql.Tx) error {
			Touch(ctx, id)
			return insert(id)(ctx, tx)
		}
	}
	b.guard.confirm = func() error {
		if asked++; asked == 2 { // the commit of the call that the group waits behind
			return nil
		}
		return gone
	}
	if err := b.queue.Do(t.Context(), insert(1)); !errors.Is(err, gone) {
		t.Errorf("alone: %v", err)
	}
	refused := func(ctx context.Context, _ *sql.Tx) error {
		Touch(ctx, "refused")
		return errRefused
	}
	for i, err := range b.group(insert(2), insert(3), refused) {
		if want := []error{gone, gone, errRefused}[i]; !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
	if rows := b.rows(); rows != "1,2,3" || !slices.Equal(b.touched, Notice{1, 2, 3}) {
		t.Errorf("rows %s, touched %v", rows, b.touched)
	}
	b.guard.confirm = nil
	if err := b.queue.Do(t.Context(), insert(4)); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestNoticesAreInOrder: notices come in the order of the commits, of calls alone and in groups, and of those
// that run again after a rollback; and before the callers get their results.
func TestNoticesAreInOrder(t *testing.T) {
	b := newBench(t)
	failed := errors.New("failed")
	var told atomic.Int64 // the last row that a notice has told
	b.queue = NewQueue(b.db, nil, func(n Notice) {
		for _, what := range n {
			if before := told.Swap(what.(int64)); before != what.(int64)-1 {
				t.Errorf("the notice of row %d comes after that of row %d", what, before)
			}
		}
	})
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for round := range 50 {
				var row int64
				err := b.queue.Do(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					if (caller+round)%10 == 0 {
						return failed // the group runs again, each call alone
					}
					result, err := tx.ExecContext(ctx, `INSERT INTO calls (id) VALUES (NULL)`)
					if err != nil {
						return err
					}
					row, err = result.LastInsertId()
					Touch(ctx, row)
					return err
				})
				if err != nil && err != failed || err == nil && told.Load() < row {
					t.Errorf("%v; row %d is not told, only up to %d", err, row, told.Load())
				}
			}
		})
	}
	callers.Wait()
}

// counted is a connection that counts the attempts to begin a transaction.
type counted struct {
	*sqlite3.SQLiteConn
	tried *atomic.Int64
}

func (c counted) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	c.tried.Add(1)
	return c.SQLiteConn.BeginTx(ctx, o)
}

// TestBeginFails: while another program holds the database, all waiting callers get the error together:
// otherwise each would wait for the database in turn.
func TestBeginFails(t *testing.T) {
	b := newBench(t)
	var tried atomic.Int64
	pool := sql.OpenDB(connector{func(context.Context) (driver.Conn, error) {
		conn, err := (&sqlite3.SQLiteDriver{}).Open(b.source + "&_busy_timeout=1")
		if err != nil {
			return nil, err
		}
		return counted{conn.(*sqlite3.SQLiteConn), &tried}, nil
	}})
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	b.queue = NewQueue(pool, nil, b.committed)
	only, err := pool.Conn(t.Context()) // the leader cannot begin until it is closed
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 5)
	var running sync.WaitGroup
	for i := range errs {
		running.Go(func() { errs[i] = b.queue.Do(t.Context(), insert(i)) })
	}
	b.waitFor(len(errs))
	b.exec(`BEGIN IMMEDIATE`)
	if err := only.Close(); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	b.exec(`ROLLBACK`)
	for _, err := range errs {
		if fault, ok := errors.AsType[sqlite3.Error](err); !ok || fault.Code != sqlite3.ErrBusy || !strings.HasPrefix(err.Error(), "begin: ") {
			t.Errorf("%v, want SQLITE_BUSY", err)
		}
	}
	if n := tried.Load(); n != 1 {
		t.Errorf("%d transactions were tried, want 1", n)
	}
	if err := b.queue.Do(t.Context(), insert(7)); err != nil || b.rows() != "7" {
		t.Errorf("afterwards: %v, rows %s", err, b.rows())
	}
}

// TestRequestsOvertake has a request come while a group of background functions runs: it runs before
// those of them that have not run yet, and all are committed.
func TestRequestsOvertake(t *testing.T) {
	b := newBench(t)
	var order []int // the queue runs one function at a time
	numbered := func(id int, then func()) TxFunc {
		return func(ctx context.Context, tx *sql.Tx) error {
			order = append(order, id)
			then()
			return insert(id)(ctx, tx)
		}
	}
	var running sync.WaitGroup
	do := func(ctx context.Context, f TxFunc) {
		running.Go(func() {
			if err := b.queue.Do(ctx, f); err != nil {
				t.Error(err)
			}
		})
	}
	do(t.Context(), numbered(1, func() {
		for id := 2; id <= 4; id++ {
			do(Background(t.Context()), numbered(id, func() {
				if len(order) == 2 { // the first of them
					do(t.Context(), numbered(5, func() {}))
					b.waitFor(1)
					<-time.After(2 * longGroup)
				}
			}))
		}
		for waiting := 0; waiting < 3; {
			runtime.Gosched()
			b.queue.mu.Lock()
			waiting = len(b.queue.background)
			b.queue.mu.Unlock()
		}
	}))
	running.Wait()
	if len(order) != 5 || order[2] != 5 || b.rows() != "1,2,3,4,5" {
		t.Errorf("order %v, rows %s", order, b.rows())
	}
}
