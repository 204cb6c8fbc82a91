package ledger

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// spot is where a value stands. Accounts that differ in their keys only share it.
type spot struct {
	name                     string
	sibling                  reconcile.Sibling
	zone, provider, endpoint string
}

func spotOf(p reconcile.Place) spot {
	return spot{p.Name, p.Sibling, p.Zone, p.Account.Provider, p.Account.Endpoint}
}

// shown returns a value that stands at the spot as events show it, with the record.
func (at spot) shown(value string) json.RawMessage { return shownValue(at.sibling, value) }

func shownValue(s reconcile.Sibling, value string) json.RawMessage {
	if s == (reconcile.Sibling{}) {
		return events.JSON(value)
	}
	return events.JSON(reconcile.SiblingValues(value))
}

// standing is which values stand, as far as is known.
type standing map[spot][]string

// standingAt reads the values that stand at some names.
func standingAt(ctx context.Context, tx *sql.Tx, names sqlite.TextList) (standing, error) {
	type row struct {
		spot
		value string
	}
	rows, err := sqlite.Collect(ctx, tx, func(from sqlite.Scanner) (r row, err error) {
		err = from.Scan(&r.name, &r.sibling.Owner, &r.sibling.Type, &r.zone, &r.provider, &r.endpoint, &r.value)
		return r, err
	}, `
		SELECT DISTINCT p.name, p.owner, p.type, p.zone, a.provider, a.endpoint, p.standing FROM places p JOIN accounts a ON a.id = p.account
		WHERE p.name IN (SELECT value FROM json_each(?)) AND p.standing <> ''`, names)
	all := standing{}
	for _, r := range rows {
		all[r.spot] = append(all[r.spot], r.value)
	}
	return all, err
}

// without returns the values at a spot that do not stand in another state.
func (s standing) without(at spot, other standing) []string {
	return slices.DeleteFunc(slices.Clone(s[at]), func(value string) bool { return slices.Contains(other[at], value) })
}

// recordEvents returns the events of values that stand after a change, and of those that stood before. The built-in zones are one
// table: a value that moves between them has no change in DNS, and is withdrawn from the one before it is published in the other.
func recordEvents(before, after standing) (all []events.Event) {
	spots := maps.Clone(before)
	maps.Copy(spots, after)
	for at := range spots {
		gone, come := before.without(at, after), after.without(at, before)
		for i := range max(len(gone), len(come)) {
			e := events.Event{Kind: events.RecordChanged, Name: at.name, Detail: events.Detail{Record: at.sibling.Of(""), Zone: at.zone, Provider: at.provider}}
			if i < len(gone) {
				e.Network, e.Detail.Before = networkOf(gone[i]), at.shown(gone[i])
			} else {
				e.Kind = events.RecordPublished
			}
			if i < len(come) {
				e.Network, e.Detail.After = networkOf(come[i]), at.shown(come[i])
			} else {
				e.Kind = events.RecordWithdrawn
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b events.Event) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Kind, a.Kind)) })
	return all
}

// changePlaces stores places, deletes others, and stores the events of both. It returns the ids of the
// stored ones. A place that is deleted is handed in with its data before that.
func (g *Ledger) changePlaces(ctx context.Context, tx *sql.Tx, stored, ended []reconcile.Place) (ids []int64, err error) {
	var names sqlite.TextList
	for _, p := range slices.Concat(stored, ended) {
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return nil, nil
	}
	before, err := storedPlaces(ctx, tx, slices.Concat(stored, ended))
	if err != nil {
		return nil, err
	}
	for i, p := range stored {
		stored[i] = p.Keeping(before[p.ID], g.config.Now())
	}
	stood, err := standingAt(ctx, tx, names)
	if err != nil {
		return nil, err
	}
	if ids, err = g.writePlaces(ctx, tx, before, stored, ended); err != nil {
		return nil, err
	}
	stands, err := standingAt(ctx, tx, names)
	if err != nil {
		return nil, err
	}
	var forgotten []reconcile.Place // leftovers, whose values may still stand
	for _, p := range ended {
		if at := spotOf(p); before[p.ID].State == reconcile.Leftover {
			forgotten, stands[at] = append(forgotten, p), append(stands[at], stood[at]...)
		}
	}
	all := recordEvents(stood, stands)
	for _, p := range stored {
		for _, e := range incidentEvents(before[p.ID], p) {
			if told, err := toldBefore(ctx, tx, e, incident(before[p.ID])); err != nil {
				return nil, err
			} else if !told {
				all = append(all, e)
			}
		}
	}
	for _, p := range forgotten {
		all = append(all, placeEvent(events.LeftoverGone, p, reconcile.Fault{}, p.Standing, ""))
	}
	return ids, g.addAll(ctx, tx, all, names)
}

// addAll stores events, each with the usage that it is about.
func (g *Ledger) addAll(ctx context.Context, tx *sql.Tx, all []events.Event, names sqlite.TextList) error {
	if len(all) == 0 {
		return nil
	}
	usages, err := usagesAt(ctx, tx, names)
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := g.config.Events.Add(ctx, tx, usages.about(e)); err != nil {
			return err
		}
	}
	return nil
}

// storedPlaces reads places by their ids.
func storedPlaces(ctx context.Context, tx *sql.Tx, places []reconcile.Place) (map[int64]reconcile.Place, error) {
	var ids []int64
	for _, p := range places {
		if p.ID > 0 {
			ids = append(ids, p.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := sqlite.Collect(ctx, tx, scanPlace, selectPlaces+` WHERE id IN (SELECT value FROM json_each(?))`, string(events.JSON(ids)))
	stored := make(map[int64]reconcile.Place, len(rows))
	for _, row := range rows {
		stored[row.Place.ID] = row.Place
	}
	return stored, err
}

// incidentEvents returns the events of a changed place besides its value: the first failure of an
// incident and its end, and a leftover.
func incidentEvents(before, after reconcile.Place) (all []events.Event) {
	before.Fault, after.Fault = incident(before), incident(after)
	wasConflict, conflict := before.State == reconcile.Conflict, after.State == reconcile.Conflict
	switch {
	case conflict && !wasConflict && before.Fault.Code != after.Fault.Code:
		all = append(all, placeEvent(events.RecordConflict, after, after.Fault, after.Standing, ""))
	case before.Fault.Code == "" && after.Fault.Code != "" && after.State != reconcile.Leftover:
		all = append(all, placeEvent(events.RecordFailed, after, after.Fault, after.Standing, ""))
	case before.Fault.Code != "" && after.Fault.Code == "":
		all = append(all, placeEvent(events.RecordRecovered, after, reconcile.Fault{}, "", after.Standing))
	}
	switch {
	case before.State != reconcile.Leftover && after.State == reconcile.Leftover:
		all = append(all, placeEvent(events.LeftoverAppeared, after, after.Fault, after.Standing, ""))
	case before.State == reconcile.Leftover && after.State != reconcile.Leftover:
		all = append(all, placeEvent(events.LeftoverGone, after, reconcile.Fault{}, before.Standing, ""))
	}
	return all
}

// toldBefore reports whether an event is a conflict that was told already since its incident began. f is
// the fault before: an outage of the zone hides a conflict, and does not end it.
func toldBefore(ctx context.Context, tx *sql.Tx, e events.Event, f reconcile.Fault) (bool, error) {
	if e.Kind != events.RecordConflict || f.Code == "" {
		return false, nil
	}
	last, ok, err := events.LastAbout(ctx, tx, e, events.RecordFailed, events.RecordConflict, events.RecordRecovered)
	return ok && last.Kind == e.Kind && last.Detail.Fault.Code == e.Detail.Fault.Code, err
}

// incident returns the fault of a place. That of a published one is a warning.
func incident(p reconcile.Place) reconcile.Fault {
	if p.State == reconcile.Published {
		return reconcile.Fault{}
	}
	return p.Fault
}

// placeEvent returns an event about a place; "" stands for no value.
func placeEvent(kind events.Kind, p reconcile.Place, f reconcile.Fault, before, after string) events.Event {
	e := events.Event{Kind: kind, Name: p.Name, Network: networkOf(after, before, p.Standing, p.Doubt.Value)}
	e.Detail = events.Detail{Record: p.Sibling.Of(""), Zone: p.Zone, Provider: p.Account.Provider, Fault: f}
	if before != "" {
		e.Detail.Before = shownValue(p.Sibling, before)
	}
	if after != "" {
		e.Detail.After = shownValue(p.Sibling, after)
	}
	return e
}

// networkOf returns the network of the first value that has one.
func networkOf(values ...string) sql.Null[mesh.NetworkID] {
	for _, value := range values {
		if n, err := strconv.ParseUint(mesh.Network(value), 10, 64); err == nil {
			return sql.Null[mesh.NetworkID]{V: mesh.NetworkID(n), Valid: true}
		}
	}
	return sql.Null[mesh.NetworkID]{}
}

// reserved is a usage as events name it.
type reserved struct {
	seq               int64
	name, id, service string
	network           mesh.NetworkID
}

// reservations are the usages of some names in the order of their reservation, those that wait for the name first.
type reservations map[string][]reserved

func usagesAt(ctx context.Context, tx *sql.Tx, names sqlite.TextList) (reservations, error) {
	rows, err := sqlite.Collect(ctx, tx, func(row sqlite.Scanner) (u reserved, err error) {
		err = row.Scan(&u.seq, &u.name, &u.id, &u.service, &u.network)
		return u, err
	}, `
		SELECT u.seq, u.name, u.id, u.provider_id, b.network_id FROM usages u JOIN bindings b ON b.seq = u.seq
		WHERE u.name IN (SELECT value FROM json_each(?)) ORDER BY u.rival = '', u.seq`, names)
	all := reservations{}
	for _, u := range rows {
		all[u.name] = append(all[u.name], u)
	}
	return all, err
}

// about returns an event with the usage that it is about: of the event's network the newest one at
// the name. A failure before the first value has no network; it is about the elder usage, which has
// the name.
func (all reservations) about(e events.Event) events.Event {
	for _, u := range all[e.Name] {
		if !e.Network.Valid || e.Network.V == u.network {
			e.Network = sql.Null[mesh.NetworkID]{V: u.network, Valid: true}
			e.Usage, e.UsageID, e.ServiceID = u.seq, u.id, u.service
		}
	}
	return e
}

// NoteRival stores the event of a usage that waits for its name, or does no longer.
func (g *Ledger) NoteRival(ctx context.Context, tx *sql.Tx, r reconcile.ShownChange) error {
	before, after := r.Before.Rival, r.Now.Shown.Rival
	if (before == "") == (after == "") || r.Now.Releasing {
		return nil
	}
	e := events.Event{Kind: events.RecordRecovered, UsageID: r.Now.ID, Network: networkOf("n=" + r.Now.Network)}
	if after != "" {
		e.Kind, e.Detail.Fault = events.RecordConflict, mesh.Fault{Code: reconcile.CodeNetworkConflict, Detail: msg.Text(after)}
	}
	if err := tx.QueryRowContext(ctx, `SELECT seq, name, provider_id FROM usages WHERE id = ?`, r.Now.ID).Scan(&e.Usage, &e.Name, &e.ServiceID); err != nil {
		return err
	}
	return g.config.Events.Add(ctx, tx, e)
}

// freeUsage deletes a released usage of a name.
func (g *Ledger) freeUsage(ctx context.Context, tx *sql.Tx, n reconcile.Name, id string) error {
	e := events.Event{Kind: events.UsageReleased, Name: n.Name, UsageID: id}
	for _, u := range n.Usages {
		if u.ID == id {
			e.Network = networkOf("n=" + u.Network)
		}
	}
	if err := tx.QueryRowContext(ctx, `DELETE FROM usages WHERE id = ? RETURNING seq, provider_id`, id).Scan(&e.Usage, &e.ServiceID); err != nil {
		return err
	}
	return g.config.Events.Add(ctx, tx, e)
}

// NoteZone stores that a zone is down, or that it is well again, and the event if that is news. A
// restart does not tell it again.
func (g *Ledger) NoteZone(ctx context.Context, account int64, z reconcile.ZoneState) error {
	return g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		e := events.Event{Kind: events.ZoneDown, Name: z.Zone, Detail: events.Detail{Provider: z.Provider, Fault: z.Fault}}
		query, args := `INSERT INTO zones_down (account, domain, since) SELECT id, ?2, ?3 FROM accounts WHERE id = ?1 ON CONFLICT DO NOTHING`,
			[]any{account, z.Zone, sqlite.Stamp(z.Since)}
		if z.Fault.Code == "" {
			e.Kind = events.ZoneRecovered
			query, args = `DELETE FROM zones_down WHERE account = ? AND domain = ?`, args[:2]
		}
		if count, err := sqlite.Exec(ctx, tx, query, args...); err != nil || count == 0 {
			return err
		}
		return g.config.Events.Add(ctx, tx, e)
	})
}

// DownZones reads the lanes of the zones that NoteZone has stored as down.
func (g *Ledger) DownZones(ctx context.Context) ([]reconcile.Lane, error) {
	return sqlite.Collect(ctx, g.config.Reader, func(row sqlite.Scanner) (reconcile.Lane, error) {
		var account int64
		var domain string
		err := row.Scan(&account, &domain)
		return reconcile.ZoneLane(account, domain), err
	}, `SELECT account, domain FROM zones_down WHERE account > 0`)
}

// tellOrphans stores the events of the orphans of a report.
func (g *Ledger) tellOrphans(ctx context.Context, tx *sql.Tx, r reconcile.Report) error {
	for _, o := range r.Records {
		if o.Action != reconcile.ActionOrphan {
			continue
		}
		if err := g.tellOrphan(ctx, tx, spot{name: o.Name, zone: o.Zone, provider: o.Provider}, o.Value); err != nil {
			return err
		}
	}
	return nil
}

// tellOrphan stores the event of an orphan, unless it is the last that was told of the name.
func (g *Ledger) tellOrphan(ctx context.Context, tx *sql.Tx, at spot, value string) error {
	e := events.Event{Kind: events.OrphanFound, Name: at.name, Network: networkOf(value)}
	e.Detail = events.Detail{Zone: at.zone, Provider: at.provider, Before: events.JSON(value)}
	last, told, err := events.LastAbout(ctx, tx, e, events.OrphanFound, events.RecordWithdrawn, events.LeftoverGone)
	if err != nil || told && last.Kind == e.Kind && bytes.Equal(last.Detail.Before, e.Detail.Before) {
		return err
	}
	return g.config.Events.Add(ctx, tx, e)
}
