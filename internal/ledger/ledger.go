// Package ledger keeps in the database what is due, what stands where, and with
// which key it was put there: the tables names, marks, pass, places, accounts and
// adopted. It is the database of package reconcile; of what is configured and
// reserved it only reads.
package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// Ledger is those tables.
type Ledger struct {
	Erase     func()                     // called after the commit of a transaction that deletes a key
	Addresses func() reconcile.Addresses // this host's

	reader *sql.DB
	tx     func(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error
	now    func() time.Time
	owner  atomic.Pointer[string] // marks the values in DNS that are ours
}

// New makes a ledger of a pool for reading and of what runs a function in one
// transaction on the one connection that writes; the function may run twice.
func New(reader *sql.DB, tx func(context.Context, func(context.Context, *sql.Tx) error) error, now func() time.Time, owner string) *Ledger {
	none := func() reconcile.Addresses { return reconcile.Addresses{} }
	g := &Ledger{Erase: func() {}, Addresses: none, reader: reader, tx: tx, now: now}
	g.UseOwner(owner)
	return g
}

// TakeOwner makes an owner this database's, if that has marked nothing with its own yet,
// and reports whether it did.
func (g *Ledger) TakeOwner(ctx context.Context, owner string) (taken bool, err error) {
	err = g.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, `
			UPDATE appliance SET owner = ? WHERE id = 1 AND
			    NOT EXISTS (SELECT 1 FROM configuration WHERE id = 1) AND NOT EXISTS (SELECT 1 FROM services WHERE id > '') AND
			    NOT EXISTS (SELECT 1 FROM places WHERE id > 0) AND NOT EXISTS (SELECT 1 FROM adopted)`, owner)
		if err != nil {
			return err
		}
		count, err := result.RowsAffected()
		taken = count > 0
		return err
	})
	return taken, err
}

// Owner marks the values in DNS that are this database's.
func (g *Ledger) Owner() string { return *g.owner.Load() }

// UseOwner is called when an owner was taken, before anything is marked with it.
func (g *Ledger) UseOwner(owner string) { g.owner.Store(&owner) }

// What a function reports beside faults of the database itself.
const (
	ErrNoLeftover = sqlite.Refusal("no such leftover")
	ErrOwnOwner   = sqlite.Refusal("the owner is this database's own")
)

// MarkDue makes a name due, and stores what is told of its usages by now. Of a name that
// is new there is nothing more to know than its caller does.
func (g *Ledger) MarkDue(ctx context.Context, tx *sql.Tx, name string, lane reconcile.Lane) error {
	known, err := g.markDue(ctx, tx, name, lane)
	if err != nil || !known {
		return err
	}
	return g.tell(ctx, tx, []string{name})
}

// markDue makes a name due: a person's order at once, a change when further ones have had
// a moment to come. It reports whether the name was known before.
func (g *Ledger) markDue(ctx context.Context, tx *sql.Tx, name string, lane reconcile.Lane) (known bool, err error) {
	due := g.now()
	if lane == reconcile.LaneChanged {
		due = due.Add(reconcile.Debounce)
	}
	inserted, err := tx.ExecContext(ctx, `
		INSERT INTO names (name, version, due, lane, pass) VALUES (?, 1, ?, ?, 0) ON CONFLICT DO NOTHING`, name, sqlite.Stamp(due), lane)
	if err != nil {
		return false, err
	}
	if count, err := inserted.RowsAffected(); err != nil || count > 0 {
		return false, err
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE names SET
		    version = version + 1,
		    look = iif(due IS NOT NULL AND lane GLOB 'zone *', coalesce(look, due), look),
		    due = iif(due IS NOT NULL AND (lane = 'ask' OR lane = ?3), min(due, ?2), ?2),
		    lane = iif(due IS NOT NULL AND lane = 'ask', lane, ?3)
		WHERE name = ?1`, name, sqlite.Stamp(due), lane)
	return true, err
}

// tell stores what is told of the usages of some names, as all that is stored makes it.
func (g *Ledger) tell(ctx context.Context, tx *sql.Tx, names []string) error {
	if len(names) == 0 {
		return nil
	}
	state, err := g.StateIn(ctx, tx, names)
	if err != nil {
		return err
	}
	for _, u := range reconcile.Retold(state, g.Addresses()) {
		_, err := tx.ExecContext(ctx, `UPDATE usages SET state = ?, place = ?, rival = ? WHERE id = ?`, u.Told.State, u.Told.Place, u.Told.Rival, u.ID)
		if err != nil {
			return err
		}
	}
	return nil
}

// Version gives the version of a name that was made due.
func Version(ctx context.Context, tx *sql.Tx, name string) (version int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT version FROM names WHERE name = ?`, name).Scan(&version)
	return version, err
}

// DropName forgets a name of which there is nothing to know any more.
func DropName(ctx context.Context, tx *sql.Tx, name string, version int64) error {
	_, err := tx.ExecContext(ctx, `
		DELETE FROM names
		WHERE name = ? AND version = ? AND
		      NOT EXISTS (SELECT 1 FROM usages WHERE usages.name = names.name) AND
		      NOT EXISTS (SELECT 1 FROM places WHERE places.name = names.name) AND
		      NOT EXISTS (SELECT 1 FROM configuration WHERE id = 1 AND configuration.name = names.name)`, name, version)
	return err
}

// RequestPass asks for a pass over all names, when further changes have had a
// moment to come. A change stays what the pass is asked for, whatever comes behind it.
func (g *Ledger) RequestPass(ctx context.Context, tx *sql.Tx, trigger string) error {
	_, err := tx.ExecContext(ctx, `
		UPDATE pass SET requested_at = iif(requested = '', ?2, requested_at), requested = iif(requested = 'change', requested, ?1)
		WHERE id = 1`, trigger, sqlite.Stamp(g.now().Add(reconcile.Debounce)))
	return err
}

// Adopt makes the values of another owner count as ours, and asks for a pass.
func (g *Ledger) Adopt(ctx context.Context, owner string) error {
	if owner == g.Owner() {
		return ErrOwnOwner
	}
	return g.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO adopted (owner) VALUES (?) ON CONFLICT DO NOTHING`, owner); err != nil {
			return err
		}
		return g.RequestPass(ctx, tx, reconcile.TriggerChange)
	})
}

// Adopted reports whether the values of an owner count as ours.
func (g *Ledger) Adopted(ctx context.Context, q sqlite.Queryer, owner string) (adopted bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM adopted WHERE owner = ?)`, owner).Scan(&adopted)
	return adopted, err
}

// Intend commits what is about to be written, if it is still wanted. What is told of the
// usages stays until Settle knows more.
func (g *Ledger) Intend(ctx context.Context, names []string, decide func(reconcile.State) []*reconcile.Place) error {
	var places []*reconcile.Place
	var ids []int64
	err := g.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		state, err := g.StateIn(ctx, tx, names)
		if err != nil {
			return err
		}
		places, ids = decide(state), nil
		for _, p := range places {
			id, err := g.savePlace(ctx, tx, *p)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, p := range places {
		p.ID = ids[i]
	}
	return nil
}

// Settle commits what came of some work: places, usages that are free by it, and
// when to come back to the names, unless they have changed meanwhile.
func (g *Ledger) Settle(ctx context.Context, work reconcile.Settlement) error {
	return g.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		told := slices.Clone(work.Told)
		for _, p := range work.Places {
			if err := g.settlePlace(ctx, tx, p); err != nil {
				return err
			}
			told = append(told, p.Name)
		}
		for _, p := range work.Ended {
			if err := g.endPlace(ctx, tx, p); err != nil {
				return err
			}
			told = append(told, p.Name)
		}
		for _, d := range work.Names {
			if err := g.settleName(ctx, tx, d); err != nil {
				return err
			}
		}
		slices.Sort(told)
		return g.tell(ctx, tx, slices.Compact(told))
	})
}

func (g *Ledger) settleName(ctx context.Context, tx *sql.Tx, d reconcile.Due) error {
	if d.Released {
		state, err := g.StateIn(ctx, tx, []string{d.Name})
		if err != nil {
			return err
		}
		for _, id := range reconcile.Free(state.Names[0], state.UpsertOnly) {
			if _, err := tx.ExecContext(ctx, `DELETE FROM usages WHERE id = ?`, id); err != nil {
				return err
			}
		}
	}
	_, err := tx.ExecContext(ctx, `
		UPDATE names SET look = nullif(?1, 0),
		    due = iif(version = ?2 AND NOT ?3, nullif(?4, 0), due), lane = iif(version = ?2 AND NOT ?3, ?5, lane),
		    pass = iif(version = ?2 AND ?6 > 0, ?6, pass)
		WHERE name = ?7`, sqlite.Stamp(d.Look), d.Version, d.Kept, sqlite.Stamp(d.At), d.Lane, storedMark(d.Pass), d.Name)
	if err == nil && (d.Released || d.Empty) {
		err = DropName(ctx, tx, d.Name, d.Version)
	}
	return err
}

// Settings gives what the configuration says about the work itself.
func (g *Ledger) Settings(ctx context.Context) (reconcile.Settings, error) {
	c, err := selectConfigured(ctx, g.reader)
	if err != nil || c == nil {
		return reconcile.Settings{Retry: reconcile.RetryPolicy(sql.Null[int64]{}, sql.Null[int64]{})}, err
	}
	return reconcile.Settings{
		Configured: true, Enabled: c.enabled, Automatic: c.mode == modeAuto || c.mode == modeUpsertOnly,
		Retry: reconcile.RetryPolicy(c.retryInterval, c.maxRetries),
	}, nil
}

// Due gives names of a lane that are due by a time, the longest due first, and then those that
// would wait longer than any name does: the clock that gave their time was set back.
func (g *Ledger) Due(ctx context.Context, lane reconcile.Lane, by time.Time, limit int) ([]string, error) {
	beyond := g.now().Add(lane.LongestWait())
	if by.After(beyond) {
		beyond = by
	}
	if lane == reconcile.LaneLook {
		return sqlite.Collect(ctx, g.reader, sqlite.Text, `
			SELECT name FROM (SELECT name FROM names WHERE look <= ?1 ORDER BY look LIMIT ?3 + 0)
			UNION ALL
			SELECT name FROM (SELECT name FROM names WHERE look > ?2 ORDER BY look LIMIT ?3 + 0)
			LIMIT ?3 + 0`, sqlite.Stamp(by), sqlite.Stamp(beyond), limit)
	}
	return sqlite.Collect(ctx, g.reader, sqlite.Text, `
		SELECT name FROM (SELECT name FROM names WHERE lane = ?1 AND due <= ?2 ORDER BY due LIMIT ?4 + 0)
		UNION ALL
		SELECT name FROM (SELECT name FROM names WHERE lane = ?1 AND due > ?3 ORDER BY due LIMIT ?4 + 0)
		LIMIT ?4 + 0`, lane, sqlite.Stamp(by), sqlite.Stamp(beyond), limit)
}

// NextDue gives the earliest time after another at which a name of the lane is due.
func (g *Ledger) NextDue(ctx context.Context, lane reconcile.Lane, after time.Time) (at time.Time, ok bool, err error) {
	var due int64
	query, args := `SELECT due FROM names WHERE lane = ? AND due > ? ORDER BY due LIMIT 1`, []any{lane, sqlite.Stamp(after)}
	if lane == reconcile.LaneLook {
		query, args = `SELECT look FROM names WHERE look > ? ORDER BY look LIMIT 1`, args[1:]
	}
	err = g.reader.QueryRowContext(ctx, query, args...).Scan(&due)
	if errors.Is(err, sql.ErrNoRows) {
		return at, false, nil
	}
	return sqlite.Stamped(due), err == nil, err
}

// ZoneLanes gives the lanes of zones in which names wait: each is one search. Their prefix sorts behind
// every other lane.
func (g *Ledger) ZoneLanes(ctx context.Context) (lanes []reconcile.Lane, err error) {
	for last := reconcile.Lane(reconcile.ZonePrefix); ; {
		err := g.reader.QueryRowContext(ctx, `SELECT lane FROM names WHERE lane > ? AND due > 0 ORDER BY lane LIMIT 1`, last).Scan(&last)
		if err != nil {
			return lanes, sqlite.Absent(err, nil)
		}
		lanes = append(lanes, last)
	}
}

// Marked reports whether the names of a service are marked.
func (g *Ledger) Marked(ctx context.Context) (marked bool, err error) {
	err = g.reader.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM marks WHERE service_id > '')`).Scan(&marked)
	return marked, err
}

// SpreadMarks makes some of the names due whose service was marked.
func (g *Ledger) SpreadMarks(ctx context.Context, limit int) error {
	return g.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var id string
		err := tx.QueryRowContext(ctx, `SELECT service_id FROM marks WHERE service_id > '' ORDER BY service_id LIMIT 1`).Scan(&id)
		if err != nil {
			return sqlite.Absent(err, nil)
		}
		var after int64
		var last sql.Null[int64]
		if err := tx.QueryRowContext(ctx, `SELECT after FROM marks WHERE service_id = ?`, id).Scan(&after); err != nil {
			return sqlite.Absent(err, nil)
		}
		names, err := sqlite.Collect(ctx, tx, sqlite.Text, `
			SELECT name FROM usages WHERE provider_id = ? AND seq > ? ORDER BY seq LIMIT ? + 0`, id, after, limit)
		if err != nil {
			return err
		}
		err = tx.QueryRowContext(ctx, `
			SELECT max(seq) FROM (SELECT seq FROM usages WHERE provider_id = ? AND seq > ? ORDER BY seq LIMIT ? + 0)`, id, after, limit).Scan(&last)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, err := g.markDue(ctx, tx, name, reconcile.LaneChanged); err != nil { // the engine tells of them, many at a time
				return err
			}
		}
		if len(names) < limit {
			_, err = tx.ExecContext(ctx, `DELETE FROM marks WHERE service_id = ?`, id)
		} else {
			_, err = tx.ExecContext(ctx, `UPDATE marks SET after = ? WHERE service_id = ?`, last.V, id)
		}
		return err
	})
}

// Request gives what asks for a new pass, and whether one runs.
func (g *Ledger) Request(ctx context.Context) (r reconcile.Request, running bool, err error) {
	var at int64
	err = g.reader.QueryRowContext(ctx, `SELECT requested, requested_at, running <> '' FROM pass WHERE id = 1`).Scan(&r.Trigger, &at, &running)
	r.At = sqlite.Stamped(at)
	return r, running, err
}

// DropRequest forgets what asks for a new pass.
func (g *Ledger) DropRequest(ctx context.Context) error {
	return g.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE pass SET requested = '' WHERE id = 1`)
		return err
	})
}

// Pass gives how far the running pass is.
func (g *Ledger) Pass(ctx context.Context) (p reconcile.Progress, err error) {
	var running string
	if err = g.reader.QueryRowContext(ctx, `SELECT running FROM pass WHERE id = 1`).Scan(&running); err != nil {
		return p, err
	}
	return p, json.Unmarshal([]byte(running), &p)
}

// BeginPass numbers a new pass, and drops what asked for it.
func (g *Ledger) BeginPass(ctx context.Context, p reconcile.Progress) (number int64, err error) {
	err = g.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `UPDATE pass SET number = number + 1, requested = '' WHERE id = 1 RETURNING number`).Scan(&number); err != nil {
			return err
		}
		p.Number = number
		_, err := tx.ExecContext(ctx, `UPDATE pass SET running = ? WHERE id = 1`, text(p))
		return err
	})
	return number, err
}

// SavePass stores how far a pass is.
func (g *Ledger) SavePass(ctx context.Context, p reconcile.Progress) error {
	return g.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE pass SET running = ? WHERE id = 1`, text(p))
		return err
	})
}

// EndPass stores the report of a pass that is through.
func (g *Ledger) EndPass(ctx context.Context, r reconcile.Report) error {
	return g.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE pass SET running = '', last = ? WHERE id = 1`, text(r))
		return err
	})
}

// text is JSON of what can be nothing else.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type that JSON cannot hold: a mistake of this program
	}
	return string(data)
}

// LastReport gives the report of the last whole pass, nil when there was none.
func (g *Ledger) LastReport(ctx context.Context) (r *reconcile.Report, err error) {
	var last string
	err = g.reader.QueryRowContext(ctx, `SELECT last FROM pass WHERE id = 1`).Scan(&last)
	if err == nil && last != "" {
		err = json.Unmarshal([]byte(last), &r)
	}
	return r, err
}

// NamesAfter gives names in their order, except those that the pass has counted, those that wait for
// their zone, and probes that their writers still use: only these are ordered for a later time.
func (g *Ledger) NamesAfter(ctx context.Context, cursor string, pass int64, limit int) ([]string, error) {
	return sqlite.Collect(ctx, g.reader, sqlite.Text, `
		SELECT name FROM names
		WHERE name > ?1 AND (?2 = 0 OR pass NOT IN (?3, ?4)) AND
		      (due IS NULL OR lane NOT GLOB 'zone *' AND NOT (lane = 'ask' AND due > ?5))
		ORDER BY name LIMIT ?6 + 0`, cursor, pass, storedMark(reconcile.PassMark{Number: pass}),
		storedMark(reconcile.PassMark{Number: pass, Bad: true}), sqlite.Stamp(g.now()), limit)
}

// storedMark is a mark as it is stored: twice its number, and one more for a bad name.
func storedMark(m reconcile.PassMark) int64 {
	if m.Bad {
		return 2*m.Number + 1
	}
	return 2 * m.Number
}

// parseMark reads what storedMark gives.
func parseMark(stored int64) reconcile.PassMark {
	return reconcile.PassMark{Number: stored / 2, Bad: stored%2 == 1}
}

// BadNames gives names in their order that the pass has found not to be as they should be.
func (g *Ledger) BadNames(ctx context.Context, pass int64, after string, limit int) ([]string, error) {
	return sqlite.Collect(ctx, g.reader, sqlite.Text, `
		SELECT name FROM names WHERE name > ? AND pass = ? ORDER BY name LIMIT ? + 0`, after, storedMark(reconcile.PassMark{Number: pass, Bad: true}), limit)
}
