package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/test/support"
)

// format makes lines without a time.
func format(w io.Writer) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

// dropped returns the number of dropped lines.
func dropped(q *LogQueue) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

const missing = "level=WARN msg=\"lines of the log are missing here, because nothing took them\" count="

// The queue takes lines up to its limit while their writer blocks, and drops the next one. What is written then has all
// other lines in order, and tells what is missing where it is missing, without a wait for a next line.
func TestLogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &support.Log{Held: make(chan struct{})}
		q := NewLogQueue(out, format)
		write := func(line string) { fmt.Fprintln(q, line) }
		write("first")
		synctest.Wait() // the writer has it
		full := strings.Repeat("x", maxWaiting/4-1)
		for range 4 {
			write(full)
		}
		if n := dropped(q); n != 0 {
			t.Errorf("dropped at the limit: %d", n)
		}
		write("")
		write("beyond")
		if n := dropped(q); n != 2 {
			t.Errorf("dropped beyond the limit: %d", n)
		}
		close(out.Held)
		want := "first\n" + strings.Repeat(full+"\n", 4) + missing + "2\n"
		for _, line := range []string{"next\n", ""} {
			synctest.Wait()
			if got := out.String(); got != want {
				t.Errorf("written are %d octets, want %d; the end: %q", len(got), len(want), got[max(0, len(got)-200):])
			}
			io.WriteString(q, line)
			want += line
		}
		q.Close()
	})
}

// refusing refuses lines until it is mended.
type refusing struct {
	support.Log
	mended bool
}

func (w *refusing) Write(line []byte) (int, error) {
	if !w.mended {
		return 0, errors.New("broken pipe")
	}
	return w.Log.Write(line)
}

// Lines that the writer refuses count as dropped.
func TestLogRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &refusing{}
		q := NewLogQueue(out, format)
		for range 3 {
			fmt.Fprintln(q, "lost")
		}
		synctest.Wait()
		out.mended = true
		fmt.Fprintln(q, "next")
		q.Close()
		if got := out.String(); got != missing+"3\nnext\n" || dropped(q) != 3 {
			t.Errorf("%d, %q", dropped(q), got)
		}
	})
}

// Close waits for the last lines, but not for longer than closeTime.
func TestLogClose(t *testing.T) {
	for _, takes := range []time.Duration{closeTime - 1, closeTime + 1} {
		synctest.Test(t, func(t *testing.T) {
			out := &support.Log{Held: make(chan struct{})}
			q := NewLogQueue(out, format)
			fmt.Fprintln(q, "last")
			time.AfterFunc(takes, func() { close(out.Held) })
			began := time.Now()
			q.Close()
			if took := time.Since(began); took != min(takes, closeTime) {
				t.Errorf("a line that takes %v: Close returns after %v", takes, took)
			}
			fmt.Fprintln(q, "late") // as a goroutine that is left behind
			<-q.ended
			if got := out.String(); got != "last\n" || dropped(q) != 1 {
				t.Errorf("%d, %q", dropped(q), got)
			}
		})
	}
}
