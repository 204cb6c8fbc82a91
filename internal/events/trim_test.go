package events

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"meshddns/internal/sqlite"
	"meshddns/test/support"
)

// Events that were stored before the clock was right are kept from then on for as long as others, also by a
// program that starts later.
func TestClockIsSet(t *testing.T) {
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	db := support.OpenSQLite(t, filepath.Join(t.TempDir(), "x.db"), "_journal_mode=WAL&_synchronous=OFF&_txlock=immediate&_busy_timeout=5000")
	if _, err := db.Exec(string(schema)); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	log := New(db, sqlite.NewQueue(db, nil, func(sqlite.Notice) {}).Do, func() time.Time { return now }, func(int64) {})
	right := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, step := range []struct {
		what   string
		at     time.Time
		events int
		rows   int // that are kept then
	}{
		{"before the clock is set", now, 3, 3},
		{"at once", right, 0, 3},
		{"with the next event", right.Add(time.Second), 1, 4},
		{"just before they are too old", right.Add(KeptTime), 1, 5},
		{"too old", right.Add(KeptTime + time.Minute), 0, 2},
		{"after a quiet time", right.Add(2 * KeptTime), 1, 3},
		{"a day's events", right.Add(2*KeptTime + time.Hour), 1, 3},
		{"when the next ones are too old", right.Add(3*KeptTime + time.Minute), 0, 1},
	} {
		now = step.at
		for range step.events {
			if err := log.Note(t.Context(), Event{Kind: BackupMade}); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.trimAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		var rows int
		if err := db.QueryRow(`SELECT count(*) FROM events`).Scan(&rows); err != nil || rows != step.rows {
			t.Errorf("%s: %d events, want %d, %v", step.what, rows, step.rows, err)
		}
	}
}
