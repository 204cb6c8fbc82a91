// Package ledger has the SQL of package reconcile: due names, places and the accounts that
// wrote them, in the tables names, marks, pass, places, accounts and adopted. It only reads
// the configuration and services. Of usages it stores the state and deletes the released
// ones.
package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/seal"
	"meshddns/internal/sqlite"
)

// Ledger is the reconcile.Database in those tables.
type Ledger struct {
	config Config
	owner  atomic.Pointer[string] // the mark of our values in DNS
}

// Config has the parts of a Ledger.
type Config struct {
	Reader    *sql.DB                                                           // a pool of connections for reading
	Tx        func(context.Context, func(context.Context, *sql.Tx) error) error // runs a function in one transaction, perhaps twice
	Key       seal.Key                                                          // of the secrets
	Zones     Zones
	Program   mesh.Program // without hosts the built-in server's name is ns.<zone>
	Events    *events.Log
	Addresses func() reconcile.Addresses // this host's addresses
	Now       func() time.Time
}

// Zones are the built-in zones. Each is served while a place is in it.
type Zones interface {
	// Around runs a part of a transaction after which some zones may not be served any more.
	Around(ctx context.Context, tx *sql.Tx, zones []string, f func() error) error
}

// New returns a ledger with a mark of its values.
func New(c Config, owner string) *Ledger {
	g := &Ledger{config: c}
	g.UseOwner(owner)
	return g
}

// TakeOwner makes an owner this database's own, if no value may stand that is marked with its present owner: there is no
// place, and a place is stored before a value is written. It reports whether it did.
func (g *Ledger) TakeOwner(ctx context.Context, owner string) (taken bool, err error) {
	err = g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		count, err := sqlite.Exec(ctx, tx, `
			UPDATE appliance SET owner = ?
			WHERE id = 1 AND NOT EXISTS (SELECT 1 FROM places WHERE id > 0) AND NOT EXISTS (SELECT 1 FROM adopted)`, owner)
		taken = count > 0
		return err
	})
	return taken, err
}

// Owner returns the mark of this database's values in DNS.
func (g *Ledger) Owner() string { return *g.owner.Load() }

// UseOwner sets what Owner returns, after a commit with TakeOwner.
func (g *Ledger) UseOwner(owner string) { g.owner.Store(&owner) }

// Refusals by ForgetLeftover and Adopt.
const (
	ErrNoLeftover = sqlite.Refusal(msg.UnknownLeftover)
	ErrOwnOwner   = sqlite.Refusal(msg.OwnerIsOwn)
)

// MarkDue makes a name due, and stores the Shown of its usages. It does not store the Shown
// of a new name: the caller knows that.
func (g *Ledger) MarkDue(ctx context.Context, tx *sql.Tx, name string, lane reconcile.Lane) error {
	known, err := g.markDue(ctx, tx, name, lane)
	if err != nil {
		return err
	}
	if err := g.markOwn(ctx, tx, name, lane); err != nil || !known {
		return err
	}
	return g.storeShown(ctx, tx, []string{name})
}

// MarkNode makes the name of a usage due after a change by a node or a check, unless the usage waits for its name: then it
// has no records, and the writes that the change may cause are the owner's.
func (g *Ledger) MarkNode(ctx context.Context, tx *sql.Tx, usage int64) error {
	name, err := sqlite.One[string](ctx, tx, `SELECT name FROM usages WHERE seq = ? AND rival = ''`, usage)
	if err != nil {
		return sqlite.Absent(err, nil)
	}
	return g.MarkDue(ctx, tx, name, reconcile.LaneNode)
}

// AddName stores the name of a new usage if it is not known, and reports whether it was. own is the name of the
// configuration's record. With a configuration the name is due at once. Without one nothing is published, and the
// name waits for the pass that a new configuration requests.
func (g *Ledger) AddName(ctx context.Context, tx *sql.Tx, name string, own sql.Null[string]) (known bool, err error) {
	due := sql.Null[int64]{V: sqlite.Stamp(g.config.Now()), Valid: own.Valid}
	if known, err = addName(ctx, tx, name, reconcile.LaneChanged, due); known || err != nil {
		return known, err
	}
	return false, g.markBeside(ctx, tx, name, own.V, reconcile.LaneChanged)
}

func addName(ctx context.Context, tx *sql.Tx, name string, lane reconcile.Lane, due sql.Null[int64]) (known bool, err error) {
	count, err := sqlite.Exec(ctx, tx, `
		INSERT INTO names (name, version, due, lane, pass) VALUES (?, 1, ?, ?, 0) ON CONFLICT DO NOTHING`, name, due, lane)
	return err == nil && count == 0, err
}

// markOwn makes the configuration's own record due if a usage of a name may have, or may have had, a
// record at its name.
func (g *Ledger) markOwn(ctx context.Context, tx *sql.Tx, usages string, lane reconcile.Lane) error {
	own, err := sqlite.One[string](ctx, tx, `SELECT name FROM configuration WHERE id = 1`)
	if err != nil {
		return sqlite.Absent(err, nil)
	}
	return g.markBeside(ctx, tx, usages, own, lane)
}

// markBeside is markOwn for the name of the configuration's record, "" for none.
func (g *Ledger) markBeside(ctx context.Context, tx *sql.Tx, usages, own string, lane reconcile.Lane) error {
	if own == "" || !slices.Contains(reconcile.Beside(own), usages) {
		return nil
	}
	if lane != reconcile.LaneNode {
		lane = reconcile.LaneChanged
	}
	_, err := g.markDue(ctx, tx, own, lane)
	return err
}

// markDue makes a name due at once, and reports whether the name was known before. A name that is due already stays in
// the lane of a person's order. A change by a node or a check joins what the name is due for, and changes no time.
func (g *Ledger) markDue(ctx context.Context, tx *sql.Tx, name string, lane reconcile.Lane) (known bool, err error) {
	due := g.config.Now()
	if known, err = addName(ctx, tx, name, lane, sql.Null[int64]{V: sqlite.Stamp(due), Valid: true}); err != nil || !known {
		return false, err
	}
	if lane == reconcile.LaneNode {
		_, err = tx.ExecContext(ctx, `
			UPDATE names SET version = version + 1, lane = iif(due IS NULL, 'node', lane), due = coalesce(due, ?) WHERE name = ?`, sqlite.Stamp(due), name)
		return true, err
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE names SET
		    version = version + 1, asked = version + 1,
		    look = iif(due IS NOT NULL AND lane GLOB 'zone *', coalesce(look, due), look),
		    due = iif(due IS NOT NULL AND (lane = 'ask' OR lane = ?3), min(due, ?2), ?2),
		    lane = iif(due IS NOT NULL AND lane = 'ask', lane, ?3)
		WHERE name = ?1`, name, sqlite.Stamp(due), lane)
	return true, err
}

// Defer lets names in reconcile.LaneNode or reconcile.LaneLater wait in reconcile.LaneLater until their times, unless another change than that of
// a node was made since their versions.
func (g *Ledger) Defer(ctx context.Context, all []reconcile.Due) error {
	return g.config.Tx(sqlite.Background(ctx), func(ctx context.Context, tx *sql.Tx) error {
		for _, d := range all {
			_, err := tx.ExecContext(ctx, `UPDATE names SET due = ?, lane = 'later' WHERE name = ? AND lane IN ('node', 'later') AND due > 0 AND asked <= ?`,
				sqlite.Stamp(d.At), d.Name, d.Version)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// storeShown works out the Shown of the usages of some names from the stored state, and stores it.
func (g *Ledger) storeShown(ctx context.Context, tx *sql.Tx, names []string) error {
	if len(names) == 0 {
		return nil
	}
	state, err := g.stateIn(ctx, tx, names, marked)
	if err != nil {
		return err
	}
	for _, r := range reconcile.Outdated(state, g.config.Addresses()) {
		shown := r.Now.Shown
		_, err := tx.ExecContext(ctx, `UPDATE usages SET state = ?, place = ?, rival = ? WHERE id = ?`, shown.State, shown.Place, shown.Rival, r.Now.ID)
		if err != nil {
			return err
		}
		if err := g.NoteRival(ctx, tx, r); err != nil {
			return err
		}
	}
	return nil
}

// Version returns the version of a name, 0 for an unknown one.
func Version(ctx context.Context, q sqlite.Queryer, name string) (int64, error) {
	version, err := sqlite.One[int64](ctx, q, `SELECT version FROM names WHERE name = ?`, name)
	return version, sqlite.Absent(err, nil)
}

// DropName deletes a name, if it still has the version, and no usage, no place and no
// configuration has the name.
func DropName(ctx context.Context, tx *sql.Tx, name string, version int64) error {
	_, err := tx.ExecContext(ctx, `
		DELETE FROM names
		WHERE name = ? AND version = ? AND
		      NOT EXISTS (SELECT 1 FROM usages WHERE usages.name = names.name) AND
		      NOT EXISTS (SELECT 1 FROM places WHERE places.name = names.name) AND
		      NOT EXISTS (SELECT 1 FROM configuration WHERE id = 1 AND configuration.name = names.name)`, name, version)
	return err
}

// RequestPass stores a request for a pass over all names: at once, or after reconcile.Debounce
// for changed addresses. A later request does not replace the trigger "change".
func (g *Ledger) RequestPass(ctx context.Context, tx *sql.Tx, trigger string) error {
	at := g.config.Now()
	if trigger == reconcile.TriggerAddress {
		at = at.Add(reconcile.Debounce)
	}
	_, err := tx.ExecContext(ctx, `
		UPDATE pass SET requested_at = iif(requested = '', ?2, min(requested_at, ?2)), requested = iif(requested = 'change', requested, ?1)
		WHERE id = 1`, trigger, sqlite.Stamp(at))
	return err
}

// CheckForeign checks an owner that is to be adopted. It returns ErrOwnOwner for this database's own owner.
func (g *Ledger) CheckForeign(owner string) error {
	if owner == g.Owner() {
		return ErrOwnOwner
	}
	return mesh.CheckOwner(owner)
}

// Adopt makes the values of another owner count as ours, and requests a pass. The error may be one of CheckForeign.
func (g *Ledger) Adopt(ctx context.Context, owner string) error {
	if err := g.CheckForeign(owner); err != nil {
		return err
	}
	return g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO adopted (owner) VALUES (?) ON CONFLICT DO NOTHING`, owner); err != nil {
			return err
		}
		return g.RequestPass(ctx, tx, reconcile.TriggerChange)
	})
}

// Adopted reports whether the values of an owner count as ours.
func (g *Ledger) Adopted(ctx context.Context, owner string) (adopted bool, err error) {
	var q sqlite.Queryer = g.config.Reader
	if tx := sqlite.Tx(ctx); tx != nil {
		q = tx
	}
	return sqlite.One[bool](ctx, q, `SELECT EXISTS (SELECT 1 FROM adopted WHERE owner = ?)`, owner)
}

// Intend stores the places that decide returns, before DNS is written. decide gets the state of some
// names with the records at some owner names. The Shown of the usages stays until Settle.
func (g *Ledger) Intend(ctx context.Context, names, owners []string, decide func(reconcile.State) []*reconcile.Place) error {
	var places []*reconcile.Place
	var ids []int64
	err := g.config.Tx(sqlite.Background(ctx), func(ctx context.Context, tx *sql.Tx) error {
		state, err := g.stateIn(ctx, tx, names, owners)
		if err != nil {
			return err
		}
		places = decide(state)
		intended := make([]reconcile.Place, 0, len(places))
		for _, p := range places {
			intended = append(intended, *p)
		}
		ids, err = g.changePlaces(ctx, tx, intended, nil)
		return err
	})
	if err != nil {
		return err
	}
	for i, p := range places {
		p.ID = ids[i]
	}
	return nil
}

// Settle commits the result of some work: it stores and deletes places, deletes released
// usages that are free, and stores when the names are due, unless they have changed
// meanwhile. Each name is committed whole. The names are handed in in parts, which share a
// commit unless a request waits. After an error some of them may be committed.
func (g *Ledger) Settle(ctx context.Context, work reconcile.Settlement) error {
	names := partNames
	if len(work.Places)+len(work.Ended)+len(work.Shown) == 0 {
		names = partTimes
	}
	if slices.ContainsFunc(work.Names, func(d reconcile.Due) bool { return d.Released }) {
		names = partReleased
	}
	return inParts(work.Parts(names), func(part reconcile.Settlement) error { return g.settle(sqlite.Background(ctx), part) })
}

// Bounds of the names of a part, which takes a few milliseconds.
const (
	partNames = 32
	partTimes = 256 // if only times are stored

	partReleased = 4 // if usages may be deleted, with 256 leases each
)

// inParts does the work of all parts at once, and returns the first error.
func inParts[P any](parts []P, work func(P) error) error {
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, part := range parts[min(1, len(parts)):] {
		all.Go(func() { errs[i+1] = work(part) })
	}
	if len(parts) > 0 {
		errs[0] = work(parts[0])
	}
	all.Wait()
	return cmp.Or(errs...)
}

// settle is Settle for one part.
func (g *Ledger) settle(ctx context.Context, work reconcile.Settlement) error {
	return g.config.Tx(events.By(ctx, work.By), func(ctx context.Context, tx *sql.Tx) error {
		places, err := g.known(ctx, tx, work.Places)
		if err != nil {
			return err
		}
		if _, err := g.changePlaces(ctx, tx, places, work.Ended); err != nil {
			return err
		}
		outdated := slices.Clone(work.Shown)
		for _, p := range slices.Concat(work.Places, work.Ended) {
			outdated = append(outdated, p.Name)
		}
		for _, d := range work.Names {
			if err := g.settleName(ctx, tx, d); err != nil {
				return err
			}
		}
		slices.Sort(outdated)
		return g.storeShown(ctx, tx, slices.Compact(outdated))
	})
}

// settleName deletes the released usages of a name that are free, stores when it is due,
// and deletes the name if it is not needed any more. If only nodes have changed it during the work, their change is due
// then, or at once.
func (g *Ledger) settleName(ctx context.Context, tx *sql.Tx, d reconcile.Due) error {
	if d.Released {
		state, err := g.StateIn(ctx, tx, []string{d.Name})
		if err != nil {
			return err
		}
		for _, id := range reconcile.Free(state.Names[0], state.UpsertOnly) {
			if err := g.freeUsage(ctx, tx, state.Names[0], id); err != nil {
				return err
			}
		}
		if err := g.markOwn(ctx, tx, d.Name, reconcile.LaneChanged); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `
		UPDATE names SET look = nullif(?1, 0),
		    due = CASE WHEN ?3 THEN due WHEN version = ?2 THEN nullif(?4, 0) WHEN due > 0 AND asked <= ?2 THEN iif(?4 = 0, ?8, ?4) ELSE due END,
		    lane = CASE WHEN ?3 THEN lane WHEN version = ?2 THEN ?5 WHEN due > 0 AND asked <= ?2 THEN iif(?4 = 0, 'node', ?5) ELSE lane END,
		    pass = iif(version = ?2 AND ?6 > 0, ?6, pass)
		WHERE name = ?7`, sqlite.Stamp(d.Look), d.Version, d.Kept, sqlite.Stamp(d.At), d.Lane, storedMark(d.Pass), d.Name, sqlite.Stamp(g.config.Now()))
	if err == nil && (d.Released || d.Empty) {
		err = DropName(ctx, tx, d.Name, d.Version)
	}
	return err
}

// Settings reads the configuration's settings of the engine.
func (g *Ledger) Settings(ctx context.Context) (reconcile.Settings, error) {
	return g.settingsIn(ctx, g.config.Reader)
}

func (g *Ledger) settingsIn(ctx context.Context, q sqlite.Queryer) (reconcile.Settings, error) {
	c, err := g.selectConfigured(ctx, q)
	if err != nil || c == nil {
		return reconcile.Settings{Retry: reconcile.RetryPolicy(nil, nil)}, err
	}
	return reconcile.Settings{
		Configured: true, Enabled: c.Enabled, Automatic: c.Mode() != mesh.Manual, Retry: reconcile.RetryPolicy(c.RetryInterval, c.MaxRetries),
	}, nil
}

// Due reads the names of a lane that are due by a time, the longest due first. Names whose
// time is further ahead than the lane's LongestWait follow: the clock was set back.
func (g *Ledger) Due(ctx context.Context, lane reconcile.Lane, by time.Time, limit int) ([]string, error) {
	beyond := g.config.Now().Add(lane.LongestWait())
	if by.After(beyond) {
		beyond = by
	}
	if lane == reconcile.LaneLook {
		return sqlite.Collect(ctx, g.config.Reader, sqlite.Text, `
			SELECT name FROM (SELECT name FROM names WHERE look <= ?1 ORDER BY look LIMIT ?3 + 0)
			UNION ALL
			SELECT name FROM (SELECT name FROM names WHERE look > ?2 ORDER BY look LIMIT ?3 + 0)
			LIMIT ?3 + 0`, sqlite.Stamp(by), sqlite.Stamp(beyond), limit)
	}
	return sqlite.Collect(ctx, g.config.Reader, sqlite.Text, `
		SELECT name FROM (SELECT name FROM names WHERE lane = ?1 AND due <= ?2 ORDER BY due LIMIT ?4 + 0)
		UNION ALL
		SELECT name FROM (SELECT name FROM names WHERE lane = ?1 AND due > ?3 ORDER BY due LIMIT ?4 + 0)
		LIMIT ?4 + 0`, lane, sqlite.Stamp(by), sqlite.Stamp(beyond), limit)
}

// NextDue reads the earliest time after another at which a name of the lane is due; ok is
// false if there is none.
func (g *Ledger) NextDue(ctx context.Context, lane reconcile.Lane, after time.Time) (at time.Time, ok bool, err error) {
	query, args := `SELECT due FROM names WHERE lane = ? AND due > ? ORDER BY due LIMIT 1`, []any{lane, sqlite.Stamp(after)}
	if lane == reconcile.LaneLook {
		query, args = `SELECT look FROM names WHERE look > ? ORDER BY look LIMIT 1`, args[1:]
	}
	due, err := sqlite.One[int64](ctx, g.config.Reader, query, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return at, false, nil
	}
	return sqlite.Stamped(due), err == nil, err
}

// ZoneLanes reads the lanes of zones in which names wait, one index search for each. Their
// prefix sorts after every other lane.
func (g *Ledger) ZoneLanes(ctx context.Context) (lanes []reconcile.Lane, err error) {
	for last := reconcile.Lane(reconcile.ZonePrefix); ; {
		err := g.config.Reader.QueryRowContext(ctx, `SELECT lane FROM names WHERE lane > ? AND due > 0 ORDER BY lane LIMIT 1`, last).Scan(&last)
		if err != nil {
			return lanes, sqlite.Absent(err, nil)
		}
		lanes = append(lanes, last)
	}
}

// Marked reports whether the names of a service are marked.
func (g *Ledger) Marked(ctx context.Context) (marked bool, err error) {
	return sqlite.One[bool](ctx, g.config.Reader, `SELECT EXISTS (SELECT 1 FROM marks WHERE service_id > '')`)
}

// SpreadMarks makes at most limit names of a marked service due, and deletes the mark after
// the last one.
func (g *Ledger) SpreadMarks(ctx context.Context, limit int) error {
	return g.config.Tx(sqlite.Background(ctx), func(ctx context.Context, tx *sql.Tx) error {
		var id string
		var after int64
		err := tx.QueryRowContext(ctx, `SELECT service_id, after FROM marks WHERE service_id > '' ORDER BY service_id LIMIT 1`).Scan(&id, &after)
		if err != nil {
			return sqlite.Absent(err, nil)
		}
		names, err := sqlite.Collect(ctx, tx, func(row sqlite.Scanner) (name string, err error) {
			err = row.Scan(&after, &name)
			return name, err
		}, `SELECT seq, name FROM usages WHERE provider_id = ? AND seq > ? ORDER BY seq LIMIT ? + 0`, id, after, limit)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, err := g.markDue(ctx, tx, name, reconcile.LaneChanged); err != nil { // no storeShown: the engine stores the Shown of many names at once
				return err
			}
			if err := g.markOwn(ctx, tx, name, reconcile.LaneChanged); err != nil {
				return err
			}
		}
		if len(names) < limit {
			_, err = tx.ExecContext(ctx, `DELETE FROM marks WHERE service_id = ?`, id)
		} else {
			_, err = tx.ExecContext(ctx, `UPDATE marks SET after = ? WHERE service_id = ?`, after, id)
		}
		return err
	})
}

// Request reads the request for a new pass.
func (g *Ledger) Request(ctx context.Context) (r reconcile.Request, err error) {
	var at int64
	err = g.config.Reader.QueryRowContext(ctx, `SELECT requested, requested_at FROM pass WHERE id = 1`).Scan(&r.Trigger, &at)
	r.At = sqlite.Stamped(at)
	return r, err
}

// DropRequest deletes the request for a new pass, and what is stored of one that was dropped. If the settings are not the ones that the caller knows, it does nothing
// and returns false: the change that made them may be what requests the pass.
func (g *Ledger) DropRequest(ctx context.Context, known reconcile.Settings) (dropped bool, err error) {
	err = g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		settings, err := g.settingsIn(ctx, tx)
		if dropped = err == nil && settings == known; dropped {
			_, err = tx.ExecContext(ctx, `UPDATE pass SET requested = '', running = '' WHERE id = 1`)
		}
		return err
	})
	return dropped, err
}

// CutPass reads the begin of the pass that an earlier run of the program has not ended, zero if there is none. If a change
// asked for that pass, the change asks again.
func (g *Ledger) CutPass(ctx context.Context) (p reconcile.Progress, err error) {
	running, err := sqlite.One[string](ctx, g.config.Reader, `SELECT running FROM pass WHERE id = 1`)
	if err != nil || running == "" {
		return p, err
	}
	err = json.Unmarshal([]byte(running), &p)
	if t := p.Report.Trigger; err == nil && (t == reconcile.TriggerChange || t == reconcile.TriggerAddress) {
		err = g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return g.RequestPass(ctx, tx, t) })
	}
	return p, err
}

// BeginPass stores a new pass, gives it a number, and deletes the request for it. If the settings are not the ones that the
// caller knows, it does nothing and returns 0.
func (g *Ledger) BeginPass(ctx context.Context, p reconcile.Progress, known reconcile.Settings) (number int64, err error) {
	err = g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		number = 0
		if settings, err := g.settingsIn(ctx, tx); err != nil || settings != known {
			return err
		}
		if err := tx.QueryRowContext(ctx, `UPDATE pass SET number = number + 1, requested = '' WHERE id = 1 RETURNING number`).Scan(&number); err != nil {
			return err
		}
		p.Number = number
		_, err := tx.ExecContext(ctx, `UPDATE pass SET running = ? WHERE id = 1`, string(events.JSON(p)))
		return err
	})
	return number, err
}

// EndPass stores the report of a pass, which does not run any more.
func (g *Ledger) EndPass(ctx context.Context, r reconcile.Report) error {
	return g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `
			UPDATE pass SET running = '', last = ?, swept = iif(?, (SELECT coalesce(max(seq), 0) FROM events), swept) WHERE id = 1`, string(events.JSON(r)), r.Swept)
		if err != nil {
			return err
		}
		return g.tellOrphans(ctx, tx, r)
	})
}

// LastReport reads the report of the last complete pass, nil if there is none.
func (g *Ledger) LastReport(ctx context.Context) (r *reconcile.Report, err error) {
	last, err := sqlite.One[string](ctx, g.config.Reader, `SELECT last FROM pass WHERE id = 1`)
	if err == nil && last != "" {
		err = json.Unmarshal([]byte(last), &r)
	}
	return r, err
}

// NamesAfter reads names in order. It leaves out names that the pass has counted, names
// that wait for their zone, and probes in use: only probes are in LaneAsked with a later
// time.
func (g *Ledger) NamesAfter(ctx context.Context, cursor string, pass int64, limit int) ([]string, error) {
	return sqlite.Collect(ctx, g.config.Reader, sqlite.Text, `
		SELECT name FROM names
		WHERE name > ?1 AND (?2 = 0 OR pass NOT IN (?3, ?4)) AND
		      (due IS NULL OR lane NOT GLOB 'zone *' AND NOT (due > ?5 AND lane = 'ask'))
		ORDER BY name LIMIT ?6 + 0`, cursor, pass, storedMark(reconcile.PassMark{Number: pass}),
		storedMark(reconcile.PassMark{Number: pass, Bad: true}), sqlite.Stamp(g.config.Now()), limit)
}

// storedMark returns a mark in its stored form: twice the number, plus one for a bad name.
func storedMark(m reconcile.PassMark) int64 {
	if m.Bad {
		return 2*m.Number + 1
	}
	return 2 * m.Number
}

// parseMark is the inverse of storedMark.
func parseMark(stored int64) reconcile.PassMark {
	return reconcile.PassMark{Number: stored / 2, Bad: stored%2 == 1}
}

// CountLater counts the names in reconcile.LaneLater.
func (g *Ledger) CountLater(ctx context.Context) (count uint64, err error) {
	return sqlite.One[uint64](ctx, g.config.Reader, `SELECT count(*) FROM names WHERE lane = 'later' AND due > 0`)
}

// CountNames counts the names of a pass. It reads all of them.
func (g *Ledger) CountNames(ctx context.Context) (count int64, err error) {
	return sqlite.One[int64](ctx, g.config.Reader, `SELECT count(*) FROM names WHERE name > ''`)
}

// WriteMetrics writes the counts of what is stored, and returns them as Totals does.
func (g *Ledger) WriteMetrics(ctx context.Context, page *daemon.Page) (map[string]uint64, error) {
	totals, err := g.Totals(ctx)
	if err != nil {
		return nil, err
	}
	waiting, err := g.CountLater(ctx)
	if err != nil {
		return nil, err
	}
	page.Family("meshddns_paused", "gauge", "1 while nothing is written by itself: sync_mode is manual or unknown, or enabled is false.")
	page.Figure(totals["paused"])
	page.Single("meshddns_services", "gauge", "Registered services.", totals["services"])
	page.Single("meshddns_usages", "gauge", "Reserved prefixes.", totals["usages"])
	page.Family("meshddns_records", "gauge", "Records by the state of their publishing.")
	for _, state := range append([]reconcile.PlaceState{reconcile.None}, reconcile.PlaceStates...) {
		page.Figure(totals[string(state)], daemon.Label{Name: "state", Value: string(state)})
	}
	page.Family("meshddns_node_changes_waiting", "gauge", "Names whose changes by nodes and checks wait for their share of the writes at a provider.")
	page.Figure(waiting)
	return totals, nil
}
