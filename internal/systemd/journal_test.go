package systemd

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func formats() map[string]func(io.Writer) slog.Handler {
	options := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	return map[string]func(io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, options) },
		"json": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, options) },
	}
}

func TestPriorities(t *testing.T) {
	want := map[string]string{
		"text": "<7>level=DEBUG msg=m a=1 g.b=\"x\\ny\"\n<6>level=INFO msg=m a=1 g.b=\"x\\ny\"\n" +
			"<4>level=WARN msg=m a=1 g.b=\"x\\ny\"\n<3>level=ERROR msg=m a=1 g.b=\"x\\ny\"\n<3>level=ERROR+4 msg=m a=1 g.b=\"x\\ny\"\n",
		"json": `<7>{"level":"DEBUG","msg":"m","a":1,"g":{"b":"x\ny"}}` + "\n" + `<6>{"level":"INFO","msg":"m","a":1,"g":{"b":"x\ny"}}` + "\n" +
			`<4>{"level":"WARN","msg":"m","a":1,"g":{"b":"x\ny"}}` + "\n" + `<3>{"level":"ERROR","msg":"m","a":1,"g":{"b":"x\ny"}}` + "\n" +
			`<3>{"level":"ERROR+4","msg":"m","a":1,"g":{"b":"x\ny"}}` + "\n",
	}
	for name, format := range formats() {
		var out bytes.Buffer
		log := slog.New(NewHandler(&out, format)).With("a", 1).WithGroup("g")
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError, slog.LevelError + 4} {
			log.Log(t.Context(), level, "m", "b", "x\ny")
		}
		if out.String() != want[name] {
			t.Errorf("%s:\n%swant\n%s", name, out.String(), want[name])
		}
	}
}

func TestHandlerKeepsItsLevel(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(NewHandler(&out, func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) }))
	log.Debug("not this")
	if out.Len() > 0 {
		t.Errorf("%s", &out)
	}
}

func TestPrioritizedLines(t *testing.T) {
	for text, want := range map[string]string{
		"one\n":        "<3>one\n",
		"one\ntwo\n":   "<3>one\n<3>two\n",
		"one\n\ntwo":   "<3>one\n<3>\n<3>two",
		"":             "",
		"<7>trusted\n": "<3><7>trusted\n",
	} {
		var out bytes.Buffer
		if n, err := Prioritized(&out, slog.LevelError).Write([]byte(text)); n != len(text) || err != nil || out.String() != want {
			t.Errorf("%q: %q, %d, %v", text, out.String(), n, err)
		}
	}
}

// oneByOne is an output like a pipe's: what is written at once stays together up to a size.
type oneByOne struct{ bytes.Buffer }

func (o *oneByOne) Write(p []byte) (int, error) {
	for _, c := range p {
		o.WriteByte(c)
		runtime.Gosched()
	}
	return len(p), nil
}

// Lines of different levels come from different handlers, and must not mix.
func TestLinesOfLevelsDoNotMix(t *testing.T) {
	var out oneByOne
	log := slog.New(NewHandler(&out, func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) }))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				log.Info("information", "long", strings.Repeat("i", 100))
				log.Error("error", "long", strings.Repeat("e", 100))
			}
		})
	}
	all.Wait()
	for line := range strings.Lines(out.String()) {
		info := strings.HasPrefix(line, "<6>") && strings.HasSuffix(line, strings.Repeat("i", 100)+"\n") && !strings.Contains(line, "ee")
		failed := strings.HasPrefix(line, "<3>") && strings.HasSuffix(line, strings.Repeat("e", 100)+"\n") && !strings.Contains(line, "ii")
		if !info && !failed {
			t.Fatalf("a line %q", line)
		}
	}
}

func TestIsJournal(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	info, err := write.Stat()
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	right := fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino)
	for _, test := range []struct {
		text   string
		output io.Writer
		want   bool
	}{
		{right, write, true},
		{right + "0", write, false},
		{fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev+1, stat.Ino), write, false},
		{"", write, false},
		{right, &bytes.Buffer{}, false},
		{right, (*os.File)(nil), false},
	} {
		if got := IsJournal(from(test.text), test.output); got != test.want {
			t.Errorf("%s: %t", test.text, got)
		}
	}
}
