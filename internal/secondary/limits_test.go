package secondary

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// TestTooMany: there are at most 64 secondaries; one more is refused, and a replaced one is not.
func TestTooMany(t *testing.T) {
	w := newWorld(t)
	save := func(id string) error {
		s, err := Secondary{ID: id, Address: "10.0.0.1"}.Check(msg.English)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Save(t.Context(), s)
		return err
	}
	for n := range 64 {
		if err := save(fmt.Sprint("s", n)); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := save("s0"); err != nil {
		t.Error(err)
	}
	if err := save("one-more"); err != ErrTooMany {
		t.Error(err)
	}
}

// TestLimitsOfSecondaries: 64 zones, 16 ranges and a secret of 1024 octets in base64 are accepted, and one more of each is
// refused.
func TestLimitsOfSecondaries(t *testing.T) {
	for _, more := range []int{0, 1} {
		for _, b := range []Secondary{
			{Zones: slices.Repeat([]string{"example.com"}, 64+more)},
			{KeyName: "a.example", Secret: secrets.Masked(slices.Repeat([]byte("AAAA"), 256+more))},
			{KeyName: "a.example", Secret: "AAAA", From: addresses(16 + more)},
		} {
			b.ID, b.Address = "a", "10.0.0.1"
			if _, err := b.Check(msg.English); (err != nil) != (more > 0) {
				t.Errorf("%d zones, %d octets, %d ranges: %v", len(b.Zones), len(b.Secret), len(b.From), err)
			}
		}
	}
}

func addresses(count int) (all []string) {
	for n := range count {
		all = append(all, fmt.Sprintf("10.1.0.%d", n))
	}
	return all
}

// TestServersOfASecondary: each of 16 servers of one secondary, wherever it asks from, is known to have what it was sent,
// whatever another one has. A 17th takes the place of the first.
func TestServersOfASecondary(t *testing.T) {
	w := newWorld(t)
	s, err := Secondary{ID: "a", Address: "10.0.0.1", From: []string{"10.1.0.0/16"}, KeyName: "a.example", Secret: secretOf("a")}.Check(msg.English)
	if err == nil {
		_, err = w.Save(t.Context(), s)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.serials["example.com"] = 100
	w.begin(t.Context())
	apex, _ := dns.ParseName("example.com")
	all := addresses(17)
	for n, text := range all {
		w.Fetched(netip.MustParseAddr(text), s.key.Name, apex, uint32(100-n))
	}
	for n, text := range all {
		from := netip.MustParseAddr(text)
		if sent := w.Names(from, s.key.Name, apex, uint32(100-n)); sent != (n > 0) {
			t.Errorf("server %d: its version was sent: %v", n, sent)
		}
		if w.Names(from, s.key.Name, apex, uint32(99-n)) {
			t.Errorf("server %d: the version of the next one was sent to it", n)
		}
	}
	from := netip.MustParseAddr(all[1])
	w.Fetched(from, s.key.Name, apex, 110)
	w.Fetched(from, s.key.Name, apex, 109) // an earlier transfer, which ended later
	if known := w.Find("a").follower.state("example.com"); known.fetched != 110 || !w.Names(from, s.key.Name, apex, 110) || w.Names(from, s.key.Name, apex, 109) {
		t.Errorf("after two transfers: %+v", known)
	}
}

// TestZonesInAnAnswer: an answer has the states of 1000 zones, and where there are more, those that are the longest
// behind.
func TestZonesInAnAnswer(t *testing.T) {
	w := newWorld(t)
	p := w.peer("p", nil)
	for _, zones := range []int{1000, 1001} {
		w.manyZones(zones)
		w.begin(t.Context())
		last := fmt.Sprintf("z%d.example.net", zones-1)
		w.Find(p.ID).follower.zones[last].moved = time.Now().Add(-time.Duration(zones) * time.Hour)
		if states := w.show(p.Secondary, w.serials, 0).States; len(states) != 1000 || states[0].Zone != last {
			t.Errorf("of %d zones: %d, the first is %s", zones, len(states), states[0].Zone)
		}
	}
}

// TestPausesOfMessages: a secondary that does not fetch a zone hears of it after 1 s, then after pauses that double to 5 min, and
// of changes once a second.
func TestPausesOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s, err := Secondary{ID: "gone", Address: "127.0.0.1:1"}.Check(msg.English)
		if err == nil {
			_, err = w.Save(t.Context(), s)
		}
		if err != nil {
			t.Fatal(err)
		}
		var messages []time.Duration
		begun := time.Now()
		w.asked = func() { messages = append(messages, time.Since(begun)) }
		w.move("example.com", 7)
		w.run()
		<-time.After(20 * time.Minute)
		synctest.Wait()
		want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(messages, want) {
			t.Errorf("messages at %v, want %v", messages, want)
		}
		begun, messages = time.Now(), nil
		for n := range uint32(30) { // three seconds
			w.move("example.com", n+8)
			<-time.After(100 * time.Millisecond)
			synctest.Wait()
		}
		if want := []time.Duration{0, time.Second, 2 * time.Second}; len(messages) < 3 || !slices.Equal(messages[:3], want) || len(messages) > 4 {
			t.Errorf("messages about changes at %v, want %v", messages, want)
		}
	})
}
