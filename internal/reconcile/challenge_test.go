package reconcile

import (
	"testing"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

const (
	answer1 = "answer1-answer1-answer1-answer1-answer1-abc"
	answer2 = "answer2-answer2-answer2-answer2-answer2-abc"
	answer3 = "answer3-answer3-answer3-answer3-answer3-abc"
	others1 = "others1-others1-others1-others1-others1-abc"
	others2 = "others2-others2-others2-others2-others2-abc"
)

// openGoal is the goal of a record of challenges that wants some values and knows some.
func openGoal(known []string, want ...string) goal {
	return goal{owner: testOwner, sibling: true, open: true, want: siblingText("42", want), standing: siblingText("42", known), known: known}
}

// TestPlanChallenges: values of others beside challenges stay, and hinder none; one that is the challenge is a conflict, and
// is never ours.
func TestPlanChallenges(t *testing.T) {
	known := func(values ...string) []string { return values }
	spared := func(g goal) goal { network := "42"; g.spared = &network; return g }
	mode := func(g goal, m Mode) goal { g.mode = m; return g }
	adopted := func(g goal) goal { g.adopted = []string{"aaaaaaaaaaaa"}; return g }
	off := func(set provider.RRset, values ...string) provider.RRset {
		for _, v := range values {
			set.Off = append(set.Off, provider.Value{v})
		}
		return set
	}
	alias := provider.RRset{Alias: "elsewhere.example.net"}
	for _, test := range []struct {
		what        string
		goal        goal
		seen        provider.RRset
		add, remove string
		conflict    bool
		ttl         uint32
	}{
		{"the first", openGoal(nil, answer1), texts(), answer1, "", false, recordTTL},
		{"beside others", openGoal(nil, answer1), texts(others1, others2), answer1, "", false, 3600},
		{"beside others and ours", openGoal(known(answer1), answer1, answer2), texts(others1, answer1), answer2, "", false, 3600},
		{"in place of ours, beside others", openGoal(known(answer1), answer2), texts(answer1, others1), answer2, answer1, false, 3600},
		{"in place of ours alone", openGoal(known(answer1), answer2), texts(answer1), answer2, answer1, false, recordTTL},
		{"withdrawn", openGoal(known(answer1)), texts(others1, answer1, others2), "", answer1, false, 3600},
		{"withdrawn, and only others stand", openGoal(known(answer1)), texts(others1, others2), "", "", false, 3600},
		{"withdrawn alone", openGoal(known(answer1)), texts(answer1), "", answer1, false, recordTTL},
		{"withdrawn beside a value with our mark", openGoal(known(answer1)), texts(ours1, answer1), "", answer1, false, 3600},
		{"beside a value with our mark, of another network's name", openGoal(nil, answer1), texts(ours2), answer1, "", false, 3600},
		{"beside a stranger's", openGoal(nil, answer1), texts(stranger), answer1, "", false, 3600},
		{"the wanted value of others", openGoal(nil, answer1), texts(answer1), "", "", true, 3600},
		{"the wanted value of others beside a new one", openGoal(nil, answer1, answer2), texts(answer1), answer2, "", true, 3600},
		{"the wanted value of others beside ours", openGoal(known(answer2), answer1, answer2, answer3), texts(answer1, answer2), answer3, "", true, 3600},
		{"the wanted value of others, and ours goes", openGoal(known(answer2), answer1), texts(answer1, answer2), "", answer2, true, 3600},
		{"the wanted value of others goes", openGoal(known(answer2)), texts(answer1, answer2), "", answer2, false, 3600},
		{"the wanted value of others, after adoption", adopted(openGoal(nil, answer1)), texts(answer1), "", "", true, 3600},
		{"the wanted value of others goes, after adoption", adopted(openGoal(nil)), texts(answer1), "", "", false, 3600},
		{"switched off, of others", openGoal(nil, answer1), off(texts(), others1), answer1, "", false, recordTTL},
		{"switched off, the wanted value", openGoal(nil, answer1), off(texts(), answer1), answer1, "", true, recordTTL},
		{"an alias", openGoal(nil, answer1), alias, "", "", true, recordTTL},
		{"an alias, withdrawn", openGoal(known(answer1)), alias, "", "", false, recordTTL},
		{"only to look", mode(openGoal(nil, answer1), LookOnly), texts(others1), "", "", false, recordTTL},
		{"a move keeps ours", spared(openGoal(known(answer1))), texts(answer1, others1), "", "", false, 3600},
	} {
		change, err := test.goal.plan(test.seen)
		if joined(change.Add) != test.add || joined(change.Remove) != test.remove || (err != nil) != test.conflict {
			t.Errorf("%s: adds %q, removes %q, %v", test.what, joined(change.Add), joined(change.Remove), err)
		}
		if err != nil && provider.KindOf(err) != provider.Conflict {
			t.Errorf("%s: %v", test.what, err)
		}
		if change.TTL != test.ttl && len(change.Add)+len(change.Remove) > 0 {
			t.Errorf("%s: TTL %d, want %d", test.what, change.TTL, test.ttl)
		}
	}
}

// FuzzPlanChallenges has any values at a name: none that is not known goes, and none that stands already is claimed.
func FuzzPlanChallenges(f *testing.F) {
	f.Add(uint16(0x1234), uint16(3), uint16(9))
	f.Fuzz(func(t *testing.T, standing, knows, wants uint16) {
		all := []string{answer1, answer2, answer3, others1, others2, ours1, stranger, lost}
		some := func(bits uint16, from, to int) (some []string) {
			for n := from; n < to; n++ {
				if bits&(1<<n) != 0 {
					some = append(some, all[n])
				}
			}
			return some
		}
		i := newItem(Record{
			Name: testName, Sibling: challengeOf(testName), Want: siblingText("42", some(wants, 0, 3)),
			Place: Place{Name: testName, Sibling: challengeOf(testName), Standing: siblingText("42", some(knows, 0, 3)), State: Published},
			goal:  goal{owner: testOwner, sibling: true, open: true, adopted: some(standing>>8, 0, 1)},
		}, false)
		i.seen = texts(some(standing, 0, len(all))...)
		i.change, i.conflict = i.goal.plan(i.seen)
		for _, v := range i.change.Remove {
			if !i.place.knows(v.Text()) {
				t.Errorf("%q of others is removed", v.Text())
			}
		}
		for _, v := range i.seen.Values {
			before := i.place.knows(v.Text())
			if after := i.intended(time.Now()); after.knows(v.Text()) && !before {
				t.Errorf("%q of others is claimed by the intent", v.Text())
			}
			if i.sees(i.change, time.Now()); i.place.knows(v.Text()) && !before {
				t.Errorf("%q of others is claimed by the look", v.Text())
			}
		}
	})
}

// challengeState is a state with one usage of network 42 that has challenges, and places.
func challengeState(a Account, challenges []string, places ...Place) State {
	u := used(42, &a, "tcp://192.0.2.1:1")
	u.ID, u.Challenges = "u", challenges
	return State{Owner: testOwner, Configured: true, Names: []Name{{Name: testName, Usages: []Usage{u}, Places: places}}}
}

// TestChallengesAreWithdrawnInEveryMode: mode upsert-only forbids to remove addresses, but a challenge ends by itself.
func TestChallengesAreWithdrawnInEveryMode(t *testing.T) {
	account := Account{ID: 1, Provider: "cloudflare", Secret: "s", UsedBy: "x"}
	place := Place{ID: 1, Name: testName, Sibling: challengeOf(testName), Account: account, Zone: "example.com", State: Published, Standing: siblingText("42", []string{answer1})}
	state := challengeState(account, nil, place)
	state.UpsertOnly = true
	var withdrawn int
	for _, r := range Desired(state, Addresses{})[0].Records {
		if r.Sibling.marked() {
			continue
		}
		withdrawn++
		i := newItem(r, false)
		i.restate(placeNow)
		i.seen = texts(answer1, others1)
		if i.change, _ = i.goal.plan(i.seen); !r.withdraws() || joined(i.change.Remove) != answer1 {
			t.Errorf("%+v removes %q", r, joined(i.change.Remove))
		}
		i.change.Seen = texts(others1)
		i.change.Remove = nil
		if i.looked(placeNow); i.place.State == Leftover {
			t.Errorf("it is a leftover: %+v", i.place)
		}
	}
	if withdrawn != 1 {
		t.Errorf("%d records of challenges", withdrawn)
	}
}

// TestChallengeOf says how far a challenge is, at every state of its record.
func TestChallengeOf(t *testing.T) {
	account := Account{ID: 1, Provider: "cloudflare", Secret: "s", UsedBy: "x"}
	builtin := Account{ID: 2, Provider: msg.Builtin}
	at := func(a Account, s PlaceState, code string, values ...string) Place {
		return Place{ID: 1, Name: testName, Sibling: challengeOf(testName), Account: a, Zone: "example.com", State: s, Standing: siblingText("42", values), Fault: Fault{Code: code}}
	}
	mark := Place{ID: 2, Name: testName, Account: account, Zone: "example.com", State: Conflict, Fault: Fault{Code: string(provider.Conflict)}}
	paused := challengeState(account, nil)
	paused.Paused = Fault{Code: "paused"}
	later := challengeState(account, []string{answer1})
	later.Names[0].Lane = LaneLater
	younger := challengeState(account, nil)
	rival := used(7, &account, "tcp://192.0.2.2:1")
	rival.ID = "younger"
	younger.Names[0].Usages = append(younger.Names[0].Usages, rival)
	beside := challengeState(account, []string{answer1})
	without := used(42, nil, "tcp://192.0.2.2:1")
	without.ID = "without"
	beside.Names[0].Usages = append(beside.Names[0].Usages, without)
	due := challengeState(account, []string{answer1, answer2}, at(account, Conflict, "conflict"))
	due.Names[0].Due = placeNow
	failed := challengeState(account, []string{answer1}, at(account, Failed, "network"))
	failed.Names[0].Due = placeNow
	nowhere := challengeState(account, nil)
	nowhere.Names[0].Usages[0].Account = nil
	unconfigured := challengeState(account, nil)
	unconfigured.Configured = false
	for what, test := range map[string]struct {
		state        State
		usage, value string
		stands       bool
		zones        int
		code         string
	}{
		"not begun":                         {challengeState(account, []string{answer1}), "u", answer1, false, 0, ""},
		"may be put":                        {challengeState(account, nil), "u", "", false, 0, ""},
		"stands":                            {challengeState(account, []string{answer1}, at(account, Published, "", answer1)), "u", answer1, true, 0, ""},
		"stands at the built-in server":     {challengeState(builtin, []string{answer1}, at(builtin, Published, "", answer1)), "u", answer1, true, 1, ""},
		"failed":                            {challengeState(account, []string{answer1}, at(account, Failed, "network")), "u", answer1, false, 0, "network"},
		"stands, and another has failed":    {challengeState(account, []string{answer1, answer2}, at(account, Failed, "network", answer1)), "u", answer1, true, 0, ""},
		"of others":                         {challengeState(account, []string{answer1}, at(account, Conflict, "conflict")), "u", answer1, false, 0, "conflict"},
		"stands, and another is of others":  {challengeState(account, []string{answer1, answer2}, at(account, Conflict, "conflict", answer1)), "u", answer1, true, 0, ""},
		"may be put, and one is of others":  {challengeState(account, []string{answer1, answer2}, at(account, Conflict, "conflict", answer1)), "u", "", false, 0, ""},
		"the name is another mesh's":        {challengeState(account, []string{answer1}, mark), "u", answer1, false, 0, "conflict"},
		"the name is another mesh's, asked": {challengeState(account, nil, mark), "u", "", false, 0, "conflict"},
		"the name is another network's":     {younger, "younger", "", false, 0, "conflict"},
		"no provider of its own":            {beside, "without", "", false, 0, "paused"},
		"a usage that is gone":              {beside, "gone", "", false, 0, "conflict"},
		"one is of others, and work is due": {due, "u", answer1, false, 0, ""},
		"a write follows a conflict":        {challengeState(account, []string{answer1}, at(account, Pending, "conflict")), "u", answer1, false, 0, ""},
		"a write has failed, and is due":    {failed, "u", answer1, false, 0, "network"},
		"paused":                            {paused, "u", "", false, 0, "paused"},
		"no provider":                       {nowhere, "u", "", false, 0, "paused"},
		"no configuration":                  {unconfigured, "u", "", false, 0, "paused"},
		"writes are used up":                {later, "u", answer1, false, 0, CodeWritesUsedUp},
	} {
		c := ChallengeOf(test.state, test.usage, test.value, Addresses{})
		if c.Stands != test.stands || len(c.Zones) != test.zones || c.Fault.Code != test.code {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

// TestChallengeOfSeveralUsages: usages of one network share a name, and what nodes put for one that has no account of its own
// cannot be published.
func TestChallengeOfSeveralUsages(t *testing.T) {
	account := Account{ID: 1, Provider: "cloudflare", Secret: "s", UsedBy: "x"}
	state := challengeState(account, []string{answer1})
	more := used(42, &account, "tcp://192.0.2.2:1")
	more.Challenges = []string{answer2}
	state.Names[0].Usages = append(state.Names[0].Usages, more)
	for _, r := range Desired(state, Addresses{})[0].Records {
		if want := siblingText("42", []string{answer1, answer2}); !r.Sibling.marked() && r.Want != want {
			t.Errorf("%q, want %q", r.Want, want)
		}
	}
}

// TestChallengeBesideFormats: the record of challenges of a name is no record of a format, although a usage with the prefix
// _acme-challenge has one at an owner name of that form.
func TestChallengeBesideFormats(t *testing.T) {
	account := Account{ID: 1, Provider: "cloudflare", Secret: "s", UsedBy: "x"}
	const name = "_mesh._acme-challenge.example.com"
	u := used(42, &account, "tcp://192.0.2.1:1")
	u.Formats, u.Challenges = []string{mesh.Mesh1, mesh.HostPort}, []string{answer1}
	state := State{Owner: testOwner, Configured: true, Names: []Name{{Name: name, Usages: []Usage{u}}}}
	open := map[string]bool{}
	for _, r := range Desired(state, Addresses{})[0].Records {
		open[r.ownerName()] = r.goal.open
	}
	want := map[string]bool{name: false, "_acme-challenge.example.com": false, "_acme-challenge._acme-challenge.example.com": true}
	for owner, is := range want {
		if got, found := open[owner]; got != is || !found {
			t.Errorf("%s is open: %t (%t), want %t; %v", owner, got, found, is, open)
		}
	}
}
