// Sets of records, and what has no room in them.

package mesh

import (
	"net/netip"
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// FormatSet is the records of one owner name and type.
type FormatSet struct {
	Format string // the formats that have the set, with commas
	Name   string // owner name, folded
	Type   string // TXT, A, AAAA or SRV

	// Values are the data of the records, sorted and different. That of a TXT record is its one
	// character-string, any other is in presentation form. A set without values must not be published;
	// it only tells something about its format.
	Values []string

	LeftOut []LeftOut
	Fault   msg.Text // why the set has no values although endpoints are there; "" none
}

// LeftOut is an endpoint that a format does not have, and the reason.
type LeftOut struct {
	Endpoint Endpoint
	Reason   msg.Text
}

// FormatSets returns the records of endpoints, whose placeholders are expanded, in formats that Parse returned.
// name is <prefix>.<domain>. Each format except Mesh1 and URLs has at least one set. Each endpoint is in
// a set of each format, or the first set of the format has it in LeftOut; where room is limited,
// InTurn decides which have it. Formats with the same name and type share a set.
func FormatSets(formats []string, name string, endpoints []Endpoint) []FormatSet {
	c := collection{parent: dns.Parse(name), index: map[place]int{}}
	read := readAll(endpoints, c.parent)
	for _, format := range formats {
		if r, ok := ruleOf(format, c.parent); ok {
			c.add(format, r, read)
		}
	}
	for i := range c.sets {
		set := &c.sets[i]
		slices.Sort(set.Values)
		set.Values, set.LeftOut = slices.Compact(set.Values), Once(set.LeftOut)
		if dns.NameFault(set.Name) != "" {
			set.Fault, set.Values = nameFault(set.Name), nil
		}
	}
	return c.sets
}

// Homes returns the sets at which formats can have values below a name: those of some endpoints, and those whose owner names depend on
// no endpoint.
func Homes(formats []string, name string, endpoints []Endpoint) []FormatSet {
	var samples []Endpoint
	for _, scheme := range []string{"tcp", "udp", "wg", "quic", "ws", "wss", "faketcp"} {
		samples = append(samples, Endpoint{Text: scheme + "://192.0.2.1:1"}, Endpoint{Text: scheme + "://[2001:db8::1]:1"})
	}
	return append(FormatSets(formats, name, endpoints), slices.DeleteFunc(FormatSets(formats, name, samples), func(s FormatSet) bool {
		return strings.HasPrefix(s.Name, "192-0-2-1.") || strings.HasPrefix(s.Name, "2001-0db8-0000-") // addresses of the samples
	})...)
}

// MayMake reports whether a value at an owner name has the form that a format gives it.
func MayMake(name, typ, value string) bool {
	switch typ {
	case typeSRV:
		return strings.HasPrefix(value, "1 1 ")
	case typeTXT:
		_, err := netip.ParseAddrPort(strings.TrimPrefix(value, "addr="))
		return err == nil || strings.HasPrefix(value, "dnsaddr=/")
	}
	return !strings.HasPrefix(name, "ip4p.") || strings.HasPrefix(value, "2001::")
}

// Once returns the first of each of the entries that are the same.
func Once[E comparable](all []E) (once []E) {
	has := map[E]bool{}
	for _, e := range all {
		if !has[e] {
			has[e], once = true, append(once, e)
		}
	}
	return once
}

// place is an owner name and a type.
type place struct{ name, typ string }

func (r record) at() place { return place{r.name, r.typ} }

// collection is the sets so far. Their values are in no order, and may be there twice.
type collection struct {
	parent string
	sets   []FormatSet
	index  map[place]int // of the sets
}

// request is what one endpoint asks of a format. The first record is that of the format itself.
type request struct {
	endpoint Endpoint
	records  []record
	refusal  msg.Text // why the format does not have the endpoint; "" it does
}

// add adds the records of one format.
func (c *collection) add(format string, r rule, endpoints []reading) {
	requests := make([]request, len(endpoints))
	at := map[place][]*request{}
	for i, e := range endpoints {
		q := &requests[i]
		if q.endpoint, q.refusal = e.endpoint.Endpoint, e.fault; q.refusal == "" {
			q.records, q.refusal = r.records(e.endpoint)
		}
		if q.refusal == "" {
			at[q.records[0].at()] = append(at[q.records[0].at()], q)
		}
	}
	for home, same := range at {
		c.share(r, home, same)
	}
	first := -1 // the first set of the format
	joined := map[int]bool{}
	for _, q := range requests {
		if q.refusal != "" {
			continue
		}
		for _, record := range q.records {
			i := c.set(record.at())
			if first < 0 {
				first = i
			}
			c.join(joined, i, format)
			c.sets[i].Values = append(c.sets[i].Values, record.value)
		}
	}
	if first < 0 {
		first = c.set(place{r.home, r.typ})
		c.join(joined, first, format)
	}
	for _, q := range requests {
		if q.refusal != "" {
			c.sets[first].LeftOut = append(c.sets[first].LeftOut, LeftOut{q.endpoint, q.refusal})
		}
	}
}

// share gives the room of one set to requests for it, and refuses those for which it has none.
func (c *collection) share(r rule, home place, requests []*request) {
	octets, has := answerSize(home.name), map[string]bool{}
	if i, ok := c.index[home]; ok {
		for _, value := range c.sets[i].Values {
			if !has[value] {
				octets += recordSize(home.typ, value)
				has[value] = true
			}
		}
	}
	var endpoints []Endpoint
	for _, q := range requests {
		endpoints = append(endpoints, q.endpoint)
	}
	pointless, large := dns.NameFault(home.name) != "", map[int]msg.Text{}
	octetsOf := func(i int) int { return recordSize(home.typ, requests[i].records[0].value) }
	for _, i := range InTurn(endpoints, octetsOf) {
		q, size := requests[i], octetsOf(i)
		value := q.records[0].value
		switch {
		case has[value]:
		case len(has) >= maxRecords:
			q.refusal = TooMany
		case r.octets > 0 && octets+size > r.octets:
			if large[size] == "" {
				large[size] = msg.Textf("the DNS answer would have %d octets, %d at most", octets+size, r.octets)
			}
			q.refusal = large[size]
		default:
			octets += size
			has[value] = true
		}
		if pointless {
			q.records = q.records[:1] // an address that no record points to is of no use
		}
	}
}

// set returns the index of a set, which it makes if there is none.
func (c *collection) set(at place) int {
	i, ok := c.index[at]
	if !ok {
		i = len(c.sets)
		c.index[at] = i
		c.sets = append(c.sets, FormatSet{Name: at.name, Type: at.typ})
	}
	return i
}

// join adds a format to a set, once.
func (c *collection) join(joined map[int]bool, i int, format string) {
	if joined[i] {
		return
	}
	joined[i] = true
	if set := &c.sets[i]; set.Format == "" {
		set.Format = format
	} else {
		set.Format += "," + format
	}
}

// answerSize returns the octets of an answer without records: header and question.
func answerSize(name string) int { return 12 + len(name) + 2 + 4 }

// recordSize returns the octets of a record in an answer, its owner name being a pointer to the question
// (RFC 1035, section 4.1.4).
func recordSize(typ, value string) int {
	const fixed = 2 + 2 + 2 + 4 + 2 // name, type, class, TTL, length of the data
	switch typ {
	case typeA:
		return fixed + 4
	case typeAAAA:
		return fixed + 16
	case typeSRV:
		target := value[strings.LastIndexByte(value, ' ')+1:]
		return fixed + 6 + len(target) + 2
	default:
		return fixed + 1 + len(value)
	}
}
