package systemd

import (
	"cmp"
	"context"
	"log/slog"
)

// Unit tells the manager what becomes of the program. What the manager does not hear is
// logged, and hinders nothing.
type Unit struct {
	Service *Service
	Serves  string // where the program answers, the beginning of its status

	// Work asks the database what the program has to do, the rest of its status. As long
	// as it fails the watchdog is not pinged, and the status says why.
	Work func(context.Context) (string, error)
	Log  *slog.Logger
}

// Begin says that the program serves, and when ctx ends that it stops.
func (u Unit) Begin(ctx context.Context) error {
	u.ready(ctx)
	<-ctx.Done()
	u.told(u.Service.Stopping())
	return nil
}

// Reload says when a reload begins and ends, which "systemctl reload" waits for.
func (u Unit) Reload(ctx context.Context, reload func()) {
	u.told(u.Service.Reloading())
	reload()
	u.ready(ctx)
}

func (u Unit) ready(ctx context.Context) {
	if u.Service.conn == nil {
		return // no service manager reads the status
	}
	status, _ := u.status(ctx)
	u.told(u.Service.Ready(status))
}

// Watch answers the watchdog for as long as the database answers, also while the program stops.
func (u Unit) Watch(ctx context.Context) error {
	u.Service.Watch(ctx, func(ctx context.Context) error {
		status, err := u.status(ctx)
		return cmp.Or(err, u.Service.Status(status))
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
		u.Log.Warn("the service manager does not hear", "error", err)
	}
}
