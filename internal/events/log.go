package events

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/sqlite"
)

const (
	// Kept is the number of events that are kept.
	Kept = 100_000
	// KeptTime is how long an event can be read.
	KeptTime = 90 * 24 * time.Hour

	spare     = 1000        // events beyond Kept that may stand, besides those of trimEvery
	trimBatch = 1000        // rows that one transaction deletes
	trimEvery = time.Minute // between two looks at the number of rows

	quietTime = 24 * time.Hour // between two events, which may be a clock that was set
)

// Log is the log of events.
type Log struct {
	reader *sql.DB
	tx     func(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error
	now    func() time.Time
	noted  func(seq int64)

	mu    sync.Mutex
	grown chan struct{} // closed at the next commit of an event; nil if nothing waits for it

	expiring atomic.Pointer[x509.Certificate] // that NoteExpiring has looked for last
}

// New returns a log. reader is a pool of connections for reading; tx runs a function in one
// transaction; noted is called with the seq of the last event after its commit.
func New(reader *sql.DB, tx func(context.Context, func(context.Context, *sql.Tx) error) error, now func() time.Time, noted func(seq int64)) *Log {
	return &Log{reader: reader, tx: tx, now: now, noted: noted}
}

// storedDetail is the rest of a Detail as it is stored.
type storedDetail struct {
	Record   string     `json:"record,omitempty"`
	Zone     string     `json:"zone,omitempty"`
	Provider string     `json:"provider,omitempty"`
	Fault    mesh.Fault `json:"fault,omitzero"`
	Count    int        `json:"count,omitempty"`
}

// stored returns the rest of a detail for its column.
func (d Detail) stored() string {
	rest := storedDetail{Record: d.Record, Zone: d.Zone, Provider: d.Provider, Fault: d.Fault, Count: d.Count}
	if rest == (storedDetail{}) {
		return ""
	}
	return string(JSON(rest))
}

// AddRestored stores the event that the database is an older one. Its seq is higher than any that the newer one can
// have given: a million, and a thousand for each second since the last event, a year at most.
func (l *Log) AddRestored(ctx context.Context, tx *sql.Tx) error {
	var last, at int64
	err := tx.QueryRowContext(ctx, `SELECT seq, at FROM events ORDER BY seq DESC LIMIT 1`).Scan(&last, &at)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	const year = 365 * 24 * time.Hour
	since := min(max(l.now().Sub(sqlite.Stamped(at)), 0), year)
	return l.add(ctx, tx, sql.Null[int64]{V: last + 1_000_000 + since.Milliseconds(), Valid: true}, Event{Kind: DatabaseRestored})
}

// Add stores an event in the transaction of its change. The log sets its seq, its time, and its
// caller, which By has put into ctx.
func (l *Log) Add(ctx context.Context, tx *sql.Tx, e Event) error {
	return l.add(ctx, tx, sql.Null[int64]{}, e)
}

// add stores an event with a seq, NULL for the next one.
func (l *Log) add(ctx context.Context, tx *sql.Tx, seq sql.Null[int64], e Event) error {
	result, err := tx.ExecContext(ctx, `
		INSERT INTO events (seq, at, kind, name, usage, usage_id, service_id, network_id, caller, before, after, detail)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		seq, sqlite.Stamp(l.now()), e.Kind, e.Name, e.Usage, e.UsageID, e.ServiceID, e.Network, caller(ctx),
		string(e.Detail.Before), string(e.Detail.After), e.Detail.stored())
	if err != nil {
		return err
	}
	stored, err := result.LastInsertId()
	sqlite.Touch(ctx, grown(stored))
	return err
}

// Note stores an event that belongs to no other change of the database.
func (l *Log) Note(ctx context.Context, e Event) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return l.Add(ctx, tx, e) })
}

// NoteExpiring stores an event for a certificate that ends soon, unless one of the last 100 is for the same certificate. Called
// again for that certificate it reads nothing, because a search by the kind reads the whole log.
func (l *Log) NoteExpiring(ctx context.Context, c *x509.Certificate) error {
	if c.Equal(l.expiring.Load()) {
		return nil
	}
	after := JSON(map[string]string{"not_after": c.NotAfter.UTC().Format(time.RFC3339), "sha256": fmt.Sprintf("%x", sha256.Sum256(c.Raw))})
	last, err := l.Page(ctx, Filter{Kind: string(CertificateExpiring), Newest: true}, 100)
	if err == nil && !slices.ContainsFunc(last, func(e Event) bool { return bytes.Equal(e.Detail.After, after) }) {
		err = l.Note(ctx, Event{Kind: CertificateExpiring, Detail: Detail{After: after}})
	}
	if err == nil {
		l.expiring.Store(c)
	}
	return err
}

// Grown returns a channel that is closed at the next commit of an event.
func (l *Log) Grown() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return l.grown
}

// grown in a notice is the seq of a new event.
type grown int64

// Committed tells the readers of the log that it has grown.
func (l *Log) Committed(n sqlite.Notice) {
	var last int64
	for _, what := range n {
		seq, _ := what.(grown)
		last = max(last, int64(seq))
	}
	if last == 0 {
		return
	}
	l.noted(last)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// Filter selects events; a zero field selects all.
type Filter struct {
	After   int64  // only those with a higher seq
	Before  int64  // only those with a lower seq
	Kind    string // a kind, or its beginning followed by ".*"
	UsageID string
	Name    string
	About   string // a usage's id: events with this id, and all others of the usage's name
	Service string // only those of this service
	Newest  bool   // the newest events first, instead of the oldest
}

// Page reads at most limit events. If events after Filter.After are not kept any more, or it is beyond the
// last event, because an older backup was restored, the first one is a Gap, also when no event was selected.
func (l *Log) Page(ctx context.Context, f Filter, limit int) ([]Event, error) {
	tx, err := l.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	first, last, err := bounds(ctx, tx)
	if err != nil {
		return nil, err
	}
	var page []Event
	switch {
	case f.Newest:
	case f.After < first-1:
		page = append(page, Event{Seq: first - 1, At: l.now(), Kind: Gap, Detail: Detail{From: f.After + 1, To: first - 1}})
		f.After = first - 1
	case f.After > last: // an older backup was restored since
		page = append(page, Event{Seq: last, At: l.now(), Kind: Gap, Detail: Detail{From: last + 1, To: f.After}})
		f.After = last
	}
	if limit -= len(page); limit == 0 {
		return page, nil
	}
	if f.About != "" {
		err := tx.QueryRowContext(ctx, nameOfUsage, f.About, f.About).Scan(&f.Name)
		if err != nil {
			return page, sqlite.Absent(err, nil)
		}
	}
	query, args := f.query(f.After, limit)
	read, err := sqlite.Collect(ctx, tx, scan, query, args...)
	return append(page, read...), err
}

// bounds returns the seqs of the first kept and of the last event, 1 and 0 before the first one.
func bounds(ctx context.Context, q sqlite.Queryer) (first, last int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT coalesce((SELECT min(seq) FROM events), 1), coalesce((SELECT max(seq) FROM events), 0)`).Scan(&first, &last)
	return first, last, err
}

// Last returns the seq of the last event, 0 before the first one.
func (l *Log) Last(ctx context.Context) (int64, error) { return Last(ctx, l.reader) }

// Last returns the seq of the last event as q sees it, such as a transaction; 0 before the first one.
func Last(ctx context.Context, q sqlite.Queryer) (int64, error) {
	_, last, err := bounds(ctx, q)
	return last, err
}

// Newest returns the time of the last event, the zero time before the first one.
func (l *Log) Newest(ctx context.Context) (time.Time, error) {
	at, err := sqlite.One[int64](ctx, l.reader, `SELECT coalesce((SELECT at FROM events ORDER BY seq DESC LIMIT 1), 0)`)
	return sqlite.Stamped(at), err
}

// Knows reports whether a usage of a service, "" for any, exists, or is in the log.
func (l *Log) Knows(ctx context.Context, usageID, service string) (known bool, err error) {
	return sqlite.One[bool](ctx, l.reader, `
		SELECT EXISTS (SELECT 1 FROM usages WHERE id = ?1 AND ?2 IN ('', provider_id)) OR
		       EXISTS (SELECT 1 FROM events WHERE kind = 'usage.released' AND usage_id = ?1 AND ?2 IN ('', service_id))`, usageID, service)
}

// LastAbout returns the last event about the record of an event whose kind is one of some kinds, as q
// sees it. ok is false if there is none.
func LastAbout(ctx context.Context, q sqlite.Queryer, e Event, kinds ...Kind) (last Event, ok bool, err error) {
	last, err = scan(q.QueryRowContext(ctx, selectEvents+ofName+` AND kind IN (SELECT value FROM json_each(?))
		AND coalesce(nullif(detail, '') ->> '$.record', '') = ? AND coalesce(nullif(detail, '') ->> '$.zone', '') = ?
		AND coalesce(nullif(detail, '') ->> '$.provider', '') = ? ORDER BY seq DESC LIMIT 1`,
		e.Name, e.Name, e.Name, string(JSON(kinds)), e.Detail.Record, e.Detail.Zone, e.Detail.Provider))
	return last, err == nil, sqlite.Absent(err, nil)
}

// Count is the number of events of a kind in a span of time.
type Count struct {
	Kind   Kind
	Begin  time.Time
	Number int
}

// Counts counts the events of some kinds since a time, in spans of time.
func (l *Log) Counts(ctx context.Context, since time.Time, span time.Duration, kinds ...Kind) ([]Count, error) {
	first, err := l.firstSince(ctx, since)
	if err != nil {
		return nil, err
	}
	return sqlite.Collect(ctx, l.reader, func(row sqlite.Scanner) (c Count, err error) {
		var number int64
		err = row.Scan(&c.Kind, &number, &c.Number)
		c.Begin = since.Add(time.Duration(number) * span)
		return c, err
	}, countEvents, sqlite.Stamp(since), span.Milliseconds(), first, string(JSON(kinds)))
}

const countEvents = `
	SELECT kind, (at - ?1) / ?2, count(*) FROM events
	WHERE seq >= ?3 AND at >= ?1 AND kind IN (SELECT value FROM json_each(?4)) GROUP BY 1, 2`

// firstSince returns the seq of the first event since a time. Events have no index by time, but their
// seqs grow with it, so it is searched for.
func (l *Log) firstSince(ctx context.Context, since time.Time) (seq int64, err error) {
	low, last, err := bounds(ctx, l.reader)
	if err != nil {
		return 0, err
	}
	for high := last + 1; low < high; {
		middle := low + (high-low)/2
		at, err := sqlite.One[int64](ctx, l.reader, `SELECT at FROM events WHERE seq >= ? ORDER BY seq LIMIT 1`, middle)
		if err != nil {
			return 0, err
		}
		if at < sqlite.Stamp(since) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}

const (
	followPage = 100
	followPace = 20 * time.Millisecond // between two reads of one follower
	pulseTime  = 15 * time.Second
)

// Follow calls send for each event of a filter, as they are committed. It calls pulse when no event
// has come for 15 s. It returns the error of either, or the end of ctx.
func (l *Log) Follow(ctx context.Context, f Filter, pulse func() error, send func(Event) error) error {
	if err := pulse(); err != nil {
		return err
	}
	quiet := time.NewTicker(pulseTime)
	defer quiet.Stop()
	for {
		grown := l.Grown()
		last, err := l.Last(ctx)
		if err != nil {
			return err
		}
		page, err := l.Page(ctx, f, followPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := send(e); err != nil {
				return err
			}
			f.After = e.Seq
			quiet.Reset(pulseTime)
		}
		if len(page) == followPage {
			continue
		}
		f.After = max(f.After, last) // of the events up to here none is left
		select {
		case <-grown:
			select {
			case <-time.After(followPace):
			case <-ctx.Done():
				return ctx.Err()
			}
		case <-quiet.C:
			if err := pulse(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const selectEvents = `SELECT seq, at, kind, name, usage, usage_id, service_id, network_id, caller, before, after, detail FROM events`

const (
	// ofUsage selects the events of a usage's id, which is its parameter twice.
	ofUsage = ` WHERE usage > 0 AND usage IN (
		SELECT seq FROM usages WHERE id = ? UNION ALL SELECT usage FROM events WHERE kind = 'usage.released' AND usage_id = ?)`
	// ofName selects the events of a name, which is its parameter three times.
	ofName = ` WHERE (usage = 0 AND name = ? OR usage > 0 AND usage IN (
		SELECT seq FROM usages WHERE name = ? UNION ALL SELECT usage FROM events WHERE kind = 'usage.released' AND name = ?))`
	// nameOfUsage is the name of a usage's id, which is its parameter twice.
	nameOfUsage = `SELECT name FROM usages WHERE id = ? UNION ALL SELECT name FROM events WHERE kind = 'usage.released' AND usage_id = ? LIMIT 1`
)

// query returns the query of a filter for events after a seq.
func (f Filter) query(after int64, limit int) (query string, args []any) {
	switch {
	case f.UsageID != "":
		query, args = ofUsage, []any{f.UsageID, f.UsageID}
	case f.Name != "":
		query, args = ofName, []any{f.Name, f.Name, f.Name}
	default:
		query = ` WHERE true`
	}
	if f.UsageID != "" && f.Name != "" {
		query, args = query+` AND +name = ?`, append(args, f.Name)
	}
	if f.Service != "" {
		query, args = query+` AND +service_id = ?`, append(args, f.Service)
	}
	query, args = query+` AND seq > ?`, append(args, after)
	if f.Before > 0 {
		query, args = query+` AND seq < ?`, append(args, f.Before)
	}
	if group, ok := strings.CutSuffix(f.Kind, "*"); ok {
		query, args = query+` AND substr(kind, 1, ?) = ?`, append(args, len(group), group)
	} else if f.Kind != "" {
		query, args = query+` AND kind = ?`, append(args, f.Kind)
	}
	order := ` ORDER BY seq`
	if f.Newest {
		order = ` ORDER BY seq DESC`
	}
	return selectEvents + query + order + ` LIMIT ? + 0`, append(args, limit)
}

func scan(row sqlite.Scanner) (e Event, err error) {
	var at int64
	var before, after, rest []byte
	err = row.Scan(&e.Seq, &at, &e.Kind, &e.Name, &e.Usage, &e.UsageID, &e.ServiceID, &e.Network, &e.By, &before, &after, &rest)
	e.At = sqlite.Stamped(at)
	if len(before) > 0 {
		e.Detail.Before = before
	}
	if len(after) > 0 {
		e.Detail.After = after
	}
	if err != nil || len(rest) == 0 {
		return e, err
	}
	var stored storedDetail
	err = json.Unmarshal(rest, &stored)
	e.Detail.Record, e.Detail.Zone, e.Detail.Provider = stored.Record, stored.Zone, stored.Provider
	e.Detail.Fault, e.Detail.Count = stored.Fault, stored.Count
	return e, err
}

// Keep deletes the events that are not kept any more, until ctx ends.
func (l *Log) Keep(ctx context.Context) error {
	tick := time.Tick(trimEvery)
	for {
		l.trimAll(ctx) // after an error the next tick tries again; the writers tell of a fault of the database
		select {
		case <-tick:
		case <-ctx.Done():
			return nil
		}
	}
}

// firstKept returns the seq of the first of the last Kept events, or that of the oldest event if fewer than spare
// stand before it. It counts rows only if the seqs leave it open.
func (l *Log) firstKept(ctx context.Context, oldest, last int64) (first int64, err error) {
	if last-oldest < Kept+spare {
		return oldest, nil
	}
	return sqlite.One[int64](ctx, l.reader, `
		SELECT coalesce((SELECT (SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET ?1 - 1)
		                 FROM events ORDER BY seq DESC LIMIT 1 OFFSET ?1 + ?2 - 1), ?3)`, Kept, spare, oldest)
}

// trimAll deletes the events that are not kept any more, some at a time.
func (l *Log) trimAll(ctx context.Context) error {
	old, err := l.tooOld(ctx)
	for more := true; more && err == nil && ctx.Err() == nil; {
		more, err = l.trim(ctx, old)
	}
	return err
}

// tooOld returns the seq before which events are older than KeptTime. The clock of a host without a battery
// stands far back until NTP sets it. So after a time of quietTime without an event the age of the events
// before it counts from the event after it.
func (l *Log) tooOld(ctx context.Context) (seq int64, err error) {
	seq, err = l.firstSince(ctx, l.now().Add(-KeptTime))
	if err != nil {
		return 0, err
	}
	quiet, err := sqlite.One[bool](ctx, l.reader, `
		SELECT coalesce((SELECT at FROM events WHERE seq >= ?1 ORDER BY seq LIMIT 1), ?2) -
		       coalesce((SELECT at FROM events WHERE seq < ?1 ORDER BY seq DESC LIMIT 1), ?2) > ?3`,
		seq, sqlite.Stamp(l.now()), quietTime.Milliseconds())
	if err != nil || !quiet {
		return seq, err
	}
	return sqlite.One[int64](ctx, l.reader, `
		SELECT coalesce(max(seq), 0) FROM (SELECT seq, at - lag(at) OVER (ORDER BY seq) AS step FROM events WHERE seq < ?)
		WHERE step > ?`, seq, quietTime.Milliseconds())
}

// trim deletes at most trimBatch of the oldest events, those that are too old before a seq only, and reports whether more are to be deleted.
func (l *Log) trim(ctx context.Context, old int64) (more bool, err error) {
	oldest, last, err := bounds(ctx, l.reader)
	if err != nil || last == 0 {
		return false, err
	}
	first, err := l.firstKept(ctx, oldest, last)
	if err != nil {
		return false, err
	}
	if first == oldest && old <= oldest || oldest == last {
		return false, nil
	}
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		count, err := sqlite.Exec(ctx, tx, `
			DELETE FROM events WHERE seq IN (
			    SELECT seq FROM (SELECT seq, at FROM events WHERE seq < ? ORDER BY seq LIMIT ? + 0) WHERE seq < ? OR seq < ? AND at < ?)`,
			last, trimBatch, first, old, sqlite.Stamp(l.now().Add(-KeptTime)))
		more = count == trimBatch
		return err
	})
	return more, err
}
