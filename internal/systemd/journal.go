package systemd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
)

// IsJournal reports whether output is connected to the journal: JOURNAL_STREAM has
// the device and inode of that file (systemd.exec(5)). The variable alone proves nothing, because
// a child inherits it even if its output goes elsewhere.
func IsJournal(getenv func(string) string, output io.Writer) bool {
	file, ok := output.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

// priority returns the prefix of a log line with the syslog priority of level (sd-daemon(3)).
func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "<3>"
	case level >= slog.LevelWarn:
		return "<4>"
	case level >= slog.LevelInfo:
		return "<6>"
	}
	return "<7>"
}

// Prioritized returns a writer that puts the priority of level before each line. Each Write must
// begin a line; the writer passes it to output in one Write.
func Prioritized(output io.Writer, level slog.Level) io.Writer {
	return &prioritized{output: output, prefix: priority(level), alone: new(sync.Mutex)}
}

type prioritized struct {
	output io.Writer
	prefix string
	alone  *sync.Mutex // shared by all writers to output
}

// Write puts the prefix before each line, because the journal makes a message of each line.
func (p *prioritized) Write(data []byte) (int, error) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	}
	var out bytes.Buffer
	for _, line := range lines {
		out.WriteString(p.prefix)
		out.Write(line)
	}
	p.alone.Lock()
	defer p.alone.Unlock()
	if _, err := p.output.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(data), nil
}

// NewHandler returns a handler that puts the priority of the level before each line. format makes
// the handlers that write the lines.
func NewHandler(output io.Writer, format func(io.Writer) slog.Handler) slog.Handler {
	var h handler
	alone := new(sync.Mutex)
	for i, level := range levels {
		h[i] = format(&prioritized{output: output, prefix: priority(level), alone: alone})
	}
	return h
}

// levels has the levels with a priority of their own, in ascending order.
var levels = [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

// handler has one handler for each level, because the writer of a line does not know its level.
type handler [len(levels)]slog.Handler

func (h handler) of(level slog.Level) slog.Handler {
	for i := len(levels) - 1; i > 0; i-- {
		if level >= levels[i] {
			return h[i]
		}
	}
	return h[0]
}

func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.of(level).Enabled(ctx, level)
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	return h.of(r.Level).Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for i := range h {
		h[i] = h[i].WithAttrs(attrs)
	}
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	for i := range h {
		h[i] = h[i].WithGroup(name)
	}
	return h
}
