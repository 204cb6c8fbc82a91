package ledger_test

import (
	"testing"

	"meshddns/internal/ledger"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
)

// TestDetailsAreKept stores the detail of a fault and opens the ledger anew: both languages are
// still there.
func TestDetailsAreKept(t *testing.T) {
	b := newBook(t)
	b.account("token", "one")
	b.exec(`
		INSERT INTO names (name, version, due, lane, pass) VALUES ('x', 1, NULL, '', 0);
		INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
		VALUES ('x', 1, '', '', 'leftover', 'v', '', 0, 0, '', '', '', 0, '', '')`)
	place := reconcile.Place{ID: 1, Name: "x", Account: reconcile.Account{ID: 1}, State: reconcile.Leftover, Standing: "v"}
	place.Fault = reconcile.Fault{Code: "zone_not_found", Detail: msg.Textf("the account has no zone that contains %q", "x")}
	b.must(b.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{place}}))
	b.reopen()
	if english, chinese := leftoverDetail(t, b.Ledger); english != `the account has no zone that contains "x"` || chinese != `账号下没有包含 "x" 的区域` {
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
