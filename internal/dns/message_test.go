package dns

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// header gives a message's first twelve octets with the four counts.
func header(counts ...byte) string {
	fixed := []byte{0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for i, count := range counts {
		fixed[5+2*i] = count
	}
	return string(fixed)
}

const txtIN = "\x00\x10\x00\x01"

func sample(t testing.TB) Message {
	apex, name, ns := parseName(t, "example.com"), parseName(t, "_mesh.Office.example.com"), parseName(t, "ns.example.com")
	soa := SOA{MName: ns, RName: parseName(t, "hostmaster.example.com"), Serial: 7, Refresh: 1, Retry: 2, Expire: 3, Minimum: 4}
	return Message{
		ID: 0xBEEF, Response: true, Opcode: OpcodeQuery, Authoritative: true, Truncated: true,
		RecursionDesired: true, RecursionAvailable: true, Rcode: RcodeRefused,
		Questions: []Question{{name, TypeTXT, ClassIN}},
		Answers: []RR{
			{name, TypeTXT, ClassIN, 60, TXTData([]string{"one", "", strings.Repeat("x", 255)})},
			{ns, TypeA, ClassIN, 60, []byte{192, 0, 2, 1}},
		},
		Authority: []RR{
			{apex, TypeSOA, ClassIN, 60, soa.Data()},
			{apex, TypeNS, ClassIN, 300, []byte(ns)},
			{Root, TypeDNAME, ClassANY, 1<<32 - 1, nil},
		},
		Additional: []RR{EDNS{UDPSize: 1232, Extended: 1, Version: 2, DO: true}.RR()},
	}
}

func TestMessageRoundTrip(t *testing.T) {
	want := sample(t)
	got, err := ParseMessage(want.Pack())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Parse(Pack(m)) = %+v, %v\nwant %+v", got, err, want)
	}
	edns, ok, err := got.EDNS()
	if want := (EDNS{UDPSize: 1232, Extended: 1, Version: 2, DO: true}); !reflect.DeepEqual(edns, want) || !ok || err != nil {
		t.Errorf("EDNS = %+v, %t, %v", edns, ok, err)
	}
}

func TestPackPointsIntoTheQuestion(t *testing.T) {
	m := Message{
		Questions: []Question{{parseName(t, "Ab.Example"), TypeTXT, ClassIN}},
		Answers:   []RR{{Name: parseName(t, "ab.example"), Type: TypeTXT, Class: ClassIN}, {Name: parseName(t, "example"), Type: TypeNS, Class: ClassIN}},
	}
	packed := m.Pack()
	if !bytes.Contains(packed, []byte("\xc0\x0c"+txtIN)) || !bytes.Contains(packed, []byte("\xc0\x0f\x00\x02")) {
		t.Errorf("no pointers in %q", packed)
	}
	got, err := ParseMessage(packed)
	if err != nil || got.Answers[0].Name != m.Questions[0].Name || got.Answers[1].Name.String() != "Example." {
		t.Errorf("Parse = %+v, %v", got, err)
	}
}

func TestParseExpandsNamesInData(t *testing.T) {
	question := "\x02ns\x01z\x00" + "\x00\x06\x00\x01"
	soa := "\xc0\x0f\x00\x06\x00\x01\x00\x00\x00\x3c\x00\x1a" + "\xc0\x0c" + "\x01h\xc0\x0f" + strings.Repeat("\x00", 20)
	ns := "\xc0\x0f\x00\x02\x00\x01\x00\x00\x00\x3c\x00\x02" + "\xc0\x0c"
	m, err := ParseMessage([]byte(header(1, 2) + question + soa + ns))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(m.Answers[0].Data[:len("\x02ns\x01z\x00\x01h\x01z\x00")]); got != "\x02ns\x01z\x00\x01h\x01z\x00" {
		t.Errorf("SOA data begins %q", got)
	}
	if got := string(m.Answers[1].Data); got != "\x02ns\x01z\x00" {
		t.Errorf("NS data is %q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	label := "\x3f" + strings.Repeat("a", 63)
	rr := "\x00" + txtIN + "\x00\x00\x00\x00"
	for name, data := range map[string]string{
		"nothing":                           "",
		"eleven octets":                     header()[:11],
		"an octet too many":                 header() + "\x00",
		"a question that is missing":        header(1),
		"a question cut short":              header(1) + "\x00\x00\x10\x00",
		"a name without end":                header(1) + "\x01a",
		"a label beyond the end":            header(1) + "\x05a\x00" + txtIN,
		"a name of 256 octets":              header(1) + label + label + label + "\x3e" + strings.Repeat("a", 62) + "\x00" + txtIN,
		"a pointer to itself":               header(1) + "\xc0\x0c" + txtIN,
		"a pointer forward":                 header(1) + "\xc0\x12" + txtIN + "\x00",
		"a pointer beyond the end":          header(1) + "\xff\xff" + txtIN,
		"half a pointer":                    header(1) + "\x01a\xc0",
		"a loop of two pointers":            header(2) + "\x01a\xc0\x14" + txtIN + "\x01b\xc0\x0c" + txtIN,
		"a loop through labels":             header(1) + "\x01a\xc0\x0c" + txtIN,
		"label type 01":                     header(1) + "\x40" + txtIN,
		"label type 10":                     header(1) + "\x80\x00" + txtIN,
		"a record cut short":                header(0, 1) + rr,
		"data beyond the end":               header(0, 1) + rr + "\x00\x02a",
		"NS data behind whose name is more": header(0, 1) + "\x00\x00\x02\x00\x01\x00\x00\x00\x00" + "\x00\x02\x00\x00",
		"NS data whose name goes on":        header(0, 2) + "\x00\x00\x02\x00\x01\x00\x00\x00\x00" + "\x00\x01\x01" + "a\x00" + rr,
		"SOA data too short":                header(0, 1) + "\x00\x00\x06\x00\x01\x00\x00\x00\x00" + "\x00\x05\x00\x00abc",
	} {
		if m, err := ParseMessage([]byte(data)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func TestParseKeepsWhatWasReadable(t *testing.T) {
	m, err := ParseMessage([]byte(header(1, 1) + "\x01a\x00" + txtIN + "\xff"))
	if !errors.Is(err, ErrFormat) || m.ID != 0x1234 || len(m.Questions) != 1 {
		t.Errorf("Parse = %+v, %v", m, err)
	}
}

// pointerChain gives a message of n questions, each of whose names but the
// first is a pointer to the one before.
func pointerChain(n int) []byte {
	data := []byte(header() + "\x01a\x00" + txtIN)
	data[4], data[5] = byte(n>>8), byte(n)
	for at := HeaderSize; n > 1; n-- {
		pointer := 0xc000 | at&0x3fff
		at = len(data)
		data = append(append(data, byte(pointer>>8), byte(pointer)), txtIN...)
	}
	return data
}

func TestParsePointerChain(t *testing.T) {
	m, err := ParseMessage(pointerChain(1 + maxPointers))
	if err != nil || m.Questions[maxPointers].Name != "\x01a\x00" {
		t.Errorf("a chain that names may have: %v", err)
	}
	if _, err := ParseMessage(pointerChain(2 + maxPointers)); !errors.Is(err, ErrFormat) {
		t.Errorf("one pointer more: %v", err)
	}
}

func TestEDNS(t *testing.T) {
	opt := EDNS{UDPSize: 4096}.RR()
	with := func(data string) RR { rr := opt; rr.Data = []byte(data); return rr }
	named := opt
	named.Name = "\x01a\x00"
	for name, test := range map[string]struct {
		message Message
		ok      bool
		err     error
	}{
		"none":                    {Message{}, false, nil},
		"one":                     {Message{Additional: []RR{opt}}, true, nil},
		"two options":             {Message{Additional: []RR{with("\x00\x0a\x00\x02ab\x00\x0b\x00\x00")}}, true, nil},
		"two":                     {Message{Additional: []RR{opt, opt}}, true, ErrFormat},
		"not at the root":         {Message{Additional: []RR{named}}, true, ErrFormat},
		"in the answer":           {Message{Answers: []RR{opt}}, true, ErrFormat},
		"in the authority":        {Message{Authority: []RR{opt}, Additional: []RR{opt}}, true, ErrFormat},
		"an option cut short":     {Message{Additional: []RR{with("\x00\x0a\x00\x03ab")}}, true, ErrFormat},
		"an option's head missed": {Message{Additional: []RR{with("\x00\x0a\x00\x00\x00")}}, true, ErrFormat},
	} {
		if _, ok, err := test.message.EDNS(); ok != test.ok || !errors.Is(err, test.err) {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
}

func TestTXT(t *testing.T) {
	want := []string{"one", "", strings.Repeat("x", 255)}
	if got, err := ParseTXT(TXTData(want)); err != nil || !slices.Equal(got, want) {
		t.Errorf("ParseTXT = %q, %v", got, err)
	}
	for _, data := range []string{"", "\x01", "\x03abc\x02d"} {
		if got, err := ParseTXT([]byte(data)); !errors.Is(err, ErrFormat) {
			t.Errorf("ParseTXT(%q) = %q, %v", data, got, err)
		}
	}
}

func TestCAAData(t *testing.T) {
	for data, want := range map[string][]string{
		"\x00\x05issue;":      {"\x00", "issue", ";"},
		"\x80\x05ISSue":       {"\x80", "issue", ""},
		"\x00\x01a\xff\x00\n": {"\x00", "a", "\xff\x00\n"},
		"\x00\x02\xffZ=":      {"\x00", "\xffz", "="},
		"":                    nil, "\x00": nil, "\x00\x00": nil, "\x00\x00x": nil, "\x00\x06issue": nil, "\x00\xffissue": nil,
	} {
		if got, err := ParseCAA([]byte(data)); !slices.Equal(got, want) || (err == nil) != (want != nil) || err != nil && !errors.Is(err, ErrFormat) {
			t.Errorf("ParseCAA(%q) = %q, %v, want %q", data, got, err, want)
		}
	}
	long := "\x00\xff" + strings.Repeat("a", 255)
	if got, err := ParseCAA([]byte(long)); err != nil || got[1] != long[2:] || got[2] != "" {
		t.Errorf("a tag of 255 octets: %q, %v", got, err)
	}
}

// FuzzCAA: what is read has the octets of the data, and the letters of the tag in lower case.
func FuzzCAA(f *testing.F) {
	f.Add([]byte("\x00\x05Issue;"))
	f.Add([]byte("\x00\x00"))
	f.Add([]byte("\x00\xa3" + strings.Repeat("A", 0xa3)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCAA(data)
		if err == nil && (c[0]+string([]byte{byte(len(c[1]))})+c[1]+c[2] != string(data[:2])+foldASCII(string(data[2:2+int(data[1])]))+string(data[2+int(data[1]):])) {
			t.Fatalf("%q is read as %q", data, c)
		}
	})
}

func TestRcodeNames(t *testing.T) {
	for rcode, want := range map[Rcode]string{RcodeNXDomain: "NXDOMAIN", RcodeBadTrunc: "BADTRUNC", 3841: "RCODE3841"} {
		if rcode.String() != want {
			t.Errorf("%d is %s", uint16(rcode), rcode)
		}
	}
}

func FuzzParse(f *testing.F) {
	m := sample(f)
	f.Add(m.Pack())
	for _, e := range exchanges(f) {
		f.Add(e.query)
		f.Add(e.answer)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseMessage(data)
		m.EDNS()
		m.RefuseKey()
		if err != nil {
			return
		}
		again, err := ParseMessage(m.Pack())
		if err != nil {
			t.Fatalf("%+v does not read back: %v", m, err)
		}
		// Pack may give owner names the letter case of the question.
		if foldOwners(&m); !reflect.DeepEqual(m, foldOwners(&again)) {
			t.Fatalf("%+v reads back as %+v", m, again)
		}
	})
}

func foldOwners(m *Message) Message {
	for _, section := range [][]RR{m.Answers, m.Authority, m.Additional} {
		for i := range section {
			section[i].Name = section[i].Name.Fold()
		}
	}
	return *m
}
