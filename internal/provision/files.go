package provision

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
)

// Files is a provisioning file, or a folder of them, whose content is applied to an appliance. One
// goroutine at a time may use it.
type Files struct {
	Path        string
	Credentials CredentialFolder
	Log         *slog.Logger
	Faults      *atomic.Int64 // number of faults for which the files, or entries of them, are not applied

	// Transact applies a document in one transaction.
	Transact func(ctx context.Context, document *Document) (Applied, error)
	// Refused stores that files, or entries of them, are not applied, and why.
	Refused func(ctx context.Context, reasons []string) error

	form    int       // mistakes of the files at the last reading, when nothing was applied
	failure string    // of the database, "" for none
	waiting Mistakes  // of entries that the stored state does not allow
	waits   *Document // is applied again; nil for none
	tries   int       // since entries wait, or since fewer do
}

// Apply reads and applies the files. It logs the entries that the stored state does not allow, which
// wait. It returns Mistakes when the files themselves are wrong, and errors of the database. After an
// error nothing is applied.
func (f *Files) Apply(ctx context.Context) error {
	document := Read(f.Path, f.Credentials)
	for _, name := range document.Hidden {
		f.Log.Warn("a provisioning file is passed over, because its name begins with a dot", "file", name)
	}
	err := f.apply(ctx, document)
	mistakes, _ := errors.AsType[Mistakes](err)
	f.form = len(mistakes)
	f.refuse(ctx, err)
	f.tries = 1
	f.count()
	return err
}

// Again applies the entries that wait. It logs only news.
func (f *Files) Again(ctx context.Context) {
	failure, waiting := f.failure, len(f.waiting)
	err := f.apply(ctx, f.waits)
	f.count()
	if err != nil && err.Error() != failure {
		LogLines(f.Log, slog.LevelError, "the provisioning file is not applied", err)
		f.refuse(ctx, err)
	}
	if f.tries++; len(f.waiting) < waiting {
		f.tries = 1
	}
}

func (f *Files) count() {
	n := f.form + len(f.waiting)
	if f.failure != "" {
		n++
	}
	f.Faults.Store(int64(n))
}

// Tries returns how often entries that wait were tried, since fewer wait; 0 when none waits.
func (f *Files) Tries() int {
	if f.waits == nil {
		return 0
	}
	return f.tries
}

// apply applies a document, and logs the result.
func (f *Files) apply(ctx context.Context, document *Document) error {
	applied, err := f.Transact(ctx, document)
	if _, ok := errors.AsType[Mistakes](err); ok {
		return err // the entries of an earlier document keep waiting
	}
	again := document == f.waits
	if err != nil {
		if !again {
			f.waiting = nil
		}
		f.waits, f.failure = document, err.Error()
		return err
	}
	f.tell(ctx, applied)
	fresh := slices.DeleteFunc(slices.Clone(applied.Faults), func(m Mistake) bool { return again && slices.Contains(f.waiting, m) })
	LogLines(f.Log, slog.LevelWarn, "a part of the provisioning file is not applied", fresh)
	f.refuse(ctx, fresh)
	if !again || len(applied.Changes) > 0 || f.failure != "" {
		f.Log.Info("provisioned", "from", f.Path, "services", len(document.Entries[Services]), "usages", len(document.Entries[Usages]),
			"changes", len(applied.Changes), "faults", len(applied.Faults))
	}
	f.waits, f.waiting, f.failure = applied.Waits, applied.Faults, ""
	return nil
}

// refuse stores the reasons for which something is not applied, one a line of the error.
func (f *Files) refuse(ctx context.Context, fault error) {
	if fault == nil || fault.Error() == "" {
		return
	}
	if err := f.Refused(ctx, strings.Split(fault.Error(), "\n")); err != nil {
		f.Log.Error("a refused provisioning file has no event", "error", err)
	}
}

// tell logs the changes, and the changed entries that cannot work.
func (f *Files) tell(ctx context.Context, applied Applied) {
	for _, c := range applied.Changes {
		f.Log.LogAttrs(ctx, slog.LevelInfo, "change", slog.String("who", "provision"),
			slog.String("what", c.What), slog.String("id", c.ID),
			slog.Int("status", c.Status), slog.String("code", ""), slog.String("file", c.File))
	}
	for _, text := range applied.Warnings {
		f.Log.Warn("what is stored cannot work", "from", f.Path, "reason", text)
	}
	for _, id := range applied.InUse {
		f.Log.Info("a service is not in the document, and stays while it has usages", "id", id)
	}
}

// maxLines is the greatest number of lines that LogLines logs.
const maxLines = 100

// LogLines logs each line of an error by itself: each mistake of a file is a line.
func LogLines(log *slog.Logger, level slog.Level, message string, err error, attributes ...any) {
	lines := slices.DeleteFunc(strings.Split(err.Error(), "\n"), func(line string) bool { return line == "" })
	for i, line := range lines {
		if i == maxLines {
			log.Log(context.Background(), level, message, append(attributes, "more", len(lines)-i)...)
			return
		}
		log.Log(context.Background(), level, message, append(attributes, "error", line)...)
	}
}
