package daemon

import (
	"context"
	"os"
	"time"
)

// OnHangUp calls obey at each hang-up until ctx ends. It calls again when the time of due has
// passed, unless that is 0.
func OnHangUp(ctx context.Context, hangUps <-chan os.Signal, obey func(), due func() time.Duration, again func(context.Context)) error {
	for {
		var alarm <-chan time.Time
		if pause := due(); pause > 0 {
			alarm = time.After(pause)
		}
		select {
		case <-hangUps:
			obey()
		case <-alarm:
			again(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}
