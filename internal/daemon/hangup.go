package daemon

import (
	"context"
	"os"
	"time"
)

// waiting is the schedule of tries of what waits.
var waiting = Backoff{First: time.Second, Longest: time.Minute}

// OnHangUp calls obey at each hang-up until ctx ends. It calls again after a pause for the number of tries in vain,
// unless that is 0.
func OnHangUp(ctx context.Context, hangUps <-chan os.Signal, obey func(), tries func() int, again func(context.Context)) error {
	for {
		var alarm <-chan time.Time
		if n := tries(); n > 0 {
			alarm = time.After(waiting.Pause(n))
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
