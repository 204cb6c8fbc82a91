package provider

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// Type is a type of records that a client may read and change.
type Type string

// The types of records.
const (
	TXT  Type = "TXT"
	A    Type = "A"
	AAAA Type = "AAAA"
	SRV  Type = "SRV"

	// NS is the type of records that delegate a part of a zone. No client changes them.
	NS Type = "NS"
)

// Value is the data of one record. That of a TXT record is its character-strings in order, each of at
// most 255 octets; the split into strings is part of the value. That of any other type is one string in
// canonical presentation form: the text of package netip for A and AAAA, "priority weight port target"
// for SRV with the target in lower case and without the final dot.
type Value []string

// Text returns the joined strings, as readers see the value.
func (v Value) Text() string { return strings.Join(v, "") }

// Equal reports whether two values have the same octets and the same split.
func (v Value) Equal(u Value) bool { return slices.Equal(v, u) }

// CheckType returns UnsupportedType unless the client has records of the type. It makes no call.
func CheckType(client interface{ Types() []Type }, t Type) error {
	if slices.Contains(client.Types(), t) {
		return nil
	}
	return &Error{Kind: UnsupportedType, Detail: msg.Say(string(t)), Unmade: true}
}

// host returns the name in a record that belongs to a host: the owner of an address, and the target of a
// service. It is "" for TXT.
func (t Type) host(owner string, v Value) string {
	switch text := v.Text(); t {
	case A, AAAA:
		return owner
	case SRV:
		return text[strings.LastIndexByte(text, ' ')+1:]
	}
	return ""
}

// wireTypes has the number of each type.
var wireTypes = map[Type]dns.Type{
	TXT: dns.TypeTXT, A: dns.TypeA, AAAA: dns.TypeAAAA, SRV: dns.TypeSRV,
}

// Wire returns the number of the type in messages, 0 if it has none.
func (t Type) Wire() dns.Type { return wireTypes[t] }

// Check reports whether a record of the type can have the value.
func (t Type) Check(v Value) error {
	if t == TXT {
		return checkTXT(v)
	}
	canonical, err := t.Parse(v.Text())
	if err == nil && !v.Equal(canonical) {
		err = msg.Errorf("not the canonical form %q", canonical.Text())
	}
	return err
}

// Parse returns the value of a record's data in presentation form (RFC 1035, section 5.1).
func (t Type) Parse(text string) (Value, error) {
	switch t {
	case TXT:
		return unquoteTXT(text, 10)
	case A, AAAA:
		at, err := netip.ParseAddr(text)
		if err != nil || at.Is4() != (t == A) || at.Zone() != "" {
			return nil, msg.Errorf("not an address for a record of type %s", string(t))
		}
		return Value{at.String()}, nil
	case SRV:
		return parseSRV(strings.Fields(text))
	case NS:
		return Value{dns.Fold(text)}, nil
	}
	return nil, msg.Errorf("no type of records: %q", string(t))
}

// readValue returns the value in a vendor's list, of a type other than TXT. Data that cannot be parsed
// stays as it is: no value to add or remove is equal to it.
func readValue(t Type, text string) Value {
	value, err := t.Parse(strings.TrimSpace(text))
	if err != nil {
		return Value{text}
	}
	return value
}

// valueOf returns the value in a vendor's list of a type; txt parses that of a TXT record.
func valueOf(kind, text string, txt func(string) Value) Value {
	if t := Type(kind); t != TXT && t.Wire() != 0 {
		return readValue(t, text)
	}
	return txt(text)
}

// spell returns a value in presentation form. odd is the format of octets in a TXT value, as for quoteTXT.
func (t Type) spell(v Value, odd string) string {
	switch {
	case t == TXT:
		return quoteTXT(v, odd)
	case t == SRV && !strings.HasSuffix(v.Text(), "."):
		return v.Text() + "." // without the dot some servers put the zone's name behind the target
	}
	return v.Text()
}

// parseSRV returns the value of the fields of an SRV record (RFC 2782).
func parseSRV(fields []string) (Value, error) {
	if len(fields) != 4 {
		return nil, msg.Errorf("not priority, weight, port and target")
	}
	for i, field := range fields[:3] {
		n, err := strconv.ParseUint(field, 10, 16)
		if err != nil {
			return nil, msg.Errorf("not a number from 0 to 65535: %q", field)
		}
		fields[i] = strconv.FormatUint(n, 10)
	}
	target, err := dns.ParseName(fields[3])
	if err != nil {
		return nil, err
	}
	fields[3] = targetText(target)
	return Value{strings.Join(fields, " ")}, nil
}

// targetText returns the canonical text of a target. The root, which means "no such service", is ".".
func targetText(target dns.Name) string {
	if target == dns.Root {
		return "."
	}
	return nameText(target)
}

// Data returns the RDATA of a value.
func (t Type) Data(v Value) ([]byte, error) {
	if err := t.Check(v); err != nil {
		return nil, err
	}
	switch t {
	case A, AAAA:
		return netip.MustParseAddr(v.Text()).AsSlice(), nil
	case SRV:
		fields := strings.Fields(v.Text())
		var data []byte
		for _, field := range fields[:3] {
			n, _ := strconv.ParseUint(field, 10, 16) // Check has parsed it
			data = binary.BigEndian.AppendUint16(data, uint16(n))
		}
		target, err := dns.ParseName(fields[3])
		return append(data, target...), err
	}
	return dns.TXTData(v), nil
}

// ParseData returns the value of RDATA without compression.
func (t Type) ParseData(data []byte) (Value, error) {
	switch t {
	case TXT:
		return dns.ParseTXT(data)
	case A, AAAA:
		if at, ok := netip.AddrFromSlice(data); ok && at.Is4() == (t == A) {
			return Value{at.String()}, nil
		}
	case SRV:
		if srv, err := dns.ParseSRV(data); err == nil {
			numbers := strconv.Itoa(int(srv.Priority)) + " " + strconv.Itoa(int(srv.Weight)) + " " + strconv.Itoa(int(srv.Port))
			return Value{numbers + " " + targetText(srv.Target)}, nil
		}
	}
	return nil, dns.ErrFormat
}

// setKey identifies a set of records: the folded name, and the type.
type setKey struct {
	name string
	kind Type
}
