// Package term keeps the program within its term: the time in which it alone may write. An agent outside gets that right from
// a store with compare-and-swap, and tells the program of it in a file. All times are seconds of CLOCK_BOOTTIME, which runs on
// while the host is suspended. A nil Term has no end.
package term

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	waitTime = time.Second            // between two looks at the file while there is no term
	lookTime = 200 * time.Millisecond // between two looks during a term
	margin   = 2                      // seconds before until at which a term ends
	lastTime = time.Second            // after its end, for answers that say so
	farthest = 120                    // seconds from now to the latest until that is no mistake
	maxFile  = 4 << 10                // octets
	bootPath = "/proc/sys/kernel/random/boot_id"
)

// ErrOver is the error of what the end of the term forbids.
var ErrOver = errors.New("the term is over")

// errNone says that the file gives no term now.
var errNone = errors.New("no term")

// grant is the content of the file.
type grant struct {
	Term   int64   `json:"term"`  // grows from one holder of the right to the next
	After  int64   `json:"after"` // term of the database that was restored, 0 for none
	Asked  float64 `json:"asked"` // before the store was asked
	Until  float64 `json:"until"` // the end of what the store granted
	BootID string  `json:"boot_id"`
}

// file is the place of a grant.
type file struct {
	path, boot string
	now        func() float64
	log        *slog.Logger
	told       bool // of the present mistake
}

// look returns the grant. It returns errNone if there is none now, and logs another error once.
func (f *file) look() (grant, error) {
	g, err := f.read()
	known := err == nil || errors.Is(err, errNone)
	if !known && !f.told {
		f.log.Error("the term file is not obeyed", "error", err)
	}
	f.told = !known
	return g, err
}

func (f *file) read() (g grant, err error) {
	in, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // waits for no writer of a FIFO
	if errors.Is(err, fs.ErrNotExist) {
		return g, errNone
	}
	if err != nil {
		return g, err
	}
	defer in.Close()
	in.SetReadDeadline(time.Unix(1, 0)) // nor for its octets
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("want at most %d octets", maxFile)
	}
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	now := f.now()
	switch {
	case err != nil:
		return g, fmt.Errorf("%s: %w", f.path, err)
	case g.BootID != f.boot || g.Until <= now:
		return g, errNone
	case g.Term < 1 || g.After < 0 || g.After >= g.Term:
		return g, fmt.Errorf("%s: term %d after %d: want a term of at least 1, and after less than term", f.path, g.Term, g.After)
	case g.Asked > now || g.Until > now+farthest:
		return g, fmt.Errorf("%s: asked %.2f and until %.2f: it is %.2f now, and until is at most %d s later", f.path, g.Asked, g.Until, now, farthest)
	}
	return g, nil
}

// Term is the present term.
type Term struct {
	Number int64 // at least 1
	After  int64 // term of the database that was restored for it, 0 for none

	file  *file
	ended context.Context
	end   context.CancelFunc
	quit  context.CancelFunc // ends the looks at the file

	mu      sync.Mutex
	granted grant
	renewed chan struct{} // closed by the next renewal
}

// Await waits until the file at a path gives the program a term. Then it looks at the file until Close.
func Await(ctx context.Context, path string, log *slog.Logger) (*Term, error) {
	boot, err := os.ReadFile(bootPath)
	if err != nil {
		return nil, fmt.Errorf("-term needs the id of this boot: %w", err)
	}
	return await(ctx, &file{path: path, boot: strings.TrimSpace(string(boot)), now: boottime, log: log})
}

// boottime returns the time of CLOCK_BOOTTIME, as /proc/uptime has it. A clock that cannot be read has passed every end.
func boottime() float64 {
	const clockBoottime = 7 // <linux/time.h>
	var now syscall.Timespec
	if _, _, fault := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0); fault != 0 {
		return math.Inf(1)
	}
	return time.Duration(now.Nano()).Seconds()
}

func await(ctx context.Context, f *file) (*Term, error) {
	for {
		if g, err := f.look(); err == nil && g.Until-margin > f.now() {
			return begin(f, g), nil
		}
		select {
		case <-time.After(waitTime):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin begins a term and the looks at its file.
func begin(f *file, g grant) *Term {
	t := &Term{Number: g.Term, After: g.After, file: f, granted: g, renewed: make(chan struct{})}
	t.ended, t.end = context.WithCancel(context.Background())
	ctx, cancel := context.WithCancel(t.ended)
	t.quit = cancel
	go t.watch(ctx)
	return t
}

// watch looks at the file until ctx ends.
func (t *Term) watch(ctx context.Context) {
	for ctx.Err() == nil {
		g, err := t.file.look()
		t.mu.Lock()
		switch {
		case errors.Is(err, errNone) || err == nil && g.Term != t.Number:
			t.end()
		case err == nil && g != t.granted:
			close(t.renewed)
			t.granted, t.renewed = g, make(chan struct{})
		}
		t.mu.Unlock()
		t.Over() // without a request, too
		select {
		case <-time.After(lookTime):
		case <-ctx.Done():
		}
	}
}

// Run runs a function whose context ends with the term, with ErrOver as its cause, and closes the term. It returns the error
// of the function; without waiting for it a second after the end of the term, when nothing is left to acknowledge.
func (t *Term) Run(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := t.Context(ctx)
	defer cancel()
	if t == nil {
		return f(ctx)
	}
	defer t.quit()
	returned := make(chan error, 2)
	defer context.AfterFunc(t.ended, func() { time.AfterFunc(lastTime, func() { returned <- ErrOver }) })()
	go func() { returned <- f(ctx) }()
	return <-returned
}

// Over reports whether the term has ended, 2 s before until. It stays so.
func (t *Term) Over() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file.now() >= t.granted.Until-margin {
		t.end()
	}
	return t.ended.Err() != nil
}

// Renewed waits for a renewal that was asked for after the call of Renewed. It returns ErrOver at the end of the term.
func (t *Term) Renewed(ctx context.Context) error {
	if t == nil {
		return nil
	}
	for since := t.file.now(); ; {
		t.mu.Lock()
		asked, next := t.granted.Asked, t.renewed
		t.mu.Unlock()
		switch {
		case t.Over():
			return ErrOver
		case asked > since:
			return nil
		}
		select {
		case <-next:
		case <-t.ended.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type key struct{}

// Context returns a context that ends with the term, with ErrOver as its cause. Dial obeys its term.
func (t *Term) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	if t == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, key{}, t))
	release := context.AfterFunc(t.ended, func() { cancel(ErrOver) })
	return ctx, func() { release(); cancel(nil) }
}
