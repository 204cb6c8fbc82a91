package lease

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"log/slog"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// Table is the stored leases and the time that each has left.
type Table struct {
	config   Config
	clocks   clocks
	unnoted  daemon.Fault // of storing the times of renewals
	fault    daemon.Fault // of ending leases
	renewals daemon.Counter
	refused  daemon.Counter
}

// Config has the parts of a Table.
type Config struct {
	Database *sqlite.Database
	Ledger   *ledger.Ledger
	Events   *events.Log
	Replays  *answers.Replays
	// Reachable reports whether a control outside of this host answers; known is false without one.
	// nil: there is no control.
	Reachable func(context.Context) (ok, known bool)
	Refused   func(ctx context.Context, name string) []msg.Phrase // warns if no authority may issue certificates; nil: nothing does
	Now       func() time.Time
	NewID     func() (string, error)
	Log       *slog.Logger
}

// NewTable returns the leases of a database; call Load before use.
func NewTable(c Config) *Table {
	t := &Table{config: c, clocks: clocks{all: map[int64]*clock{}, refused: map[int64]*refusal{}}}
	t.renewals.Add(0, changedLabel(true))
	t.renewals.Add(0, changedLabel(false))
	return t
}

// Load gives each lease with endpoints its full time from now on, because no node could renew while
// the program was down. It ends the challenges whose time is over before they are published, as those of a restored backup.
// One that seems to be of later stays until the first look, because the clock may not be set yet.
func (t *Table) Load(ctx context.Context) error {
	t.fault.Note(t.config.Log, "challenges whose time is over are not ended: a later look tries again", t.endChallenges(ctx, math.MaxInt64))
	live, err := sqlite.Collect(ctx, t.config.Database.Reader, scanLease, selectLeases+` WHERE l.endpoints <> '[]'`)
	for _, l := range live {
		t.clocks.set(l, l.Endpoints, t.config.Now(), Keep{})
	}
	return err
}

const selectLeases = `
	SELECT l.seq, l.id, l.usage, u.id, u.name, u.provider_id, b.network_id, b.status = 'releasing',
	       l.slot, l.schemes, l.cidrs, l.ttl, l.template, l.peer_id, l.endpoints, l.renewed_at, l.renewed_by, l.acme > 0, l.acme > 1, lower(hex(l.token))
	FROM leases l JOIN usages u ON u.seq = l.usage JOIN bindings b ON b.seq = l.usage`

func scanLease(row sqlite.Scanner) (l Lease, err error) {
	var ranges sqlite.TextList
	var seconds, renewed int64
	err = row.Scan(&l.Seq, &l.ID, &l.Usage, &l.UsageID, &l.Name, &l.ServiceID, &l.Network, &l.Releasing,
		&l.Slot, (*sqlite.TextList)(&l.Schemes), &ranges, &seconds, (*sqlite.TextList)(&l.Template), &l.PeerID,
		(*sqlite.TextList)(&l.Endpoints), &renewed, &l.RenewedBy, &l.ACME, &l.certified, &l.hash)
	for _, text := range ranges {
		prefix, fault := mesh.ParseRange(text) // an older program stored IPv4 in IPv6 form
		err = errors.Join(err, fault)          // a range that is not read must not become "all"
		l.CIDRs = append(l.CIDRs, prefix)
	}
	l.TTL, l.RenewedAt = time.Duration(seconds)*time.Second, sqlite.Stamped(renewed)
	return l, sqlite.Absent(err, ErrUnknown)
}

// Find returns the lease of a token, or ErrUnknown.
func (t *Table) Find(ctx context.Context, token Token) (Lease, error) {
	return scanLease(t.config.Database.Reading(ctx).QueryRowContext(ctx, selectLeases+` WHERE l.token = unhex(?)`, token.hash()))
}

// OfUsage returns at most limit leases of a usage behind a slot, in the order of their slots, or ErrUnknownUsage.
func (t *Table) OfUsage(ctx context.Context, usage, slot string, limit int) (all []Lease, err error) {
	q := t.config.Database.Reading(ctx)
	if _, err := selectUsage(ctx, q, usage); err != nil {
		return nil, err
	}
	return sqlite.Collect(ctx, q, scanLease, selectLeases+` WHERE u.id = ? AND l.slot > ? ORDER BY l.slot LIMIT ? + 0`, usage, slot, limit)
}

// Page returns at most limit leases in the order of their usages and slots, those behind a slot of a usage.
func (t *Table) Page(ctx context.Context, usage int64, slot string, limit int) ([]mesh.NodeLease, error) {
	return t.shownAll(t.page(ctx, usage, slot, limit))
}

func (t *Table) page(ctx context.Context, usage int64, slot string, limit int) ([]Lease, error) {
	return sqlite.Collect(ctx, t.config.Database.Reader, scanLease, selectLeases+` WHERE (l.usage, l.slot) > (?, ?) ORDER BY l.usage, l.slot LIMIT ? + 0`, usage, slot, limit)
}

// Held returns at most limit of the leases that are held back, and the number of all.
func (t *Table) Held(ctx context.Context, limit int) (first []mesh.NodeLease, all int, err error) {
	held := t.clocks.heldBack(t.config.Now())
	if len(held) == 0 {
		return nil, 0, nil
	}
	first, err = t.shownAll(sqlite.Collect(ctx, t.config.Database.Reader, scanLease, selectLeases+` WHERE l.seq IN (SELECT value FROM json_each(?))`,
		string(events.JSON(held[:min(len(held), limit)]))))
	return first, len(held), err
}

// shownAll adds their states to leases: "new" is one that no node has renewed.
func (t *Table) shownAll(leases []Lease, err error) (all []mesh.NodeLease, _ error) {
	for _, l := range leases {
		shown := mesh.NodeLease{
			Usage: l.Usage, UsageID: l.UsageID, Name: l.Name, Slot: l.Slot, State: "ended", From: l.RenewedBy, Endpoints: l.Endpoints, Renewed: l.RenewedAt, Ends: t.ExpiresAt(l.Seq), ACME: l.ACME,
		}
		switch {
		case len(l.Endpoints) > 0 && !t.clocks.read(l.Seq).held.IsZero():
			shown.State = "held"
		case len(l.Endpoints) > 0:
			shown.State = "live"
		case l.RenewedAt.IsZero():
			shown.State = "new"
		}
		all = append(all, shown)
	}
	return all, err
}

// selectUsage returns what a lease tells of its usage.
func selectUsage(ctx context.Context, q sqlite.Queryer, id string) (Lease, error) {
	u, err := ledger.SelectUsage(ctx, q, id)
	if err == nil && u.Status == "" { // a row from before the bindings
		err = ErrUnknownUsage
	}
	return Lease{Usage: u.Seq, UsageID: u.ID, Name: u.Name, ServiceID: u.ServiceID, Network: u.Network, Releasing: u.Status == mesh.Releasing}, err
}

// Creation says how a lease is made.
type Creation struct {
	Usage   string
	Rules   Rules
	Replace bool               // the lease that the slot has ends
	Again   *answers.ReplayKey // of a request that the client may repeat; nil for none
}

// Create makes a lease for a slot of a usage, and returns it with its token. A repeated request gives
// the lease that the first one made another token, because only a hash of the first token is stored. The
// error is ErrExists if the first token was used: then the client has it.
func (t *Table) Create(ctx context.Context, c Creation) (made Lease, token Token, repeated bool, err error) {
	token = newToken()
	err = t.config.Database.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if c.Again != nil {
			if _, err := selectUsage(ctx, tx, c.Usage); err != nil {
				return err
			}
			var earlier string
			if repeated, err = t.config.Replays.Find(ctx, tx, *c.Again, &earlier); err != nil {
				return err
			}
			if repeated {
				made, err = retoken(ctx, tx, earlier, token)
				return err
			}
		}
		if made, err = t.create(ctx, tx, c, token.hash()); err != nil || c.Again == nil {
			return err
		}
		return t.config.Replays.Keep(ctx, tx, *c.Again, made.ID)
	})
	return made, token, repeated, err
}

// retoken gives a lease another token, if the token that it has was never used.
func retoken(ctx context.Context, tx *sql.Tx, id string, token Token) (l Lease, err error) {
	l, err = scanLease(tx.QueryRowContext(ctx, selectLeases+` WHERE l.id = ?`, id))
	switch {
	case err != nil:
		return l, err
	case !l.RenewedAt.IsZero() || l.certified:
		return l, ErrExists
	}
	_, err = tx.ExecContext(ctx, `UPDATE leases SET token = unhex(?) WHERE seq = ?`, token.hash(), l.Seq)
	return l, err
}

// create makes a lease in a transaction. With ErrExists it returns the lease that the slot has.
func (t *Table) create(ctx context.Context, tx *sql.Tx, c Creation, hash string) (l Lease, err error) {
	if l, err = selectUsage(ctx, tx, c.Usage); err != nil {
		return l, err
	}
	if l.Releasing {
		return l, ErrReleased
	}
	old, err := scanLease(tx.QueryRowContext(ctx, selectLeases+` WHERE l.usage = ? AND l.slot = ?`, l.Usage, c.Rules.Slot))
	switch {
	case err == nil && !c.Replace:
		return old, ErrExists
	case err == nil:
		err = t.end(ctx, tx, old)
	case errors.Is(err, ErrUnknown):
		err = checkRoom(ctx, tx, l.Usage)
	}
	if err != nil {
		return l, err
	}
	l.Rules, l.hash = c.Rules, hash
	if l.ID, err = t.config.NewID(); err == nil {
		err = save(ctx, tx, &l)
	}
	if err != nil {
		return l, err
	}
	return l, t.config.Events.Add(ctx, tx, l.event(events.LeaseCreated, nil, []string{}))
}

// checkRoom returns ErrTooMany if a usage has MaxLeases.
func checkRoom(ctx context.Context, tx *sql.Tx, usage int64) error {
	count, err := sqlite.One[int](ctx, tx, `SELECT count(*) FROM leases WHERE usage = ?`, usage)
	if err == nil && count >= MaxLeases {
		return ErrTooMany
	}
	return err
}

// save stores the rules and the token of a lease. If its slot has a lease, that one gets them and keeps its endpoints.
func save(ctx context.Context, tx *sql.Tx, l *Lease) error {
	if l.hash == "" {
		return sqlite.Refusal(msg.LeaseToken) // it is masked, and nothing is stored
	}
	_, err := sqlite.One[int64](ctx, tx, `
		INSERT INTO leases (id, usage, slot, token, schemes, cidrs, ttl, template, peer_id, endpoints, renewed_at, renewed_by, acme)
		SELECT ?1, ?2, ?3, unhex(?4), ?5, ?6, ?7, ?8, ?9, '[]', 0, '', ?10
		WHERE NOT EXISTS (SELECT 1 FROM leases WHERE token = unhex(?4) AND NOT (usage = ?2 AND slot = ?3))
		ON CONFLICT (usage, slot) DO UPDATE SET token = excluded.token, schemes = excluded.schemes, cidrs = excluded.cidrs,
		    ttl = excluded.ttl, template = excluded.template, peer_id = excluded.peer_id, acme = excluded.acme
		RETURNING seq`,
		l.ID, l.Usage, l.Slot, l.hash, sqlite.TextList(l.Schemes), sqlite.TextList(l.ranges()), int64(l.TTL/time.Second),
		sqlite.TextList(l.Template), l.PeerID, l.ACME)
	return sqlite.Absent(err, ErrTokenTaken)
}

// documentPage bounds the leases that Documents reads at a time.
const documentPage = 100

// Documents reads all leases as GET state has them. of returns those of a usage in the order of their slots; call it in the
// order of the usages, and stop at the end.
func (t *Table) Documents(ctx context.Context) (of func(usage int64) ([]mesh.Lease, error), stop func()) {
	next, stop := iter.Pull2(sqlite.Pages(documentPage, func(behind Lease) ([]Lease, error) { return t.page(ctx, behind.Usage, behind.Slot, documentPage) }))
	l, err, more := next()
	return func(usage int64) (all []mesh.Lease, _ error) {
		for ; more && err == nil && l.Usage <= usage; l, err, more = next() {
			if l.Usage == usage {
				all = append(all, l.document())
			}
		}
		return all, err
	}, stop
}

// SaveLeases makes the leases in a usage of a provisioning file, or changes what differs in them; their endpoints stay. With
// prune it first ends the usage's other leases. The error joins the refusals of leases.
func (t *Table) SaveLeases(ctx context.Context, usage string, body []byte, prune bool) (changed bool, err error) {
	wanted, err := parse(body)
	if err != nil {
		return false, err
	}
	var refused []error
	err = t.config.Database.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		changed, refused = false, nil
		kept := map[string]bool{}
		for i := range wanted {
			kept[wanted[i].Slot] = true
		}
		stored, err := t.OfUsage(ctx, usage, "", math.MaxInt)
		for _, l := range stored {
			if err == nil && prune && !kept[l.Slot] {
				changed, err = true, t.end(ctx, tx, l)
			}
		}
		if err != nil {
			return err
		}
		for i := range wanted {
			differs, err := t.saveLease(ctx, tx, usage, &wanted[i])
			if _, ok := errors.AsType[sqlite.Refusal](err); err != nil && !ok {
				return err
			}
			changed, refused = changed || differs, append(refused, msg.Faults(place(i), err)...)
		}
		return nil
	})
	return changed, cmp.Or(err, errors.Join(refused...))
}

// saveLease is SaveLeases for one lease.
func (t *Table) saveLease(ctx context.Context, tx *sql.Tx, usage string, wanted *Lease) (differs bool, err error) {
	l, err := t.create(ctx, tx, Creation{Usage: usage, Rules: wanted.Rules}, wanted.hash)
	if !errors.Is(err, ErrExists) {
		return err == nil, err
	}
	before := l.document()
	l.Rules, l.hash = wanted.Rules, cmp.Or(wanted.hash, l.hash)
	if reflect.DeepEqual(before, l.document()) {
		return false, nil
	}
	if err = save(ctx, tx, &l); err == nil && before.ACME && !l.ACME {
		_, err = tx.ExecContext(ctx, `DELETE FROM challenges WHERE lease = ?`, l.Seq)
	}
	if err != nil || len(l.Endpoints) == 0 && !before.ACME {
		return err == nil, err
	}
	return true, t.config.Ledger.MarkDue(ctx, tx, l.Name, reconcile.LaneChanged)
}

// Delete ends a lease of a usage and withdraws its endpoints, or returns ErrUnknownUsage or ErrUnknown.
func (t *Table) Delete(ctx context.Context, usage, id string) error {
	return t.config.Database.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := selectUsage(ctx, tx, usage); err != nil {
			return err
		}
		l, err := scanLease(tx.QueryRowContext(ctx, selectLeases+` WHERE l.id = ? AND u.id = ?`, id, usage))
		if err != nil {
			return err
		}
		return t.end(ctx, tx, l)
	})
}

// end deletes a lease in a transaction.
func (t *Table) end(ctx context.Context, tx *sql.Tx, l Lease) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM leases WHERE seq = ?`, l.Seq); err != nil {
		return err
	}
	if err := t.config.Events.Add(ctx, tx, l.event(events.LeaseEnded, listed(l.Endpoints), nil)); err != nil {
		return err
	}
	sqlite.Touch(ctx, deleted(l.Seq))
	if len(l.Endpoints) == 0 && !l.ACME {
		return nil
	}
	return t.config.Ledger.MarkDue(ctx, tx, l.Name, reconcile.LaneChanged)
}

// listed returns endpoints as a list that is not nil.
func listed(endpoints []string) []string { return append([]string{}, endpoints...) }

// Renewal is the result of Renew.
type Renewal struct {
	Endpoints []string
	ExpiresAt time.Time // zero without endpoints
	Changed   bool
}

// TooSoonError is the error for a change less than changePause after the last one of a part of the lease, or for a fifth change.
type TooSoonError struct{ Wait time.Duration }

func (e *TooSoonError) Error() string { return "the lease has changed less than 5 seconds ago" }

// Renew publishes the told endpoints of a lease that Find returned and those that keep lets stay, and starts its time again;
// without endpoints it withdraws those that stand. If the endpoints are the published ones, it writes at most
// the time, once in a quarter of the lease's time, and stands although that fails. The error is ErrUnknown, ErrReleased, a
// TooSoonError or a msg.Refusal; then nothing has changed.
func (t *Table) Renew(ctx context.Context, l Lease, told []string, keep Keep, from netip.Addr) (r Renewal, err error) {
	defer func() {
		if err == nil {
			t.renewals.Add(1, changedLabel(r.Changed))
			t.clocks.refuse(l.Seq, nil)
		}
	}()
	if l.Releasing {
		return r, ErrReleased
	}
	now, told := t.config.Now(), mesh.Once(told)
	endpoints := t.merged(l, told, keep, now)
	if err := l.Check(endpoints); err != nil {
		return r, err
	}
	r.Endpoints = listed(endpoints)
	if slices.Equal(l.Endpoints, endpoints) && (len(endpoints) == 0 || t.clocks.extend(l, now, keep)) {
		r.ExpiresAt = t.ExpiresAt(l.Seq)
		if written := now.Sub(l.RenewedAt); len(endpoints) > 0 && (written < 0 || written >= l.TTL/4) {
			t.note(ctx, l, now, from)
		}
		return r, nil
	}
	wait, undo := t.clocks.change(l, changedParts(l.Endpoints, endpoints), now)
	if wait > 0 {
		return r, &TooSoonError{wait}
	}
	err = t.config.Database.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		r.Endpoints, r.Changed, err = t.change(ctx, tx, l.Seq, told, keep, now, from)
		return err
	})
	if err != nil {
		undo()
	}
	r.ExpiresAt = t.ExpiresAt(l.Seq)
	return r, err
}

// note stores the time of a renewal without a change. A failure is logged once until it works again:
// the time only tells people of the renewal.
func (t *Table) note(ctx context.Context, l Lease, now time.Time, from netip.Addr) {
	err := t.config.Database.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE leases SET renewed_at = ?, renewed_by = ? WHERE seq = ?`, sqlite.Stamp(now.Truncate(time.Second)), shownAddr(from), l.Seq)
		return err
	})
	if ctx.Err() == nil {
		t.unnoted.Note(t.config.Log, "times of renewals cannot be stored: the leases are renewed nevertheless", err)
	}
}

// change stores the endpoints of a lease, and reports whether they differ from the stored ones. It merges
// them here, so that two renewals at once, each with one family, keep both. It sets the clock before the
// commit, so that an expiry in the same commit sees the renewal.
func (t *Table) change(ctx context.Context, tx *sql.Tx, seq int64, told []string, keep Keep, now time.Time, from netip.Addr) (endpoints []string, changed bool, err error) {
	l, err := scanLease(tx.QueryRowContext(ctx, selectLeases+` WHERE l.seq = ?`, seq))
	switch {
	case err != nil:
		return nil, false, err
	case l.Releasing:
		return nil, false, ErrReleased
	}
	endpoints = listed(t.merged(l, told, keep, now))
	if err := l.Check(endpoints); err != nil {
		return nil, false, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE leases SET endpoints = ?, renewed_at = ?, renewed_by = ? WHERE seq = ?`,
		sqlite.TextList(endpoints), sqlite.Stamp(now.Truncate(time.Second)), shownAddr(from), seq)
	if err != nil {
		return nil, false, err
	}
	t.clocks.set(l, endpoints, now, keep)
	if slices.Equal(l.Endpoints, endpoints) {
		return endpoints, false, nil
	}
	if err := t.config.Events.Add(ctx, tx, l.event(events.LeaseRenewed, listed(l.Endpoints), endpoints)); err != nil {
		return nil, false, err
	}
	return endpoints, true, t.config.Ledger.MarkNode(ctx, tx, l.Usage)
}

func shownAddr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func changedLabel(changed bool) daemon.Label {
	if changed {
		return daemon.Label{Name: "result", Value: "changed"}
	}
	return daemon.Label{Name: "result", Value: "unchanged"}
}
