package systemd

import (
	"cmp"
	"context"
	"log/slog"
)

// unheard is the message of a report that fails.
const unheard = "the service manager does not hear"

// Unit reports the state of the program to the manager. It logs a report that fails, and
// continues.
type Unit struct {
	Manager *Manager
	Serves  string // the addresses, the first part of the status

	// Work asks the database for the second part of the status. While it
	// fails, Watch does not ping the watchdog, and the status has the error.
	Work func(context.Context) (string, error)
	Log  *slog.Logger
}

// Begin reports that the program serves and, when ctx ends, that it stops.
func (u Unit) Begin(ctx context.Context) error {
	u.Ready(ctx)
	<-ctx.Done()
	u.Log.Info("stopping")
	u.told(u.Manager.Stopping())
	return nil
}

// Reload reports the begin and the end of a reload; "systemctl reload" waits for the end.
func (u Unit) Reload(ctx context.Context, reload func()) {
	u.told(u.Manager.Reloading())
	reload()
	u.Ready(ctx)
}

// Ready reports that the program serves.
func (u Unit) Ready(ctx context.Context) {
	if u.Manager.conn == nil {
		return // no service manager reads the status
	}
	status, _ := u.status(ctx)
	u.told(u.Manager.Ready(status))
}

// Watch pings the watchdog while the database answers, until ctx ends, also while the program stops.
func (u Unit) Watch(ctx context.Context) error {
	u.Manager.Watch(ctx, func(ctx context.Context) error {
		status, err := u.status(ctx)
		return cmp.Or(err, u.Manager.Status(status))
	}, u.Log)
	return nil
}

func (u Unit) status(ctx context.Context) (string, error) {
	work, err := u.Work(ctx)
	if err != nil {
		work = "the database does not answer: " + err.Error()
	}
	return u.Serves + "; " + work, err
}

func (u Unit) told(err error) {
	if err != nil {
		u.Log.Warn(unheard, "error", err)
	}
}
