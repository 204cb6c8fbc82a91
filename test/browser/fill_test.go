package browser

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
)

// fill writes a day of samples and events into the database of a program.
func fill(t *testing.T, file string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+file+"?_busy_timeout=10000&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	now := time.Now()
	write := func(query string, args ...any) {
		t.Helper()
		if _, err := tx.Exec(query, args...); err != nil {
			t.Fatal(err)
		}
	}
	write(`DELETE FROM samples`)
	for i := 96; i > 0; i-- {
		published, failed, pending := 9, 0, 0
		switch {
		case i < 40:
			published = 13
		case i < 60:
			published = 11
		}
		if i == 60 || i == 40 {
			pending = 2
		}
		if i < 34 && i > 26 {
			published, failed = published-3, 3
		}
		if i < 3 {
			failed = 3
		}
		write(`INSERT INTO samples (at, counts) VALUES (?, ?)`, now.Add(-time.Duration(i)*15*time.Minute).UnixMilli(),
			fmt.Sprintf(`{"published":%d,"pending":%d,"failed":%d}`, published, pending, failed))
	}
	for _, e := range []struct {
		ago                   time.Duration
		kind, name, caller    string
		before, after, detail string
	}{
		{900 * time.Minute, "usage.reserved", "_mesh.guest.office.mesh.example", "token 1", "", "", ""},
		{899 * time.Minute, "record.published", "_mesh.guest.office.mesh.example", "", "", `"v=mesh1 n=7 tcp://203.0.113.7:11010"`, ""},
		{512 * time.Minute, "zone.down", "lab.example.net", "", "", "", `{"provider":"rfc2136","fault":{"Code":"network","Detail":"dial: timeout"}}`},
		{511 * time.Minute, "record.failed", "_mesh.rack-0.lab.example.net", "", "", "", `{"fault":{"Code":"network","Detail":"dial: timeout"}}`},
		{396 * time.Minute, "zone.recovered", "lab.example.net", "", "", "", `{"provider":"rfc2136"}`},
		{300 * time.Minute, "record.conflict", "_mesh.guest.office.mesh.example", "", "", "", `{"fault":{"Code":"conflict","Detail":"CNAME"}}`},
		{290 * time.Minute, "usage.released", "_mesh.guest.office.mesh.example", "127.0.0.1", "", "", ""},
		{100 * time.Minute, "address.changed", "", "", `"203.0.113.6"`, `"203.0.113.7"`, ""},
		{30 * time.Minute, "record.failed", "_mesh.rack-1.lab.example.net", "", "", "", `{"fault":{"Code":"network","Detail":"dial: timeout"}}`},
	} {
		write(`INSERT INTO events (at, kind, name, usage, usage_id, service_id, caller, before, after, detail) VALUES (?, ?, ?, 0, '', '', ?, ?, ?, ?)`,
			now.Add(-e.ago).UnixMilli(), e.kind, e.name, e.caller, e.before, e.after, e.detail)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}
