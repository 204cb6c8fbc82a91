package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// TestPlacesAreStored stores a place with all that it has, and changes it.
func TestPlacesAreStored(t *testing.T) {
	b := newBook(t)
	account := reconcile.Account{
		ID: b.account("token", "one"), Provider: "cloudflare", AccessKeyID: "token", Secret: "one", UsedBy: mesh.UsedByNothing,
	}
	for i, doubt := range []reconcile.Doubt{{}, {Value: value(2)}, {More: true}, {Value: value(2), More: true}} {
		name := fmt.Sprint("x", i)
		p := reconcile.Place{
			Name: name, Account: account, Zone: "example.com", ZoneID: "z", State: reconcile.Failed, Standing: value(1), Doubt: doubt,
			LookAt: b.now.Add(time.Second), Disturbed: 2, Attempts: 3, Fault: reconcile.Fault{Code: "quota", Detail: "full", Key: "nothing"},
		}
		p = b.put(p)
		b.due(name, reconcile.LaneChanged)
		if got := b.name(name).Places; !reflect.DeepEqual(got, []reconcile.Place{p}) {
			t.Errorf("%+v, want %+v", got, p)
		}
	}
	p := b.name("x0").Places[0]
	b.now = b.now.Add(time.Second)
	p.Attempts++
	b.put(p)
	shown := func() []string { return b.texts(`SELECT since || ' ' || at FROM places WHERE id = ?`, p.ID) }
	want(t, "since and at, in one state", shown(), []string{"2027-01-15T08:00:00.000Z 2027-01-15T08:00:01.000Z"})
	p.State, p.LookAt = reconcile.Leftover, time.Time{}
	b.put(p)
	want(t, "since and at, in another state", shown(), []string{"2027-01-15T08:00:01.000Z 2027-01-15T08:00:01.000Z"})
}

// TestIntend decides on what is stored in the same transaction: what has changed by then is not
// written, and an intent that cannot be stored leaves no id.
func TestIntend(t *testing.T) {
	b := newBook(t)
	b.service("example.com", b.account("token", "one"))
	name := b.reserve("example.com", "p", 1, "active")
	b.due(name, reconcile.LaneChanged)
	seen := b.name(name)
	b.exec(`UPDATE bindings SET status = ?`, ledger.StatusReleasing)
	b.due(name, reconcile.LaneAsked)
	p := reconcile.Place{Name: name, Account: *seen.Usages[0].Account, Zone: "example.com", State: reconcile.Pending}
	decide := func(state reconcile.State) []*reconcile.Place {
		if n := state.Names[0]; n.Version != seen.Version || n.Usages[0].Releasing {
			return nil
		}
		return []*reconcile.Place{&p}
	}
	b.must(b.Intend(t.Context(), []string{name}, nil, decide))
	if p.ID != 0 || len(b.name(name).Places) > 0 {
		t.Errorf("an intent that is outdated is stored: %+v", p)
	}
	seen.Version = 2
	b.exec(`UPDATE bindings SET status = 'active'`)
	strange := p
	strange.Account.ID = 99
	both := func(state reconcile.State) []*reconcile.Place { return append(decide(state), &strange) }
	if err := b.Intend(t.Context(), []string{name}, nil, both); err == nil || p.ID != 0 || len(b.name(name).Places) > 0 {
		t.Errorf("an intent that fails: %v, %+v", err, p)
	}
	b.must(b.Intend(t.Context(), []string{name}, nil, decide))
	if stored := b.name(name).Places; len(stored) != 1 || stored[0].ID != p.ID || p.ID == 0 {
		t.Errorf("stored are %+v, intended is %+v", stored, p)
	}
}

// TestSettleOfWhatIsGone has an outcome of a write that was not tried, of a name that is gone by now.
func TestSettleOfWhatIsGone(t *testing.T) {
	b := newBook(t)
	account := reconcile.Account{ID: b.account("token", "one")}
	b.due("x", reconcile.LaneChanged)
	for _, p := range []reconcile.Place{{Name: "gone", Account: account}, {Name: "x", Account: reconcile.Account{ID: 99}}, {Name: "x", Account: account}} {
		p.State = reconcile.Failed
		b.must(b.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{p}}))
	}
	want(t, "places", b.texts(`SELECT name || ' ' || account FROM places`), []string{fmt.Sprint("x ", account.ID)})
}

// TestSettleFreesUsages frees what nothing holds any more, and forgets the name with the last of it.
func TestSettleFreesUsages(t *testing.T) {
	b := newBook(t)
	account := reconcile.Account{ID: b.account("token", "one")}
	b.service("example.com", account.ID)
	name := b.reserve("example.com", "p", 1, ledger.StatusReleasing)
	b.due(name, reconcile.LaneAsked)
	p := b.put(reconcile.Place{Name: name, Account: account, State: reconcile.Withdrawing, Standing: value(1)})
	b.settle(reconcile.Due{Name: name, Version: 1, Released: true})
	want(t, "while the value stands", b.texts(`SELECT id FROM usages`), []string{"u1"})
	p.State, p.Standing = reconcile.Withdrawn, ""
	b.must(b.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{p}, Names: []reconcile.Due{{Name: name, Version: 1, Released: true}}}))
	want(t, "when it is gone", b.texts(`SELECT id FROM usages`), nil)
	want(t, "with a tombstone", b.texts(`SELECT name FROM names`), []string{name})
	b.must(b.Settle(t.Context(), reconcile.Settlement{Ended: []reconcile.Place{p}, Names: []reconcile.Due{{Name: name, Version: 1, Empty: true}}}))
	want(t, "without one", b.texts(`SELECT name FROM names`), nil)
}

// TestLeftovers lists leftovers in pages, with their keys, and forgets one.
func TestLeftovers(t *testing.T) {
	b := newBook(t)
	account := reconcile.Account{ID: b.account("token", "one")}
	b.service("example.com", account.ID)
	known := b.put(reconcile.Place{Name: "known", Account: account, State: reconcile.Published, Standing: value(1)})
	var places []reconcile.Place
	for _, name := range []string{"a", "known", "b", "c"} {
		places = append(places, reconcile.Place{Name: name, Account: account, Zone: "example.com", State: reconcile.Leftover, Standing: value(1)})
	}
	gone := reconcile.Account{ID: account.ID + 1} // that of a write test is gone after it
	places = append(places, reconcile.Place{Name: "d", Account: gone, Zone: "example.com", State: reconcile.Leftover, Standing: value(1)})
	commits := b.commits
	b.must(b.AddLeftovers(t.Context(), slices.Concat(slices.Repeat(places[1:2], 60), places)))
	if b.commits -= commits; b.commits != 3 {
		t.Errorf("%d transactions for 65 leftovers, want one for each 32", b.commits)
	}
	want(t, "due", b.dueIn(reconcile.LaneAsked), []string{"a", "b", "c"})
	var names []string
	var last int64
	for {
		page, err := b.Leftovers(t.Context(), last, 2)
		if b.must(err); len(page) == 0 {
			break
		}
		for _, p := range page {
			if names, last = append(names, p.Place.Name), p.Place.ID; p.Place.Account.Secret != "one" || p.Since != "2027-01-15T08:00:00.000Z" {
				t.Errorf("%+v", p)
			}
		}
	}
	want(t, "listed", names, []string{"a", "b", "c"})
	if err := b.ForgetLeftover(t.Context(), known.ID); !errors.Is(err, ledger.ErrNoLeftover) {
		t.Errorf("a published place is forgotten: %v", err)
	}
	b.must(b.ForgetLeftover(t.Context(), last))
	if err := b.ForgetLeftover(t.Context(), last); !errors.Is(err, ledger.ErrNoLeftover) {
		t.Errorf("forgotten twice: %v", err)
	}
	want(t, "kept", b.texts(`SELECT name FROM places ORDER BY name`), []string{"a", "b", "known"})
	if n := b.name("c"); n.Version != 2 || n.Lane != reconcile.LaneAsked {
		t.Errorf("after it is forgotten: %+v", n)
	}
	if at, err := b.NameDue(t.Context(), "c"); err != nil || !at.Equal(b.now) {
		t.Errorf("due at %v, %v", at, err)
	}
	if at, err := b.NameDue(t.Context(), "unknown"); err != nil || !at.IsZero() {
		t.Errorf("an unknown name is due at %v, %v", at, err)
	}
}

// TestLeave makes leftovers of the places of a name that nothing wants any more.
func TestLeave(t *testing.T) {
	for what, test := range map[string]struct {
		status string // of a usage, "" for none
		own    bool
		want   []string
	}{
		"nothing wants it":                {"", false, []string{"leftover", "withdrawn"}},
		"a usage that is released has it": {ledger.StatusReleasing, false, []string{"leftover", "withdrawn"}},
		"a usage has it":                  {"active", false, []string{"published", "withdrawn"}},
		"the configuration has it":        {"", true, []string{"published", "withdrawn"}},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBook(t)
			name, account := "_mesh.p.example.com", b.account("token", "one")
			b.service("example.com", account)
			if test.own {
				name = host
				b.configure("auto", account)
			}
			if test.status != "" {
				b.reserve("example.com", "p", 1, test.status)
			}
			b.due(name, reconcile.LaneChanged)
			b.put(reconcile.Place{Name: name, Account: reconcile.Account{ID: account}, State: reconcile.Published, Standing: value(1)})
			b.put(reconcile.Place{Name: name, Account: reconcile.Account{ID: account}, Zone: "p.example.com", State: reconcile.Withdrawn})
			n := b.name(name)
			b.tx(func(ctx context.Context, tx *sql.Tx) error { return b.Leave(ctx, tx, n) })
			want(t, what, b.texts(`SELECT state FROM places ORDER BY id`), test.want)
		})
	}
}

// TestZonesOfALedger gives the zones of places and of domains, each with its account.
func TestZonesOfALedger(t *testing.T) {
	b := newBook(t)
	one, two := b.account("token", "one"), b.account("other", "two")
	zones := func() (all []string) {
		zones, err := b.Zones(t.Context())
		b.must(err)
		for _, z := range zones {
			all = append(all, fmt.Sprint(string(z.Account.Secret), " ", z.Apex, "|", z.Domain))
		}
		slices.Sort(all)
		return all
	}
	b.due("x", reconcile.LaneChanged)
	for _, zone := range []string{"example.com", "example.net"} {
		b.put(reconcile.Place{Name: "x", Account: reconcile.Account{ID: one}, Zone: zone, State: reconcile.Withdrawn})
	}
	b.service("own.example.org", two)
	b.service("below.example.com", 0)
	b.service("beside.example.net", 0)
	want(t, "without a configuration", zones(), []string{"one example.com|", "one example.net|"})
	b.configure("auto", one)
	want(t, "with one", zones(), []string{"one example.com|", "one example.net|", "one |below.example.com", "one |example.com", "two |own.example.org"})
}

// TestStrangersOfAZone has names with places in zones that are, or may be, the one that is asked about.
func TestStrangersOfAZone(t *testing.T) {
	b := newBook(t)
	one, two := b.account("token", "one"), b.account("other", "two")
	z := reconcile.Zone{Account: reconcile.Account{ID: one, Provider: "cloudflare"}, Apex: "example.com", ID: "z1"}
	for name, p := range map[string]reconcile.Place{
		"elsewhere":         {Account: reconcile.Account{ID: one}, Zone: "example.net"},
		"made anew":         {Account: reconcile.Account{ID: one}, Zone: "example.com", ZoneID: "z0"},
		"of another key":    {Account: reconcile.Account{ID: two}, Zone: "example.com", ZoneID: "z1"},
		"of another zone":   {Account: reconcile.Account{ID: two}, Zone: "example.com", ZoneID: "z2"},
		"of an old program": {Account: reconcile.Account{ID: two}, Zone: "example.com"},
	} {
		p.Name, p.State = name, reconcile.Published
		b.put(p)
	}
	got, err := b.Strangers(t.Context(), z, []string{"elsewhere", "made anew", "of another key", "of another zone", "of an old program", "unknown"})
	b.must(err)
	want(t, "strangers", got, []string{"elsewhere", "of another zone", "unknown"})
}

// TestUnmarkedElsewhere has a value without a mark be known by a place: it is not told of a zone that may be that of the place.
func TestUnmarkedElsewhere(t *testing.T) {
	for what, test := range map[string]struct {
		at  reconcile.Account // of the place
		new bool
	}{
		"another zone":           {reconcile.Account{Provider: "builtin"}, true},
		"one that may be it":     {reconcile.Account{Provider: "rfc2136", Endpoint: "ns.example.com", AccessKeyID: "key"}, false},
		"one of another vendor":  {reconcile.Account{Provider: "alidns", AccessKeyID: "key"}, false},
		"that of the same token": {reconcile.Account{Provider: "cloudflare", AccessKeyID: "token", Secret: "one"}, false},
	} {
		b := newBook(t)
		p := reconcile.Place{
			Name: "_mesh.x.example.com", Sibling: reconcile.Sibling{Owner: "x.example.com", Type: provider.A}, Zone: "example.com",
			State: reconcile.Leftover, Standing: "n=1\n203.0.113.7",
		}
		known := p
		p.Account, known.Account = reconcile.Account{ID: b.account("token", "one"), Provider: "cloudflare", AccessKeyID: "token"}, test.at
		b.tx(func(ctx context.Context, tx *sql.Tx) (err error) {
			known.Account.ID, err = b.UseAccount(ctx, tx, test.at)
			return err
		})
		b.put(known)
		if isNew, err := b.AddUnmarked(t.Context(), &p); err != nil || isNew != test.new {
			t.Errorf("%s: new %t, want %t: %v", what, isNew, test.new, err)
		}
	}
}

// TestAdoptionDuringWork has a value without a mark be made ours while the engine works at its place: what the work stores
// keeps the value until the second look, and no longer.
func TestAdoptionDuringWork(t *testing.T) {
	b := newBook(t)
	account := reconcile.Account{ID: b.account("token", "one"), Provider: "cloudflare", AccessKeyID: "token"}
	taken := b.put(reconcile.Place{
		Name: "_mesh.x.example.com", Sibling: reconcile.Sibling{Owner: "x.example.com", Type: provider.A}, Account: account, State: reconcile.Conflict,
	})
	b.due(taken.Name, reconcile.LaneChanged)
	found := taken
	found.ID, found.Standing = 0, "n=1\n203.0.113.7"
	_, err := b.AddUnmarked(t.Context(), &found)
	b.must(err)
	left, err := b.Unmarked(t.Context())
	b.must(err)
	b.must(b.AdoptUnmarked(t.Context(), left[0].Place))
	ours := func(when string, want bool) {
		t.Helper()
		b.must(b.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{taken}}))
		if p := b.name(taken.Name).Places[0]; (p.Unknown(found.Standing) == "") != want || p.LookAt.IsZero() == want {
			t.Errorf("%s: %+v", when, p)
		}
	}
	ours("during the work", true)
	b.now = b.now.Add(reconcile.SecondLook)
	ours("after the second look", false)
}
