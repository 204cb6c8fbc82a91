package reconcile_test

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/reconcile"
)

// TestLogStalls has the reader of the program's log take no lines: a pass goes on, and a release does.
func TestLogStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		format := func(out io.Writer) slog.Handler { return slog.NewTextHandler(out, nil) }
		queue := daemon.NewLogQueue(&w.log, format)
		defer queue.Close()
		w.lines = queue
		w.renew()
		w.service("example.com", w.account("key"))
		name := w.reserve("example.com", "office")
		w.sync(time.Minute)
		synctest.Wait()
		w.log.Held = make(chan struct{})
		w.vendor.put("_host.example.com") // which is news
		w.sync(time.Minute)
		w.release(name)
		after(10 * time.Second)
		if w.vendor.stands(name) {
			t.Error("the name is not released")
		}
		if n := w.count(`SELECT count(*) FROM usages`); n != 0 {
			t.Error("the prefix is not free")
		}
		before := strings.Count(w.log.String(), "\n")
		close(w.log.Held)
		after(time.Second)
		lines := strings.Split(w.log.String(), "\n")[before:]
		if len(lines) < 3 || !strings.Contains(lines[0], "action=create") {
			t.Errorf("the lines that waited: %q", lines)
		}
	})
}

// TestLogTellsWhatIsStored has the database take no outcome for a while: the log has the line of a record when its
// outcome is stored.
func TestLogTellsWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("example.com", w.account("key"))
		var full atomic.Bool
		w.fail(func(what string) error {
			if what == "settle places" && full.Load() {
				return errors.New("disk full")
			}
			return nil
		})
		w.sync(time.Minute)
		full.Store(true)
		name := w.reserve("example.com", "office")
		w.due(name, reconcile.LaneChanged)
		after(3 * time.Second)
		line := "msg=record name=" + name + " provider=vendor action=create"
		if !w.vendor.stands(name) || strings.Contains(w.log.String(), line) {
			t.Errorf("before the outcome is stored:\n%s", w.log.String())
		}
		full.Store(false)
		after(time.Minute)
		if n := strings.Count(w.log.String(), line); n != 1 {
			t.Errorf("%d lines once it is stored:\n%s", n, w.log.String())
		}
	})
}
