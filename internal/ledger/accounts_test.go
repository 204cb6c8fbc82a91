package ledger_test

import (
	"testing"

	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/reconcile"
)

// secrets gives the secrets that are kept.
func (b *book) secrets() []string {
	b.t.Helper()
	return b.texts(`SELECT access_key_secret FROM accounts ORDER BY id`)
}

// TestUnneededSecretsGo has three secrets of one key: a value stands that was published with the
// first, the second is a service's, and nothing uses the third. It stays as long as the value may be
// withdrawn with it, and no longer.
func TestUnneededSecretsGo(t *testing.T) {
	for what, test := range map[string]struct {
		happens func(b *book, p reconcile.Place)
		want    []string
		erased  int
	}{
		"nothing": {func(*book, reconcile.Place) {}, []string{"one", "two", "three"}, 0},
		"the value is gone": {func(b *book, p reconcile.Place) {
			b.must(b.Settle(b.t.Context(), reconcile.Settlement{Ended: []reconcile.Place{p}}))
		}, []string{"two"}, 1},
		"the leftover is forgotten": {func(b *book, p reconcile.Place) {
			p.State = reconcile.Leftover
			b.put(p)
			b.must(b.ForgetLeftover(b.t.Context(), p.ID))
		}, []string{"two"}, 1},
		"the first gets a user": {func(b *book, _ reconcile.Place) { b.account("token", "one") }, []string{"one", "two"}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBook(t)
			first := b.account("token", "one")
			b.service("s.example.com", b.account("token", "two"))
			b.account("token", "three")
			b.due("x", reconcile.LaneChanged)
			p := b.put(reconcile.Place{Name: "x", Account: reconcile.Account{ID: first}, State: reconcile.Withdrawing, Standing: value(1)})
			test.happens(b, p)
			if want(t, what, b.secrets(), test.want); b.erased != test.erased {
				t.Errorf("told %d times that a key is erased, want %d", b.erased, test.erased)
			}
		})
	}
}

// TestAccountsAreLeft has accounts that lose one user after the other: the last takes the key along.
func TestAccountsAreLeft(t *testing.T) {
	b := newBook(t)
	id := b.account("token", "one")
	if again := b.account("token", "one"); again != id {
		t.Errorf("the same account is %d and %d", id, again)
	}
	if other := b.account("token", "two"); other == id {
		t.Error("another secret is the same account")
	}
	b.configure("auto", id)
	b.service("s.example.com", id)
	b.due("x", reconcile.LaneChanged)
	p := b.put(reconcile.Place{Name: "x", Account: reconcile.Account{ID: id}, State: reconcile.Published})
	for _, user := range []string{
		`DELETE FROM configuration`, `DELETE FROM services`, `DELETE FROM places`,
	} {
		if b.leave(id) {
			t.Fatalf("the key is gone before %s", user)
		}
		b.exec(user)
	}
	if !b.leave(id) || b.leave(id) {
		t.Error("the key of an account without a user goes once")
	}
	want(t, "kept after "+p.Name, b.secrets(), nil)
}

// TestProbePlaces has probes whose writer ends them, or is killed: they are withdrawn later, and no
// pass takes them before.
func TestProbePlaces(t *testing.T) {
	b := newBook(t)
	p := reconcile.Place{
		Name: "probe.example.com", Account: reconcile.Account{Provider: "cloudflare", AccessKeyID: "token", Secret: "new"}, Zone: "example.com",
		Doubt: reconcile.Doubt{Value: value(1)},
	}
	b.must(b.AddProbe(t.Context(), &p))
	if p.ID == 0 || p.Account.ID == 0 || p.State != reconcile.Withdrawing || !p.LookAt.Equal(b.now.Add(reconcile.SecondLook)) {
		t.Errorf("%+v", p)
	}
	want(t, "due at once", b.dueIn(reconcile.LaneAsked), nil)
	want(t, "of a pass", b.after("", 1), nil)
	b.now = b.now.Add(reconcile.ProbeTime)
	want(t, "due later", b.dueIn(reconcile.LaneAsked), []string{p.Name})
	want(t, "of a pass, later", b.after("", 1), []string{p.Name})
	b.must(b.EndProbe(t.Context(), p))
	if want(t, "kept", append(b.secrets(), b.texts(`SELECT name FROM names`)...), nil); b.erased != 1 {
		t.Errorf("told %d times that a key is erased", b.erased)
	}
	b.must(b.EndProbe(t.Context(), p))
}

// TestWhoseKey has a key of several users, and a secret that nothing uses any more: another of the
// same key is its heir.
func TestWhoseKey(t *testing.T) {
	b := newBook(t)
	old, used := b.account("token", "old"), b.account("token", "used")
	b.service("s.example.com", used)
	b.due("x", reconcile.LaneChanged)
	for _, account := range []int64{old, used} {
		b.put(reconcile.Place{Name: "x", Account: reconcile.Account{ID: account}, State: reconcile.Withdrawing, Standing: value(1)})
	}
	newest := b.account("token", "newest") // in use by nothing
	keys := func() (all []string) {
		state := b.state("x")
		for _, p := range state.Names[0].Places {
			all = append(all, p.Account.UsedBy)
		}
		return append(all, string(state.Heirs[old].Secret))
	}
	want(t, "a service's", keys(), []string{mesh.UsedByNothing, mesh.UsedByService + "s.example.com", "used"})
	b.configure("auto", used)
	want(t, "the configuration's too", keys(), []string{mesh.UsedByNothing, mesh.UsedByConfiguration, "used"})
	b.exec(`DELETE FROM configuration; DELETE FROM services`)
	want(t, "nothing's", keys(), []string{mesh.UsedByNothing, mesh.UsedByNothing, "newest"})
	b.exec(`DELETE FROM accounts WHERE id = ?`, newest)
	want(t, "nothing's, without the newest", keys(), []string{mesh.UsedByNothing, mesh.UsedByNothing, "used"})
}

// TestOwners takes an owner while nothing is marked, and adopts others.
func TestOwners(t *testing.T) {
	b := newBook(t)
	if err := b.Adopt(t.Context(), owner); err != ledger.ErrOwnOwner {
		t.Errorf("its own owner: %v", err)
	}
	take := func(owner string) bool {
		taken, err := b.TakeOwner(t.Context(), owner)
		b.must(err)
		return taken
	}
	if !take("aaaaaaaaaaaa") {
		t.Error("an owner is not taken by an empty database")
	}
	b.must(b.Adopt(t.Context(), "bbbbbbbbbbbb"))
	b.must(b.Adopt(t.Context(), "bbbbbbbbbbbb"))
	want(t, "adopted", b.state("x").Adopted, []string{"bbbbbbbbbbbb"})
	for owner, want := range map[string]bool{"bbbbbbbbbbbb": true, "cccccccccccc": false} {
		if adopted, err := b.Adopted(t.Context(), owner); err != nil || adopted != want {
			t.Errorf("%s is adopted: %t, %v", owner, adopted, err)
		}
	}
	if r, err := b.Request(t.Context()); err != nil || r.Trigger != reconcile.TriggerChange || !r.At.Equal(b.now) {
		t.Errorf("an adoption asks for %+v, %v", r, err)
	}
	if take("cccccccccccc") {
		t.Error("an owner is taken by a database that has adopted one")
	}
	want(t, "owner", b.texts(`SELECT owner FROM appliance`), []string{"aaaaaaaaaaaa"})
}
