package ledger

import (
	"context"
	"database/sql"

	"meshddns/reconcile"
	"meshddns/sqlrow"
)

// AddProbe stores the place of a probe before it is written. Should it not be
// removed soon, the engine withdraws it.
func (g *Ledger) AddProbe(ctx context.Context, p *reconcile.Place) error {
	var id int64
	err := g.tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if id, err = g.savePlace(ctx, tx, *p); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO names (name, version, due, lane, pass) VALUES (?, 1, ?, 'ask', 0)`, p.Name, sqlrow.Stamp(p.LookAt))
		return err
	})
	p.ID = id
	return err
}

// EndProbe forgets the place of a probe that was seen to be gone.
func (g *Ledger) EndProbe(ctx context.Context, p reconcile.Place) error {
	return g.Settle(ctx, reconcile.Settlement{Ended: []reconcile.Place{p}, Names: []reconcile.Due{{Name: p.Name, Version: 1, Empty: true}}})
}
