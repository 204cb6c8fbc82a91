package notify

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"meshddns/internal/daemon"
	"slices"
	"sync"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
)

// Refusals of Table.
const (
	ErrUnknown      = sqlite.Refusal(msg.UnknownNotification)
	ErrTooMany      = sqlite.Refusal(msg.TooManyNotifications)
	ErrURLMasked    = sqlite.Refusal(msg.NotificationURLMasked)
	ErrSecretMasked = sqlite.Refusal(msg.NotificationSecretMasked)
)

// Table is the stored targets. A change wakes the sender after its commit.
type Table struct {
	db  *sqlite.Database
	now func() time.Time

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// NewTable returns the targets of a database.
func NewTable(db *sqlite.Database, now func() time.Time) *Table {
	return &Table{db: db, now: now, changed: make(chan struct{})}
}

// change returns a channel that is closed at the next commit that changes a target's settings.
func (n *Table) change() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

// changed in a notice says that the settings of a target have changed.
type changed struct{}

// Committed wakes the sender if targets have changed.
func (n *Table) Committed(notice sqlite.Notice) {
	if !slices.Contains(notice, any(changed{})) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

const selectTargets = `
	SELECT id, kind, url, secret, events, language, enabled, revision, sent_seq, state, code, message, attempts, since, next_at
	FROM notifications`

func scanTarget(row sqlite.Scanner) (t Target, err error) {
	var language string
	var next int64
	err = row.Scan(&t.ID, &t.Kind, &t.URL, &t.Secret, (*sqlite.TextList)(&t.Events), &language, &t.Enabled, &t.revision, &t.sent, &t.state,
		&t.fault.Code, &t.fault.Detail, &t.attempts, &t.since, &next)
	t.Language, t.next = languages[language], sqlite.Stamped(next)
	return t, sqlite.Absent(err, ErrUnknown)
}

// Targets returns all targets in the order of their ids.
func (n *Table) Targets(ctx context.Context) ([]Target, error) {
	return sqlite.Collect(ctx, n.db.Reading(ctx), scanTarget, selectTargets+` ORDER BY id`)
}

// IDs returns the ids of all targets in their order.
func (n *Table) IDs(ctx context.Context) (ids []string, err error) {
	targets, err := n.Targets(ctx)
	for _, t := range targets {
		ids = append(ids, t.ID)
	}
	return ids, err
}

// States returns the number of enabled targets in each state.
func (n *Table) States(ctx context.Context) (map[State]uint64, error) {
	targets, err := n.Targets(ctx)
	states := map[State]uint64{}
	for _, t := range targets {
		if t.Enabled {
			states[t.state]++
		}
	}
	return states, err
}

// WriteMetrics writes the number of enabled targets in each state.
func (n *Table) WriteMetrics(ctx context.Context, page *daemon.Page) error {
	states, err := n.States(ctx)
	if err != nil {
		return err
	}
	page.Family("meshddns_notifications", "gauge", "Enabled notification targets, by state.")
	for _, state := range []State{OK, Retrying, Stopped} {
		page.Figure(states[state], daemon.Label{Name: "state", Value: string(state)})
	}
	return nil
}

// Has reports whether a target with the same settings is stored.
func (n *Table) Has(ctx context.Context, t Target) (bool, error) {
	stored, err := n.Target(ctx, t.ID)
	if errors.Is(err, ErrUnknown) {
		return false, nil
	}
	return err == nil && t.sameAs(stored), err
}

// Target returns one target, or ErrUnknown.
func (n *Table) Target(ctx context.Context, id string) (Target, error) {
	return selectTarget(ctx, n.db.Reading(ctx), id)
}

func selectTarget(ctx context.Context, q sqlite.Queryer, id string) (Target, error) {
	return scanTarget(q.QueryRowContext(ctx, selectTargets+` WHERE id = ?`, id))
}

// Save creates or replaces a target, and returns it. A replaced one starts again and keeps its
// place in the log of events; a new one begins at the newest event. The error is ErrTooMany,
// ErrURLMasked or ErrSecretMasked.
func (n *Table) Save(ctx context.Context, t Target) (saved Target, err error) {
	err = n.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		stored, err := selectTarget(ctx, tx, t.ID)
		isNew := err == ErrUnknown
		if err != nil && !isNew {
			return err
		}
		if saved, err = t.unmasked(stored); err != nil {
			return err
		}
		saved.revision = rand.Int64()
		saved.progress = progress{sent: stored.sent, state: OK, since: stored.since}
		if isNew {
			var count int
			if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM notifications`).Scan(&count); err != nil {
				return err
			}
			if count >= MaxTargets {
				return ErrTooMany
			}
			if saved.sent, err = events.Last(ctx, tx); err != nil {
				return err
			}
		}
		if stored.state != OK {
			saved.since = sqlite.Shown(n.now())
		}
		sqlite.Touch(ctx, sqlite.Replaced{})
		sqlite.Touch(ctx, changed{})
		return insert(ctx, tx, saved)
	})
	return saved, err
}

func insert(ctx context.Context, tx *sql.Tx, t Target) error {
	_, err := tx.ExecContext(ctx, `
		INSERT INTO notifications (id, kind, url, secret, events, language, enabled, revision, sent_seq, state, code, message, attempts, since, next_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '', 0, ?, 0)
		ON CONFLICT (id) DO UPDATE SET
		    kind = excluded.kind, url = excluded.url, secret = excluded.secret, events = excluded.events, language = excluded.language,
		    enabled = excluded.enabled, revision = excluded.revision, sent_seq = excluded.sent_seq, state = excluded.state, code = excluded.code,
		    message = excluded.message, attempts = excluded.attempts, since = excluded.since, next_at = excluded.next_at`,
		t.ID, t.Kind, t.URL, t.Secret, sqlite.TextList(t.Events), nameOf(t.Language), t.Enabled, t.revision, t.sent, t.state, t.since)
	return err
}

// Delete deletes a target, or returns ErrUnknown.
func (n *Table) Delete(ctx context.Context, id string) error {
	return n.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := selectTarget(ctx, tx, id); err != nil {
			return err
		}
		sqlite.Touch(ctx, sqlite.Replaced{})
		sqlite.Touch(ctx, changed{})
		_, err := tx.ExecContext(ctx, `DELETE FROM notifications WHERE id = ?`, id)
		return err
	})
}

// restart makes a target that is not OK try at once, unless its settings have changed.
func (n *Table) restart(ctx context.Context, t Target) error {
	return n.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		sqlite.Touch(ctx, changed{})
		_, err := tx.ExecContext(ctx, `
			UPDATE notifications SET revision = ?, state = 'ok', code = '', message = '', attempts = 0, since = ?, next_at = 0
			WHERE id = ? AND revision = ? AND state <> 'ok'`, rand.Int64(), sqlite.Shown(n.now()), t.ID, t.revision)
		return err
	})
}

// store stores the progress of a target with its events, unless its settings have changed.
func (n *Table) store(ctx context.Context, t Target, log *events.Log, told ...events.Event) error {
	return n.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, `
			UPDATE notifications SET sent_seq = ?, state = ?, code = ?, message = ?, attempts = ?, since = ?, next_at = ?
			WHERE id = ? AND revision = ?`,
			t.sent, t.state, t.fault.Code, t.fault.Detail, t.attempts, t.since, sqlite.Stamp(t.next), t.ID, t.revision)
		if err != nil {
			return err
		}
		if count, err := result.RowsAffected(); err != nil || count == 0 {
			return err
		}
		for _, e := range told {
			if err := log.Add(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	})
}
