package dns

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// checkQuery compares what Read finds with what Parse does.
func checkQuery(t testing.TB, q *Query, data []byte) {
	t.Helper()
	err := q.Read(data)
	m, parseErr := ParseMessage(data)
	edns, hasEDNS, ednsErr := m.EDNS()
	key, signed, tsigErr := m.RefuseKey()
	if fault := errors.Join(parseErr, ednsErr, tsigErr); (err != nil) != (fault != nil) {
		t.Fatalf("Read: %v, Parse: %v, of %x", err, fault, data)
	}
	if q.ID != m.ID || q.Response != m.Response || q.Opcode != m.Opcode || q.RecursionDesired != m.RecursionDesired {
		t.Fatalf("header %+v, want %+v, of %x", q, m, data)
	}
	if len(edns.Options) == 0 {
		edns.Options = q.EDNS.Options[:0]
	}
	if !reflect.DeepEqual(q.EDNS, edns) || q.HasEDNS != hasEDNS || !reflect.DeepEqual(q.UnknownKey, key) || q.Signed != signed {
		t.Fatalf("OPT %+v %t, TSIG %+v %t, want %+v %t, %+v %t, of %x", q.EDNS, q.HasEDNS, q.UnknownKey, q.Signed, edns, hasEDNS, key, signed, data)
	}
	has := len(data) >= HeaderSize && data[4] == 0 && data[5] == 1 && len(m.Questions) == 1
	if q.HasQuestion != has {
		t.Fatalf("a question: %t, want %t, of %x", q.HasQuestion, has, data)
	}
	if !has {
		return
	}
	want := m.Questions[0]
	if got := (Question{Name: Name(q.Asked), Type: q.Type, Class: q.Class}); got != want || Name(q.Name) != want.Name.Fold() {
		t.Fatalf("%+v as %q, want %+v, of %x", got, q.Name, want, data)
	}
}

// plainQuery is what most queries are.
func plainQuery(options []byte) []byte {
	m := Message{ID: 7, RecursionDesired: true, Questions: []Question{{Name: "\x05_mesh\x06Office\x07eXample\x03com\x00", Type: TypeTXT, Class: ClassIN}}}
	m.Additional = []RR{EDNS{UDPSize: 1232, DO: true, Options: options}.RR()}
	return m.Pack()
}

// Every change of one octet, every cut, and some random messages.
func TestQueryIsWhatParseReads(t *testing.T) {
	var q Query
	random := rand.New(rand.NewPCG(3, 4))
	long := Message{Questions: []Question{{Name: Name(strings.Repeat("\x01a", 127)) + Root, Type: TypeA, Class: ClassIN}}}
	for _, whole := range [][]byte{plainQuery(nil), plainQuery([]byte("\x00\x0a\x00\x0812345678")), long.Pack()} {
		checkQuery(t, &q, whole)
		for at := range whole {
			checkQuery(t, &q, whole[:at])
			for difference := 1; difference < 256; difference++ {
				changed := bytes.Clone(whole)
				changed[at] ^= byte(difference)
				checkQuery(t, &q, changed)
			}
		}
		checkQuery(t, &q, append(whole, 0))
		checkQuery(t, &q, append(append(whole[:HeaderSize:HeaderSize], "\x01a"...), whole[HeaderSize:]...))
	}
	for range 20_000 {
		data := make([]byte, random.IntN(80))
		for i := range data {
			data[i] = byte(random.Uint32() & random.Uint32())
		}
		copy(data, "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00")
		checkQuery(t, &q, data)
	}
}

func FuzzQuery(f *testing.F) {
	f.Add(plainQuery(nil))
	f.Fuzz(func(t *testing.T, data []byte) { checkQuery(t, new(Query), data) })
}

func TestQueryMakesNoGarbage(t *testing.T) {
	var q Query
	data := plainQuery([]byte("\x00\x0a\x00\x0812345678"))
	if n := testing.AllocsPerRun(100, func() { q.Read(data) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// packed is the answer to a query with all kinds of records.
func packed(t testing.TB, p *Packer, buffer []byte, data []byte) []byte {
	t.Helper()
	var q Query
	if err := q.Read(data); err != nil {
		t.Fatal(err)
	}
	p.Begin(buffer, &q)
	p.Answer(TypeTXT, 60, TXTData([]string{"v"}))
	p.NS("\x02ns\x07example\x03com\x00", 300)
	mark := p.Mark()
	p.Record(SectionAdditional, RR{Name: "\x01x\x00", Type: TypeA, Class: ClassIN})
	p.Cut(mark)
	p.SOA(SectionAuthority, 6, 60, SOA{MName: "\x06xample\x03com\x00", RName: "\x0ahostmaster\x06office\x07example\x03com\x00", Serial: 1<<32 - 1, Minimum: 5})
	p.Record(SectionAdditional, RR{Name: "\x02ns\x07example\x03org\x00", Type: TypeA, Class: ClassIN, TTL: 9, Data: []byte{1, 2, 3, 4}})
	p.Record(SectionAdditional, EDNS{UDPSize: 1232}.RR())
	p.Flags(true, false, RcodeNXDomain)
	return p.Bytes()
}

func TestPacker(t *testing.T) {
	data := packed(t, new(Packer), []byte("before"), plainQuery(nil))
	if !bytes.HasPrefix(data, []byte("before")) {
		t.Fatalf("%x", data)
	}
	got, err := ParseMessage(data[len("before"):])
	asked := Name("\x05_mesh\x06Office\x07eXample\x03com\x00")
	want := Message{
		ID: 7, Response: true, Authoritative: true, RecursionDesired: true, Rcode: RcodeNXDomain,
		Questions: []Question{{Name: asked, Type: TypeTXT, Class: ClassIN}},
		Answers: []RR{
			{Name: asked, Type: TypeTXT, Class: ClassIN, TTL: 60, Data: []byte("\x01v")},
			{Name: asked, Type: TypeNS, Class: ClassIN, TTL: 300, Data: []byte("\x02ns\x07eXample\x03com\x00")},
		},
		Authority: []RR{{Name: asked.Parent(), Type: TypeSOA, Class: ClassIN, TTL: 60, Data: SOA{
			MName: "\x06xample\x03com\x00", RName: "\x0ahostmaster\x06Office\x07eXample\x03com\x00", Serial: 1<<32 - 1, Minimum: 5,
		}.Data()}},
		Additional: []RR{
			{Name: "\x02ns\x07example\x03org\x00", Type: TypeA, Class: ClassIN, TTL: 9, Data: []byte{1, 2, 3, 4}},
			EDNS{UDPSize: 1232}.RR(),
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant\n%+v", got, err, want)
	}
}

// The end of a label may look like a name, and is none to point to.
func TestPackerPointsToLabels(t *testing.T) {
	m := Message{Questions: []Question{{Name: "\x05x\x03com\x00", Type: TypeNS, Class: ClassIN}}}
	var q Query
	var p Packer
	if err := q.Read(m.Pack()); err != nil {
		t.Fatal(err)
	}
	p.Begin(nil, &q)
	p.NS("\x03com\x00", 1)
	got, err := ParseMessage(p.Bytes())
	if want := "\x03com\x00"; err != nil || string(got.Answers[0].Data) != want || !bytes.HasSuffix(p.Bytes(), []byte(want)) {
		t.Errorf("%x, %v", p.Bytes(), err)
	}
}
