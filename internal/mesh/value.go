// Package mesh defines the program's subjects as types and pure functions: the configuration, the
// services, the usages with the rules for prefixes and names, and the value that a network publishes
// in a TXT record:
//
//	v=mesh1 n=42 o=5f0c2a91d3be tcp://203.0.113.7:11010 udp://203.0.113.7:11010
//
// The value is one character-string. A reader that expects a list of URLs separated by spaces can use
// it unchanged, because no word before the endpoints parses as a URL.
package mesh

import (
	"net/netip"
	"net/url"
	"sort"
	"strconv"
	"strings"

	"meshddns/internal/msg"
)

// MaxValue is the greatest size of a value in octets: that of one character-string (RFC 1035,
// section 3.3).
const MaxValue = 255

// Label is the first label of every reserved name.
const Label = "_mesh"

const version = "v=mesh1"

// AnyOwner stands for any owner in size checks, because all owners have the same length.
const AnyOwner = "000000000000"

// CheckOwner checks the form of an owner.
func CheckOwner(owner string) error {
	if len(owner) != len(AnyOwner) || strings.Trim(owner, "0123456789abcdef") != "" {
		return msg.Refuse(msg.OwnerInvalid)
	}
	return nil
}

// Value returns the text to publish. network is the network id in decimal, empty for a record of no
// network.
func Value(network, owner string, endpoints []string) string {
	words := []string{version}
	if network != "" {
		words = append(words, "n="+network)
	}
	words = append(words, "o="+owner)
	return strings.Join(append(words, endpoints...), " ")
}

// Fit returns the value with the endpoints of the usage itself and, in their order, those of the
// leased ones for which MaxValue has room, each once; InTurn decides which have it. The others are left out.
func Fit(network, owner string, own, leased []Endpoint) (value string, leftOut []Endpoint) {
	texts, fits := Texts(own), map[string]bool{}
	room := MaxValue - len(Value(network, owner, texts))
	for _, text := range texts {
		fits[text] = true
	}
	octets := func(i int) int { return len(" ") + len(leased[i].Text) }
	for _, i := range InTurn(leased, octets) {
		if text := leased[i].Text; !fits[text] && octets(i) <= room {
			room, fits[text] = room-octets(i), true
		}
	}
	for _, e := range leased {
		if fits[e.Text] {
			texts = append(texts, e.Text)
		} else {
			leftOut = append(leftOut, e)
		}
	}
	return Value(network, owner, Once(texts)), leftOut
}

// InTurn returns the indexes of endpoints in the order in which they get room: first those of the usage
// itself, then one of each slot, then a second one of each slot, and so on. A slot begins with the
// endpoint that needs the fewest octets, and so does each turn. So a slot has one in any case if that
// one needs no more than an equal share of the room.
func InTurn(endpoints []Endpoint, octets func(i int) int) []int {
	all := make([]int, len(endpoints))
	sizes, turn, turns := make([]int, len(endpoints)), make([]int, len(endpoints)), map[string]int{}
	for i, e := range endpoints {
		if all[i] = i; e.Slot != "" {
			sizes[i] = octets(i)
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return sizes[all[i]] < sizes[all[j]] })
	for _, i := range all {
		if slot := endpoints[i].Slot; slot != "" {
			turns[slot]++
			turn[i] = turns[slot]
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return turn[all[i]] < turn[all[j]] })
	return all
}

const probe = "probe="

// Probe returns a test value of an owner. It belongs to no network; mark makes it unique.
func Probe(owner, mark string) string { return Value("", owner, []string{probe + mark}) }

// IsProbe reports whether Probe made the value.
func IsProbe(value string) bool {
	_, mesh := Owner(value)
	return mesh && member(strings.Fields(value), probe) != ""
}

// Owner returns the owner of a value. mesh is false if the value has another format; the program does
// not touch such values.
func Owner(value string) (owner string, mesh bool) {
	words := strings.Fields(value)
	if len(words) == 0 || words[0] != version {
		return "", false
	}
	return member(words, "o="), true
}

// Network returns the network id in a value, "" if there is none.
func Network(value string) string { return member(strings.Fields(value), "n=") }

// member returns the rest of the first word that begins with beginning.
func member(words []string, beginning string) string {
	for _, word := range words {
		if text, ok := strings.CutPrefix(word, beginning); ok {
			return text
		}
	}
	return ""
}

// Endpoint is one endpoint of a usage.
type Endpoint struct {
	Text   string // scheme://host:port
	Slot   string // of the lease that renews it; "" for one of the usage itself
	PeerID string // the id of the peer at the endpoint, for libp2p and iroh; "" for none
}

// Texts returns the texts of endpoints.
func Texts(endpoints []Endpoint) (texts []string) {
	for _, e := range endpoints {
		texts = append(texts, e.Text)
	}
	return texts
}

// TooLongError is the error for a value or a list of endpoints that is too long.
type TooLongError struct{ Octets, Most int }

func (e *TooLongError) Error() string { return e.Message().String() }

// Message returns the error in both languages.
func (e *TooLongError) Message() msg.Text {
	return msg.Textf("the value has %d octets, %d at most", e.Octets, e.Most)
}

// EndpointError is the error for a text that is not scheme://host:port.
type EndpointError struct {
	Text   string
	Reason msg.Text // about a placeholder in it; "" for none
}

func (e *EndpointError) Error() string { return e.Message().String() }

// Message returns the error in both languages.
func (e *EndpointError) Message() msg.Text {
	if e.Reason != "" {
		return msg.Textf("%q: %s", e.Text, e.Reason)
	}
	return msg.Textf("%q is not scheme://host:port, with a port from 1 to 65535 and an IPv6 address in brackets", e.Text)
}

// After returns the reason as what follows the sentence about the text, "" without one.
func (e *EndpointError) After() msg.Text {
	if e.Reason == "" {
		return ""
	}
	return msg.Textf(": %s", e.Reason)
}

// Check reports whether the endpoints can be published for a network: each is scheme://host:port, and
// the value fits with the longest addresses. An endpoint that is there twice counts once.
func Check(network, owner string, endpoints []string) error {
	return check(endpoints, len(Value(network, owner, nil)), MaxValue)
}

// MaxEndpoints is the greatest size in octets of the endpoints of a usage that publishes no value: that
// of the records of all its formats in one DNS message is below 64 KiB then.
const MaxEndpoints = 7000

// CheckOthers is Check for a usage whose formats are others than that of the value.
func CheckOthers(endpoints []string) error { return check(endpoints, 0, MaxEndpoints) }

// check checks each endpoint, and the size of all of them with a space before each.
func check(endpoints []string, size, most int) error {
	endpoints = Once(endpoints)
	expanded := stretch(endpoints)
	for i, text := range expanded {
		if !isEndpoint(text) {
			return &EndpointError{Text: endpoints[i], Reason: badPlaceholder(endpoints[i])}
		}
		size += len(" ") + len(text)
	}
	if size > most {
		return &TooLongError{size, most}
	}
	return nil
}

func isEndpoint(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Hostname() == "" {
		return false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0 && text == u.Scheme+"://"+u.Host && hostOK(u)
}

// hostOK accepts a name or an IPv4 address without colons, or an IPv6 address in brackets (RFC 3986,
// section 3.2.2).
func hostOK(u *url.URL) bool {
	if strings.HasPrefix(u.Host, "[") {
		address, err := netip.ParseAddr(u.Hostname())
		return err == nil && address.Is6() && address.Zone() == ""
	}
	return !strings.ContainsAny(u.Hostname(), ":[]{}%")
}
