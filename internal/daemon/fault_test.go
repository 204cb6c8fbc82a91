package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
)

func TestFault(t *testing.T) {
	var log bytes.Buffer
	out := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	full, gone := errors.New("full"), errors.New("gone")
	var f Fault
	for _, err := range []error{nil, full, full, gone, gone, nil, nil, full} {
		f.Note(out, "nothing is stored", err)
	}
	const broken = `level=ERROR msg="nothing is stored" error=`
	want := broken + "full\n" + broken + "gone\n" + `level=INFO msg="a fault is over" fault="nothing is stored"` + "\n" + broken + "full\n"
	if got := log.String(); got != want {
		t.Errorf("logged:\n%swant:\n%s", got, want)
	}
}
