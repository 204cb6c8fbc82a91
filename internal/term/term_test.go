package term

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/test/support"
)

// desk is a place with a term file, and a clock that a test sets or that runs with time.
type desk struct {
	*file
	t   *testing.T
	log support.Log
}

func newDesk(t *testing.T, now func() float64) *desk {
	d := &desk{t: t}
	d.file = &file{path: filepath.Join(t.TempDir(), "term"), boot: "b", now: now, log: slog.New(slog.NewTextHandler(&d.log, nil))}
	return d
}

// running returns a clock that begins at 1000 s, in a bubble.
func running() func() float64 {
	began := time.Now()
	return func() float64 { return 1000 + time.Since(began).Seconds() }
}

// put writes a grant by rename, as an agent does.
func (d *desk) put(g grant) {
	d.t.Helper()
	if g.BootID == "" {
		g.BootID = d.boot
	}
	text, err := json.Marshal(g)
	support.Must(d.t, err)
	support.WriteFile(d.t, d.path+".new", string(text))
	support.Must(d.t, os.Rename(d.path+".new", d.path))
}

// replace puts in the place of the file what was made beside it.
func (d *desk) replace(made error) {
	d.t.Helper()
	support.Must(d.t, made)
	support.Must(d.t, os.Rename(d.path+".new", d.path))
}

func (d *desk) remove() {
	d.t.Helper()
	support.Must(d.t, os.RemoveAll(d.path))
}

// begun begins a term.
func (d *desk) begun(g grant) *Term {
	d.t.Helper()
	d.put(g)
	term, err := await(d.t.Context(), d.file)
	support.Must(d.t, err)
	return term
}

// TestRules: each rule of the file, at its limit and beyond it. It is 1000.5 s.
func TestRules(t *testing.T) {
	const line = `{"term": 7, "after": 3, "asked": 990, "until": 1100, "boot_id": "b"}`
	with := func(old, new string) string {
		text := strings.Replace(line, old, new, 1)
		if text == line {
			t.Fatalf("no %s", old)
		}
		return text
	}
	for name, c := range map[string]struct{ text, want string }{
		"right":               {line, ""},
		"after none":          {with(`"after": 3`, `"after": 0`), ""},
		"the first term":      {`{"term": 1, "asked": 990, "until": 1100, "boot_id": "b"}`, ""},
		"after the one below": {with(`"after": 3`, `"after": 6`), ""},
		"asked now":           {with("990", "1000.5"), ""},
		"the farthest":        {with("1100", "1120.5"), ""},
		"until soon":          {with("1100", "1000.51"), ""},
		"4 KiB":               {line + strings.Repeat(" ", 4096-len(line)), ""},
		"more members":        {with("{", `{"holder": "a", `), ""},

		"until now":          {with("1100", "1000.5"), "no term"},
		"until passed":       {with("1100", "1000"), "no term"},
		"another boot":       {with(`"b"`, `"c"`), "no term"},
		"no boot":            {`{"term": 7, "after": 3, "asked": 990, "until": 1100}`, "no term"},
		"of another boot":    {`{"term": 7, "after": 3, "asked": 5000, "until": 9000, "boot_id": "c"}`, "no term"},
		"empty object":       {`{}`, "no term"},
		"null":               {`null`, "no term"},
		"term 0":             {with(`"term": 7`, `"term": 0`), "term 0 after 3"},
		"term below 0":       {with(`"term": 7`, `"term": -1`), "term -1 after 3"},
		"after below 0":      {with(`"after": 3`, `"after": -1`), "term 7 after -1"},
		"after itself":       {with(`"after": 3`, `"after": 7`), "term 7 after 7"},
		"after a later one":  {with(`"after": 3`, `"after": 8`), "term 7 after 8"},
		"asked later":        {with("990", "1000.6"), "asked 1000.60"},
		"beyond the farther": {with("1100", "1120.51"), "until is at most 120 s later"},
		"for ever":           {with("1100", "1e300"), "until is at most 120 s later"},
		"no number":          {with("1100", "1e999"), "cannot unmarshal"},
		"no whole term":      {with(`"term": 7`, `"term": 7.5`), "cannot unmarshal"},
		"a term too large":   {with(`"term": 7`, `"term": 9223372036854775808`), "cannot unmarshal"},
		"a text":             {with("1100", `"1100"`), "cannot unmarshal"},
		"empty":              {"", "unexpected end"},
		"half":               {line[:30], "unexpected end"},
		"two":                {line + line, "invalid character"},
		"more than 4 KiB":    {line + strings.Repeat(" ", 4097-len(line)), "at most 4096 octets"},
		"hidden behind":      {line + strings.Repeat(" ", 4096-len(line)) + "x", "at most 4096 octets"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, func() float64 { return 1000.5 })
			support.WriteFile(t, d.path, c.text)
			g, err := d.look()
			if c.want == "" && (err != nil || g.Term < 1 || g.BootID != "b") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%+v, %v, want %q", g, err, c.want)
			}
			if told := strings.Count(d.log.String(), "level=ERROR"); (told == 1) != (err != nil && !errors.Is(err, errNone)) {
				t.Errorf("told %d times: %s", told, &d.log)
			}
		})
	}
}

// TestPlaces: what is no file is no term, and a look waits for nothing.
func TestPlaces(t *testing.T) {
	d := newDesk(t, func() float64 { return 1000 })
	for name, c := range map[string]struct {
		make func(path string)
		want string
	}{
		"nothing":        {func(string) {}, "no term"},
		"a link to none": {func(path string) { support.Must(t, os.Symlink(path+".none", path)) }, "no term"},
		"a link to a file": {func(path string) {
			d.put(grant{Term: 7, Until: 1100})
			support.Must(t, os.Rename(path, path+".there"))
			support.Must(t, os.Symlink(path+".there", path))
		}, ""},
		"a link to itself": {func(path string) { support.Must(t, os.Symlink(path, path)) }, "too many levels"},
		"a folder":         {func(path string) { support.Must(t, os.Mkdir(path, 0o700)) }, "is a directory"},
		"below a file": {func(path string) {
			support.WriteFile(t, path+".f", "")
			support.Must(t, os.Symlink(path+".f/x", path))
		}, "not a directory"},
		"a FIFO": {func(path string) { support.Must(t, syscall.Mkfifo(path, 0o600)) }, "timeout"},
		"a FIFO with a writer": {func(path string) {
			support.Must(t, syscall.Mkfifo(path, 0o600))
			writer, err := os.OpenFile(path, os.O_RDWR, 0)
			support.Must(t, err)
			t.Cleanup(func() { writer.Close() })
		}, "timeout"},
		"a device": {func(path string) { support.Must(t, os.Symlink("/dev/zero", path)) }, "at most 4096 octets"},
	} {
		d.remove()
		c.make(d.path)
		looked := make(chan error, 1)
		go func() {
			_, err := d.look()
			looked <- err
		}()
		if err := support.Receive(t, looked); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if os.Getuid() == 0 {
		return // may read each file
	}
	d.remove()
	d.put(grant{Term: 7, Until: 1100})
	support.Must(t, os.Chmod(d.path, 0))
	if _, err := d.look(); !errors.Is(err, os.ErrPermission) {
		t.Errorf("without permission: %v", err)
	}
}

// TestToldOnce: a mistake that lasts is told once, and again after a time without it.
func TestToldOnce(t *testing.T) {
	d := newDesk(t, func() float64 { return 1000 })
	right, far := func() { d.put(grant{Term: 7, Until: 1100}) }, func() { d.put(grant{Term: 7, Until: 1121}) }
	for i, step := range []struct {
		do   func()
		told int
	}{{far, 1}, {far, 1}, {right, 1}, {far, 2}, {func() { support.WriteFile(t, d.path, "x") }, 2}, {d.remove, 2}, {d.remove, 2}, {far, 3}} {
		for range 3 {
			step.do()
			d.look()
		}
		if told := strings.Count(d.log.String(), "\n"); told != step.told {
			t.Fatalf("step %d: told %d times, want %d: %s", i, told, step.told, &d.log)
		}
	}
}

// TestAwait: a term begins with the look after the file is there, if more than 2 s of it are left.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, running())
		began := make(chan *Term, 1)
		go func() {
			term, err := await(t.Context(), d.file)
			if err != nil {
				t.Error(err)
			}
			began <- term
		}()
		waits := func(what string) {
			t.Helper()
			if synctest.Wait(); len(began) > 0 {
				t.Fatalf("%s: a term begins", what)
			}
		}
		waits("no file")
		time.Sleep(waitTime / 2)
		d.put(grant{Term: 7, Until: 1001 + margin}) // at the next look 2 s are left
		time.Sleep(waitTime / 2)
		waits("2 s left")
		d.put(grant{Term: 7, Until: 1500})
		time.Sleep(waitTime)
		waits("a mistake")
		d.put(grant{Term: 8, After: 7, Asked: 1002, Until: 1003 + margin + 0.1})
		time.Sleep(waitTime - time.Nanosecond)
		waits("before the look")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		term := <-began
		defer term.quit()
		if term.Number != 8 || term.After != 7 || term.Over() {
			t.Errorf("term %d after %d, over %v", term.Number, term.After, term.Over())
		}
	})
}

// TestAwaitEnds: the end of ctx ends the wait, also beside a FIFO.
func TestAwaitEnds(t *testing.T) {
	d := newDesk(t, boottime)
	support.Must(t, syscall.Mkfifo(d.path, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Await(ctx, d.path, d.file.log)
		ended <- err
	}()
	support.Eventually(t, support.Limit, "the mistake is told", func() bool { return strings.Contains(d.log.String(), "not obeyed") })
	cancel()
	if err := support.Receive(t, ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestAwaitBoot: Await takes the id of this boot and the clock of /proc/uptime.
func TestAwaitBoot(t *testing.T) {
	d := newDesk(t, boottime)
	boot, err := os.ReadFile(bootPath)
	support.Must(t, err)
	text, err := os.ReadFile("/proc/uptime")
	support.Must(t, err)
	var up float64
	fmt.Sscan(string(text), &up)
	if now := boottime(); now < up || now > up+support.Patience.Seconds() || math.IsInf(now, 0) {
		t.Errorf("the clock has %v, /proc/uptime %v", now, up)
	}
	d.put(grant{Term: 3, Asked: up, Until: up + 100, BootID: strings.TrimSpace(string(boot))})
	term, err := Await(t.Context(), d.path, d.file.log)
	support.Must(t, err)
	term.quit()
	if term.Number != 3 || term.Over() {
		t.Errorf("term %d, over %v", term.Number, term.Over())
	}
}

// TestEnds: how a term ends, when, and what does not end it. It begins at 1000 s with until 1012: it ends at 1010.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		at   time.Duration // from the beginning
		do   func(d *desk)
		ends float64 // at most a look later
	}{
		"by itself":           {0, func(*desk) {}, 1010},
		"renewed":             {5 * time.Second, func(d *desk) { d.put(grant{Term: 7, Asked: 1005, Until: 1020}) }, 1018},
		"renewed at the end":  {9700 * time.Millisecond, func(d *desk) { d.put(grant{Term: 7, Until: 1020}) }, 1018},
		"moved back":          {5 * time.Second, func(d *desk) { d.put(grant{Term: 7, Until: 1009}) }, 1007},
		"moved into the past": {5 * time.Second, func(d *desk) { d.put(grant{Term: 7, Until: 1006}) }, 1005},
		"gone":                {5 * time.Second, (*desk).remove, 1005},
		"a later term":        {5 * time.Second, func(d *desk) { d.put(grant{Term: 8, After: 7, Until: 1100}) }, 1005},
		"an earlier term":     {5 * time.Second, func(d *desk) { d.put(grant{Term: 6, Until: 1100}) }, 1005},
		"another boot":        {5 * time.Second, func(d *desk) { d.put(grant{Term: 7, Until: 1100, BootID: "c"}) }, 1005},
		"too far":             {5 * time.Second, func(d *desk) { d.put(grant{Term: 7, Until: 5000}) }, 1010},
		"no JSON":             {5 * time.Second, func(d *desk) { support.WriteFile(d.t, d.path, "x") }, 1010},
		"a folder":            {5 * time.Second, func(d *desk) { d.replace(os.Symlink("/", d.path+".new")) }, 1010},
		"a FIFO":              {5 * time.Second, func(d *desk) { d.replace(syscall.Mkfifo(d.path+".new", 0o600)) }, 1010},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, running())
				term := d.begun(grant{Term: 7, Until: 1012})
				defer term.quit()
				ctx, cancel := term.Context(t.Context())
				defer cancel()
				time.Sleep(c.at)
				c.do(d)
				<-ctx.Done()
				if now := d.now(); now < c.ends-1e-6 || now > c.ends+lookTime.Seconds()+1e-6 || context.Cause(ctx) != ErrOver {
					t.Errorf("ended at %.3f: %v; want at %.3f", now, context.Cause(ctx), c.ends)
				}
				d.remove()
				d.put(grant{Term: 7, Asked: d.now(), Until: d.now() + 50})
				time.Sleep(time.Second)
				if !term.Over() {
					t.Error("a term begins again")
				}
				if late, end := term.Context(t.Context()); true {
					<-late.Done()
					end()
				}
			})
		})
	}
}

// TestOverLooksAtTheClock: the end needs no look at the file. It comes 2 s before until, and not a nanosecond earlier.
func TestOverLooksAtTheClock(t *testing.T) {
	now := 1000.0
	d := newDesk(t, func() float64 { return now })
	term := &Term{Number: 7, file: d.file, granted: grant{Until: 1012}}
	term.ended, term.end = context.WithCancel(t.Context())
	now = math.Nextafter(1010, 0)
	if term.Over() {
		t.Error("it ends early")
	}
	if now = 1010; !term.Over() {
		t.Error("it does not end")
	}
	if now = 1000; !term.Over() {
		t.Error("it begins again with the clock")
	}
}

// TestRenewed: only a renewal that was asked for later counts.
func TestRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, running())
		term := d.begun(grant{Term: 7, Asked: 1000, Until: 1050})
		defer term.quit()
		time.Sleep(time.Second)
		ended := make(chan error, 1)
		wait := func(ctx context.Context) { go func() { ended <- term.Renewed(ctx) }() }
		waits := func(what string) {
			t.Helper()
			time.Sleep(time.Second)
			if synctest.Wait(); len(ended) > 0 {
				t.Fatalf("%s: Renewed returns %v", what, <-ended)
			}
		}
		wait(t.Context()) // at 1001
		waits("no renewal")
		d.put(grant{Term: 7, Asked: 1000.9, Until: 1051})
		waits("asked before")
		d.put(grant{Term: 7, Asked: 1001, Until: 1052})
		waits("asked at the call")
		d.put(grant{Term: 7, Asked: 1001.1, Until: 1053})
		time.Sleep(lookTime)
		if err := <-ended; err != nil {
			t.Errorf("asked later: %v", err)
		}
		wait(t.Context())
		waits("the renewal of another wait")
		d.put(grant{Term: 7, Asked: d.now(), Until: 1053}) // until stays
		if err := <-ended; err != nil {
			t.Errorf("asked later, the same until: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx)
		waits("ctx")
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Errorf("ctx has ended: %v", err)
		}
		wait(t.Context())
		waits("the end")
		d.remove()
		if err := <-ended; err != ErrOver {
			t.Errorf("the term has ended: %v", err)
		}
		d.put(grant{Term: 7, Asked: d.now(), Until: 1100})
		if err := term.Renewed(t.Context()); err != ErrOver {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestRenewedTooLate: a renewal that is read after the end of the term counts no more, as after a suspend.
func TestRenewedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asleep, clock := 0.0, running()
		d := newDesk(t, func() float64 { return clock() + asleep })
		term := d.begun(grant{Term: 7, Asked: 1000, Until: 1015})
		defer term.quit()
		ended := make(chan error, 1)
		go func() { ended <- term.Renewed(t.Context()) }()
		synctest.Wait()
		asleep = 60 // CLOCK_BOOTTIME ran on, and the timers did not
		if !term.Over() {
			t.Error("not over")
		}
		d.put(grant{Term: 7, Asked: d.now(), Until: d.now() + 15})
		if err := <-ended; err != ErrOver {
			t.Error(err)
		}
	})
}

// TestRun: the context of the function ends with the term. Run returns a second later without a function that goes on, and
// with the error of one that ends before.
func TestRun(t *testing.T) {
	for after, want := range map[time.Duration]error{0: nil, lastTime - 1: nil, lastTime + 1: ErrOver, time.Hour: ErrOver} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, running())
			term := d.begun(grant{Term: 7, Until: 1012})
			time.Sleep(5 * time.Second)
			d.remove()
			err := term.Run(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				if context.Cause(ctx) != ErrOver {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
				time.Sleep(after)
				return nil
			})
			latest := 1005 + (lookTime + min(after, lastTime)).Seconds()
			if now := d.now(); err != want || now > latest+1e-6 {
				t.Errorf("the function goes on for %v: Run returns %v at %.3f, want %v until %.3f", after, err, now, want, latest)
			}
			time.Sleep(after) // until the function has returned
		})
	}
}

// TestRunReturns: the error of a function that ends within the term is that of Run, and ends the looks. Then the term ends by the clock.
func TestRunReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, fault := newDesk(t, running()), errors.New("a fault")
		term := d.begun(grant{Term: 7, Until: 1012})
		if err := term.Run(t.Context(), func(context.Context) error { return fault }); err != fault {
			t.Error(err)
		}
		synctest.Wait()
		d.remove()
		if time.Sleep(9 * time.Second); term.Over() {
			t.Error("it still looks at the file")
		}
		if time.Sleep(time.Second); !term.Over() {
			t.Error("it does not end")
		}
		if err := (*Term)(nil).Run(t.Context(), func(context.Context) error { return fault }); err != fault {
			t.Errorf("without a term: %v", err)
		}
	})
}

// TestContext: values and ends of the parent stay, and what Dial needs is there.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, running())
		term := d.begun(grant{Term: 7, Until: 1012})
		defer term.quit()
		parent, end := context.WithCancelCause(context.WithValue(t.Context(), key{}, "another"))
		ctx, cancel := term.Context(parent)
		defer cancel()
		if ctx.Value(key{}) != term || context.WithoutCancel(ctx).Value(key{}) != term {
			t.Error("the term is not in the context")
		}
		cause := errors.New("a cause")
		end(cause)
		if context.Cause(ctx) != cause {
			t.Errorf("the parent has ended: %v", context.Cause(ctx))
		}
		ctx, cancel = term.Context(t.Context())
		cancel()
		if ctx.Err() == nil || context.Cause(ctx) == ErrOver {
			t.Errorf("canceled: %v", context.Cause(ctx))
		}
	})
}

// TestNoTerm: without a term nothing ends.
func TestNoTerm(t *testing.T) {
	var none *Term
	ctx, cancel := none.Context(t.Context())
	cancel()
	if none.Over() || none.Renewed(t.Context()) != nil || ctx != t.Context() || ctx.Err() != nil {
		t.Error("a nil term ends something")
	}
}
