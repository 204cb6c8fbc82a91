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
	return &prioritized{output, priority(level)}
}

type prioritized struct {
	output io.Writer
	prefix string
}

// Write puts the prefix before each line, because the journal makes a message of each line.
func (p *prioritized) Write(data []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(data) {
		out.WriteString(p.prefix)
		out.Write(line)
	}
	if _, err := p.output.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(data), nil
}

// NewHandler returns a handler that puts the priority of the level before each line. format makes
// the handler that writes the lines.
func NewHandler(output io.Writer, format func(io.Writer) slog.Handler) slog.Handler {
	lines := &prioritized{output: output}
	return handler{format(lines), lines, new(sync.Mutex)}
}

type handler struct {
	slog.Handler
	lines *prioritized
	alone *sync.Mutex // held while a line has the prefix
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	h.alone.Lock()
	defer h.alone.Unlock()
	h.lines.prefix = priority(r.Level)
	return h.Handler.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// LogFormat returns a function that makes handlers of JSON or of text, whose attributes go through replace. In the journal each line
// has its priority, and lines of text have no time, because the journal adds it.
func LogFormat(journal, json bool, replace func([]string, slog.Attr) slog.Attr) func(io.Writer) slog.Handler {
	options := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if journal && !json && len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
			return slog.Attr{}
		}
		return replace(groups, a)
	}}
	lines := func(w io.Writer) slog.Handler {
		if json {
			return slog.NewJSONHandler(w, options)
		}
		return slog.NewTextHandler(w, options)
	}
	if !journal {
		return lines
	}
	return func(w io.Writer) slog.Handler { return NewHandler(w, lines) }
}
