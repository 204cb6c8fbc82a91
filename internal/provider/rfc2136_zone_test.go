package provider

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

func TestRFC2136Zone(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		c := rightClient(t, s)
		for _, name := range []string{
			"example.com", "keep.example.com", "_mesh.a.b.example.com", "alias.example.com", "below.alias.example.com",
			"a.tree.example.com", "a.b.tree.example.com", "x.wild.example.com", "y.x.detour.example.com",
		} {
			if zone, err := c.Zone(t.Context(), name); err != nil || zone != servertest.Zone {
				t.Errorf("zone of %s: %q, %v", name, zone, err)
			}
		}
		for _, name := range []string{"a.example.org", "example.org", "notexample.com", "com", "localhost"} {
			_, err := c.Zone(t.Context(), name)
			wantKind(t, err, ZoneNotFound, name, s.Addr, "or not for this key")
		}
		for _, name := range []string{"child.example.com", "_mesh.x.child.example.com"} {
			_, err := c.Zone(t.Context(), name)
			wantKind(t, err, Conflict, "NS records at child.example.com")
		}
		for _, name := range []string{"", ".", "a..example.com", strings.Repeat("a", 64) + ".example.com"} {
			_, err := c.Zone(t.Context(), name)
			wantKind(t, err, Invalid)
		}
	})
}

// TestRFC2136ZoneRemoved takes the zone from a running server: only a key that
// the server accepts may hear that it is gone. Knot says so to any key.
func TestRFC2136ZoneRemoved(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		s.RemoveZone(t)
		bad := map[string]Kind{"BIND": BadCredentials, "Knot": ZoneNotFound, "PowerDNS": BadCredentials}[s.Name]
		for name, test := range map[string]struct {
			key, secret string
			kind        Kind
		}{
			"right":        {servertest.Key, servertest.Secret, ZoneNotFound},
			"read only":    {servertest.ReadOnlyKey, servertest.ReadOnly, ZoneNotFound},
			"wrong secret": {servertest.Key, servertest.Secret512, bad},
			"unknown":      {"stranger", servertest.Secret, bad},
		} {
			t.Run(name, func(t *testing.T) {
				c := newClient(t, s.Addr, test.key, test.secret)
				for _, name := range []string{servertest.Zone, "_mesh.a.example.com"} {
					_, err := c.Zone(t.Context(), name)
					wantKind(t, err, test.kind, "example.com", s.Addr)
					_, err = c.Read(t.Context(), servertest.Zone, name, TXT)
					wantKind(t, err, test.kind, "example.com", s.Addr)
				}
				change := c.Change(t.Context(), Change{Zone: servertest.Zone, Name: "a.example.com", Type: TXT, Add: []Value{{"ours"}}})
				if s.Name == "PowerDNS" && test.kind == BadCredentials {
					test.kind = Permission // its refusal of an update does not blame the key
				}
				wantKind(t, change, test.kind, "example.com", s.Addr)
			})
		}
	})
}

// TestRFC2136ZoneKept has answers to queries, or to updates, that a zone which is there is
// not for the key, is not its primary's, or is not to be had now: it is never gone.
func TestRFC2136ZoneKept(t *testing.T) {
	s := servertest.BIND(t)
	answers := func(query, update byte) func([]byte) []byte {
		return func(answer []byte) []byte {
			rcode := query
			if dns.Opcode(answer[2]>>3&15) == dns.OpcodeUpdate {
				rcode = update
			}
			if rcode == 0 {
				return answer
			}
			answer = slices.Clone(answer)
			answer[lowOfCode] = answer[lowOfCode]&^15 | rcode
			return unsigned(answer)
		}
	}
	const servFail, notImp, refused, notAuth = 2, 4, 5, 9
	for name, test := range map[string]struct {
		query, update byte
		read, change  Kind
	}{
		"gone":                         {refused, notAuth, ZoneNotFound, ZoneNotFound},
		"no query, no update":          {refused, refused, Permission, Permission},
		"no query":                     {refused, 0, Permission, ""},
		"a copy":                       {0, notAuth, "", Permission},
		"no query, no updates at all":  {refused, notImp, Permission, Invalid},
		"no query, a fault":            {refused, servFail, Permission, Temporary},
		"a fault, and not the primary": {servFail, notAuth, Temporary, Temporary},
		"not the key":                  {notAuth, refused, BadCredentials, Permission},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, relay(t, s.Addr, answers(test.query, test.update)), servertest.Key, servertest.Secret)
			_, err := c.Zone(t.Context(), "_mesh.a.example.com")
			wantOutcome(t, err, test.read)
			_, err = c.Read(t.Context(), servertest.Zone, "_mesh.a.example.com", TXT)
			wantOutcome(t, err, test.read)
			err = c.Change(t.Context(), Change{Type: TXT, Zone: servertest.Zone, Name: "_mesh.a.example.com"})
			wantOutcome(t, err, test.change)
			if Unmade(err) {
				t.Errorf("%v is not signed, and says that nothing was made", err)
			}
		})
	}
}

// TestRFC2136ZoneOfAlias has an alias in a child zone that points into the
// parent zone, on one server: the SOA beside it is the parent's.
func TestRFC2136ZoneOfAlias(t *testing.T) {
	owner, target := dns.Name("\x01a\x05child\x07example\x03com\x00"), dns.Name("\x07example\x03com\x00")
	answer := dns.Message{
		Answers:   []dns.RR{{Name: owner, Type: dns.TypeCNAME, Class: dns.ClassIN, Data: []byte(target)}},
		Authority: []dns.RR{{Name: target, Type: dns.TypeSOA, Class: dns.ClassIN}},
	}
	if apex, ok := apexAbove(answer, owner); ok {
		t.Errorf("zone %s, want none from this answer", apex)
	}
	answer.Answers = nil
	if apex, ok := apexAbove(answer, owner); !ok || apex != target {
		t.Errorf("without the alias: zone %s, %v", apex, ok)
	}
	answer.Authority[0].Name = dns.Root
	if apex, ok := apexAbove(answer, owner); ok {
		t.Errorf("zone %s, want none: the root's is no zone to write to", apex)
	}
}

func TestRFC2136NameHandedOn(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		c := rightClient(t, s)
		for name, target := range map[string]string{
			"alias.example.com": "alias.example.com is an alias: it points to keep.example.com", "x.tree.example.com": "keep.example.com",
		} {
			_, err := c.Read(t.Context(), servertest.Zone, name, TXT)
			wantKind(t, err, Conflict, name, target)
		}
		err := c.Change(t.Context(), Change{Zone: servertest.Zone, Name: "alias.example.com", Type: TXT, Add: []Value{{"ours"}}, TTL: testTTL})
		wantKind(t, err, Changed)
		for _, name := range []string{"child.example.com", "x.child.example.com"} {
			_, err := c.Read(t.Context(), servertest.Zone, name, TXT)
			wantKind(t, err, Conflict, "NS records at child.example.com")
		}
		_, err = c.Read(t.Context(), "b.example.com", "a.b.example.com", TXT)
		wantKind(t, err, ZoneNotFound, "is in zone example.com")
	})
}

// TestRFC2136ReadAll compares the list of a zone with single reads.
func TestRFC2136ReadAll(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		c := rightClient(t, s)
		s.Update(t, `add example.com 30 TXT "at the apex"`, `add UPPER.Example.com 60 TXT "Case"`, `add tree.example.com 60 TXT "at a DNAME"`,
			`add c\.d\032e.example.com 60 TXT "odd name"`, `add x.child.example.com 60 TXT "nobody sees this"`)
		all, err := c.ReadAll(t.Context(), "Example.COM.", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			"example.com", "upper.example.com", "Upper.EXAMPLE.com.", "keep.example.com", `c\.d\032e.example.com`,
			"ns1.example.com", "none.example.com", "a.none.example.com", "alias.example.com", "below.alias.example.com",
			"tree.example.com", "x.tree.example.com", "y.x.tree.example.com", "child.example.com", "x.child.example.com", "y.x.child.example.com",
			"ns1.child.example.com", "wild.example.com", "a.wild.example.com", "detour.example.com", "a.detour.example.com",
		} {
			listed := Listed(all, name)
			single, err := c.Read(t.Context(), servertest.Zone, name, TXT)
			if (err != nil) != (listed.Alias != "") {
				t.Errorf("%s is listed as %v, and read alone %v", name, listed, err)
			}
			if single.TTL != listed.TTL || !slices.Equal(sorted(single.Values), sorted(listed.Values)) {
				t.Errorf("%s is listed as %v, and read alone %v", name, listed, single)
			}
		}
		if got := sorted(all["*.wild.example.com"].Values); !slices.Equal(got, sorted([]Value{{"from a wildcard"}})) {
			t.Errorf("the wildcard is listed with %q", got)
		}
		for name, alias := range map[string]string{
			"alias.example.com": "keep.example.com", "*.detour.example.com": "keep.example.com",
			"child.example.com": "delegated to ns1.child.example.com", "*.child.example.com": "delegated to ns1.child.example.com",
			"*.tree.example.com": "keep.example.com by the DNAME at tree.example.com",
		} {
			if got := all[name]; got.Alias.String() != alias || len(got.Values) > 0 {
				t.Errorf("%s is listed as %v, want alias %q", name, got, alias)
			}
		}
		if _, ok := all["x.child.example.com"]; ok {
			t.Error("what stands below a delegation is listed")
		}
	})
}

// TestRFC2136NotListed has keys that may not transfer the zone. A wrong one
// looks the same where the server does not tell.
func TestRFC2136NotListed(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		for name, test := range map[string]struct {
			key, secret string
			zone        string
			listed      []string // servers with another failure
		}{
			"may change only": {servertest.Key512, servertest.Secret512, servertest.Zone, nil},
			"may do nothing":  {servertest.ReadOnlyKey, servertest.ReadOnly, servertest.Zone, nil},
			"unknown":         {"stranger", servertest.Secret, servertest.Zone, nil},
			"no such zone":    {servertest.Key, servertest.Secret, "example.org", nil},
			"wrong secret":    {servertest.Key, servertest.Secret512, servertest.Zone, []string{"BIND", "Knot"}},
		} {
			t.Run(name, func(t *testing.T) {
				c := newClient(t, s.Addr, test.key, test.secret)
				all, err := c.ReadAll(t.Context(), test.zone, nil)
				t.Log(err)
				if err == nil || all != nil || errors.Is(err, ErrNotListed) == slices.Contains(test.listed, s.Name) {
					t.Errorf("%d names, %v", len(all), err)
				}
				if kind := KindOf(err); kind != Permission && kind != BadCredentials {
					t.Errorf("kind %s", kind)
				}
			})
		}
		c := newClient(t, s.Addr, servertest.Key512, servertest.Secret512)
		wantValues(t, c, s, "keep.example.com", Value{"existing value"})
		c = rightClient(t, s)
		c.now = func() time.Time { return time.Now().Add(1000 * time.Second) }
		_, err := c.ReadAll(t.Context(), servertest.Zone, nil)
		if s.Name != "PowerDNS" { // it says NOTAUTH of everything
			wantKind(t, err, ClockSkew, "server's time minus ours")
		}
	})
}

// TestRFC2136Overlap lists a zone while its names are read and changed.
func TestRFC2136Overlap(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		c := rightClient(t, s)
		var wg sync.WaitGroup
		for n := range 4 {
			below := fmt.Sprintf("o%d.example.com", n)
			wg.Go(func() {
				for _, err := range failures(newNames(20, below), c.ChangeAll(t.Context(), newNames(20, below))) {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if all, err := c.ReadAll(t.Context(), servertest.Zone, nil); err != nil || len(all["keep.example.com"].Values) != 1 {
					t.Errorf("%v, %v", all, err)
				}
			})
			wg.Go(func() {
				if set, err := c.Read(t.Context(), servertest.Zone, fmt.Sprintf("a%d.wild.example.com", n), TXT); err != nil || len(set.Values) > 0 {
					t.Errorf("%v, %v", set, err)
				}
			})
		}
		wg.Wait()
	})
}

// transferServer answers the first question on each connection with messages of the given records.
type transferServer struct {
	messages [][]dns.RR
	unsigned func(i int) bool
	spoil    func(i int, message []byte) []byte // after it is signed
	message  func(i int, m *dns.Message)        // before
	silent   bool                               // keeps the connection open at the end
}

func (ts transferServer) start(t *testing.T) (address string) {
	t.Helper()
	return servertest.Listen(t, func(conn net.Conn) {
		if query, err := dns.ReadTCP(conn); err == nil {
			ts.answer(conn, query)
		}
		if ts.silent {
			io.Copy(io.Discard, conn) // until the client gives up
		}
	}, nil)
}

func (ts transferServer) answer(conn net.Conn, data []byte) {
	query, err := dns.ParseMessage(data)
	if err != nil || len(query.Additional) != 1 {
		return
	}
	tsig := query.Additional[0].Data
	mac := tsig[len(tsig)-6-sha256.Size : len(tsig)-6]
	s := servertest.NewSigner(mac)
	for i, records := range ts.messages {
		m := dns.Message{ID: query.ID, Response: true, Authoritative: true, Questions: query.Questions, Answers: records}
		if ts.message != nil {
			ts.message(i, &m)
		}
		message := s.Next(m.Pack(), ts.unsigned == nil || !ts.unsigned(i))
		if ts.spoil != nil {
			message = ts.spoil(i, message)
		}
		if dns.WriteTCP(conn, message) != nil {
			return
		}
	}
}

func rr(t testing.TB, name string, kind dns.Type, data []byte) dns.RR {
	t.Helper()
	owner, err := dns.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	return dns.RR{Name: owner, Type: kind, Class: dns.ClassIN, TTL: testTTL, Data: data}
}

func wireName(t testing.TB, name string) []byte { return []byte(rr(t, name, 0, nil).Name) }

func soa(t testing.TB, name string, serial uint32) dns.RR {
	mname := dns.Name(wireName(t, "ns1."+name))
	return rr(t, name, dns.TypeSOA, dns.SOA{MName: mname, RName: mname, Serial: serial}.Data())
}

func txt(t testing.TB, name, value string) dns.RR {
	return rr(t, name, dns.TypeTXT, dns.TXTData([]string{value}))
}

// transferCase is a server and the kind of failure of its transfer, "" for none.
type transferCase struct {
	server transferServer
	kind   Kind
}

func transferCases(t *testing.T) map[string]transferCase {
	start, a, b, end := soa(t, "example.com", 7), txt(t, "a.example.com", "a"), txt(t, "b.example.com", "b"), soa(t, "Example.com", 7)
	chaos, ds := txt(t, "a.example.com", "chaos"), rr(t, "a.example.com", 43, []byte{1, 2, 3})
	chaos.Class = 3
	whole := [][]dns.RR{{start, a}, {b}, {end}}
	at := func(n int) func(int) bool { return func(i int) bool { return i == n } }
	many := slices.Concat(whole[:2], make([][]dns.RR, 98), whole[2:])
	setRcode := func(n int, rcode dns.Rcode) func(int, *dns.Message) {
		return func(i int, m *dns.Message) {
			if i == n {
				m.Rcode = rcode
			}
		}
	}
	return map[string]transferCase{
		"whole":                              {transferServer{messages: whole}, ""},
		"in one message":                     {transferServer{messages: [][]dns.RR{{start, a, b, end}}}, ""},
		"no signature between":               {transferServer{messages: whole, unsigned: at(1)}, ""},
		"99 without signature":               {transferServer{messages: many, unsigned: func(i int) bool { return i%100 != 0 }}, ""},
		"100 without signature":              {transferServer{messages: append(many, nil), unsigned: func(i int) bool { return i > 0 }}, BadAnswer},
		"no signature at the end":            {transferServer{messages: whole, unsigned: at(2)}, BadAnswer},
		"no signature at the start":          {transferServer{messages: whole, unsigned: at(0)}, BadAnswer},
		"the question once":                  {transferServer{messages: whole, message: func(i int, m *dns.Message) { m.Questions = m.Questions[:min(1, max(0, 1-i))] }}, ""},
		"records of no interest":             {transferServer{messages: [][]dns.RR{{start, a, ds, chaos, txt(t, "a.example.org", "x"), soa(t, "sub.example.com", 1)}, {}, {b, end}}}, ""},
		"closed in the middle":               {transferServer{messages: whole[:2]}, Network},
		"silent in the middle":               {transferServer{messages: whole[:2], silent: true}, Network},
		"closed at once":                     {transferServer{}, Network},
		"begins with another record":         {transferServer{messages: [][]dns.RR{{a, start}, {end}}}, BadAnswer},
		"begins with another zone":           {transferServer{messages: [][]dns.RR{{soa(t, "example.org", 7)}, {end}}}, BadAnswer},
		"ends with another serial":           {transferServer{messages: [][]dns.RR{{start, a, b}, {soa(t, "example.com", 8)}}}, BadAnswer},
		"more after the end":                 {transferServer{messages: [][]dns.RR{{start, a}, {end, b}}}, BadAnswer},
		"a record that is no TXT":            {transferServer{messages: [][]dns.RR{{start, rr(t, "a.example.com", dns.TypeTXT, []byte{9})}, {end}}}, BadAnswer},
		"a flipped bit":                      {transferServer{messages: whole, spoil: spoilAt(1, flip(-100, 1))}, BadAnswer},
		"a flipped bit without signature":    {transferServer{messages: whole, unsigned: at(1), spoil: spoilAt(1, flip(-1, 1))}, BadAnswer},
		"another ID":                         {transferServer{messages: whole, spoil: spoilAt(1, flip(lowOfID, 1))}, BadAnswer},
		"a message that is none":             {transferServer{messages: whole, spoil: spoilAt(1, func(m []byte) []byte { return m[:len(m)-1] })}, BadAnswer},
		"truncated":                          {transferServer{messages: whole, message: func(i int, m *dns.Message) { m.Truncated = i == 1 }}, BadAnswer},
		"a fault in the middle":              {transferServer{messages: whole, message: setRcode(1, dns.RcodeServFail)}, Temporary},
		"a fault":                            {transferServer{messages: whole, message: setRcode(0, dns.RcodeServFail)}, Temporary},
		"a fault without signature":          {transferServer{messages: whole, unsigned: at(0), message: setRcode(0, dns.RcodeServFail)}, Temporary},
		"refused":                            {transferServer{messages: whole, message: setRcode(0, dns.RcodeRefused)}, Permission},
		"refused without signature":          {transferServer{messages: whole, unsigned: at(0), message: setRcode(0, dns.RcodeRefused)}, Permission},
		"no transfers":                       {transferServer{messages: whole, message: setRcode(0, dns.RcodeNotImp)}, Permission},
		"a refusal that is not the server's": {transferServer{messages: whole, message: setRcode(0, dns.RcodeRefused), spoil: spoilAt(0, flip(lastOfMAC, 1))}, BadAnswer},
	}
}

// TestRFC2136Transfer has servers whose transfers are odd, cut or forged.
func TestRFC2136Transfer(t *testing.T) {
	for name, test := range transferCases(t) {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, test.server.start(t), servertest.Key, servertest.Secret)
			ctx, cancel := context.WithTimeout(t.Context(), support.Limit)
			if test.server.silent {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			}
			defer cancel()
			all, err := c.ReadAll(ctx, servertest.Zone, nil)
			if test.kind != "" {
				wantKind(t, err, test.kind, "example.com")
				if all != nil || errors.Is(err, ErrNotListed) != (test.kind == Permission) {
					t.Errorf("%v, %v", all, err)
				}
				return
			}
			if got := fmt.Sprint(all); err != nil || got != "map[a.example.com:{60 [[a]] [] [] } b.example.com:{60 [[b]] [] [] }]" {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

func spoilAt(n int, spoil func([]byte) []byte) func(int, []byte) []byte {
	return func(i int, message []byte) []byte {
		if i == n {
			return spoil(message)
		}
		return message
	}
}

// TestRFC2136TransferLimits has a transfer that goes on for ever: it ends with the message that is over a limit, and not before.
func TestRFC2136TransferLimits(t *testing.T) {
	proven := func() (bool, error) { return true, nil }
	first, wide, kept := dns.Message{}, dns.Message{}, dns.Message{Questions: []dns.Question{{Name: txt(t, "a.example.com", "").Name}}}
	first.Answers = []dns.RR{soa(t, "example.com", 7)}
	kept.Answers = slices.Repeat([]dns.RR{txt(t, "a.example.com", "x")}, 1000)
	wide.Answers = slices.Repeat([]dns.RR{rr(t, "a.example.com", 99, make([]byte, 200))}, 250)
	// A record takes many times the octets that a message has for it.
	for name, test := range map[string]struct {
		message dns.Message
		limit   int
	}{"kept": {kept, maxKept / 4}, "passed over": {wide, maxTransfer}} {
		message := test.message.Pack()
		tr := newTransfer(dns.Name(wireName(t, servertest.Zone)), nil)
		_, err := tr.take(first.Pack(), proven)
		messages := 0
		for ; err == nil && tr.octets <= 2*maxTransfer; messages++ {
			_, err = tr.take(message, proven)
		}
		if over := tr.octets > maxTransfer || tr.kept > maxKept; !errors.Is(err, errTooLarge) || !over || tr.octets > test.limit+len(message) {
			t.Errorf("%s: %v after %d messages of %d octets", name, err, messages, len(message))
		}
	}
	c := newClient(t, support.FreeAddress(t), servertest.Key, servertest.Secret)
	err := c.transferError("transfer zone example.com", errTooLarge)
	wantKind(t, err, Invalid, "too large")
	if !errors.Is(err, ErrNotListed) {
		t.Errorf("%v: single reads may work", err)
	}
}

// TestRFC2136TransferHandsOn has delegations and DNAMEs within each other.
func TestRFC2136TransferHandsOn(t *testing.T) {
	tr := newTransfer(dns.Name(wireName(t, "Example.com")), nil)
	ns, target := wireName(t, "ns.example.net"), wireName(t, "there.example.net")
	m := dns.Message{Answers: []dns.RR{
		soa(t, "example.com", 7), rr(t, "example.com", dns.TypeNS, ns),
		rr(t, "cut.example.com", dns.TypeNS, ns), txt(t, "cut.example.com", "hidden"), rr(t, "b.CUT.example.com", dns.TypeNS, target),
		rr(t, "tree.cut.example.com", dns.TypeDNAME, target), txt(t, "a.cut.example.com", "hidden"),
		rr(t, "tree.example.com", dns.TypeDNAME, target), txt(t, "tree.example.com", "seen"), txt(t, "*.tree.example.com", "hidden"),
		rr(t, "cut.tree.example.com", dns.TypeNS, ns), rr(t, "both.example.com", dns.TypeNS, ns), rr(t, "both.example.com", dns.TypeDNAME, target),
		soa(t, "example.com", 7),
	}}
	if last, err := tr.take(m.Pack(), func() (bool, error) { return true, nil }); !last || err != nil {
		t.Fatal(last, err)
	}
	all := tr.zone()
	want := map[string]string{
		"cut.example.com": "delegated to ns.example.net", "*.cut.example.com": "delegated to ns.example.net",
		"both.example.com": "delegated to ns.example.net", "*.both.example.com": "delegated to ns.example.net",
		"tree.example.com": "", "*.tree.example.com": "there.example.net by the DNAME at tree.example.com",
	}
	for name, alias := range want {
		if all[name].Alias.String() != alias || len(all) != len(want) {
			t.Errorf("%s is %v of %v, want alias %q", name, all[name], all, alias)
		}
	}
	for name, alias := range map[string]string{
		"A.Cut.example.com.": want["cut.example.com"], "x.y.both.example.com": want["both.example.com"], "cut.example.com": want["cut.example.com"],
		"x.y.tree.example.com": want["*.tree.example.com"], "tree.example.com": "", "example.com": "", "x.example.com": "",
	} {
		if got := Listed(all, name).Alias.String(); got != alias {
			t.Errorf("%s is listed with alias %q, want %q", name, got, alias)
		}
	}
}

func FuzzTransfer(f *testing.F) {
	apex := dns.Name(wireName(f, servertest.Zone))
	frame := func(messages ...dns.Message) (stream []byte) {
		for _, m := range messages {
			packed := m.Pack()
			stream = append(binary.BigEndian.AppendUint16(stream, uint16(len(packed))), packed...)
		}
		return stream
	}
	start, end := soa(f, "example.com", 7), soa(f, "example.com", 7)
	middle := []dns.RR{txt(f, "a.example.com", "a"), rr(f, "b.example.com", dns.TypeNS, wireName(f, "ns.b.example.com")),
		rr(f, "c.example.com", dns.TypeDNAME, wireName(f, "a.example.com")), rr(f, "d.example.com", dns.TypeCNAME, wireName(f, "a.example.com"))}
	f.Add(frame(dns.Message{Answers: slices.Concat([]dns.RR{start}, middle, []dns.RR{end})}), uint64(0))
	f.Add(frame(dns.Message{Answers: []dns.RR{start}}, dns.Message{Answers: middle}, dns.Message{Answers: []dns.RR{end}}), uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, unsigned uint64) {
		tr, mac := newTransfer(apex, nil), []byte("the request's")
		key, err := dns.ParseKey(servertest.Key, servertest.Secret)
		if err != nil {
			t.Fatal(err)
		}
		stream, s := key.Stream(mac), servertest.NewSigner(mac)
		last := false
		for i := 0; err == nil && !last && len(data) >= 2; i++ {
			size := min(int(binary.BigEndian.Uint16(data)), len(data)-2)
			message := slices.Clone(data[2 : 2+size])
			data = data[2+size:]
			if size >= dns.HeaderSize {
				message = s.Next(message, i >= 64 || unsigned>>i&1 == 0)
			}
			last, err = tr.take(message, func() (bool, error) { return stream.Verify(message, time.Now()) })
		}
		if last && (err != nil || !tr.ended || tr.soa == nil) {
			t.Fatalf("a transfer that is not whole is taken: %v", err)
		}
		for name, set := range tr.zone() {
			if got := Listed(tr.zone(), name); len(got.Values) != len(set.Values) && got.Alias == "" {
				t.Fatalf("%q is listed as %v, want %v", name, got, set)
			}
		}
	})
}
