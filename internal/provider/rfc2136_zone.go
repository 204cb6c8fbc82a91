package provider

import (
	"context"
	"errors"
	"strings"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// Limits of a zone transfer. A larger zone is read name by name.
const (
	transferTime = time.Minute
	maxTransfer  = 256 << 20 // octets of all messages
	maxKept      = 64 << 20  // estimated octets of memory for a list of a zone
	recordCost   = 128       // estimated octets of a record besides its name and data
)

var (
	errTooLarge = msg.Errorf("the zone is too large to be transferred whole")
	errRecords  = msg.Errorf("the records are not a zone from its SOA record to its SOA record")
)

// ReadAll transfers the zone (RFC 5936). For each delegation and DNAME it adds an entry at "*." and its
// name, for Listed.
func (c *RFC2136) ReadAll(ctx context.Context, zone string, wanted Wanted) (map[string]RRset, error) {
	apex, err := ownerName(zone)
	if err != nil {
		return nil, err
	}
	call := msg.Textf("transfer zone %s from %s", zone, c.server)
	query := dns.Message{ID: randomID(), Questions: []dns.Question{{Name: apex, Type: dns.TypeAXFR, Class: dns.ClassIN}}}
	request, mac := c.key.Sign(query.Pack(), c.now())
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	t := newTransfer(apex, wanted)
	stream := c.key.Stream(mac)
	err = dns.Transfer(ctx, c.server, request, func(data []byte) (bool, error) {
		return t.take(data, func() (bool, error) { return stream.Verify(data, c.now()) })
	})
	if err != nil {
		return nil, c.transferError(call, err)
	}
	return t.zone(), nil
}

// ZoneID returns the zone's name: one server has one zone of a name, for all keys.
func (c *RFC2136) ZoneID(_ context.Context, zone string) (string, error) {
	return dns.Fold(zone), nil
}

// Listed returns the entry of a name in a list of ReadAll. Below a delegation or a DNAME the entry is
// an alias, because no resolver would see a change there.
func Listed(all map[string]RRset, name string) RRset {
	name = dns.Fold(name)
	for above := range dns.Ancestors(dns.Parent(name)) {
		if set := all["*."+above]; strings.Contains(set.Alias.String(), " ") { // the alias of a wildcard record has no space
			return RRset{Alias: set.Alias}
		}
	}
	return all[name]
}

// transferError distinguishes a refused transfer from a failed one. Knot sends BADKEY, and PowerDNS an
// unsigned NOTAUTH, both for a wrong key and for one that may not transfer: single reads show which it
// is.
func (c *RFC2136) transferError(call msg.Text, err error) error {
	if code, ok := errors.AsType[rcodeFailure](err); ok {
		failure := rcodeError(call, transferErrors, code.rcode, code.signed)
		if failure.Kind == Permission {
			failure.Err = ErrNotListed
		}
		return failure
	}
	if report, ok := errors.AsType[*dns.TSIGError](err); ok && report.Code == dns.RcodeBadKey {
		return c.verifyError(call, msg.Errorf("%w: %w", ErrNotListed, err))
	}
	switch _, reported := errors.AsType[*dns.TSIGError](err); {
	case reported, errors.Is(err, dns.ErrUnsigned), errors.Is(err, dns.ErrBadMAC):
		return c.verifyError(call, err)
	case errors.Is(err, errTooLarge):
		return &Error{Kind: Invalid, Detail: call, Err: msg.Errorf("%w: %w", ErrNotListed, err)}
	case errors.Is(err, dns.ErrFormat), errors.Is(err, errRecords):
		return &Error{Kind: BadAnswer, Detail: call, Err: err}
	}
	return &Error{Kind: Network, Detail: call, Err: err}
}

// rcodeFailure is the rcode of an answer that only reports a failure.
type rcodeFailure struct {
	rcode  dns.Rcode
	signed bool
}

func (f rcodeFailure) Error() string { return f.rcode.String() }

var transferErrors = map[dns.Rcode]meaning{
	dns.RcodeFormErr:  {Permission, "the server does not take transfers"},
	dns.RcodeServFail: {Temporary, "the server has a fault"},
	dns.RcodeNotImp:   {Permission, "the server does not take transfers"},
	dns.RcodeRefused:  {Permission, "the key may not transfer the zone"},
	dns.RcodeNotAuth:  {Permission, "the server has no such zone, or does not transfer it for this key"},
}

// transfer reads the records of a zone in their order, and keeps those that concern TXT values.
type transfer struct {
	apex   dns.Name
	wanted Wanted
	soa    []byte // data of the first record; nil before it
	ended  bool
	octets int                 // of all messages
	kept   int                 // estimated octets of memory
	sets   map[dns.Name]RRset  // by folded name
	cuts   map[dns.Name]string // delegated names and a server of each
	dnames map[dns.Name]string // names with a DNAME and its target
}

func newTransfer(apex dns.Name, wanted Wanted) *transfer {
	return &transfer{
		apex: apex.Fold(), wanted: wanted, sets: map[dns.Name]RRset{},
		cuts: map[dns.Name]string{}, dnames: map[dns.Name]string{},
	}
}

// take reads the next message. The signature of the last message proves all before it; until then the
// records must not be used.
func (t *transfer) take(data []byte, verify func() (proven bool, err error)) (last bool, err error) {
	t.octets += len(data)
	if t.octets > maxTransfer {
		return false, errTooLarge
	}
	m, err := dns.ParseMessage(data)
	if err != nil {
		return false, err
	}
	proven, err := verify()
	failed := m.Rcode != dns.RcodeSuccess
	if failed && (err == nil || errors.Is(err, dns.ErrUnsigned)) {
		return false, rcodeFailure{m.Rcode, proven}
	}
	if err != nil {
		return false, err
	}
	if m.Truncated {
		return false, dns.ErrFormat
	}
	for _, rr := range m.Answers {
		if err := t.record(rr); err != nil {
			return false, err
		}
	}
	if t.ended && !proven {
		return false, dns.ErrUnsigned
	}
	return t.ended, nil
}

func (t *transfer) record(rr dns.RR) error {
	name := rr.Name.Fold()
	isSOA := rr.Type == dns.TypeSOA && rr.Class == dns.ClassIN && name == t.apex
	if t.soa == nil && isSOA {
		t.soa = rr.Data
		return nil
	}
	if t.soa == nil || t.ended || isSOA && !sameSOA(t.soa, rr.Data) {
		return errRecords
	}
	t.ended = isSOA
	if rr.Class != dns.ClassIN || !name.Within(t.apex) {
		return nil
	}
	return t.keep(name, rr)
}

// sameSOA compares two SOA records: names without letter case, the numbers octet by octet.
func sameSOA(a, b []byte) bool {
	const numbers = 20
	if len(a) != len(b) || len(a) < numbers {
		return false
	}
	end := len(a) - numbers
	return dns.Name(a[:end]).Fold() == dns.Name(b[:end]).Fold() && string(a[end:]) == string(b[end:])
}

func (t *transfer) keep(name dns.Name, rr dns.RR) error {
	switch rr.Type {
	case dns.TypeTXT:
		value, err := dns.ParseTXT(rr.Data)
		if err != nil {
			return err
		}
		set, there := t.sets[name]
		if !there && !t.wants(name, value) {
			return nil
		}
		set.TTL, set.Values = rr.TTL, append(set.Values, value)
		t.sets[name] = set
	case dns.TypeCNAME:
		set, there := t.sets[name]
		if !there && !t.wants(name, nil) {
			return nil
		}
		set.Alias = msg.Say(nameText(dns.Name(rr.Data)))
		t.sets[name] = set
	case dns.TypeNS:
		if name != t.apex {
			t.cuts[name] = nameText(dns.Name(rr.Data))
		}
	case dns.TypeDNAME:
		t.dnames[name] = nameText(dns.Name(rr.Data))
	default:
		return nil
	}
	t.kept += recordCost + len(name) + len(rr.Data)
	if t.kept > maxKept {
		return errTooLarge
	}
	return nil
}

// wants reports whether a value, or everything at its name, is wanted.
func (t *transfer) wants(name dns.Name, value Value) bool {
	return t.wanted == nil || t.wanted(nameText(name), nil) || value != nil && t.wanted(nameText(name), value)
}

// zone returns the entries of the zone after the last record.
func (t *transfer) zone() map[string]RRset {
	all := make(map[string]RRset, len(t.sets))
	for name, set := range t.sets {
		if t.cuts[name] == "" && !t.below(name) {
			all[nameText(name)] = set
		}
	}
	for name, target := range t.dnames {
		if t.cuts[name] == "" && !t.below(name) {
			all["*."+nameText(name)] = RRset{Alias: msg.Textf("%s by the DNAME at %s", target, nameText(name))}
		}
	}
	for name, server := range t.cuts {
		if !t.below(name) {
			to := RRset{Alias: msg.Textf("delegated to %s", server)}
			all[nameText(name)], all["*."+nameText(name)] = to, to
		}
	}
	return all
}

// below reports whether a name is below a delegation or a DNAME, where no resolver sees its records.
func (t *transfer) below(name dns.Name) bool {
	for name != t.apex && name != dns.Root {
		name = name.Parent()
		if t.cuts[name] != "" || t.dnames[name] != "" {
			return true
		}
	}
	return false
}
