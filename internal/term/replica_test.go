package term

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/test/support"
)

// copied is a database that Litestream copies into a folder.
type copied struct {
	*testing.T
	dir, path string
	db        *sql.DB
	replica   *Replica
	cmd       *exec.Cmd
	log       support.Log
}

func newCopied(t *testing.T) *copied {
	t.Helper()
	support.Need(t, "litestream")
	dir := t.TempDir()
	c := &copied{T: t, dir: dir, path: filepath.Join(dir, "a.db")}
	c.replica = &Replica{Socket: filepath.Join(dir, "s"), Path: c.path}
	c.db = support.OpenSQLite(t, c.path, "_journal_mode=WAL&_busy_timeout=20000&_txlock=immediate")
	support.Exec(t, c.db, `CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, b BLOB)`)
	support.WriteFile(t, c.at("yml"), fmt.Sprintf("socket: {enabled: true, path: %s}\ndbs: [{path: %s, replica: {path: %s}}]\n",
		c.replica.Socket, c.path, c.at("copy")))
	support.Must(t, os.Mkdir(c.at("folder"), 0o700))
	support.WriteFile(t, c.at("file"), "no folder")
	c.into(c.at("folder"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of Litestream:\n%s", &c.log)
		}
	})
	return c
}

// into makes Litestream copy to another place, at once.
func (c *copied) into(place string) {
	c.Helper()
	support.Must(c, os.Symlink(place, c.at("link")))
	support.Must(c, os.Rename(c.at("link"), c.at("copy")))
}

func (c *copied) at(name string) string { return filepath.Join(c.dir, name) }

// start starts Litestream, and returns when it has copied.
func (c *copied) start() {
	c.Helper()
	c.cmd = exec.Command("litestream", "replicate", "-config", c.at("yml"))
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	support.Start(c, c.cmd)
	ctx, cancel := context.WithTimeout(c.Context(), support.Slowest*support.Limit)
	defer cancel()
	support.Must(c, c.replica.Sync(ctx))
}

// insert commits a row with a blob of some pages.
func (c *copied) insert() (id int64, err error) {
	result, err := c.db.Exec(`INSERT INTO t (b) VALUES (randomblob(20000))`)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// committed commits such a row.
func (c *copied) committed() int64 {
	c.Helper()
	id, err := c.insert()
	support.Must(c, err)
	return id
}

// lacks returns which rows the replica lacks.
func (c *copied) lacks(ids ...int64) (lacking []int64, err error) {
	c.Helper()
	path := c.at("restored.db")
	os.Remove(path)
	if out, err := exec.Command("litestream", "restore", "-o", path, "file://"+c.at("copy")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	db, err := sql.Open("sqlite3", path)
	support.Must(c, err)
	defer db.Close()
	for _, id := range ids {
		var there int
		support.Must(c, db.QueryRow(`SELECT count(*) FROM t WHERE id = ?`, id).Scan(&there))
		if there == 0 {
			lacking = append(lacking, id)
		}
	}
	return lacking, nil
}

// TestReplicaSync: Litestream is killed while commits and checkpoints go on; what Sync returned for is in the replica.
func TestReplicaSync(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	for range support.Count(6, 200) {
		support.Exec(t, c.db, `DELETE FROM t`) // so that a restore stays short
		c.start()
		var mu sync.Mutex
		var synced []int64
		enough := make(chan struct{}, 4)
		alive, giveUp := context.WithCancel(t.Context())
		var work sync.WaitGroup
		for range 4 {
			work.Go(func() {
				for n := 1; ; n++ { // until Litestream is killed, and the Sync given up
					id, err := c.insert()
					if err != nil {
						t.Error(err)
						enough <- struct{}{}
						return
					}
					if c.replica.Sync(alive) != nil {
						return
					}
					mu.Lock()
					synced = append(synced, id)
					mu.Unlock()
					if n == 10 {
						enough <- struct{}{}
					}
				}
			})
		}
		support.Receive(t, enough)
		support.Kill(c.cmd)
		giveUp()
		work.Wait()
		late, err := c.insert()
		support.Must(t, err)
		lacking, err := c.lacks(append(synced, late)...)
		if err != nil || len(lacking) != 1 || lacking[0] != late {
			t.Fatalf("of %d rows that were synced, and %d that was not, the replica lacks %v: %v", len(synced), late, lacking, err)
		}
	}
}

// TestReplicaSyncShared: callers that wait while a call runs share the next one, and none takes the running one's result.
func TestReplicaSyncShared(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	c.start()
	c.replica = &Replica{Socket: c.at("proxy"), Path: c.path}
	calls := c.proxy(c.at("s"))
	var ended atomic.Int32
	sync1 := func() {
		if _, err := c.insert(); err != nil {
			t.Error(err)
		}
		if err := c.replica.Sync(t.Context()); err != nil {
			t.Error(err)
		}
		ended.Add(1)
	}
	var work sync.WaitGroup
	work.Go(sync1)
	first := support.Receive(t, calls)
	for range 63 {
		work.Go(sync1)
	}
	support.Eventually(t, support.Limit, "all wait", func() bool { return waiting() == 64 })
	close(first)
	second := support.Receive(t, calls)
	support.Eventually(t, support.Limit, "the first caller has its answer", func() bool { return ended.Load() == 1 && waiting() == 63 })
	close(second)
	work.Wait()
	if n := len(calls); n > 0 {
		t.Errorf("%d more calls than two", n)
	}
	if lacking, err := c.lacks(1, 64); err != nil || len(lacking) > 0 {
		t.Errorf("lacks %v: %v", lacking, err)
	}
}

// proxy stands before a socket. It sends a channel for each connection, and connects when that is closed.
func (c *copied) proxy(socket string) <-chan chan struct{} {
	l, err := net.Listen("unix", c.at("proxy"))
	support.Must(c, err)
	c.Cleanup(func() { l.Close() })
	calls := make(chan chan struct{}, 64)
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			gate := make(chan struct{})
			calls <- gate
			go func() {
				defer from.Close()
				<-gate
				to, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer to.Close()
				go io.Copy(to, from)
				io.Copy(from, to)
			}()
		}
	}()
	return calls
}

// waiting counts the goroutines that wait in Sync of TestReplicaSyncShared.
func waiting() (n int) {
	text := make([]byte, 1<<20)
	for goroutine := range strings.SplitSeq(string(text[:runtime.Stack(text, true)]), "\n\n") {
		if strings.Contains(goroutine, " [select") && strings.Contains(goroutine, "Replica).Sync(") && strings.Contains(goroutine, "SyncShared") {
			n++
		}
	}
	return n
}

// refused fails unless each Sync fails, and one names what Litestream says.
func refused(t *testing.T, r *Replica, words string) {
	t.Helper()
	support.Eventually(t, support.Limit, words, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.Sync(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Sync returned before its time: %v, want %s", err, words)
		}
		return strings.Contains(err.Error(), words)
	})
}

// TestReplicaSyncFails: no answer of Litestream that lacks the commit is taken for one that has it.
func TestReplicaSyncFails(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	refused(t, c.replica, "no such file")
	c.start()
	refused(t, &Replica{Socket: c.replica.Socket, Path: "/nowhere/b.db"}, `404 Not Found: {"error":"database not found: /nowhere/b.db"`)
	c.into(c.at("file"))
	for range 2 {
		c.committed()
		refused(t, c.replica, "not a directory")
	}
	id := c.committed()
	synced := make(chan error, 1)
	go func() { synced <- c.replica.Sync(t.Context()) }()
	c.into(c.at("folder"))
	support.Must(t, support.Receive(t, synced)) // it was tried again
	if lacking, err := c.lacks(1, id); err != nil || len(lacking) > 0 {
		t.Errorf("after the folder is back the replica lacks %v: %v", lacking, err)
	}
}

// TestReplicaSyncAhead: a replica in which another database has more changes is not taken for a copy of this one.
func TestReplicaSyncAhead(t *testing.T) {
	t.Parallel()
	c, other := newCopied(t), newCopied(t)
	c.start()
	other.start()
	for range 20 {
		other.committed()
		support.Must(t, other.replica.Sync(t.Context()))
	}
	support.Kill(other.cmd)
	c.into(c.at("file"))
	c.committed()
	refused(t, c.replica, "not a directory")
	c.into(other.at("folder"))
	for range 3 {
		c.committed()
		refused(t, c.replica, `"replicated_txid":2`)
	}
}

// TestReplicaSyncCost tells how long a Sync takes.
func TestReplicaSyncCost(t *testing.T) {
	t.Parallel()
	c := newCopied(t)
	c.start()
	var took []time.Duration
	for range support.Count(50, 1000) {
		c.committed()
		began := time.Now()
		support.Must(t, c.replica.Sync(t.Context()))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("a Sync took %v, the slowest of a hundred %v", took[len(took)/2], took[len(took)*99/100])
}
