// The table unmarked: values without a mark that may be ours from before a restore. The engine does not read it, so they count as foreign.

package ledger

import (
	"context"
	"database/sql"
	"math"

	"meshddns/internal/events"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// selectUnmarked reads the rows as leftovers, with the columns of selectPlaces.
const selectUnmarked = `
	SELECT id, name, owner, type, account, zone, zone_id, 'leftover', value, '', '', 0, 0, '` + reconcile.CodeMaybeOurs + `', '', '', 0, since, since FROM unmarked`

// Restored reports whether the database was restored, or came from another machine, since EndPass had a report with Swept.
func (g *Ledger) Restored(ctx context.Context) (restored bool, err error) {
	return sqlite.One[bool](ctx, g.config.Reader, `
		SELECT EXISTS (SELECT 1 FROM events WHERE seq > (SELECT swept FROM pass WHERE id = 1) AND kind = ?)`, events.DatabaseRestored)
}

// AddUnmarked stores values without a mark that may be ours, without those that a place of any name knows, except in a zone
// that is surely another one.
func (g *Ledger) AddUnmarked(ctx context.Context, p *reconcile.Place) (isNew bool, err error) {
	if p.Standing == "" {
		return false, nil
	}
	err = g.config.Tx(sqlite.Background(ctx), func(ctx context.Context, tx *sql.Tx) error {
		isNew = false
		l := loader{ledger: g, q: tx, accounts: map[int64]*reconcile.Account{}}
		known, err := l.left(ctx, selectPlaces+` WHERE name IN (SELECT value FROM json_each(?)) AND owner = ? AND type = ?`,
			sqlite.TextList(reconcile.Beside(p.Sibling.Owner)), p.Sibling.Owner, p.Sibling.Type)
		for _, k := range known {
			if !k.Place.Apart(*p) {
				p.Standing = k.Place.Unknown(p.Standing)
			}
		}
		if err != nil || p.Standing == "" {
			return err
		}
		count, err := sqlite.Exec(ctx, tx, `
			INSERT INTO unmarked (name, owner, type, account, zone, zone_id, value, since) SELECT ?, ?, ?, id, ?, ?, ?, ? FROM accounts WHERE id = ?
			ON CONFLICT DO UPDATE SET value = excluded.value WHERE value <> excluded.value`,
			p.Name, p.Sibling.Owner, p.Sibling.Type, p.Zone, p.ZoneID, p.Standing, sqlite.Shown(g.config.Now()), p.Account.ID)
		if isNew = count > 0; err != nil || !isNew {
			return err
		}
		return g.addAll(ctx, tx, incidentEvents(reconcile.Place{}, *p), sqlite.TextList{p.Name})
	})
	return isNew, err
}

// Unmarked reads what AddUnmarked has stored, whose ids begin there.
func (g *Ledger) Unmarked(ctx context.Context) ([]reconcile.StoredPlace, error) {
	return g.Leftovers(ctx, 1<<52, math.MaxInt)
}

// AdoptUnmarked makes one of them ours, and its name due.
func (g *Ledger) AdoptUnmarked(ctx context.Context, p reconcile.Place) error {
	return g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := g.dropUnmarked(ctx, tx, p); err != nil {
			return err
		}
		there, err := sqlite.Collect(ctx, tx, scanPlace, selectPlaces+` WHERE name = ? AND owner = ? AND type = ? AND account = ? AND zone = ?`,
			p.Name, p.Sibling.Owner, p.Sibling.Type, p.Account.ID, p.Zone)
		if err != nil {
			return err
		}
		ours := p
		ours.ID, ours.State, ours.Fault = 0, reconcile.Withdrawing, reconcile.Fault{}
		for _, at := range there {
			at.Place.Account = p.Account
			ours = at.Place.Absorbed(p, g.config.Now())
		}
		if _, err := g.changePlaces(ctx, tx, []reconcile.Place{ours}, nil); err != nil {
			return err
		}
		return g.MarkDue(ctx, tx, p.Name, reconcile.LaneAsked)
	})
}

// dropUnmarked deletes a row, which is no leftover any more.
func (g *Ledger) dropUnmarked(ctx context.Context, tx *sql.Tx, p reconcile.Place) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM unmarked WHERE id = ?`, p.ID); err != nil {
		return err
	}
	return g.addAll(ctx, tx, []events.Event{placeEvent(events.LeftoverGone, p, reconcile.Fault{}, p.Standing, "")}, sqlite.TextList{p.Name})
}
