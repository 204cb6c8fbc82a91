package notify

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/resource"
	"meshddns/internal/sqlite"
)

// Check refuses an entry of a provisioning file, as Put refuses the same body.
var Check = resource.Check[Target]

// Refusals of Table.
const (
	ErrUnknown      = sqlite.Refusal(msg.UnknownNotification)
	ErrTooMany      = sqlite.Refusal(msg.TooManyNotifications)
	ErrURLMasked    = sqlite.Refusal(msg.NotificationURLMasked)
	ErrSecretMasked = sqlite.Refusal(msg.NotificationSecretMasked)
)

// Table is the stored targets.
type Table struct {
	*resource.Table[Target]
	now func() time.Time
}

// NewTable returns the targets of a database.
func NewTable(db *sqlite.Database, now func() time.Time) *Table {
	n := &Table{now: now}
	n.Table = resource.New(db, resource.Kind[Target]{
		Most: MaxTargets, Shown: shownTarget{}, Unknown: ErrUnknown, TooMany: ErrTooMany,
		Saved: msg.NotificationSaved, Deleted: msg.NotificationDeleted,
		ID: func(t *Target) *string { return &t.ID },
		Select: `
			SELECT id, kind, url, secret, events, language, enabled, revision, sent_seq, state, code, message, attempts, since, next_at
			FROM notifications ORDER BY id`,
		Scan: n.scan, Store: n.store, Delete: `DELETE FROM notifications WHERE id = ?`,
	})
	return n
}

func (n *Table) scan(row sqlite.Scanner) (t Target, err error) {
	var next int64
	url, secret := n.DB.Key.Open((*string)(&t.URL), "notifications", &t.ID, "url"), n.DB.Key.Open((*string)(&t.Secret), "notifications", &t.ID, "secret")
	err = row.Scan(&t.ID, &t.Kind, url, secret, (*sqlite.TextList)(&t.Events), &t.Language, &t.Enabled, &t.revision, &t.sent, &t.state,
		&t.fault.Code, &t.fault.Detail, &t.attempts, &t.since, &next)
	t.Events, t.next = append([]string{}, t.Events...), sqlite.Stamped(next)
	return t, err
}

// store stores a target. A replaced one starts again and keeps its place in the log of events; a new one begins at
// the newest event.
func (n *Table) store(ctx context.Context, tx *sql.Tx, t, stored Target, _ []Target) (Target, error) {
	t.revision, t.progress = rand.Int64(), progress{sent: stored.sent, state: OK, since: stored.since}
	if stored.ID == "" {
		var err error
		if t.sent, err = events.Last(ctx, tx); err != nil {
			return t, err
		}
	}
	if stored.state != OK {
		t.since = sqlite.Shown(n.now())
	}
	_, err := tx.ExecContext(ctx, `
		REPLACE INTO notifications (id, kind, url, secret, events, language, enabled, revision, sent_seq, state, code, message, attempts, since, next_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '', 0, ?, 0)`,
		t.ID, t.Kind, n.DB.Key.Seal(string(t.URL), "notifications", t.ID, "url"), n.DB.Key.Seal(string(t.Secret), "notifications", t.ID, "secret"), sqlite.TextList(t.Events), t.Language, t.Enabled, t.revision, t.sent, t.state, t.since)
	return t, err
}

// States returns the number of enabled targets in each state.
func (n *Table) States(ctx context.Context) (map[State]uint64, error) {
	targets, err := n.All(ctx)
	states := map[State]uint64{}
	for _, t := range targets {
		if *t.Enabled {
			states[t.state]++
		}
	}
	return states, err
}

// Unwell calls tell for each enabled target that is not OK, with the time of its next try, zero for none.
func (n *Table) Unwell(ctx context.Context, tell func(id, kind, state, since string, next time.Time, f mesh.Fault)) error {
	targets, err := n.All(ctx)
	for _, t := range targets {
		if *t.Enabled && t.state != OK {
			tell(t.ID, string(t.Kind), string(t.state), t.since, t.next, t.fault)
		}
	}
	return err
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

// restart makes a target that is not OK try at once, unless its settings have changed.
func (n *Table) restart(ctx context.Context, t Target) error {
	return n.DB.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n.Touch(ctx)
		_, err := tx.ExecContext(ctx, `
			UPDATE notifications SET revision = ?, state = 'ok', code = '', message = '', attempts = 0, since = ?, next_at = 0
			WHERE id = ? AND revision = ? AND state <> 'ok'`, rand.Int64(), sqlite.Shown(n.now()), t.ID, t.revision)
		return err
	})
}

// note stores the progress of a target with its events, unless its settings have changed.
func (n *Table) note(ctx context.Context, t Target, log *events.Log, told ...events.Event) error {
	return n.DB.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		count, err := sqlite.Exec(ctx, tx, `
			UPDATE notifications SET sent_seq = ?, state = ?, code = ?, message = ?, attempts = ?, since = ?, next_at = ?
			WHERE id = ? AND revision = ?`,
			t.sent, t.state, t.fault.Code, t.fault.Detail, t.attempts, t.since, sqlite.Stamp(t.next), t.ID, t.revision)
		if err != nil || count == 0 {
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
