package ledger_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// TestSettings has every mode, and a database without a configuration.
func TestSettings(t *testing.T) {
	b := newBook(t)
	if s, err := b.Settings(t.Context()); err != nil || s.Configured || s.Enabled || s.Automatic || s.Retry.Retries == 0 {
		t.Errorf("without a configuration: %+v, %v", s, err)
	}
	account := b.account("token", "one")
	for mode, automatic := range map[string]bool{"auto": true, "upsert-only": true, "manual": false, "": false, "unknown": false} {
		b.configure(mode, account)
		s, err := b.Settings(t.Context())
		if err != nil || !s.Configured || !s.Enabled || s.Automatic != automatic || s.Retry.First != 7*time.Second {
			t.Errorf("mode %q: %+v, %v", mode, s, err)
		}
		if state := b.state("x"); !state.Configured || state.UpsertOnly != (mode == "upsert-only") {
			t.Errorf("mode %q: %+v", mode, state)
		}
	}
	b.exec(`UPDATE configuration SET enabled = 0`)
	if s, err := b.Settings(t.Context()); err != nil || s.Enabled {
		t.Errorf("disabled: %+v, %v", s, err)
	}
}

// TestWhereAUsageIsPublished has services with and without what the configuration has: what is
// nearest to a usage counts.
func TestWhereAUsageIsPublished(t *testing.T) {
	b := newBook(t)
	one, two := b.account("token", "one"), b.account("other", "two")
	b.configure("auto", one)
	b.service("own.example.com", two, "a://service:1")
	b.service("below.example.com", 0)
	b.service("beside.example.net", 0, "a://service:1")
	var got []string
	for i, service := range []string{"own.example.com", "below.example.com", "beside.example.net"} {
		name := b.reserve(service, "p", int64(i), "active")
		for _, endpoints := range []string{`[]`, `["a://usage:1"]`} {
			b.exec(`UPDATE usages SET txt_endpoints = ? WHERE name = ?`, endpoints, name)
			u, at := b.name(name).Usages[0], "nowhere"
			if u.Account != nil {
				at = string(u.Account.Secret) + " of " + u.Account.UsedBy
			}
			got = append(got, fmt.Sprintln(u.Domain, at, u.Endpoints))
		}
	}
	want(t, "usages", got, []string{
		"own.example.com two of service own.example.com [a://service:1]\n", "own.example.com two of service own.example.com [a://usage:1]\n",
		"below.example.com one of configuration [a://host:1]\n", "below.example.com one of configuration [a://usage:1]\n",
		"beside.example.net nowhere [a://service:1]\n", "beside.example.net nowhere [a://usage:1]\n",
	})
}

// TestStateOfNames has several names, one of them unknown: each has what is its own, in the order
// in which it was reserved.
func TestStateOfNames(t *testing.T) {
	b := newBook(t)
	account := b.account("token", "one")
	b.configure("auto", account)
	b.service("example.com", 0)
	shared := b.reserve("example.com", "p", -1, ledger.StatusReleasing)
	b.reserve("example.com", "p", 2, "active")
	b.due(shared, reconcile.LaneAsked)
	b.due(host, reconcile.LaneChanged)
	b.put(reconcile.Place{Name: host, Account: reconcile.Account{ID: account}, State: reconcile.Published, Standing: value(1)})
	var got []string
	for _, n := range b.state("unknown", host, shared).Names {
		line := fmt.Sprint(n.Name, " ", n.Version, " ", n.Own != nil, " ", len(n.Places))
		for _, u := range n.Usages {
			line += fmt.Sprint(" ", u.ID, " ", u.Network, " ", u.Releasing)
		}
		got = append(got, line)
	}
	want(t, "names", got, []string{"unknown 0 false 0", host + " 1 true 1", shared + " 1 false 0 u1 18446744073709551615 true u2 2 false"})
}

// TestLookOfALateClock has a look that is further ahead than any is: the clock was set back.
func TestLookOfALateClock(t *testing.T) {
	b := newBook(t)
	account := reconcile.Account{ID: b.account("token", "one")}
	b.put(reconcile.Place{Name: "x", Account: account, State: reconcile.Withdrawn, LookAt: b.now.Add(reconcile.SecondLook)})
	if at := b.name("x").Places[0].LookAt; !at.Equal(b.now.Add(reconcile.SecondLook)) {
		t.Errorf("looked at %v", at)
	}
	b.now = b.now.Add(-time.Second)
	if at := b.name("x").Places[0].LookAt; !at.Equal(b.now) {
		t.Errorf("looked at %v after the clock was set back, want %v", at, b.now)
	}
}

// TestShownIsStored has two networks at one name: the Shown of each is stored with every change of
// a place, and of what is wanted.
func TestShownIsStored(t *testing.T) {
	b := newBook(t)
	account := reconcile.Account{ID: b.account("token", "one")}
	b.configure("auto", account.ID)
	b.service("example.com", 0)
	name := b.reserve("example.com", "p", 1, "active")
	b.reserve("example.com", "p", 2, "active")
	b.due(name, reconcile.LaneChanged)
	tell := func(what, want string) {
		t.Helper()
		if got := b.shown(name); got != want {
			t.Errorf("%s: %q is told, want %q", what, got, want)
		}
	}
	tell("a new name", "u1 pending, u2 pending") // of which its caller knows
	b.due(name, reconcile.LaneChanged)
	tell("a change", "u1 pending, u2 conflict n=1")
	p := reconcile.Place{Name: name, Account: account, Zone: "example.com", State: reconcile.Failed}
	b.must(b.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{p}}))
	tell("a failure", "u1 failed, u2 conflict n=1")
	p = b.name(name).Places[0]
	want(t, "the place of what is shown", b.texts(`SELECT CAST(place AS TEXT) FROM usages ORDER BY seq`), []string{fmt.Sprint(p.ID), "0"})
	p.State, p.Standing = reconcile.Published, value(1)
	b.must(b.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{p}}))
	tell("it stands", "u1 published, u2 conflict n=1")
	b.exec(`UPDATE bindings SET status = ? WHERE seq = 1`, ledger.StatusReleasing)
	b.due(name, reconcile.LaneAsked)
	tell("the first is released", "u1 withdrawing, u2 pending")
	b.exec(`DELETE FROM configuration`)
	b.must(b.Settle(t.Context(), reconcile.Settlement{Shown: []string{name}}))
	tell("without a configuration", "u1 withdrawing, u2 none")
}

// TestShownOfTheConfiguration has the configuration's own record.
func TestShownOfTheConfiguration(t *testing.T) {
	b := newBook(t)
	own := func() string {
		state, err := b.OwnState(t.Context())
		b.must(err)
		return string(state)
	}
	got := []string{own()}
	account := reconcile.Account{ID: b.account("token", "one")}
	b.configure("auto", account.ID)
	b.due(host, reconcile.LaneChanged)
	got = append(got, own())
	standing := reconcile.Desired(b.state(host), noAddresses())[0].Records[0].Want
	b.put(reconcile.Place{Name: host, Account: account, State: reconcile.Published, Standing: standing})
	got = append(got, own())
	b.exec(`UPDATE configuration SET txt_endpoints = '["a://new:1"]'`)
	got = append(got, own())
	want(t, "the states", got, []string{"", "pending", "published", "pending"})
}

// TestVersions gives the version of a name, which grows with every change.
func TestVersions(t *testing.T) {
	b := newBook(t)
	var got []int64
	for range 3 {
		b.tx(func(ctx context.Context, tx *sql.Tx) error {
			if err := b.MarkDue(ctx, tx, "x", reconcile.LaneChanged); err != nil {
				return err
			}
			version, err := ledger.Version(ctx, tx, "x")
			got = append(got, version)
			return err
		})
	}
	if !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("%v", got)
	}
}

// TestPaused has usages that wait, fail, or stand in every mode. The reason is that of the configuration at the moment of
// reading; what has a reason of its own keeps it. The metric follows.
func TestPaused(t *testing.T) {
	b := newBook(t)
	account := b.account("token", "one")
	b.configure("auto", account)
	b.service("example.com", 0)
	for i, state := range []string{"pending", "withdrawing", "published", "none", "failed"} {
		name := b.reserve("example.com", state, int64(i), "active")
		b.exec(`UPDATE usages SET state = ? WHERE name = ?`, state, name)
	}
	b.exec(`UPDATE usages SET rival = '7' WHERE name LIKE '%failed%'`)
	b.exec(`INSERT OR REPLACE INTO names (name, version, due, lane, pass) SELECT name, 1, 1000, 'later', 0 FROM usages WHERE state = 'pending'`)
	tell := func() (told []string) {
		all, err := sqlite.Collect(t.Context(), b.db, ledger.ScanUsage, ledger.SelectUsages+` ORDER BY u.seq`)
		b.must(err)
		for _, u := range all {
			told = append(told, u.Publish.State+" "+u.Publish.Fault.In(msg.English))
		}
		return told
	}
	for _, mode := range []mesh.SyncMode{mesh.Manual, mesh.Auto, mesh.UpsertOnly, "", "none", "unknown"} {
		for _, enabled := range []bool{true, false} {
			b.configure(string(mode), account)
			b.exec(`UPDATE configuration SET enabled = ?`, enabled)
			reason := mesh.Configuration{Provider: "cloudflare", SyncMode: mode, Enabled: enabled}.Paused().In(msg.English)
			pending, withdrawing, figure := reason, "", "1"
			switch {
			case !enabled:
				withdrawing = reason
			case reason == "":
				pending, figure = msg.WritesUsedUp.In(msg.English)+": 1970-01-01T00:00:01Z", "0"
			}
			want(t, fmt.Sprintf("in mode %q, enabled %v", mode, enabled), tell(), []string{
				"pending " + pending, "withdrawing " + withdrawing, "published ",
				"none " + msg.NoProvider.In(msg.English), "failed " + msg.NetworkConflict.In(msg.English) + ": 7",
			})
			var page bytes.Buffer
			_, err := b.WriteMetrics(t.Context(), daemon.NewPage(&page))
			if b.must(err); !strings.Contains(page.String(), "\nmeshddns_paused "+figure+"\n") {
				t.Errorf("in mode %q, enabled %v: no meshddns_paused %s in\n%s", mode, enabled, figure, page.String())
			}
		}
	}
	b.exec(`DELETE FROM configuration`)
	if got := tell(); strings.Contains(got[0], "paused") {
		t.Errorf("without a configuration: %s", got[0])
	}
}
