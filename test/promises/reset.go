package promises

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/servertest"
)

// TestWithdrawsEverything withdraws all that is stored in every mode, while the program is stopped and its provider is down for
// an hour in between: the call is repeated until it says that nothing is left, and then nothing stands and no key is stored.
func (suite publishing) TestWithdrawsEverything(t *testing.T) {
	for name, change := range map[string]members{
		modeManual: {"sync_mode": modeManual}, modeAuto: {"sync_mode": modeAuto}, modeUpsertOnly: {"sync_mode": modeUpsertOnly}, "off": {"enabled": false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, v := suite.newVendorHost(t)
				own := h.vendor("own")
				names := 3
				if name == modeAuto {
					names = 2*100 + 1 // more than two pages
				}
				h.many(h.service("example.com"), names)
				h.reserve(h.service("example.com", dnsAccount("own", "", "key", "secret")...), "office", 42)
				if r := h.run(); !r.OK() || r.Names != names+2 {
					t.Fatalf("%+v", r)
				}
				v.put(servertest.Zone, "_mesh.not.example.com", provider.Value{dnsStranger})
				h.change(change)
				left := h.reset(t, "?dry_run=1", http.StatusOK)
				if left.Usages != names+1 || left.Services != 2 || left.Names != names+2 || !left.Configuration {
					t.Errorf("a preview: %+v", left)
				}
				dnsPass(reconcile.SecondLook)
				if v.called("change") != names+1 || own.called("change") != 1 {
					t.Errorf("a preview writes")
				}
				v.fails(dnsFault(provider.Network))
				h.reset(t, "", http.StatusAccepted)
				h.restart()
				dnsPass(time.Hour) // all retries are over
				if left := h.reset(t, "", http.StatusAccepted); left.Names == 0 || left.Configuration {
					t.Errorf("while the provider is down: %+v", left)
				}
				v.works()
				calls := 1
				for ; h.tryReset(t) != http.StatusOK && calls < 100; calls++ {
					dnsPass(10 * time.Second)
				}
				if left := h.reset(t, "", http.StatusOK); left != (remains{}) {
					t.Errorf("after %d calls: %+v", calls, left)
				}
				for at, values := range v.values {
					if len(values) > 0 && at[1] != "_mesh.not.example.com" {
						t.Errorf("%s has %v", at[1], values)
					}
				}
				if h.count(`SELECT count(*) FROM accounts`) != 0 || h.count(`SELECT count(*) FROM places`) != 0 {
					t.Errorf("a key is left")
				}
			})
		})
	}
}

// remains is what a withdrawal of everything has left.
type remains struct {
	Usages, Services, Leases, Names int
	Configuration                   bool
}

// reset withdraws everything, and wants a status.
func (h *host) reset(t *testing.T, query string, want int) (left remains) {
	t.Helper()
	if status, err := h.ask(context.Background(), "DELETE", api+"state"+query, nil, &left); status != want || err != nil {
		t.Errorf("DELETE state: %d, %v, want %d: %+v", status, err, want, left)
	}
	return left
}

func (h *host) tryReset(t *testing.T) int {
	status, err := h.ask(context.Background(), "DELETE", api+"state", nil, nil)
	if err != nil {
		t.Error(err)
	}
	return status
}
