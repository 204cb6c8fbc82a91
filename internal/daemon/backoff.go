// The pauses between tries, and those that a server asks for.

package daemon

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Backoff is a schedule of tries: the pause after the first failure is First, and each further one is twice as long,
// up to Longest. A First beyond Longest stays as it is.
type Backoff struct{ First, Longest time.Duration }

// Pause returns the pause after a number of failures in a row.
func (b Backoff) Pause(failures int) time.Duration {
	pause := b.First
	for ; failures > 1 && pause < b.Longest; failures-- {
		pause = min(2*pause, b.Longest)
	}
	return pause
}

// Jittered returns Pause, longer by at most a fifth, so that many hosts do not try at the same moment.
func (b Backoff) Jittered(failures int) time.Duration {
	pause := b.Pause(failures)
	return pause + rand.N(pause/5+1)
}

// MaxRetryAfter is the longest pause that a server can ask for.
const MaxRetryAfter = time.Hour

// RetryAfter parses the header Retry-After: seconds or a date (RFC 9110, section 10.2.3).
func RetryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}

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
