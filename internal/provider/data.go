package provider

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"meshddns/internal/dnswire"
	"meshddns/internal/msg"
)

// This file has the data of records in the forms of DNS: on the wire and in presentation form.

// wireTypes are the numbers of the types.
var wireTypes = map[Type]dnswire.Type{TXT: dnswire.TypeTXT, A: dnswire.TypeA, AAAA: dnswire.TypeAAAA, SRV: dnswire.TypeSRV}

// Wire returns the number of a type, 0 for an unknown one.
func (t Type) Wire() dnswire.Type { return wireTypes[t] }

// OnWire returns the type of a number, "" for any other.
func OnWire(number dnswire.Type) Type {
	for t, n := range wireTypes {
		if n == number {
			return t
		}
	}
	return ""
}

// Check reports whether a record of the type can have the value.
func (t Type) Check(v Value) error {
	_, err := t.Data(v)
	return err
}

// Data returns the RDATA of a value.
func (t Type) Data(v Value) ([]byte, error) {
	switch {
	case t == TXT:
		return dnswire.TXTData(v), v.Check()
	case len(v) != 1:
		return nil, msg.Errorf("%s data is one string", t)
	case t == SRV:
		return srvData(v[0])
	}
	a, err := netip.ParseAddr(v[0])
	if err != nil || a.Zone() != "" || t == A != a.Is4() {
		return nil, msg.Errorf("%q is no address of an %s record", v[0], t)
	}
	return a.AsSlice(), nil
}

func srvData(text string) ([]byte, error) {
	var s dnswire.SRV
	fields := strings.Fields(text)
	if len(fields) == 4 {
		for i, into := range []*uint16{&s.Priority, &s.Weight, &s.Port} {
			n, err := strconv.ParseUint(fields[i], 10, 16)
			if err != nil {
				return nil, msg.Errorf("%q is no data of an SRV record", text)
			}
			*into = uint16(n)
		}
		if target, err := dnswire.ParseName(fields[3]); err == nil {
			s.Target = target.Fold()
			return s.Data(), nil
		}
	}
	return nil, msg.Errorf("%q is no data of an SRV record", text)
}

// Value returns the value of an RDATA.
func (t Type) Value(data []byte) (Value, error) {
	switch t {
	case TXT:
		return dnswire.ParseTXT(data)
	case SRV:
		s, err := dnswire.ParseSRV(data)
		if err != nil {
			return nil, err
		}
		return Value{fmt.Sprintf("%d %d %d %s", s.Priority, s.Weight, s.Port, srvTarget(s.Target))}, nil
	}
	a, ok := netip.AddrFromSlice(data)
	if !ok || t == A != a.Is4() {
		return nil, dnswire.ErrFormat
	}
	return Value{a.String()}, nil
}

// srvTarget returns the name of a target; "." means that there is no service.
func srvTarget(name dnswire.Name) string {
	if name == dnswire.Root {
		return "."
	}
	return name.Fold().Bare()
}

// parse returns the value of data in presentation form as a vendor shows it; txt parses that of a TXT
// record. Data that cannot be parsed stay as they are, so that they count as a foreign value.
func (t Type) parse(text string, txt func(string) Value) Value {
	if t == TXT {
		return txt(text)
	}
	v := Value{strings.TrimSpace(text)}
	if data, err := t.Data(v); err == nil {
		v, _ = t.Value(data)
	}
	return v
}

// text returns a value in presentation form with absolute names; txt does it for a TXT record.
func (t Type) text(v Value, txt func(Value) string) string {
	switch {
	case t == TXT:
		return txt(v)
	case t == SRV && !strings.HasSuffix(v.Text(), "."):
		return v.Text() + "."
	}
	return v.Text()
}
