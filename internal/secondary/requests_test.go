package secondary

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// TestTwoAtOneAddress: transfers to secondaries with one address, two keys, and none count each for its own.
func TestTwoAtOneAddress(t *testing.T) {
	w := newWorld(t)
	w.serials["example.com"] = 9
	apex, _ := dns.ParseName("example.com")
	var all []Secondary
	for _, b := range []Secondary{
		{ID: "a", KeyName: "a.example", Secret: secretOf("a"), From: []string{"10.1.0.0/16"}},
		{ID: "b", KeyName: "b.example", Secret: secretOf("b"), From: []string{"10.1.0.0/24", "10.0.0.1"}},
		{ID: "bare"},
	} {
		b.Address = "10.0.0.1"
		s, err := b.Check(msg.English)
		if err == nil {
			s, err = w.Save(t.Context(), s)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	w.begin(t.Context())
	for n, s := range all {
		w.Fetched(s.at.Addr(), s.key.Name, apex, uint32(1+n))
	}
	fetched := func() (serials []uint32) {
		for _, s := range all {
			serials = append(serials, w.Find(s.ID).follower.state("example.com").fetched)
		}
		return serials
	}
	if got := fetched(); !slices.Equal(got, []uint32{1, 2, 3}) {
		t.Errorf("fetched %v", got)
	}
	within := netip.MustParseAddr("10.1.0.1") // both ranges have it
	for n, s := range all {
		w.Fetched(within, s.key.Name, apex, uint32(7+n))
	}
	if got := fetched(); !slices.Equal(got, []uint32{7, 8, 3}) {
		t.Errorf("fetched %v after transfers from ranges", got)
	}
	if !w.Names(within, all[0].key.Name, apex, 7) || w.Names(within, all[1].key.Name, apex, 7) {
		t.Error("what was sent to one secondary counts for another")
	}
}

// few are addresses in which random secondaries and requests meet.
var few = []string{"10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "2001:db8::", "2001:db8::1", "2001:db8::2", "2001:db8::3"}

// plain is a secondary as the contract has it: which of few it asks from.
type plain struct {
	key     string
	address int
	from    map[int]bool
}

// serves reports whether a request is one of the secondary.
func (p plain) serves(from int, key string) bool {
	if key == "" {
		return p.key == "" && p.address == from && from < 8 // the others are not private
	}
	return p.key == key && (p.address == from || p.from[from])
}

// shares reports whether a request from the ranges of a secondary may be one of another one.
func (p plain) shares(o plain) bool {
	for at := range few {
		if p.from[at] && (o.from[at] || o.address == at) {
			return p.key == o.key
		}
	}
	return false
}

var fewKeys = []string{"", "k.example", "l.example"}

// randomSecondary returns a secondary, and reports whether it can be stored where no other one is.
func randomSecondary(random *rand.Rand) (s Secondary, p plain, good bool) {
	p, good = plain{fewKeys[random.IntN(3)], random.IntN(len(few)), map[int]bool{}}, true
	s = Secondary{ID: fmt.Sprint(random.IntN(5)), Address: few[p.address]}
	if p.key != "" {
		s.KeyName, s.Secret = []string{p.key, strings.ToUpper(p.key), p.key + "."}[random.IntN(3)], secretOf("all")
	}
	for range random.IntN(3) {
		at, host, bits := random.IntN(len(few)), random.IntN(4), 32
		if at >= 8 {
			bits = 128
		}
		s.From = append(s.From, fmt.Sprintf("%s/%d", few[at], bits-host))
		for n := range few {
			if n/8 == at/8 && n>>host == at>>host {
				good = good && !p.from[n]
				p.from[n] = true
			}
		}
		good = good && p.key != ""
	}
	return s, p, good
}

// compare compares what is stored with what a model says of each request, and counts those that nobody and somebody may
// send. Two secondaries are told apart, unless they have one address and one key.
func (w *world) compare(model map[string]plain, requests *[2]int) {
	w.t.Helper()
	apex, _ := dns.ParseName("example.com")
	for n, text := range few {
		from := netip.MustParseAddr(text)
		for _, key := range fewKeys {
			var name dns.Name
			if key != "" {
				name, _ = dns.ParseName(key)
			}
			var want, got []string
			for id, p := range model {
				if p.serves(n, key) {
					want = append(want, id)
				}
			}
			for _, s := range w.Known() {
				if s.matches(from, name) {
					got = append(got, s.ID)
				}
			}
			if slices.Sort(want); !slices.Equal(got, want) || w.May(from, name, apex) != (len(want) > 0) {
				w.t.Fatalf("%s with key %q: one of %v, want %v of %+v", text, key, got, want, model)
			}
			if len(want) > 1 && slices.ContainsFunc(want, func(id string) bool { return model[id].address != n }) {
				w.t.Fatalf("%s with key %q is a request of %v in %+v", text, key, want, model)
			}
			requests[min(1, len(want))]++
		}
	}
}

// TestRandomRequests: whatever is stored, each request is one of the right secondary.
func TestRandomRequests(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 7))
	stored, refused, requests := 0, 0, [2]int{}
	for range 20 {
		w := newWorld(t)
		model := map[string]plain{}
		for range 40 {
			s, p, good := randomSecondary(random)
			for other, o := range model {
				good = good && (other == s.ID || !p.shares(o) && !o.shares(p))
			}
			checked, err := s.Check(msg.English)
			if err == nil {
				_, err = w.Save(t.Context(), checked)
			}
			if (err == nil) != good {
				t.Fatalf("%+v beside %+v: %v, want it stored: %v", s, model, err, good)
			}
			if err != nil {
				refused++
				continue
			}
			stored++
			model[s.ID] = p
			w.compare(model, &requests)
		}
	}
	t.Logf("stored %d, refused %d; requests that nobody and somebody may send: %v", stored, refused, requests)
	if min(stored, refused, requests[0], requests[1]) < 100 {
		t.Error("too few of a kind")
	}
}
