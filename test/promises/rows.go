package promises

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/test/support"
)

// The index refuses what no check before it could: many at once, one prefix.
func (suite database) TestIndexBeatsTheRace(t *testing.T) {
	s := suite.filled(t)
	for round := range 25 {
		var mu sync.Mutex
		count := map[string]int{}
		var writing sync.WaitGroup
		for i := range 8 {
			prefix := []string{"office", "OFFICE", "Office", "oFFICE"}[i/2] + fmt.Sprint(round)
			writing.Go(func() {
				_, err := s.tryReserve("svc", prefix, uint64(i))
				mu.Lock()
				defer mu.Unlock()
				count[fmt.Sprint(err)]++
			})
		}
		writing.Wait()
		if want := map[string]int{"<nil>": 1, string(msg.PrefixTaken): 7}; !maps.Equal(count, want) {
			t.Fatalf("round %d: %v, want %v", round, count, want)
		}
	}
	var loose int
	if err := s.Reader.QueryRow(`SELECT count(*) FROM bindings WHERE usage_id NOT IN (SELECT id FROM usages)`).Scan(&loose); err != nil || loose != 0 {
		t.Errorf("%d bindings without a usage, %v", loose, err)
	}
}

// A group whose disk is full comes to nothing, and each of it is tried alone: what
// was acknowledged is there, what was not has left nothing.
func (suite database) TestReservationsOnFullDisk(t *testing.T) {
	s := suite.filled(t)
	limit := func(pages string) {
		t.Helper()
		support.Exec(t, s.Writer, `PRAGMA max_page_count = `+pages)
	}
	limit("60")
	var mu sync.Mutex
	var acknowledged, full int
	fill := func() {
		var writing sync.WaitGroup
		for i := range 64 {
			writing.Go(func() {
				for round := range 5 {
					u, err := s.tryReserve("svc", fmt.Sprintf("office-%d-%d", i, round), uint64(i*5+round))
					if err == refused(msg.PrefixTaken) {
						continue
					}
					mu.Lock()
					switch {
					case err == nil:
						acknowledged++
					case strings.Contains(err.Error(), "full"):
						full++
					default:
						t.Error(err)
					}
					mu.Unlock()
					if stored, fault := s.usage(u.ID); err == nil && (fault != nil || stored.Network != u.Network || stored.Prefix != u.Prefix) {
						t.Errorf("answered %+v, stored %+v, %v", u, stored, fault)
					}
				}
			})
		}
		writing.Wait()
	}
	counts := func() []string {
		return support.Rows(t, s.Reader, `
			SELECT (SELECT count(*) FROM usages), (SELECT count(*) FROM bindings), (SELECT count(*) FROM names),
			       (SELECT sum(count) FROM totals WHERE what <> 'services'), (SELECT usage_count FROM services)`)
	}
	all := func(n int) []string { return []string{strings.Join(slices.Repeat([]string{fmt.Sprint(n)}, 5), " | ")} }
	fill()
	if got := counts(); full == 0 || acknowledged == 0 || !slices.Equal(got, all(acknowledged)) {
		t.Fatalf("%d acknowledged, %d found the disk full, stored %v", acknowledged, full, got)
	}
	limit("1000000")
	fill()
	if got := counts(); !slices.Equal(got, all(64*5)) || acknowledged != 64*5 {
		t.Errorf("%d acknowledged, stored %v", acknowledged, got)
	}
}

// The schema itself refuses what the program never writes.
func (suite database) TestSchemaRefuses(t *testing.T) {
	s := suite.filled(t)
	u, err := s.tryReserve("svc", "Office", 1)
	support.Must(t, err)
	const usages = `INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at) VALUES `
	const bindings = `INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) VALUES `
	const places = `INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since) VALUES `
	seq := fmt.Sprint(s.count(`SELECT seq FROM usages`))
	for name, statement := range map[string]string{
		"a prefix twice":              usages + `('u', 'svc', 'mesh_sync', 'custom', 'Office', 'TXT', '', 1, '[]', '` + u.Name + `', '')`,
		"in other letter case":        usages + `('u', 'svc', 'mesh_sync', 'custom', 'oFFICE', 'TXT', '', 1, '[]', '` + u.Name + `', '')`,
		"a service that is not there": usages + `('u', 'gone', 'mesh_sync', 'auto', 'x', 'TXT', '', 1, '[]', '', '')`,
		"an unknown mode":             usages + `('u', 'svc', 'mesh_sync', 'nope', 'x', 'TXT', '', 1, '[]', '', '')`,
		"an id twice":                 usages + `('` + u.ID + `', 'svc', 'mesh_sync', 'auto', 'x', 'TXT', '', 1, '[]', '', '')`,
		"a usage that is not there":   bindings + `(99, 'b', 1, 'gone', 'svc', 'active')`,
		"a second binding":            bindings + `(` + seq + `, 'b', 1, '` + u.ID + `', 'svc', 'active')`,
		"an unknown status":           `UPDATE bindings SET status = 'nope'`,
		"a text for a number":         `UPDATE bindings SET network_id = 'x'`,
		"a second row of the owner":   `INSERT INTO appliance (id, owner) VALUES (2, 'x')`,
		"a second pass":               `INSERT INTO pass (id, number, requested, requested_at, running, last) VALUES (2, 0, '', 0, '', '')`,
		"a service that is used":      `DELETE FROM services`,
		"a usage's service, renamed":  `UPDATE services SET id = 'other'`,
		"a place without an account":  places + `('n', 1, '', '', 'pending', '', '', 0, 0, '', '', '', 0, '', '')`,
	} {
		if _, err := s.Writer.Exec(statement); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// What is shown as a total is what counting gives, whatever was called.
func (suite database) TestTotalsAreCounts(t *testing.T) { synctest.Test(t, suite.totalsAreCounts) }

func (suite Suite) totalsAreCounts(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 1))
	s := suite.filled(t)
	ctx := t.Context()
	for i := range 3 {
		s.reconfigure(fmt.Sprint("s", i), dnsConfig("s.example", "provider", "builtin"))
	}
	s.configure(members{"provider": "builtin", "access_key_id": "x", "access_key_secret": "x", "domain": "example.com", "txt_record_name": "_txt", "enabled": true})
	calls := []func() error{
		func() error {
			_, err := s.tryReserve([]string{"svc", "s0", "s1", "gone"}[random.IntN(4)], fmt.Sprint("p", random.IntN(40)), random.Uint64())
			return err
		},
		func() error {
			_, err := s.free(s.someUsage(random).ID, random.IntN(2) == 0)
			return err
		},
		func() error { return s.deleteService(fmt.Sprint("s", random.IntN(4))) },
		func() error {
			return s.putService(fmt.Sprint("s", random.IntN(4)), `{"domain":"s.example"}`)
		},
		func() error { return settleRandomly(t, s, random) },
		func() error {
			all, err := s.Ledger.Leftovers(ctx, 0, 1)
			if err != nil || len(all) == 0 {
				return err
			}
			return s.Ledger.ForgetLeftover(ctx, all[0].Place.ID)
		},
	}
	seen := map[string]bool{}
	for n := range 1500 {
		calls[random.IntN(len(calls))]() // many are refused, and leave the counts as they are
		if n%10 == 0 {
			maps.Copy(seen, checkTotals(t, s))
		}
	}
	if len(seen) < 9 {
		t.Errorf("only %v have rows: the test has come to little", seen)
	}
}

// someUsage gives one of the older usages, a zero one where there is none.
func (h *host) someUsage(random *rand.Rand) (u usage) {
	if all := h.usages(""); len(all) > 0 {
		u = all[random.IntN(min(40, len(all)))]
	}
	return u
}

// settleRandomly brings the place of a name into another state, or ends it.
func settleRandomly(t *testing.T, s *host, random *rand.Rand) error {
	name := s.someUsage(random).Name
	state, err := s.Ledger.State(t.Context(), []string{name})
	if err != nil || len(state.Names[0].Usages) == 0 || state.Names[0].Usages[0].Account == nil {
		return err
	}
	p := reconcile.Place{Name: name, Account: *state.Names[0].Usages[0].Account}
	if stored := state.Names[0].Places; len(stored) > 0 {
		p = stored[0]
	}
	if p.ID != 0 && random.IntN(4) == 0 {
		return s.Ledger.Settle(t.Context(), reconcile.Settlement{Ended: []reconcile.Place{p}})
	}
	p.State = reconcile.PlaceStates[random.IntN(len(reconcile.PlaceStates))]
	p.Standing = mesh.Value(state.Names[0].Usages[0].Network, s.Owner, nil)
	return s.Ledger.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{p}})
}

// checkTotals counts what the totals tell of, and gives what there is any of.
func checkTotals(t *testing.T, s *host) (seen map[string]bool) {
	t.Helper()
	totals := s.totals()
	count := map[string]string{"services": `SELECT count(*) FROM services`, "usages": `SELECT count(*) FROM usages`}
	for _, state := range []reconcile.PlaceState{reconcile.Leftover, reconcile.Withdrawn} {
		count[string(state)] = `SELECT count(*) FROM places WHERE state = '` + string(state) + `'`
	}
	for _, state := range reconcile.UsageStates {
		count[string(state)] = `SELECT count(*) FROM usages WHERE state = '` + string(state) + `'`
	}
	own, err := s.Ledger.OwnState(t.Context())
	support.Must(t, err)
	totals[string(own)]--
	seen = map[string]bool{}
	for what, query := range count {
		got := support.Rows(t, s.Reader, query)[0]
		if got != fmt.Sprint(totals[what]) {
			t.Errorf("total of %s: %d, there are %s", what, totals[what], got)
		}
		if got != "0" {
			seen[what] = true
		}
	}
	for _, line := range support.Rows(t, s.Reader, `SELECT id, usage_count, (SELECT count(*) FROM usages WHERE provider_id = services.id) FROM services`) {
		if words := strings.Split(line, " | "); words[1] != words[2] {
			t.Errorf("usages of a service: %s", line)
		}
	}
	return seen
}

// A key goes when nothing needs it any more, and stays as long as a value stands
// that it was published with.
func (suite database) TestKeysOfAccounts(t *testing.T) {
	s := suite.filled(t)
	ctx := t.Context()
	put := func(key string) {
		t.Helper()
		s.configure(members{"provider": "alidns", "access_key_id": key, "access_key_secret": "secret of " + key, "domain": "example.com", "txt_record_name": "_txt"})
	}
	check := func(want ...string) {
		t.Helper()
		got := support.Rows(t, s.Reader, `SELECT access_key_id, access_key_secret FROM accounts ORDER BY access_key_id`)
		for i, key := range want {
			want[i] = key + " | secret of " + key
		}
		if !slices.Equal(got, want) {
			t.Errorf("accounts %q, want %q", got, want)
		}
	}
	put("one")
	put("two")
	check("two")
	state, err := s.Ledger.State(ctx, []string{"_txt.example.com"})
	support.Must(t, err)
	p := reconcile.Place{Name: "_txt.example.com", Account: state.Names[0].Own.Account, Zone: "example.com", State: reconcile.Published, Standing: "v"}
	support.Must(t, s.Ledger.Settle(ctx, reconcile.Settlement{Places: []reconcile.Place{p}}))
	put("three")
	check("three", "two")
	s.reconfigure("own", dnsConfig("o.example", "provider", "alidns", "access_key_id", "four", "access_key_secret", "secret of four"))
	check("four", "three", "two")
	support.Must(t, s.deleteService("own"))
	check("three", "two")
	if state, err = s.Ledger.State(ctx, []string{"_txt.example.com"}); err != nil || len(state.Names[0].Places) != 1 {
		t.Fatal(state, err)
	}
	support.Must(t, s.Ledger.Settle(ctx, reconcile.Settlement{Ended: state.Names[0].Places}))
	check("three")
}

// TestListsWhileAccountsGo lists zones and leftovers while their accounts come and
// go: what is listed is of one moment.
func (suite database) TestListsWhileAccountsGo(t *testing.T) {
	s := suite.filled(t)
	ctx := t.Context()
	put := func(n int) error {
		key := fmt.Sprint("key ", n%2)
		c := members{"provider": "alidns", "access_key_id": key, "access_key_secret": "secret", "domain": "example.com", "txt_record_name": "_txt"}
		return s.putConfiguration(c)
	}
	place := func() error {
		state, err := s.Ledger.State(ctx, []string{"_txt.example.com"})
		if err != nil {
			return err
		}
		left := reconcile.Place{Name: "_txt.example.com", Account: state.Names[0].Own.Account, Zone: "example.com", State: reconcile.Leftover, Standing: "v"}
		return s.Ledger.Settle(ctx, reconcile.Settlement{Ended: state.Names[0].Places, Places: []reconcile.Place{left}})
	}
	support.Must(t, put(0))
	changed := make(chan error, 1)
	go func() {
		var err error
		for n := range 200 {
			err = errors.Join(err, put(n), place())
		}
		changed <- err
	}()
	for {
		if zones, err := s.Ledger.Zones(ctx); err != nil || len(zones) == 0 {
			t.Fatal(zones, err)
		}
		if left, err := s.Ledger.Leftovers(ctx, 0, 10); err != nil {
			t.Fatal(left, err)
		}
		select {
		case err := <-changed:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// A write that was not tried, because its account or its name went meanwhile, leaves no
// place, and takes nothing with it of what else came of its batch.
func (suite database) TestSettleAfterAccount(t *testing.T) {
	s := suite.filled(t)
	s.configure(members{"provider": "alidns", "access_key_id": "x", "access_key_secret": "secret of x", "domain": "example.com", "txt_record_name": "_txt"})
	state, err := s.Ledger.State(t.Context(), []string{"_txt.example.com"})
	support.Must(t, err)
	kept := reconcile.Place{Name: "_txt.example.com", Account: state.Names[0].Own.Account, Zone: "example.com", State: reconcile.Failed}
	lost := kept
	lost.Account.ID += 1000
	released := kept
	released.Name = "_mesh.released.example.com"
	support.Must(t, s.Ledger.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{lost, released, kept}}))
	if got := support.Rows(t, s.Reader, `SELECT name, state FROM places`); len(got) != 1 || got[0] != "_txt.example.com | failed" {
		t.Errorf("places %q", got)
	}
}
