package events_test

import (
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/sqlite"
	"meshddns/test/support"
)

// world is a log on a database file with today's tables and a clock of its own.
type world struct {
	*events.Log
	t   *testing.T
	db  *sql.DB
	tx  func(context.Context, func(context.Context, *sql.Tx) error) error
	now time.Time

	noted int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, now: time.UnixMilli(1_800_000_000_000)}
	w.db = support.OpenSQLite(t, filepath.Join(t.TempDir(), "x.db"), "_journal_mode=WAL&_synchronous=OFF&_txlock=immediate&_busy_timeout=5000")
	w.tx = sqlite.NewQueue(w.db, nil, func(n sqlite.Notice) { w.Committed(n) }).Do
	w.exec(string(schema))
	w.Log = events.New(w.db, w.tx, func() time.Time { return w.now }, func(seq int64) { w.noted = seq })
	return w
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Exec(query, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) note(e events.Event) {
	w.t.Helper()
	if err := w.Note(w.t.Context(), e); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) seqs(f events.Filter, limit int) (seqs []int64, kinds []events.Kind) {
	w.t.Helper()
	page, err := w.Page(w.t.Context(), f, limit)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range page {
		seqs, kinds = append(seqs, e.Seq), append(kinds, e.Kind)
	}
	return seqs, kinds
}

func TestPageFilters(t *testing.T) {
	w := newWorld(t)
	network := sql.Null[mesh.NetworkID]{V: 1<<64 - 1, Valid: true}
	fault := mesh.Fault{Code: "network", Detail: "refused", Key: "configuration"}
	all := []events.Event{
		{Kind: events.UsageReserved, Name: "a.example", Usage: 1, UsageID: "u1", ServiceID: "s", Network: network, Detail: events.Detail{After: events.JSON("x")}},
		{Kind: events.RecordFailed, Name: "a.example", Detail: events.Detail{Zone: "example", Provider: "webhook", Fault: fault}},
		{Kind: events.UsageReserved, Name: "b.example", Usage: 2, UsageID: "u2"},
		{Kind: events.UsageReleased, Name: "a.example", Usage: 1, UsageID: "u1", Detail: events.Detail{Count: 3}},
	}
	for _, e := range all {
		if err := w.Note(events.By(t.Context(), "token 1"), e); err != nil {
			t.Fatal(err)
		}
	}
	w.exec(`PRAGMA foreign_keys = OFF`)
	w.exec(`
		INSERT INTO usages (seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		VALUES (2, 'u2', 's', '', 'auto', '', 'TXT', '', 1, '[]', 'b.example', '')`)
	for _, test := range []struct {
		filter events.Filter
		want   []int64
	}{
		{events.Filter{}, []int64{1, 2, 3, 4}},
		{events.Filter{Newest: true}, []int64{4, 3, 2, 1}},
		{events.Filter{After: 2}, []int64{3, 4}},
		{events.Filter{Kind: "usage.*"}, []int64{1, 3, 4}},
		{events.Filter{Kind: "record.failed"}, []int64{2}},
		{events.Filter{UsageID: "u1"}, []int64{1, 4}},
		{events.Filter{Name: "a.example"}, []int64{1, 2, 4}},
		{events.Filter{Name: "b.example"}, []int64{3}},
		{events.Filter{UsageID: "u2"}, []int64{3}},
		{events.Filter{Name: "a.example", UsageID: "u2"}, nil},
		{events.Filter{About: "u1"}, []int64{1, 2, 4}},
		{events.Filter{About: "u1", Kind: "record.*"}, []int64{2}},
		{events.Filter{About: "u2"}, []int64{3}},
		{events.Filter{About: "u3"}, nil},
	} {
		if got, _ := w.seqs(test.filter, 100); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %v, want %v", test.filter, got, test.want)
		}
	}
	page, err := w.Page(t.Context(), events.Filter{}, 2)
	if err != nil || len(page) != 2 {
		t.Fatal(page, err)
	}
	if e := page[0]; e.By != "token 1" || e.Network != network || string(e.Detail.After) != `"x"` || !e.At.Equal(w.now) {
		t.Errorf("%+v", e)
	}
	if got := page[1].Detail; got.Fault != fault || got.Zone != "example" || got.Provider != "webhook" {
		t.Errorf("%+v", got)
	}
	e, ok, err := events.LastAbout(t.Context(), w.db, page[1], events.UsageReserved, events.RecordFailed)
	if err != nil || !ok || e.Seq != 2 {
		t.Error(e, ok, err)
	}
	if e, ok, err := events.LastAbout(t.Context(), w.db, page[1], events.BackupMade); ok || err != nil {
		t.Error(e, err)
	}
	other := page[1]
	other.Detail.Record = "TXT"
	if e, ok, err := events.LastAbout(t.Context(), w.db, other, events.RecordFailed); ok || err != nil {
		t.Error("an event of another record", e, err)
	}
	for ask, want := range map[[2]string]bool{{"u1", ""}: true, {"u2", ""}: true, {"u3", ""}: false, {"u1", "another"}: false, {"u2", "another"}: false} {
		if known, err := w.Knows(t.Context(), ask[0], ask[1]); err != nil || known != want {
			t.Errorf("%q: %v, %v", ask, known, err)
		}
	}
}

// Events are counted by kind and quarter of an hour, wherever the kept ones begin.
func TestCounts(t *testing.T) {
	w := newWorld(t)
	now := w.now
	for minutes := 90; minutes >= 0; minutes -= 10 {
		w.now = now.Add(-time.Duration(minutes) * time.Minute)
		w.note(events.Event{Kind: events.RecordFailed})
		w.note(events.Event{Kind: events.RecordPublished})
	}
	w.note(events.Event{Kind: events.ZoneDown})
	since := now.Add(-time.Hour)
	quarter := func(n int) time.Time { return since.Add(time.Duration(n) * 15 * time.Minute) }
	down := events.Count{Kind: events.ZoneDown, Begin: quarter(4), Number: 1}
	for _, deleted := range []int{0, 3, 20} {
		w.exec(`DELETE FROM events WHERE seq <= ?`, deleted)
		want := []events.Count{down}
		if deleted < 20 {
			want = []events.Count{
				{Kind: events.RecordFailed, Begin: quarter(0), Number: 2}, {Kind: events.RecordFailed, Begin: quarter(1), Number: 1},
				{Kind: events.RecordFailed, Begin: quarter(2), Number: 2}, {Kind: events.RecordFailed, Begin: quarter(3), Number: 1},
				{Kind: events.RecordFailed, Begin: quarter(4), Number: 1}, down,
			}
		}
		got, err := w.Counts(t.Context(), since, 15*time.Minute, events.RecordFailed, events.ZoneDown)
		if err != nil || !slices.EqualFunc(got, want, func(a, b events.Count) bool {
			return a.Kind == b.Kind && a.Begin.Equal(b.Begin) && a.Number == b.Number
		}) {
			t.Errorf("%d deleted: %v, %v, want %v", deleted, got, err, want)
		}
	}
}

// A rolled back change leaves no event, and its seq is used by the next one.
// A certificate that ends soon has one event, also after another one and a restart, while it is one of the last 100.
func TestNoteExpiring(t *testing.T) {
	w := newWorld(t)
	noted := func(want int, raw ...string) {
		t.Helper()
		for _, raw := range raw {
			if err := w.NoteExpiring(t.Context(), &x509.Certificate{Raw: []byte(raw), NotAfter: w.now}); err != nil {
				t.Fatal(err)
			}
		}
		if seqs, _ := w.seqs(events.Filter{Kind: "certificate.*"}, 1000); len(seqs) != want {
			t.Errorf("%d events, want %d", len(seqs), want)
		}
	}
	noted(1, "a", "a")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.NoteExpiring(ended, &x509.Certificate{Raw: []byte("a")}); err != nil {
		t.Errorf("the log is read once more for the certificate of the last call: %v", err)
	}
	noted(2, "b", "a")
	w.Log = events.New(w.db, w.tx, func() time.Time { return w.now }, func(int64) {})
	noted(2, "a", "b")
	for i := range 98 {
		w.note(events.Event{Kind: events.CertificateExpiring, Detail: events.Detail{After: events.JSON(i)}})
	}
	noted(100, "a")
	noted(102, "c", "a")
}

func TestEventBelongsToItsTransaction(t *testing.T) {
	w := newWorld(t)
	fault := errors.New("the change fails")
	grown := w.Grown()
	err := w.tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(w.Add(ctx, tx, events.Event{Kind: events.BackupMade}), fault)
	})
	if !errors.Is(err, fault) {
		t.Fatal(err)
	}
	select {
	case <-grown:
		t.Error("a reader is woken by a change that was rolled back")
	default:
	}
	if got, _ := w.seqs(events.Filter{}, 10); got != nil {
		t.Error(got)
	}
	w.note(events.Event{Kind: events.BackupMade})
	<-grown
	if got, _ := w.seqs(events.Filter{}, 10); !slices.Equal(got, []int64{1}) {
		t.Error(got)
	}
}

// fill stores events up to a seq without their changes.
func (w *world) fill(last int) {
	w.t.Helper()
	w.exec(`
		WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
		INSERT INTO events (seq, at, kind, name, usage, usage_id, service_id, caller, before, after, detail)
		SELECT n, ?, 'backup.made', '', 0, '', '', '', '', '', '' FROM numbers`, last, w.now.UnixMilli())
}

// The first entry is a gap if events after a number are not there: not any more, or not yet.
func TestGap(t *testing.T) {
	w := newWorld(t)
	w.fill(20)
	w.exec(`DELETE FROM events WHERE seq <= 7`)
	got, kinds := w.seqs(events.Filter{}, 3)
	if !slices.Equal(got, []int64{7, 8, 9}) || kinds[0] != events.Gap {
		t.Errorf("%v %v", got, kinds)
	}
	page, err := w.Page(t.Context(), events.Filter{After: 2, Kind: "record.*"}, 1)
	if err != nil || len(page) != 1 || page[0].Detail.From != 3 || page[0].Detail.To != 7 {
		t.Errorf("%+v %v", page, err)
	}
	page, err = w.Page(t.Context(), events.Filter{After: math.MaxInt64}, 3)
	if err != nil || len(page) != 1 || page[0].Kind != events.Gap || page[0].Seq != 20 || page[0].Detail.From != 21 || page[0].Detail.To != math.MaxInt64 {
		t.Errorf("beyond the last event: %+v %v", page, err)
	}
	if got, _ := w.seqs(events.Filter{After: 20}, 3); got != nil {
		t.Errorf("after the last event come %v", got)
	}
	if got, kinds := w.seqs(events.Filter{After: 7}, 1); !slices.Equal(got, []int64{8}) || kinds[0] == events.Gap {
		t.Errorf("%v %v", got, kinds)
	}
}

// restored stores the event of a restored database.
func (w *world) restored() (seq int64) {
	w.t.Helper()
	if err := w.tx(w.t.Context(), w.AddRestored); err != nil {
		w.t.Fatal(err)
	}
	seq, err := w.Last(w.t.Context())
	if err != nil || seq != w.noted {
		w.t.Fatalf("the last event is %d, noted is %d, %v", seq, w.noted, err)
	}
	return seq
}

// TestRestored: the event of a restored database has a number beyond those of the lost one. The events before it can
// be read, are counted, and are deleted as if the numbers had no leap.
func TestRestored(t *testing.T) {
	w := newWorld(t)
	w.fill(20)
	w.now = w.now.Add(time.Hour)
	leap := w.restored()
	if leap != 20+1_000_000+3_600_000 {
		t.Errorf("seq %d", leap)
	}
	w.note(events.Event{Kind: events.BackupMade})
	for after, want := range map[int64][]int64{0: {1, 2, 3}, 19: {20, leap, leap + 1}, 44: {leap, leap + 1}, leap: {leap + 1}} {
		if got, kinds := w.seqs(events.Filter{After: after}, 3); !slices.Equal(got, want) || slices.Contains(kinds, events.Gap) {
			t.Errorf("after %d: %v %v, want %v", after, got, kinds, want)
		}
	}
	counts, err := w.Counts(t.Context(), w.now.Add(-time.Minute), time.Hour, events.BackupMade, events.DatabaseRestored)
	if err != nil || len(counts) != 2 || counts[0].Number != 1 || counts[1].Number != 1 {
		t.Errorf("%+v %v", counts, err)
	}
	w = newWorld(t)
	w.fill(events.Kept)
	w.restored()
	w.keep(func(rows, first int64) bool { return rows == events.Kept+1 && first == 1 })
	w.exec(`
		WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1500)
		INSERT INTO events (at, kind, name, usage, usage_id, service_id, caller, before, after, detail)
		SELECT ?, 'backup.made', '', 0, '', '', '', '', '', '' FROM numbers`, w.now.UnixMilli())
	w.keep(func(rows, first int64) bool { return rows == events.Kept+501 && first == 1001 })
}

// keep runs Keep until a condition holds for the number of rows and the first seq.
func (w *world) keep(until func(rows, first int64) bool) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error)
	go func() { ended <- w.Keep(ctx) }()
	support.Eventually(w.t, time.Minute, "the log is trimmed", func() bool {
		var rows, first int64
		if err := w.db.QueryRow(`SELECT count(*), min(seq) FROM events`).Scan(&rows, &first); err != nil {
			w.t.Fatal(err)
		}
		return until(rows, first)
	})
	cancel()
	if err := <-ended; err != nil {
		w.t.Error(err)
	}
}

func TestOldEventsAreDeleted(t *testing.T) {
	w := newWorld(t)
	w.fill(events.Kept + 3500)
	w.keep(func(rows, first int64) bool { return rows == events.Kept+500 && first == 3001 }) // fewer than 1 000 too many may stay

	w.now = w.now.Add(events.KeptTime + time.Hour)
	w.note(events.Event{Kind: events.BackupMade})
	w.now = w.now.Add(events.KeptTime + time.Hour)
	w.keep(func(rows, first int64) bool { return rows == 1 && first == events.Kept+3501 })
	w.note(events.Event{Kind: events.BackupMade})
	if last, err := w.Last(t.Context()); err != nil || last != events.Kept+3502 {
		t.Errorf("a seq is used twice: %d, %v", last, err)
	}
}

// A follower gets the events of its filter in order, also those that are committed while it reads,
// and waits without reading when there is none.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	w.note(events.Event{Kind: events.BackupMade})
	w.note(events.Event{Kind: events.ZoneDown, Name: "a.example"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, pulses := make(chan int64, 10), 0
	ended := make(chan error)
	go func() {
		ended <- w.Follow(ctx, events.Filter{Kind: "zone.*"}, func() error { pulses++; return nil }, func(e events.Event) error {
			got <- e.Seq
			return nil
		})
	}()
	if seq := <-got; seq != 2 {
		t.Error(seq)
	}
	w.note(events.Event{Kind: events.BackupMade})
	w.note(events.Event{Kind: events.ZoneRecovered, Name: "a.example"})
	if seq := <-got; seq != 4 {
		t.Error(seq)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || pulses != 1 {
		t.Error(err, pulses)
	}
	gone := errors.New("the client has gone")
	err := w.Follow(t.Context(), events.Filter{}, func() error { return nil }, func(events.Event) error { return gone })
	if !errors.Is(err, gone) {
		t.Error(err)
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		kind    events.Kind
		pattern string
		want    bool
	}{
		{events.RecordFailed, "record.failed", true},
		{events.RecordFailed, "record.*", true},
		{events.RecordFailed, "zone.*", false},
		{events.RecordFailed, "*", false},
		{events.RecordFailed, "rec*", false},
		{events.RecordFailed, "", false},
	} {
		if got := test.kind.Matches(test.pattern); got != test.want {
			t.Errorf("%s, %q: %v", test.kind, test.pattern, got)
		}
	}
	if events.GoodPattern("recrod.*") || !events.GoodPattern("usage.*") {
		t.Error("a pattern that selects nothing is good, or one that selects something is not")
	}
}

// TestPulse: a follower hears a comment at once, and then whenever no event has come for 15 s.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		begun, ended := time.Now(), make(chan error)
		var heard []string
		hear := func(what string) error {
			heard = append(heard, fmt.Sprint(what, " ", time.Since(begun)))
			return nil
		}
		go func() {
			ended <- w.Follow(ctx, events.Filter{}, func() error { return hear("comment") }, func(events.Event) error { return hear("event") })
		}()
		<-time.After(35 * time.Second)
		w.note(events.Event{Kind: events.BackupMade})
		<-time.After(40 * time.Second)
		cancel()
		want := []string{"comment 0s", "comment 15s", "comment 30s", "event 35.02s", "comment 50.02s", "comment 1m5.02s"}
		if err := <-ended; !errors.Is(err, context.Canceled) || !slices.Equal(heard, want) {
			t.Errorf("%q, %v, want %q", heard, err, want)
		}
	})
}
