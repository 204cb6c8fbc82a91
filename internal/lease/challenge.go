package lease

import (
	"context"
	"database/sql"
	"time"

	"meshddns/internal/ledger"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

const (
	// MaxChallenges bounds the challenges of a usage, and ownChallenges those of a lease: an authority asks for one for
	// the name, one for its wildcard, and one for each name whose alias leads there.
	MaxChallenges = 16
	ownChallenges = 8
	// ChallengeTime is the time from the put of a challenge to its end. An order lives for hours, but its client puts a
	// challenge only when the authority is about to ask.
	ChallengeTime = time.Hour

	clockStep = time.Minute // that the clock may have been set back since a put
)

// PutChallenge stores the value of a challenge, unless the lease has it: then it is tried again, if it has failed and would
// wait for a pass. updated: the client is one of acme-dns, which never withdraws a value. So where there is no room, the eldest
// of these values goes that is not among the two newest of its lease. The error is ErrUnknown, ErrReleased, ErrNotPermitted, or
// ErrFull. version is that of the name.
func (t *Table) PutChallenge(ctx context.Context, l Lease, value string, updated bool) (version int64, err error) {
	c, err := t.Challenge(ctx, l, value)
	if err != nil {
		return 0, err
	}
	err = t.config.Database.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now, err := scanLease(tx.QueryRowContext(ctx, selectLeases+` WHERE l.seq = ?`, l.Seq))
		switch {
		case err != nil:
			return err
		case now.Releasing:
			return ErrReleased
		case !now.ACME:
			return ErrNotPermitted
		}
		var has bool
		var own, others int // beside the value
		err = tx.QueryRowContext(ctx, `
			SELECT count(*) FILTER (WHERE lease = ?1 AND value = ?2 AND updated <= ?4),
			       count(*) FILTER (WHERE lease = ?1 AND value <> ?2), count(*) FILTER (WHERE lease <> ?1)
			FROM challenges WHERE usage = ?3`, l.Seq, value, l.Usage, updated).Scan(&has, &own, &others)
		if err != nil || has && !c.Rests {
			return err
		}
		if full := own >= ownChallenges; !has && (full || own+others >= MaxChallenges) {
			err = makeRoom(ctx, tx, l, full, updated)
		}
		if err == nil && !has {
			_, err = tx.ExecContext(ctx, `
				INSERT INTO challenges (usage, lease, value, put_at, updated) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET updated = 0`,
				l.Usage, l.Seq, value, sqlite.Stamp(t.config.Now()), updated)
		}
		if err == nil && !now.certified {
			_, err = tx.ExecContext(ctx, `UPDATE leases SET acme = 2 WHERE seq = ?`, l.Seq)
		}
		if err == nil {
			err = t.config.Ledger.MarkNode(ctx, tx, l.Usage)
		}
		return err
	})
	if err == nil {
		t.clocks.refuse(l.Seq, nil) // a cleanup tells nothing: lego sends one after a refusal, too
		version, err = ledger.Version(ctx, t.config.Database.Reader, l.Name)
	}
	return version, err
}

// makeRoom deletes a challenge of the lease, if that is full, else of its usage, or returns ErrFull.
func makeRoom(ctx context.Context, tx *sql.Tx, l Lease, full, updated bool) error {
	gone, err := sqlite.Exec(ctx, tx, `
		DELETE FROM challenges WHERE seq = (SELECT min(seq) FROM challenges c WHERE usage = ?1 AND updated AND (lease = ?2 OR NOT ?3)
			AND 2 <= (?4 AND lease = ?2) + (SELECT count(*) FROM challenges WHERE lease = c.lease AND updated AND seq > c.seq))`,
		l.Usage, l.Seq, full, updated)
	if err == nil && gone == 0 {
		return ErrFull
	}
	return err
}

// DropChallenge deletes a challenge of a lease, and reports whether the lease had it.
func (t *Table) DropChallenge(ctx context.Context, l Lease, value string) (dropped bool, err error) {
	err = t.config.Database.Reading(ctx).QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM challenges WHERE lease = ? AND value = ?)`, l.Seq, value).Scan(&dropped)
	if err != nil || !dropped {
		return false, err
	}
	return true, t.config.Database.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM challenges WHERE lease = ? AND value = ?`, l.Seq, value)
		if err != nil {
			return err
		}
		return t.config.Ledger.MarkNode(ctx, tx, l.Usage)
	})
}

// Challenge reads how far a challenge of a lease is. The value "" asks whether one can be put.
func (t *Table) Challenge(ctx context.Context, l Lease, value string) (reconcile.Challenge, error) {
	return t.config.Ledger.Challenge(ctx, l.Name, l.UsageID, value)
}

// endChallenges deletes the challenges whose time is over, or that were put later than ahead from now, some in each transaction.
func (t *Table) endChallenges(ctx context.Context, ahead time.Duration) error {
	now := t.config.Now()
	since, until := sqlite.Stamp(now.Add(-ChallengeTime)), sqlite.Stamp(now.Add(ahead))
	for {
		over, err := sqlite.One[bool](ctx, t.config.Database.Reader, `SELECT EXISTS (SELECT 1 FROM challenges WHERE put_at < ? OR put_at > ?)`, since, until)
		if err != nil || !over {
			return err
		}
		err = t.config.Database.Tx(sqlite.Background(ctx), func(ctx context.Context, tx *sql.Tx) error {
			usages, err := sqlite.Collect(ctx, tx, scanSeq, `
				DELETE FROM challenges WHERE seq IN (SELECT seq FROM challenges WHERE put_at < ? OR put_at > ? LIMIT ? + 0)
				RETURNING usage`, since, until, endBatch)
			for i := 0; i < len(usages) && err == nil; i++ {
				err = t.config.Ledger.MarkNode(ctx, tx, usages[i])
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}
