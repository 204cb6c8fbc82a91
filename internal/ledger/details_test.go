package ledger_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"meshddns/internal/ledger"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// TestDetailsAreKept stores the detail of a fault and opens the database anew: both languages
// are still there. A detail that an older program has stored is one line in English.
func TestDetailsAreKept(t *testing.T) {
	file := "file:" + filepath.Join(t.TempDir(), "x.db") + "?_foreign_keys=1&_txlock=immediate"
	open := func() (*sql.DB, *ledger.Ledger) {
		db, err := sql.Open("sqlite3", file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(1)
		return db, ledger.New(db, sqlite.NewQueue(db, func() {}).Do, time.Now, "0123456789ab")
	}
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	db, g := open()
	exec(t, db, string(schema))
	use(t, db, "one")
	const old = "the account has no zone that contains \"x\""
	exec(t, db, `
		INSERT INTO names (name, version, due, lane, pass) VALUES ('x', 1, NULL, '', 0);
		INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
		VALUES ('x', 1, '', '', 'leftover', 'v', '', 0, 0, 'zone_not_found', '`+old+`', '', 0, '', '')`)
	if english, chinese := leftoverDetail(t, g); english != old || chinese != old {
		t.Errorf("an old detail is %q and %q", english, chinese)
	}
	place := reconcile.Place{ID: 1, Name: "x", Account: reconcile.Account{ID: 1}, State: reconcile.Leftover, Standing: "v"}
	place.Fault = reconcile.Fault{Code: "zone_not_found", Detail: msg.Textf("the account has no zone that contains %q", "x")}
	if err := g.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{place}}); err != nil {
		t.Fatal(err)
	}
	db.Close()
	_, g = open()
	if english, chinese := leftoverDetail(t, g); english != old || chinese != `账号下没有包含 "x" 的区域` {
		t.Errorf("a detail is %q and %q after a restart", english, chinese)
	}
}

// leftoverDetail gives the detail of the only leftover in both languages.
func leftoverDetail(t *testing.T, g *ledger.Ledger) (english, chinese string) {
	t.Helper()
	all, err := g.Leftovers(t.Context(), 0, 2)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	detail := all[0].Place.Fault.Detail
	return detail.In(msg.English), detail.In(msg.Chinese)
}
