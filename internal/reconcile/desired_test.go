package reconcile

import (
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/mesh"
)

const (
	testOwner = "0123456789ab"
	testName  = "_mesh.office.example.com"
)

var (
	testAddresses = mesh.Addresses{IPv4: netip.MustParseAddr("203.0.113.7")}
	accountA      = Account{ID: 1, Provider: "alidns", AccessKeyID: "a", Secret: "secret"}
	accountB      = Account{ID: 2, Provider: "alidns", AccessKeyID: "b", Secret: "secret"}
	keyless       = Account{ID: 3, Provider: "alidns", AccessKeyID: "c"}
	served        = Account{ID: 4, Provider: "builtin"}
)

func testValue(network string, endpoints ...string) string {
	return mesh.Value(network, testOwner, endpoints)
}

// used is a usage of a network that publishes at an account.
func used(network uint64, a *Account, endpoints ...string) Usage {
	text := strconv.FormatUint(network, 10)
	return Usage{ID: "u" + text, Network: text, Account: a, Domain: "example.com", Endpoints: endpoints}
}

func releasing(u Usage) Usage {
	u.Releasing = true
	return u
}

func ownAt(a Account) *Own {
	return &Own{Account: a, Domain: "example.com", Endpoints: []string{"tcp://{ipv4}:1"}}
}

// stands is a place with a network's value.
func stands(id int64, a Account, state PlaceState, network string) Place {
	return Place{ID: id, Name: testName, Account: a, Zone: "example.com", State: state, Standing: testValue(network, "a://b:1")}
}

// mayStand is a place where a write of a network's value has an unknown outcome.
func mayStand(id int64, a Account, state PlaceState, network string) Place {
	p := stands(id, a, state, network)
	p.Standing, p.Doubt, p.LookAt = "", Doubt{Value: p.Standing}, placeSoon
	return p
}

// besides is a place where other values of ours stand or may stand.
func besides(p Place) Place {
	p.Doubt.More = true
	return p
}

// recordText says of a record where it belongs, what is wanted there, and what
// is particular about it.
func recordText(r Record, follow bool) string {
	words := []string{r.Account.AccessKeyID, strings.ReplaceAll(r.Want, " o="+testOwner, "")}
	if r.Want == "" {
		words[1] = "withdraw " + fmt.Sprint(r.Place.ID)
		if r.Withdrawal.Keep {
			words[1] = "keep " + fmt.Sprint(r.Place.ID)
		}
	}
	for _, is := range []struct {
		word  string
		holds bool
	}{
		{"at " + fmt.Sprint(r.Place.ID), r.Want != "" && r.Place.ID != 0},
		{fmt.Sprint("beside ", len(r.Withdrawal.Beside)), len(r.Withdrawal.Beside) > 0},
		{"waited", r.Waited},
		{"follow", follow && r.Want != ""},
		{"missing " + string(r.Warning.Detail), r.Warning.Code == CodeAddressUnknown},
		{r.Fault.Code, r.Fault.Code != ""},
	} {
		if is.holds {
			words = append(words, is.word)
		}
	}
	return strings.Join(words, " ")
}

// desiredTest is a name and its wanted records, in the words of recordText, and refusals.
type desiredTest struct {
	what string
	name Name
	want []string
}

// check compares the target of the name with the wanted one.
func (test desiredTest) check(t *testing.T) {
	t.Helper()
	if test.name.Name == "" {
		test.name.Name = testName
	}
	var got []string
	target := Desired(State{Owner: testOwner, Names: []Name{test.name}}, Addresses{Last: testAddresses, Now: testAddresses})[0]
	for _, r := range target.Records {
		got = append(got, recordText(r, slices.Contains(target.Follow, r.Sibling)))
	}
	for _, r := range target.Refusals {
		got = append(got, "nowhere "+r.Network+" "+r.Fault.Code)
	}
	if !slices.Equal(got, test.want) {
		t.Errorf("%s:\n%s\nwant\n%s", test.what, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
	}
}

// TestDesired has names without places.
func TestDesired(t *testing.T) {
	const long = "_mesh.b.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example.com"
	for _, test := range []desiredTest{
		{"nothing", Name{}, nil},
		{"the configuration's record", Name{Own: ownAt(accountA)}, []string{"a v=mesh1 tcp://203.0.113.7:1"}},
		{"a usage", Name{Usages: []Usage{used(math.MaxUint64, &accountA, "wg://u:1", "tcp://u:2")}}, []string{"a v=mesh1 n=18446744073709551615 wg://u:1 tcp://u:2"}},
		{"no endpoints", Name{Usages: []Usage{used(0, &accountA)}}, []string{"a v=mesh1 n=0"}},
		{"an address that was never known", Name{Usages: []Usage{used(1, &accountA, "tcp://[{ipv6}]:1", "tcp://{ipv4}:2")}}, []string{
			"a v=mesh1 n=1 tcp://203.0.113.7:2 missing tcp://[{ipv6}]:1"}},
		{"nowhere to publish", Name{Usages: []Usage{used(1, nil)}}, []string{"nowhere 1 no_provider"}},
		{"one network twice: the newest says what", Name{Usages: []Usage{used(1, &accountA, "a://old:1"), used(1, &accountA, "a://new:1")}}, []string{
			"a v=mesh1 n=1 a://new:1"}},
		{"one network at two accounts: at each", Name{Usages: []Usage{used(1, &accountA, "a://old:1"), used(1, &accountB, "a://new:1")}}, []string{
			"a v=mesh1 n=1 a://new:1", "b v=mesh1 n=1 a://new:1"}},
		{"two networks: the elder has it", Name{Usages: []Usage{used(9, &accountA, "a://b:1"), used(1, &accountB), used(1, &accountA)}}, []string{
			"a v=mesh1 n=9 a://b:1", "nowhere 1 network_conflict"}},
		{"an elder that has nowhere to go has it too", Name{Usages: []Usage{used(9, nil), used(1, &accountA)}}, []string{
			"nowhere 9 no_provider", "nowhere 1 network_conflict"}},
		{"an elder that is being released", Name{Usages: []Usage{releasing(used(9, &accountA)), used(1, &accountA)}}, []string{"a v=mesh1 n=1"}},
		{"the configuration's record takes no usage's name", Name{Own: ownAt(accountA), Usages: []Usage{used(1, &accountB)}}, []string{
			"b v=mesh1 n=1", "nowhere  network_conflict"}},
		{"it has it when the usage goes", Name{Own: ownAt(accountA), Usages: []Usage{releasing(used(1, &accountA))}}, []string{
			"a v=mesh1 tcp://203.0.113.7:1"}},
		{"a name that DNS does not have", Name{Name: "_mesh.a.b..example.com", Usages: []Usage{used(1, &accountA)}}, []string{"a v=mesh1 n=1 invalid_name"}},
		{"a label that is too long", Name{Name: long, Usages: []Usage{used(1, &accountA)}}, []string{"a v=mesh1 n=1 invalid_name"}},
		{"an endpoint that is none", Name{Usages: []Usage{used(1, &accountA, "no url")}}, []string{"a v=mesh1 n=1 no url invalid"}},
	} {
		test.check(t)
	}
}

// TestDesiredHostNames: a record that its provider certainly refuses fails without a call, and the others of the usage do not.
func TestDesiredHostNames(t *testing.T) {
	power := Account{ID: 5, Provider: "powerdns", AccessKeyID: "p", Secret: "secret"}
	services := func(a *Account, endpoint string) Name {
		u := used(1, a, endpoint)
		u.Formats = []string{"mesh1", "srv:_x._tcp"}
		return Name{Name: "_mesh._mesh-mq.example.com", Usages: []Usage{u}}
	}
	const target = "203-0-113-7._mesh-mq.example.com"
	for _, test := range []desiredTest{
		{"a target that is no host name", services(&power, "tcp://203.0.113.7:1"), []string{
			"p v=mesh1 n=1 tcp://203.0.113.7:1", "p n=1\n203.0.113.7", "p n=1\n1 1 1 " + target + " name_not_allowed"}},
		{"a target that is one", services(&power, "tcp://host.example.com:1"), []string{
			"p v=mesh1 n=1 tcp://host.example.com:1", "p n=1\n1 1 1 host.example.com"}},
		{"a provider that does not look", services(&accountA, "tcp://203.0.113.7:1"), []string{
			"a v=mesh1 n=1 tcp://203.0.113.7:1", "a n=1\n203.0.113.7", "a n=1\n1 1 1 " + target}},
	} {
		test.check(t)
		state := State{Owner: testOwner, Names: []Name{test.name}}
		for _, f := range FormatStates(state, "1", Addresses{Last: testAddresses}) {
			fails := strings.HasSuffix(test.want[len(test.want)-1], "name_not_allowed") && f.Type == "SRV"
			if (f.State == Failed) != fails || (f.Fault.Code == "name_not_allowed") != fails {
				t.Errorf("%s: %s %s is %s, %+v", test.what, f.Name, f.Type, f.State, f.Fault)
			}
		}
	}
}

// TestDesiredPlaces has names with places: of the wanted value, or to withdraw.
func TestDesiredPlaces(t *testing.T) {
	for _, test := range []desiredTest{
		{"a place that is as wanted", Name{Usages: []Usage{used(1, &accountA, "a://b:1")}, Places: []Place{stands(5, accountA, Published, "1")}}, []string{
			"a v=mesh1 n=1 a://b:1 at 5"}},
		{"a place without a wanted value", Name{Places: []Place{stands(5, accountA, Published, "1")}}, []string{"a withdraw 5"}},
		{"a place that a release waits for", Name{Usages: []Usage{releasing(used(1, &accountA))}, Places: []Place{stands(5, accountA, Published, "1")}}, []string{
			"a withdraw 5 waited"}},
		{"a release does not wait for another network's", Name{Usages: []Usage{releasing(used(1, &accountA))}, Places: []Place{stands(5, accountA, Leftover, "2")}}, []string{
			"a withdraw 5"}},
		{"a place whose key is gone", Name{Places: []Place{stands(5, keyless, Leftover, "1")}}, []string{"c withdraw 5 credentials_gone"}},
		{"the built-in server needs no key", Name{Places: []Place{stands(5, served, Leftover, "1")}}, []string{" withdraw 5"}},
		{"a move, before the new value is in place", Name{Usages: []Usage{used(1, &accountB, "a://b:1")}, Places: []Place{stands(5, accountA, Published, "1")}}, []string{
			"b v=mesh1 n=1 a://b:1 follow", "a keep 5 beside 1"}},
		{"a move, before it is known what the first write has left", Name{Usages: []Usage{used(1, &accountB, "a://b:1")},
			Places: []Place{mayStand(5, accountA, Withdrawing, "1")}}, []string{
			"b v=mesh1 n=1 a://b:1 follow", "a keep 5 beside 1"}},
		{"a move, after", Name{Usages: []Usage{used(1, &accountB, "a://b:1")},
			Places: []Place{stands(5, accountA, Published, "1"), stands(6, accountB, Published, "1")}}, []string{
			"b v=mesh1 n=1 a://b:1 at 6", "a withdraw 5 beside 1"}},
		{"a move, while the new place has another value", Name{Usages: []Usage{used(1, &accountB, "a://new:1")},
			Places: []Place{stands(5, accountA, Published, "1"), stands(6, accountB, Published, "1")}}, []string{
			"b v=mesh1 n=1 a://new:1 at 6 follow", "a keep 5 beside 1"}},
		{"a move, while it fails", Name{Usages: []Usage{used(1, &accountB, "a://b:1")},
			Places: []Place{stands(5, accountA, Withdrawing, "1"), stands(6, accountB, Failed, "1")}}, []string{
			"b v=mesh1 n=1 a://b:1 at 6 follow", "a keep 5 beside 1"}},
		{"a move, beside another value, after a look", Name{Usages: []Usage{used(1, &accountB, "a://b:1")},
			Places: []Place{besides(stands(5, accountA, Withdrawing, "2"))}}, []string{"b v=mesh1 n=1 a://b:1 follow", "a withdraw 5 beside 1"}},
		{"a move, beside another value, before it is known what was written", Name{Usages: []Usage{used(1, &accountB, "a://b:1")},
			Places: []Place{besides(mayStand(5, accountA, Withdrawing, "2"))}}, []string{"b v=mesh1 n=1 a://b:1 follow", "a keep 5 beside 1"}},
		{"a tombstone beside a new value", Name{Usages: []Usage{used(1, &accountA, "a://b:1")},
			Places: []Place{stands(5, accountA, Withdrawn, "1"), stands(6, accountA, Published, "1")}}, []string{
			"a v=mesh1 n=1 a://b:1 at 6", "a withdraw 5 beside 1"}},
	} {
		test.check(t)
	}
}

// TestDesiredKeepsLastAddress has an address that was known, and is not now.
func TestDesiredKeepsLastAddress(t *testing.T) {
	n := Name{Name: testName, Own: ownAt(accountA)}
	all := Desired(State{Owner: testOwner, Names: []Name{n}}, Addresses{Last: testAddresses})[0].Records
	if len(all) != 1 || all[0].Want != testValue("", "tcp://203.0.113.7:1") || all[0].Warning.Code != CodeAddressUnknown {
		t.Errorf("%+v", all)
	}
}

func TestFree(t *testing.T) {
	doubted := Place{ID: 5, Account: accountA, State: Failed, Doubt: Doubt{Value: testValue("1")}}
	for what, test := range map[string]struct {
		name Name
		want []string
	}{
		"not released":                  {Name{Usages: []Usage{used(1, &accountA)}}, nil},
		"nothing stands":                {Name{Usages: []Usage{releasing(used(1, &accountA))}}, []string{"u1"}},
		"its value stands":              {Name{Usages: []Usage{releasing(used(1, &accountA))}, Places: []Place{stands(5, accountA, Published, "1")}}, nil},
		"its value stands as leftover":  {Name{Usages: []Usage{releasing(used(1, &accountA))}, Places: []Place{stands(5, accountA, Leftover, "1")}}, nil},
		"another network's stands":      {Name{Usages: []Usage{releasing(used(1, &accountA))}, Places: []Place{stands(5, accountA, Published, "2")}}, []string{"u1"}},
		"it was seen to go":             {Name{Usages: []Usage{releasing(used(1, &accountA))}, Places: []Place{{ID: 5, State: Withdrawn}}}, []string{"u1"}},
		"a write's outcome is unknown":  {Name{Usages: []Usage{releasing(used(1, &accountA))}, Places: []Place{doubted}}, nil},
		"a tombstone in doubt":          {Name{Usages: []Usage{releasing(used(1, &accountA))}, Places: []Place{{ID: 5, State: Withdrawn, Doubt: Doubt{Value: testValue("1")}}}}, nil},
		"the same network wants it too": {Name{Usages: []Usage{releasing(used(1, &accountA)), used(1, &accountA)}, Places: []Place{stands(5, accountA, Published, "1")}}, []string{"u1"}},
		"the same network waits for it": {Name{Usages: []Usage{releasing(used(1, &accountA)), used(3, &accountA), used(1, &accountA)}, Places: []Place{stands(5, accountA, Published, "1")}}, nil},
		"two of three": {Name{Usages: []Usage{releasing(used(1, &accountA)), releasing(used(2, &accountA)), used(3, &accountA)},
			Places: []Place{stands(5, accountA, Published, "3")}}, []string{"u1", "u2"}},
	} {
		if got := Free(test.name, false); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
}

func TestNextLook(t *testing.T) {
	soon, late := time.Unix(10, 0), time.Unix(20, 0)
	for _, test := range []struct {
		places []Place
		want   time.Time
	}{
		{nil, time.Time{}},
		{[]Place{{}}, time.Time{}},
		{[]Place{{LookAt: late}, {}, {LookAt: soon}}, soon},
	} {
		if got := nextLook(test.places); !got.Equal(test.want) {
			t.Errorf("%v: %v, want %v", test.places, got, test.want)
		}
	}
}

// The work on a name grows with the number of its records, not with its square. It is measured
// in allocated octets, because most of it is copies.
func TestDesiredIsLinear(t *testing.T) {
	octets := func(records int) uint64 {
		n := Name{Name: testName, Usages: []Usage{used(1, &accountA, "tcp://203.0.113.7:1")}}
		for id := range records {
			n.Places = append(n.Places, Place{
				ID: int64(id), Name: testName, Sibling: Sibling{Owner: fmt.Sprintf("h%d.office.example.com", id), Type: "A"},
				Account: accountA, Zone: "example.com", State: Withdrawn,
			})
		}
		state := State{Owner: testOwner, Names: []Name{n}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		Desired(state, Addresses{})
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := octets(50), octets(500)
	t.Logf("50 records take %d octets, 500 take %d", few, many)
	if many > 20*few {
		t.Errorf("ten times the records take %d times the octets", many/few)
	}
}

// TestWithdrawalThatIsKept has a value's network reserve the name at another account between the plan of the
// withdrawal and the write: the value stays until the new one stands.
func TestWithdrawalThatIsKept(t *testing.T) {
	old := stands(5, accountA, Withdrawing, "1")
	records := func(n Name) []Record {
		n.Name = testName
		return Desired(State{Owner: testOwner, Names: []Name{n}}, Addresses{})[0].Records
	}
	planned := records(Name{Places: []Place{old}})[0]
	wanted := records(Name{Places: []Place{old}, Usages: []Usage{used(1, &accountB, "a://b:1")}})
	if !planned.same(records(Name{Places: []Place{old}})[0]) || slices.ContainsFunc(wanted, planned.same) {
		t.Errorf("%+v is still wanted, of %+v", planned, wanted)
	}
}
