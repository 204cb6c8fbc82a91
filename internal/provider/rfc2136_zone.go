package provider

import (
	"context"
	"errors"
	"strings"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/dnswire"
	"meshddns/internal/msg"
)

// Bounds of a zone transfer. A zone that is larger is read name by name.
const (
	transferTime = time.Minute
	maxTransfer  = 256 << 20 // octets of the messages
	maxKept      = 64 << 20  // octets of what is kept of any list of a zone, about
	recordCost   = 128       // octets that a record takes beside its name and data, about
)

var (
	errTooLarge = msg.Errorf("the zone is too large to be transferred whole")
	errRecords  = msg.Errorf("the records are not a zone from its SOA record to its SOA record")
)

// ReadAll transfers the zone (RFC 5936). Where it hands names on, by NS or
// DNAME records, it has an entry at "*." and the name above them, for Listed.
func (c *RFC2136) ReadAll(ctx context.Context, zone string, wanted Wanted) (map[string]RRset, error) {
	apex, err := ownerName(zone)
	if err != nil {
		return nil, err
	}
	call := msg.Textf("transfer zone %s from %s", zone, c.server)
	query := dnswire.Message{ID: randomID(), Questions: []dnswire.Question{{Name: apex, Type: dnswire.TypeAXFR, Class: dnswire.ClassIN}}}
	request, mac := c.key.Sign(query.Pack(), c.now())
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	t := newTransfer(apex, wanted)
	stream := c.key.Stream(mac)
	err = dnswire.Transfer(ctx, c.server, request, func(data []byte) (bool, error) {
		return t.take(data, func() (bool, error) { return stream.Verify(data, c.now()) })
	})
	if err != nil {
		return nil, c.transferError(call, err)
	}
	return t.zone(), nil
}

// ZoneID gives the zone's name: whatever the key, one server has one zone of a
// name.
func (c *RFC2136) ZoneID(_ context.Context, zone string) (string, error) {
	return dnsname.Fold(zone), nil
}

// Listed is what a list of ReadAll says of a name. What the zone hands on
// above it, so that a change there would never be seen, is an alias.
func Listed(all map[string]RRset, name string) RRset {
	name = dnsname.Fold(name)
	for above := range dnsname.Ancestors(dnsname.Parent(name)) {
		if set := all["*."+above]; strings.Contains(set.Alias.String(), " ") { // a wildcard's alias is a name
			return RRset{Alias: set.Alias}
		}
	}
	return all[name]
}

// transferError tells a transfer that is not allowed from one that failed.
// Knot says BADKEY, and PowerDNS NOTAUTH without a signature, of a wrong key
// and of one that may not transfer: single reads show which.
func (c *RFC2136) transferError(call msg.Text, err error) error {
	if code, ok := errors.AsType[rcodeFailure](err); ok {
		failure := rcodeError(call, transferErrors, code.rcode, code.signed)
		if failure.Kind == Permission {
			failure.Err = ErrNotListed
		}
		return failure
	}
	if report, ok := errors.AsType[*dnswire.TSIGError](err); ok && report.Code == dnswire.RcodeBadKey {
		return c.verifyError(call, msg.Errorf("%w: %w", ErrNotListed, err))
	}
	switch _, reported := errors.AsType[*dnswire.TSIGError](err); {
	case reported, errors.Is(err, dnswire.ErrUnsigned), errors.Is(err, dnswire.ErrBadMAC):
		return c.verifyError(call, err)
	case errors.Is(err, errTooLarge):
		return &Error{Kind: Invalid, Detail: call, Err: msg.Errorf("%w: %w", ErrNotListed, err)}
	case errors.Is(err, dnswire.ErrFormat), errors.Is(err, errRecords):
		return &Error{Kind: BadAnswer, Detail: call, Err: err}
	}
	return &Error{Kind: Network, Detail: call, Err: err}
}

// rcodeFailure is an answer that only says that a call failed.
type rcodeFailure struct {
	rcode  dnswire.Rcode
	signed bool
}

func (f rcodeFailure) Error() string { return f.rcode.String() }

var transferErrors = map[dnswire.Rcode]meaning{
	dnswire.RcodeFormErr:  {Permission, "the server does not take transfers"},
	dnswire.RcodeServFail: {Temporary, "the server has a fault"},
	dnswire.RcodeNotImp:   {Permission, "the server does not take transfers"},
	dnswire.RcodeRefused:  {Permission, "the key may not transfer the zone"},
	dnswire.RcodeNotAuth:  {Permission, "the server has no such zone, or does not transfer it for this key"},
}

// transfer takes the records of a zone as they come, and keeps what concerns
// TXT values.
type transfer struct {
	apex   dnswire.Name
	wanted Wanted
	soa    []byte // of the first record; nil before
	ended  bool
	octets int                     // of the messages
	kept   int                     // octets kept, about
	sets   map[dnswire.Name]RRset  // by folded name
	cuts   map[dnswire.Name]string // where names are delegated to
	dnames map[dnswire.Name]string // where what is below names points to
}

func newTransfer(apex dnswire.Name, wanted Wanted) *transfer {
	return &transfer{
		apex: apex.Fold(), wanted: wanted, sets: map[dnswire.Name]RRset{},
		cuts: map[dnswire.Name]string{}, dnames: map[dnswire.Name]string{},
	}
}

// take reads the next message. The last must be proven, and with it are all
// before: until then nothing that was kept may be used.
func (t *transfer) take(data []byte, verify func() (proven bool, err error)) (last bool, err error) {
	t.octets += len(data)
	if t.octets > maxTransfer {
		return false, errTooLarge
	}
	m, err := dnswire.Parse(data)
	if err != nil {
		return false, err
	}
	proven, err := verify()
	failed := m.Rcode != dnswire.RcodeSuccess
	if failed && (err == nil || errors.Is(err, dnswire.ErrUnsigned)) {
		return false, rcodeFailure{m.Rcode, proven}
	}
	if err != nil {
		return false, err
	}
	if m.Truncated {
		return false, dnswire.ErrFormat
	}
	for _, rr := range m.Answers {
		if err := t.record(rr); err != nil {
			return false, err
		}
	}
	if t.ended && !proven {
		return false, dnswire.ErrUnsigned
	}
	return t.ended, nil
}

func (t *transfer) record(rr dnswire.RR) error {
	name := rr.Name.Fold()
	isSOA := rr.Type == dnswire.TypeSOA && rr.Class == dnswire.ClassIN && name == t.apex
	if t.soa == nil && isSOA {
		t.soa = rr.Data
		return nil
	}
	if t.soa == nil || t.ended || isSOA && !sameSOA(t.soa, rr.Data) {
		return errRecords
	}
	t.ended = isSOA
	if rr.Class != dnswire.ClassIN || !name.Within(t.apex) {
		return nil
	}
	return t.keep(name, rr)
}

// sameSOA compares the names without letter case, and the serial and the
// times octet by octet.
func sameSOA(a, b []byte) bool {
	const numbers = 20
	if len(a) != len(b) || len(a) < numbers {
		return false
	}
	end := len(a) - numbers
	return dnswire.Name(a[:end]).Fold() == dnswire.Name(b[:end]).Fold() && string(a[end:]) == string(b[end:])
}

func (t *transfer) keep(name dnswire.Name, rr dnswire.RR) error {
	switch rr.Type {
	case dnswire.TypeTXT:
		value, err := dnswire.ParseTXT(rr.Data)
		if err != nil {
			return err
		}
		set, there := t.sets[name]
		if !there && !t.wants(name, value) {
			return nil
		}
		set.TTL, set.Values = rr.TTL, append(set.Values, value)
		t.sets[name] = set
	case dnswire.TypeCNAME:
		set, there := t.sets[name]
		if !there && !t.wants(name, nil) {
			return nil
		}
		set.Alias = msg.Say(nameText(dnswire.Name(rr.Data)))
		t.sets[name] = set
	case dnswire.TypeNS:
		if name != t.apex {
			t.cuts[name] = nameText(dnswire.Name(rr.Data))
		}
	case dnswire.TypeDNAME:
		t.dnames[name] = nameText(dnswire.Name(rr.Data))
	default:
		return nil
	}
	t.kept += recordCost + len(name) + len(rr.Data)
	if t.kept > maxKept {
		return errTooLarge
	}
	return nil
}

// wants reports whether a value is of use, or all that is at its name.
func (t *transfer) wants(name dnswire.Name, value TXT) bool {
	return t.wanted == nil || t.wanted(nameText(name), nil) || value != nil && t.wanted(nameText(name), value)
}

// zone gives what stands at the names of the zone, all records being there.
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

// below reports whether a name is below a delegation or a DNAME: no resolver sees
// what stands there.
func (t *transfer) below(name dnswire.Name) bool {
	for name != t.apex && name != dnswire.Root {
		name = name.Parent()
		if t.cuts[name] != "" || t.dnames[name] != "" {
			return true
		}
	}
	return false
}
