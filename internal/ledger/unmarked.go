// The table unmarked: values without a mark that may be ours from before a restore. The engine does not read it, so they count as foreign.

package ledger

import (
	"context"
	"database/sql"
	"slices"

	"meshddns/internal/events"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// selectUnmarked reads the rows as leftovers, with the columns of selectPlaces.
const selectUnmarked = `
	SELECT id, name, owner, type, account, zone, zone_id, 'leftover', value, '', '', 0, 0, '` + reconcile.CodeMaybeOurs + `', '', '', 0, since, since FROM unmarked`

// Restored reports whether the database was restored, or came from another machine, since Swept was called.
func (g *Ledger) Restored(ctx context.Context) (restored bool, err error) {
	err = g.config.Reader.QueryRowContext(ctx, `
		SELECT EXISTS (SELECT 1 FROM events WHERE seq > (SELECT swept FROM pass WHERE id = 1) AND kind = ?)`, events.DatabaseRestored).Scan(&restored)
	return restored, err
}

// Swept stores that a sweep has been through everything.
func (g *Ledger) Swept(ctx context.Context) error {
	return g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE pass SET swept = (SELECT coalesce(max(seq), 0) FROM events) WHERE id = 1`)
		return err
	})
}

// AddUnmarked stores values without a mark that may be ours, a few in one transaction, and returns the new ones that no place knows.
func (g *Ledger) AddUnmarked(ctx context.Context, offers []reconcile.Place) (all []reconcile.Place, err error) {
	for part := range slices.Chunk(offers, partNames) {
		var added []reconcile.Place
		err := g.config.Tx(sqlite.Background(ctx), func(ctx context.Context, tx *sql.Tx) error {
			added = nil
			for _, p := range part {
				isNew, err := g.addUnmarked(ctx, tx, &p)
				if err != nil {
					return err
				}
				if isNew {
					added = append(added, p)
				}
			}
			return nil
		})
		if err != nil {
			return all, err
		}
		all = append(all, added...)
	}
	return all, nil
}

// addUnmarked stores one, without the values that a place of any name knows.
func (g *Ledger) addUnmarked(ctx context.Context, tx *sql.Tx, p *reconcile.Place) (isNew bool, err error) {
	known, err := sqlite.Collect(ctx, tx, scanPlace, selectPlaces+` WHERE name IN (SELECT value FROM json_each(?)) AND owner = ? AND type = ?`,
		sqlite.TextList(reconcile.Beside(p.Sibling.Owner)), p.Sibling.Owner, p.Sibling.Type)
	for _, k := range known {
		p.Standing = k.Place.Unknown(p.Standing)
	}
	if err != nil || p.Standing == "" {
		return false, err
	}
	count, err := sqlite.Exec(ctx, tx, `
		INSERT INTO unmarked (name, owner, type, account, zone, zone_id, value, since)
		SELECT ?, ?, ?, id, ?, ?, ?, ? FROM accounts WHERE id = ?
		ON CONFLICT DO UPDATE SET value = excluded.value WHERE value <> excluded.value`,
		p.Name, p.Sibling.Owner, p.Sibling.Type, p.Zone, p.ZoneID, p.Standing, sqlite.Shown(g.config.Now()), p.Account.ID)
	if err != nil || count == 0 {
		return false, err
	}
	return true, g.addAll(ctx, tx, incidentEvents(reconcile.Place{}, *p), sqlite.TextList{p.Name})
}

// Unmarked reads the records that AdoptUnmarked takes over.
func (g *Ledger) Unmarked(ctx context.Context) ([]string, error) {
	return sqlite.Collect(ctx, g.config.Reader, sqlite.Text, `SELECT owner || ' ' || type FROM unmarked WHERE id > 0 ORDER BY id`)
}

// AdoptUnmarked makes all of them ours, a few in one transaction: places know them, and their names are due.
func (g *Ledger) AdoptUnmarked(ctx context.Context) (err error) {
	for more := true; more && err == nil; {
		err = g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			l := loader{ledger: g, q: tx, accounts: map[int64]*reconcile.Account{}}
			offers, err := l.left(ctx, selectUnmarked+` WHERE id > 0 ORDER BY id LIMIT ? + 0`, partNames)
			more = len(offers) == partNames
			for i := 0; i < len(offers) && err == nil; i++ {
				err = g.adoptUnmarked(ctx, tx, offers[i].Place)
			}
			return err
		})
	}
	return err
}

func (g *Ledger) adoptUnmarked(ctx context.Context, tx *sql.Tx, p reconcile.Place) error {
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
}

// dropUnmarked deletes a row, which is no leftover any more.
func (g *Ledger) dropUnmarked(ctx context.Context, tx *sql.Tx, p reconcile.Place) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM unmarked WHERE id = ?`, p.ID); err != nil {
		return err
	}
	return g.addAll(ctx, tx, []events.Event{placeEvent(events.LeftoverGone, p, reconcile.Fault{}, p.Standing, "")}, sqlite.TextList{p.Name})
}
