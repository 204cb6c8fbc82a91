package systemd

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// The manager is told what the program has to do; where there is none, the database is
// not asked.
func TestUnitAsksForTheManager(t *testing.T) {
	for name, managed := range map[string]bool{"manager": true, "nobody": false} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			u := Unit{Manager: service(t, ""), Serves: "HTTP", Log: slog.New(slog.DiscardHandler),
				Work: func(context.Context) (string, error) { asked++; return "", errors.New("injected") }}
			var m *manager
			if managed {
				path := filepath.Join(t.TempDir(), "notify")
				m = listen(t, path)
				u.Manager = service(t, "NOTIFY_SOCKET="+path)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := u.Begin(ctx); err != nil || (asked > 0) != managed {
				t.Errorf("%v, asked %d times", err, asked)
			}
			if managed {
				m.wants("READY=1\nSTATUS=HTTP; the database does not answer: injected", "STOPPING=1\nSTATUS=stopping")
			}
		})
	}
}

// While the database does not answer, the status says so at each turn of the watchdog, which
// is not pinged.
func TestUnitTellsWhatIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	m := listen(t, path)
	u := Unit{Manager: service(t, "WATCHDOG_USEC=10000000 NOTIFY_SOCKET="+path), Serves: "HTTP", Log: slog.New(slog.DiscardHandler),
		Work: func(context.Context) (string, error) { return "", errors.New("injected") }}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := u.Watch(ctx); err != nil {
			t.Error(err)
		}
	})
	m.wants("STATUS=HTTP; the database does not answer: injected", "STATUS=HTTP; the database does not answer: injected")
}
