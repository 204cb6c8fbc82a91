package page

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/sqlite"
)

const (
	sampleEvery = 15 * time.Minute
	sampleKept  = 25 * time.Hour // a chart has 24 hours, and needs one sample before them
	sampleAgain = time.Minute    // after a fault of the database
)

// sample has the numbers of names by state at a time.
type sample struct {
	at     time.Time
	counts map[string]uint64
}

// Record writes a sample every 15 minutes until ctx ends. After a restart the next one follows when
// the last one is 15 minutes old.
func (p *Page) Record(ctx context.Context) error {
	for {
		pause, err := p.untilSample(ctx)
		if err == nil && pause <= 0 {
			err = p.takeSample(ctx)
			pause = sampleEvery
		}
		if err != nil {
			pause = sampleAgain // requests tell of the fault
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// untilSample returns the time until the next sample is due. A last sample in the future, from before
// the clock was set back, does not count.
func (p *Page) untilSample(ctx context.Context) (time.Duration, error) {
	at, err := sqlite.One[int64](ctx, p.Reader, `SELECT coalesce(max(at), 0) FROM samples`)
	age := p.Now().Sub(sqlite.Stamped(at))
	if age < 0 {
		return 0, err
	}
	return sampleEvery - age, err
}

// takeSample writes a sample, and deletes old ones and those of the future in the same transaction.
func (p *Page) takeSample(ctx context.Context) error {
	totals, err := p.Totals(ctx)
	if err != nil {
		return err
	}
	delete(totals, "services")
	delete(totals, "usages")
	now := p.Now()
	return p.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM samples WHERE at < ? OR at >= ?`, sqlite.Stamp(now.Add(-sampleKept)), sqlite.Stamp(now)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO samples (at, counts) VALUES (?, ?)`, sqlite.Stamp(now), string(events.JSON(totals)))
		return err
	})
}

// samples reads the samples since a time, the oldest first.
func (p *Page) samples(ctx context.Context, since time.Time) ([]sample, error) {
	return sqlite.Collect(ctx, p.Reader, scanSample, `SELECT at, counts FROM samples WHERE at >= ? ORDER BY at`, sqlite.Stamp(since))
}

func scanSample(row sqlite.Scanner) (s sample, err error) {
	var at int64
	var counts []byte
	if err := row.Scan(&at, &counts); err != nil {
		return s, err
	}
	s.at = sqlite.Stamped(at)
	return s, json.Unmarshal(counts, &s.counts)
}
