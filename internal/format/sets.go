// Sets of records, and what has no room in them.

package format

import (
	"slices"
	"strings"

	"meshddns/internal/dnsname"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// Set is the records of one owner name and type.
type Set struct {
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
	Endpoint mesh.Endpoint
	Reason   msg.Text
}

// Sets returns the records of endpoints, whose placeholders are expanded, in formats that Parse returned.
// name is <prefix>.<domain>. Each format except Mesh1 and URLs has at least one set. Each endpoint is in
// a set of each format, or the first set of the format has it in LeftOut; where room is limited, the
// first endpoints have it. Formats with the same name and type share a set.
func Sets(formats []string, name string, endpoints []mesh.Endpoint) []Set {
	c := collection{parent: dnsname.Parse(name), index: map[place]int{}}
	for _, format := range formats {
		if r, ok := ruleOf(format, c.parent); ok {
			c.add(format, r, endpoints)
		}
	}
	for i := range c.sets {
		set := &c.sets[i]
		slices.Sort(set.Values)
		if dnsname.Fault(set.Name) != "" {
			set.Fault, set.Values = nameFault(set.Name), nil
		}
	}
	return c.sets
}

// place is an owner name and a type.
type place struct{ name, typ string }

// collection is the sets so far.
type collection struct {
	parent string
	sets   []Set
	index  map[place]int // of the sets
}

// add adds the records of one format.
func (c *collection) add(format string, r rule, endpoints []mesh.Endpoint) {
	first := -1 // the first set of the format
	var leftOut []LeftOut
	for _, e := range endpoints {
		for at, record := range c.recordsOf(r, e, &leftOut) {
			i := c.set(format, record.name, record.typ)
			if at == 0 && first < 0 {
				first = i
			}
			if !slices.Contains(c.sets[i].Values, record.value) {
				c.sets[i].Values = append(c.sets[i].Values, record.value)
			}
		}
	}
	if first < 0 {
		first = c.set(format, r.home, r.typ)
	}
	set := &c.sets[first]
	for _, l := range leftOut {
		if !slices.Contains(set.LeftOut, l) {
			set.LeftOut = append(set.LeftOut, l)
		}
	}
}

// recordsOf returns the records of an endpoint, the one of the format itself first. If it has none, or they have no room, it appends the
// reason to leftOut.
func (c *collection) recordsOf(r rule, e mesh.Endpoint, leftOut *[]LeftOut) []record {
	parsed, reason := parseEndpoint(e)
	if reason != "" {
		*leftOut = append(*leftOut, LeftOut{e, reason})
		return nil
	}
	records, reason := r.records(parsed)
	if reason == "" {
		reason = c.noRoom(r, records[0])
	}
	if reason != "" {
		*leftOut = append(*leftOut, LeftOut{e, reason})
		return nil
	}
	if dnsname.Fault(records[0].name) != "" {
		return records[:1] // an address that no record points to is of no use
	}
	return records
}

// noRoom returns the reason why a record has no room in its set, "" if it has.
func (c *collection) noRoom(r rule, new record) msg.Text {
	i, ok := c.index[place{new.name, new.typ}]
	if !ok {
		return ""
	}
	values := c.sets[i].Values
	if slices.Contains(values, new.value) {
		return ""
	}
	if r.values > 0 && len(values) >= r.values {
		return msg.Textf("clients read at most %d records at a name", r.values)
	}
	octets := answerSize(new.name) + recordSize(new.typ, new.value)
	for _, value := range values {
		octets += recordSize(new.typ, value)
	}
	if octets > r.octets {
		return msg.Textf("the DNS answer would have %d octets, %d at most", octets, r.octets)
	}
	return ""
}

// set returns the index of a set, and adds the format to it.
func (c *collection) set(format, name, typ string) int {
	at := place{name, typ}
	i, ok := c.index[at]
	if !ok {
		i = len(c.sets)
		c.index[at] = i
		c.sets = append(c.sets, Set{Format: format, Name: name, Type: typ})
	} else if set := &c.sets[i]; !slices.Contains(strings.Split(set.Format, ","), format) {
		set.Format += "," + format
	}
	return i
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
