package lease

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/sqlite"
)

const (
	// More than fewEnds leases, and more than a third of all, that end within endWindow are held back.
	endWindow = time.Minute
	fewEnds   = 3
	endShare  = 3

	endBatch               = 256              // leases that one transaction ends
	heldLook               = 10 * time.Second // between two looks at the leases that are held back
	shortLook, longestLook = time.Second, 30 * time.Second
)

// Run ends the leases whose time is over, until ctx ends.
func (t *Table) Run(ctx context.Context) error {
	for {
		select {
		case <-time.After(t.untilNext()):
			t.look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// look ends the leases and the challenges whose time is over. A fault that lasts is logged once.
func (t *Table) look(ctx context.Context) {
	if err := errors.Join(t.Expire(ctx), t.endChallenges(ctx, clockStep)); ctx.Err() == nil {
		t.fault.Note(t.config.Log, "leases and challenges whose time is over are not ended: the next look tries again", err)
	}
}

// untilNext returns the time until the next look. It is shorter than the least time of a new lease.
func (t *Table) untilNext() time.Duration {
	t.clocks.mu.Lock()
	defer t.clocks.mu.Unlock()
	if len(t.clocks.queue) == 0 {
		return longestLook
	}
	return min(max(t.clocks.next().Sub(t.config.Now()), shortLook), longestLook)
}

// Expire ends the leases whose time is over, unless so many end together that this program itself may
// be cut off.
func (t *Table) Expire(ctx context.Context) error {
	now := t.config.Now()
	faults := t.endGone(ctx, now)
	due, held, untold := t.clocks.due(now)
	if untold > 0 {
		if err := t.tellHeld(ctx, untold); err != nil {
			return errors.Join(faults, err)
		}
	}
	if len(held) > 0 && t.clocks.lookAgain(now) {
		due = append(due, t.released(ctx, held, now)...)
	}
	return errors.Join(faults, t.endAll(ctx, due, now))
}

// endGone ends the leases whose time is over and whose usage is released or has been.
func (t *Table) endGone(ctx context.Context, now time.Time) error {
	over := t.clocks.over(now)
	if len(over) == 0 {
		return nil
	}
	stay, err := sqlite.Collect(ctx, t.config.Database.Reader, scanSeq, `
		SELECT l.seq FROM leases l JOIN bindings b ON b.seq = l.usage
		WHERE l.seq IN (SELECT value FROM json_each(?)) AND l.endpoints <> '[]' AND b.status <> 'releasing' ORDER BY l.seq`, string(events.JSON(over)))
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(over, func(seq int64) bool {
		_, stays := slices.BinarySearch(stay, seq)
		return stays
	})
	t.clocks.each(gone, func(k *clock) { k.gone = true })
	return t.endAll(ctx, gone, now)
}

// looks reports whether it is time to look at the leases that are held back. The caller holds the lock.
func (c *clocks) looks(now time.Time) bool { return now.Sub(c.looked).Abs() >= heldLook }

// lookAgain is looks, and notes the look.
func (c *clocks) lookAgain(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	looks := c.looks(now)
	if looks {
		c.looked = now
	}
	return looks
}

// over returns the leases whose time is over, those that are held back only when it is time to look at them.
func (c *clocks) over(now time.Time) (seqs []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.queue.until(now) {
		if k.live && (k.held.IsZero() || c.looks(now)) {
			seqs = append(seqs, k.seq)
		}
	}
	return seqs
}

// due returns the leases whose time is over: those that end now, and those that are held back; untold is the number
// of leases that were held back and not told yet. Leases are held that end together, and further ones while no lease
// is renewed.
func (c *clocks) due(now time.Time) (due, held []int64, untold int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.recent) > 0 && now.Sub(c.recent[0]) >= endWindow {
		c.recent = c.recent[1:]
	}
	together := len(c.recent)
	for _, k := range c.queue.until(now) {
		switch {
		case !k.live:
			c.remove(k)
		case k.held.IsZero():
			together++
			due = append(due, k.seq)
		default:
			if now.Sub(k.held) < endWindow {
				together++
			}
			held = append(held, k.seq)
		}
	}
	living := c.live - len(due) - len(held)
	crowd := together > fewEnds && together*endShare > living+together
	silence := len(held) > 0 && !c.renewed.After(c.held)
	if len(due) == 0 || !crowd && !silence {
		return due, held, c.untold
	}
	c.held = now
	for _, seq := range due {
		c.all[seq].held = now
	}
	c.untold += len(due)
	return nil, append(held, due...), c.untold
}

// released returns those of the leases held back that may end: all of them when the control answers,
// none when it does not. Without a control a lease ends when it is overdue by its whole time once
// more, and another lease has been renewed since: then nodes reach this program.
func (t *Table) released(ctx context.Context, held []int64, now time.Time) (free []int64) {
	if t.config.Reachable != nil {
		if ok, known := t.config.Reachable(ctx); known {
			if ok {
				return held
			}
			return nil
		}
	}
	t.clocks.mu.Lock()
	defer t.clocks.mu.Unlock()
	for _, seq := range held {
		k := t.clocks.all[seq]
		if k != nil && now.Sub(k.ends) >= k.ttl && t.clocks.renewed.After(k.held) {
			free = append(free, seq)
		}
	}
	return free
}

// tellHeld tells that leases are held back.
func (t *Table) tellHeld(ctx context.Context, count int) error {
	if err := t.config.Events.Note(ctx, events.Event{Kind: events.LeaseHeld, Detail: events.Detail{Count: count}}); err != nil {
		return err
	}
	t.config.Log.Warn("many leases have not been renewed at once: their endpoints stay until a control shows that this host is not cut off", "count", count)
	t.clocks.mu.Lock()
	defer t.clocks.mu.Unlock()
	t.clocks.untold -= count
	return nil
}

// endAll withdraws the endpoints of leases, some in each transaction.
func (t *Table) endAll(ctx context.Context, seqs []int64, now time.Time) (faults error) {
	for batch := range slices.Chunk(seqs, endBatch) {
		faults = errors.Join(faults, t.endTogether(ctx, batch, now))
	}
	return faults
}

// endTogether withdraws the endpoints of leases in one transaction. It makes a name due once, because that reads all
// leases of the name and takes writes at its provider.
func (t *Table) endTogether(ctx context.Context, seqs []int64, now time.Time) error {
	seqs = t.clocks.begin(seqs, now)
	err := t.config.Database.Tx(sqlite.Background(ctx), func(ctx context.Context, tx *sql.Tx) error {
		usages := map[int64]bool{}
		for _, seq := range seqs {
			usage, err := t.expire(ctx, tx, seq, now)
			if err != nil {
				return err
			}
			usages[usage] = true
		}
		for usage := range usages { // there is none with the seq 0
			if err := t.config.Ledger.MarkNode(ctx, tx, usage); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.clocks.each(seqs, func(k *clock) { k.ending = false })
	}
	return err
}

func scanSeq(row sqlite.Scanner) (seq int64, err error) { err = row.Scan(&seq); return seq, err }

// begin marks leases whose time is still over as ending, and returns them. From then on a renewal
// takes a transaction.
func (c *clocks) begin(seqs []int64, now time.Time) (ending []int64) {
	c.each(seqs, func(k *clock) {
		if !k.ends.After(now) {
			k.ending = true
			ending = append(ending, k.seq)
		}
	})
	return ending
}

// ended removes the clock of a lease that has ended, unless the lease was renewed in the same commit.
func (c *clocks) ended(seq int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.all[seq]; k != nil && k.ending {
		c.remove(k)
		if !k.gone {
			c.recent = append(c.recent, now)
		}
	}
}

// expire withdraws the endpoints of a lease that is still ending, and returns its usage, 0 for none.
func (t *Table) expire(ctx context.Context, tx *sql.Tx, seq int64, now time.Time) (usage int64, err error) {
	if !t.clocks.read(seq).ending { // it was renewed after begin
		return 0, nil
	}
	sqlite.Touch(ctx, expired{seq, now})
	l, err := scanLease(tx.QueryRowContext(ctx, selectLeases+` WHERE l.seq = ? AND l.endpoints <> '[]'`, seq))
	if err == ErrUnknown {
		return 0, nil // it went with its usage
	}
	if err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE leases SET endpoints = '[]' WHERE seq = ?`, seq); err != nil {
		return 0, err
	}
	return l.Usage, t.config.Events.Add(ctx, tx, l.event(events.LeaseExpired, listed(l.Endpoints), []string{}))
}

// WriteMetrics writes the figures of the leases.
func (t *Table) WriteMetrics(page *daemon.Page, all, live uint64) {
	page.Family("meshddns_leases", "gauge", "Leases: live ones have endpoints, ended ones have not been renewed in time, or never.")
	page.Figure(live, daemon.Label{Name: "state", Value: "live"})
	page.Figure(all-live, daemon.Label{Name: "state", Value: "ended"})
	page.Family("meshddns_leases_held", "gauge", "Leases whose time is over and whose endpoints stay, because too many have ended at once.")
	page.Figure(uint64(len(t.clocks.heldBack(t.config.Now()))))
	t.renewals.Write(page, "meshddns_lease_renewals_total", "Renewals of leases.")
	t.refused.Write(page, "meshddns_lease_refused_total", "Renewals and challenges that were refused.")
}

// heldBack returns the leases that are held back.
func (c *clocks) heldBack(now time.Time) (seqs []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.queue.until(now) {
		if !k.held.IsZero() {
			seqs = append(seqs, k.seq)
		}
	}
	return seqs
}
