// Replays are the results of requests that a client may repeat because it has not got the answer. The SQL of
// the table replays is here.

package answers

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// ReplaysKept is how long a result is kept.
const ReplaysKept = 24 * time.Hour

// jump is the least difference between the clock and the time that has passed that shows that the clock was set.
const jump = time.Minute

// Replays is the stored results. The clock of a host without a battery stands far back until NTP sets it. So
// no result counts as older than the time since the clock was set.
type Replays struct {
	now     func() time.Time
	elapsed func() time.Duration

	mu     sync.Mutex
	offset time.Duration // of the clock to the time that has passed, when it was last read
	set    time.Time     // when the clock was seen to be set
}

// NewReplays returns the results. elapsed is the time since a fixed moment, whatever the clock is set to. newest is the
// time of the last change that is stored: if it is more than Kept ago, the clock may have been set meanwhile.
func NewReplays(now func() time.Time, elapsed func() time.Duration, newest time.Time) *Replays {
	t := &Replays{now: now, elapsed: elapsed}
	t.offset = t.reading()
	if now().Sub(newest) > ReplaysKept {
		t.set = now()
	}
	return t
}

func (t *Replays) reading() time.Duration { return time.Duration(t.now().UnixNano()) - t.elapsed() }

// expired returns the time at and before which results are not kept any more.
func (t *Replays) expired() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, offset := t.now(), t.reading()
	if (offset - t.offset).Abs() >= jump {
		t.set = now
	}
	t.offset = offset
	end := now.Add(-ReplaysKept)
	if t.set.After(end) && !t.set.After(now) {
		return math.MinInt64
	}
	return sqlite.Stamp(end)
}

// Refusals of a key.
const (
	ErrReplayKey       = sqlite.Refusal(msg.IdempotencyKeyInvalid)
	ErrReplayKeyReused = sqlite.Refusal(msg.IdempotencyKeyReused)
)

// maxKey is the greatest length of a key in octets.
const maxKey = 255

// ReplayKey identifies a request and its repetitions.
type ReplayKey struct {
	Text   string            // as the client has chosen it
	Caller string            // whose token was in the request, "" for none; another caller's key is another one
	Body   [sha256.Size]byte // the hash of the request's body
}

// Of returns the key of a request about something that the body does not name, such as the path.
func (k ReplayKey) Of(what string) ReplayKey {
	k.Body = sha256.Sum256(append(k.Body[:], what...))
	return k
}

// GoodReplayKey reports whether a text is 1 to 255 characters of printable ASCII.
func GoodReplayKey(text string) bool {
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return text != "" && len(text) <= maxKey
}

// ReplayKeyOf returns a function that gives the key of a request once its body is read: nil without an
// Idempotency-Key. It returns ErrKey for a bad one, or for two.
func ReplayKeyOf(r *http.Request) (func() *ReplayKey, error) {
	keys := r.Header.Values("Idempotency-Key")
	switch {
	case len(keys) == 0:
		return func() *ReplayKey { return nil }, nil
	case len(keys) > 1 || !GoodReplayKey(keys[0]):
		return nil, ErrReplayKey
	}
	hash := sha256.New()
	r.Body = io.NopCloser(io.TeeReader(r.Body, hash))
	return func() *ReplayKey { return &ReplayKey{keys[0], web.Rights(r).Token, [sha256.Size]byte(hash.Sum(nil))} }, nil
}

// Find reads the result of an earlier request with a key into result, and reports whether there is
// one. It returns ErrReused when that request had another body.
func (t *Replays) Find(ctx context.Context, tx *sql.Tx, k ReplayKey, result any) (found bool, err error) {
	var body []byte
	var answer string
	err = tx.QueryRowContext(ctx, `SELECT body, answer FROM replays WHERE key = ? AND caller IN (?, '*') AND at > ?`, k.Text, k.Caller, t.expired()).Scan(&body, &answer)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case string(body) != string(k.Body[:]):
		return false, ErrReplayKeyReused
	}
	return true, json.Unmarshal([]byte(answer), result)
}

// drops is the number of expired results that Keep deletes at most.
const drops = 10

// Keep stores the result of a request, and deletes some expired results.
func (t *Replays) Keep(ctx context.Context, tx *sql.Tx, k ReplayKey, result any) error {
	answer, err := json.Marshal(result)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM replays WHERE (key, caller) IN (SELECT key, caller FROM replays WHERE at <= ? ORDER BY at LIMIT ? + 0)`,
		t.expired(), drops)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO replays (key, caller, body, answer, at) VALUES (?, ?, ?, ?, ?)`,
		k.Text, k.Caller, k.Body[:], string(answer), sqlite.Stamp(t.now()))
	return err
}
