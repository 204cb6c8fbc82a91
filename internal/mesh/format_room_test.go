package mesh

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/dns"
)

// answerOf returns the size of the DNS answer with a set of TXT records, as a server packs it.
func answerOf(t *testing.T, set FormatSet) int {
	t.Helper()
	name, err := dns.ParseName(set.Name)
	if err != nil {
		t.Fatal(err)
	}
	answer := dns.Message{Questions: []dns.Question{{Name: name, Type: dns.TypeTXT, Class: dns.ClassIN}}}
	for _, value := range set.Values {
		answer.Answers = append(answer.Answers, dns.RR{Name: name, Type: dns.TypeTXT, Class: dns.ClassIN, Data: dns.TXTData([]string{value})})
	}
	return len(answer.Pack())
}

// TestRoomOverUDP: no answer of hostport has over 512 octets, and what is left out would make one that has.
func TestRoomOverUDP(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	exact := 0
	for range 2000 {
		var endpoints []Endpoint
		for i := range random.IntN(40) {
			text := fmt.Sprintf("udp://192.0.2.%d:%d", random.IntN(256), 1+random.IntN(65535))
			if random.IntN(3) == 0 {
				text = fmt.Sprintf("udp://[2001:db8::%x]:%d", random.IntN(65536), 1+i)
			}
			endpoints = append(endpoints, Endpoint{Text: text})
		}
		set := FormatSets([]string{HostPort}, nameOf(3+random.IntN(250)), endpoints)[0]
		size := answerOf(t, set)
		if size > 512 {
			t.Fatalf("%d octets of %d values", size, len(set.Values))
		}
		if size == 512 {
			exact++
		}
		for _, l := range set.LeftOut {
			larger := set
			larger.Values = append(slices.Clone(set.Values), strings.TrimPrefix(l.Endpoint.Text, "udp://"))
			if size := answerOf(t, larger); size <= 512 {
				t.Fatalf("%s is left out of an answer of %d octets (%s)", l.Endpoint.Text, size, l.Reason)
			}
		}
	}
	if exact == 0 {
		t.Error("no answer has exactly 512 octets")
	}
}

// TestFirstHaveRoom: where room is limited, the first endpoints have it.
func TestFirstHaveRoom(t *testing.T) {
	var endpoints []Endpoint
	for i := range 1000 {
		endpoints = append(endpoints, Endpoint{Text: fmt.Sprintf("tcp://192.0.2.%d:%d", i%250, 1000+i), PeerID: ed25519ID})
	}
	for format, want := range map[string]int{HostPort: 17, DNSAddr: 100, SRV + "_x._tcp": 100, EasyTierSRV: 100, IP4P: 100} {
		set := FormatSets([]string{format}, parent, endpoints)[0]
		if len(set.Values) != want || len(set.LeftOut) != len(endpoints)-want {
			t.Errorf("%s: %d values, %d left out; want %d values", format, len(set.Values), len(set.LeftOut), want)
			continue
		}
		if first := FormatSets([]string{format}, parent, endpoints[:want])[0]; !slices.Equal(first.Values, set.Values) {
			t.Errorf("%s: the values are not those of the first endpoints", format)
		}
	}
	if got := FormatSets([]string{DNSAddr}, parent, endpoints)[0].LeftOut[0].Reason.String(); got != "too_many" {
		t.Errorf("the reason is %q", got)
	}
	if got := FormatSets([]string{HostPort}, parent, endpoints)[0].LeftOut[0].Reason.String(); got != "the DNS answer would have 530 octets, 512 at most" {
		t.Errorf("the reason is %q", got)
	}
}

// TestMostRecords: a set has 100 records, whichever formats it serves. Each slot has its turn before a slot has a second one.
func TestMostRecords(t *testing.T) {
	for _, formats := range [][]string{{Address}, {IP4P}, {SRV + "_x._tcp"}, {EasyTierSRV, SRV + "_easytier._tcp"}} {
		for _, slots := range []int{100, 101} {
			endpoints := []Endpoint{{Text: "tcp://192.0.2.254:1", Slot: "0"}} // with its second one a slot has more than its share
			for i := range slots - 1 {
				endpoints = append(endpoints, Endpoint{Text: fmt.Sprintf("tcp://192.0.2.%d:1", 100+i), Slot: fmt.Sprint(i)})
			}
			set := FormatSets(formats, parent, endpoints)[0]
			over := max(0, slots-100)
			if len(set.Values) != slots-over || len(set.LeftOut) != over || over > 0 && set.LeftOut[0] != (LeftOut{endpoints[1], TooMany}) {
				t.Errorf("%v, %d endpoints: %d values, left out %v", formats, slots, len(set.Values), set.LeftOut)
			}
		}
	}
}

// TestRoomIsShared: in every format, however the slots sort and however long their endpoints are, each slot has an endpoint
// before another has two, and one that needs no more than an equal share has room.
func TestFormatRoomIsShared(t *testing.T) {
	const slots = 16
	for _, format := range []string{HostPort, DNSAddr, SRV + "_x._tcp"} {
		var endpoints []Endpoint
		for i := range 1000 { // the first slot has many long endpoints
			endpoints = append(endpoints, Endpoint{Text: fmt.Sprintf("tcp://[2001:db8:1111:2222:3333:4444:5555:%x]:%d", i, 10000+i), Slot: "a", PeerID: ed25519ID})
		}
		var others []Endpoint
		for i := 1; i < slots; i++ {
			others = append(others, Endpoint{Text: fmt.Sprintf("tcp://192.0.2.%d:1", i), Slot: fmt.Sprintf("b%02d", i), PeerID: ed25519ID})
		}
		set := FormatSets([]string{format}, parent, slices.Concat(endpoints, others))[0]
		for _, l := range set.LeftOut {
			if l.Endpoint.Slot != "a" {
				t.Errorf("%s: %s of slot %s is left out: %s", format, l.Endpoint.Text, l.Endpoint.Slot, l.Reason)
			}
		}
		if len(set.LeftOut) == 0 {
			t.Errorf("%s has room for all", format)
		}
	}
}
