package nameserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/dns"
)

// zones is a backend in memory: zones and TXT values by name.
type zones struct {
	serials   map[string]uint32
	values    map[string][]string // one character-string a record
	addresses []netip.Addr
	err       error
	hold      chan struct{} // if there, Look tells it and then waits for it
}

func (z *zones) Look(_ context.Context, wire []byte, txt []byte) (Found, error) {
	name := dns.Name(wire)
	if name != name.Fold() {
		return Found{}, errors.New("the name is not folded")
	}
	if z.hold != nil {
		z.hold <- struct{}{}
		<-z.hold
	}
	found := Found{TTL: 60, Records: txt}
	for apex := name; ; apex = apex.Parent() {
		serial, ok := z.serials[apex.String()]
		if ok && found.Apex == 0 {
			found.Apex, found.Serial = len(apex), serial
		} else if ok && found.Above == 0 {
			found.Above, found.AboveSerial = len(apex), serial
		}
		if apex == dns.Root {
			break
		}
	}
	for _, value := range z.values[name.String()] {
		data := dns.TXTData([]string{value})
		found.Records = binary.BigEndian.AppendUint16(found.Records, uint16(dns.TypeTXT))
		found.Records = append(binary.BigEndian.AppendUint16(found.Records, uint16(len(data))), data...)
	}
	below := func(owner string) bool {
		n, err := dns.ParseName(owner)
		return err != nil || n.Within(name)
	}
	for owner := range z.values {
		found.Exists = found.Exists || below(owner)
	}
	for owner := range z.serials {
		found.Exists = found.Exists || below(owner)
	}
	return found, z.err
}

func (z *zones) Addresses(context.Context) []netip.Addr { return z.addresses }

// testZones gives a backend of its own to each test.
func testZones() *zones {
	return &zones{
		serials: map[string]uint32{"example.com.": 7, "sub.example.com.": 8},
		values: map[string][]string{
			"example.com.":                {"at the apex"},
			"_mesh.office.example.com.":   {"v=mesh1 n=1", "other"},
			"_mesh.node.sub.example.com.": {"v=mesh1 n=2"},
			"mid.example.com.":            {strings.Repeat("m", 250), strings.Repeat("n", 250), strings.Repeat("o", 250)},
			"big.example.com.":            manyValues(30),
		},
		addresses: []netip.Addr{
			netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("::ffff:192.0.2.2"), {},
		},
	}
}

// manyValues gives n values of 250 octets.
func manyValues(n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("%0250d", i)
	}
	return values
}

func name(text string) dns.Name {
	n, err := dns.ParseName(text)
	if err != nil {
		panic(err)
	}
	return n
}

// start runs a server on a loopback address until the test ends.
func start(t testing.TB, host dns.Name, backend Backend) *Server {
	t.Helper()
	return startOn(t, "127.0.0.1:0", host, backend)
}

func startOn(t testing.TB, address string, host dns.Name, backend Backend) *Server {
	t.Helper()
	config := Config{Addresses: []string{address}}
	if host != "" {
		config.Hosts = []dns.Name{host}
	}
	return startWith(t, config, backend)
}

// startWith changes the server before it serves.
func startWith(t testing.TB, config Config, backend Backend, change ...func(*Server)) *Server {
	t.Helper()
	s, err := Listen(config, backend, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

// patience bounds every wait of a test for something that must come.
const patience = time.Minute

func dial(t testing.TB, network, address string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout(network, address, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// exchange sends one message and gives the answer, packed.
func exchange(t testing.TB, network, address string, message []byte) []byte {
	t.Helper()
	conn := dial(t, network, address)
	defer conn.Close()
	send(t, conn, message)
	answer, err := receive(conn)
	if err != nil {
		t.Fatalf("%s %s: no answer to %x: %v", network, address, message, err)
	}
	return answer
}

func send(t testing.TB, conn net.Conn, message []byte) {
	t.Helper()
	var err error
	if conn.LocalAddr().Network() == "udp" {
		_, err = conn.Write(message)
	} else {
		err = dns.WriteTCP(conn, message)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func receive(conn net.Conn) ([]byte, error) {
	if conn.LocalAddr().Network() != "udp" {
		return dns.ReadTCP(conn)
	}
	buffer := make([]byte, dns.MaxMessage)
	n, err := conn.Read(buffer)
	return buffer[:n], err
}

var types = map[string]dns.Type{
	"A": dns.TypeA, "NS": dns.TypeNS, "SOA": dns.TypeSOA, "HINFO": dns.TypeHINFO, "TXT": dns.TypeTXT,
	"AAAA": dns.TypeAAAA, "DS": dns.TypeDS, "OPT": dns.TypeOPT, "TKEY": dns.TypeTKEY, "TSIG": dns.TypeTSIG, "IXFR": dns.TypeIXFR,
	"AXFR": dns.TypeAXFR, "MAILB": dns.TypeMAILB, "MAILA": dns.TypeMAILA, "ANY": dns.TypeANY,
	"MX": 15, "CAA": 257, "TYPE0": 0, "NXNAME": 128, "TYPE1000": 1000,
}

// question reads "TXT name" as a query for it.
func question(text string) dns.Message {
	typ, owner, _ := strings.Cut(text, " ")
	t, ok := types[typ]
	if !ok {
		panic("no type " + typ)
	}
	return dns.Message{ID: 4711, Questions: []dns.Question{{Name: name(owner), Type: t, Class: dns.ClassIN}}}
}

// show writes an answer as the tables below have it: rcode and flags, then a
// record a line; those of the authority and additional sections are marked.
func show(m dns.Message) string {
	rcode := m.Rcode
	edns, hasEDNS, _ := m.EDNS()
	rcode |= dns.Rcode(edns.Extended) << 4
	text := mnemonic(rcode)
	for _, flag := range []struct {
		set  bool
		name string
	}{{m.Authoritative, " aa"}, {m.Truncated, " tc"}, {m.RecursionDesired, " rd"}, {m.RecursionAvailable, " ra"}} {
		if flag.set {
			text += flag.name
		}
	}
	if hasEDNS {
		text += fmt.Sprintf(" edns=%d,%d,%t", edns.Version, edns.UDPSize, edns.DO)
	}
	for mark, section := range [][]dns.RR{m.Answers, m.Authority, m.Additional} {
		for _, rr := range section {
			if rr.Type != dns.TypeOPT {
				text += "\n" + []string{"", "authority ", "additional "}[mark] + showRR(rr)
			}
		}
	}
	return text
}

func showRR(rr dns.RR) string {
	text := fmt.Sprintf("%s %d ", rr.Name, rr.TTL)
	switch rr.Type {
	case dns.TypeA, dns.TypeAAAA:
		address, _ := netip.AddrFromSlice(rr.Data)
		return text + address.String()
	case dns.TypeTXT, dns.TypeHINFO:
		values, err := dns.ParseTXT(rr.Data)
		return text + fmt.Sprintf("%d %q %v", rr.Type, values, err)
	case dns.TypeNS:
		return text + "NS " + dns.Name(rr.Data).String()
	case dns.TypeSOA:
		mname, rname, numbers := readSOA(rr.Data)
		return text + fmt.Sprintf("SOA %s %s %d", mname, rname, numbers)
	}
	return text + fmt.Sprintf("type %d, %d octets", rr.Type, len(rr.Data))
}

func readSOA(data []byte) (mname, rname dns.Name, numbers []uint32) {
	var names []dns.Name
	for rest := data[:len(data)-20]; len(rest) > 0; {
		end := bytes.IndexByte(rest, 0) + 1
		names = append(names, dns.Name(rest[:end]))
		rest = rest[end:]
	}
	for rest := data[len(data)-20:]; len(rest) > 0; rest = rest[4:] {
		numbers = append(numbers, binary.BigEndian.Uint32(rest))
	}
	return names[0], names[1], numbers
}

const (
	soaText    = "example.com. 60 SOA ns.example.com. hostmaster.example.com. [7 3600 300 1209600 60]"
	subSOAText = "sub.example.com. 60 SOA ns.sub.example.com. hostmaster.sub.example.com. [8 3600 300 1209600 60]"
	noData     = "NOERROR aa\nauthority " + soaText
	noName     = "NXDOMAIN aa\nauthority " + soaText
)

// ask checks the frame of an answer and gives the rest as text.
func ask(t *testing.T, network string, s *Server, query dns.Message) string {
	t.Helper()
	packed := exchange(t, network, s.Addr(), query.Pack())
	answer, err := dns.ParseMessage(packed)
	if err != nil || answer.ID != query.ID || !answer.Response || answer.Opcode != query.Opcode || !reflect.DeepEqual(answer.Questions, query.Questions) {
		t.Errorf("%s: answer %+v, %v to %+v", network, answer, err, query)
	}
	return show(answer)
}

// checkAnswers asks a server of testZones each question, over UDP and TCP.
func checkAnswers(t *testing.T, questions map[string]string) {
	t.Helper()
	s := start(t, "", testZones())
	for asked, want := range questions {
		for _, network := range []string{"udp", "tcp"} {
			if got := ask(t, network, s, question(asked)); got != want {
				t.Errorf("%s over %s:\n%s\nwant\n%s", asked, network, got, want)
			}
		}
	}
}

func TestAnswers(t *testing.T) {
	checkAnswers(t, map[string]string{
		"TXT _mesh.office.example.com": "NOERROR aa\n" +
			`_mesh.office.example.com. 60 16 ["v=mesh1 n=1"] <nil>` + "\n" + `_mesh.office.example.com. 60 16 ["other"] <nil>`,
		"TXT example.com":                "NOERROR aa\n" + `example.com. 60 16 ["at the apex"] <nil>`,
		"TXT _mesh.node.sub.example.com": "NOERROR aa\n" + `_mesh.node.sub.example.com. 60 16 ["v=mesh1 n=2"] <nil>`,
		"SOA example.com":                "NOERROR aa\n" + soaText,
		"SOA sub.example.com":            "NOERROR aa\n" + subSOAText,
		"NS example.com": "NOERROR aa\nexample.com. 300 NS ns.example.com.\nadditional ns.example.com. 60 192.0.2.1\n" +
			"additional ns.example.com. 60 2001:db8::1\nadditional ns.example.com. 60 192.0.2.2",
		"A ns.example.com":    "NOERROR aa\nns.example.com. 60 192.0.2.1\nns.example.com. 60 192.0.2.2",
		"AAAA ns.example.com": "NOERROR aa\nns.example.com. 60 2001:db8::1",

		"TXT ns.example.com":             noData,
		"MX ns.example.com":              noData,
		"A example.com":                  noData,
		"A _mesh.office.example.com":     noData,
		"HINFO _mesh.office.example.com": noData,
		"CAA example.com":                noData,
		"TYPE1000 example.com":           noData,
		"SOA _mesh.office.example.com":   noData,
		"NS office.example.com":          noData,
		"TXT office.example.com":         noData,
		"TXT node.sub.example.com":       "NOERROR aa\nauthority " + subSOAText,
		"TXT nothing.example.com":        noName,
		"A a._mesh.office.example.com":   noName,
		"TXT *.example.com":              noName,
		"TXT xsub.example.com":           noName,
		"A x.ns.example.com":             noName,
		"TXT nothing.sub.example.com":    "NXDOMAIN aa\nauthority " + subSOAText,
	})
}

func TestAnswersToANY(t *testing.T) {
	checkAnswers(t, map[string]string{
		"ANY example.com":              "NOERROR aa\n" + `example.com. 3600 13 ["RFC8482" ""] <nil>`,
		"ANY ns.example.com":           "NOERROR aa\n" + `ns.example.com. 3600 13 ["RFC8482" ""] <nil>`,
		"ANY _mesh.office.example.com": "NOERROR aa\n" + `_mesh.office.example.com. 3600 13 ["RFC8482" ""] <nil>`,
		"ANY office.example.com":       noData,
		"ANY nothing.example.com":      noName,
	})
}

// The name of a zone is also a name in the zone around it, which answers for its DS.
func TestAnswersAtAZoneWithin(t *testing.T) {
	checkAnswers(t, map[string]string{
		"DS sub.example.com":     noData, // from the zone around
		"DS example.com":         noData, // from the zone itself: no zone around it is served
		"DS ns.sub.example.com":  "NOERROR aa\nauthority " + subSOAText,
		"DS no.sub.example.com":  "NXDOMAIN aa\nauthority " + subSOAText,
		"DS office.example.com":  noData,
		"TXT sub.example.com":    "NOERROR aa\nauthority " + subSOAText,
		"ANY sub.example.com":    "NOERROR aa\n" + `sub.example.com. 3600 13 ["RFC8482" ""] <nil>`,
		"A ns.sub.example.com":   "NOERROR aa\nns.sub.example.com. 60 192.0.2.1\nns.sub.example.com. 60 192.0.2.2",
		"DS none.example.com":    noName,
		"DS sub.sub.example.com": "NXDOMAIN aa\nauthority " + subSOAText,
	})
}

func TestAnswersWithoutAZone(t *testing.T) {
	checkAnswers(t, map[string]string{
		"TXT example.net":  "REFUSED",
		"SOA com":          "REFUSED",
		"TXT .":            "REFUSED",
		"ANY example.net":  "REFUSED",
		"AXFR example.com": "REFUSED",
		"AXFR example.net": "REFUSED",
		"IXFR example.com": "REFUSED",

		"MAILA example.com":  "NOTIMP",
		"MAILB example.com":  "NOTIMP",
		"TKEY example.com":   "NOTIMP",
		"TSIG example.com":   "FORMERR",
		"OPT example.com":    "FORMERR",
		"NXNAME example.com": "FORMERR",
		"TYPE0 example.com":  "FORMERR",
	})
}

// The case of the question comes back, in the owner names too, and matters nowhere else.
func TestLetterCase(t *testing.T) {
	s := start(t, "", testZones())
	for asked, want := range map[string]string{
		"TXT eXample.COM":    "NOERROR aa\n" + `eXample.COM. 60 16 ["at the apex"] <nil>`,
		"A NS.example.Com":   "NOERROR aa\nNS.example.Com. 60 192.0.2.1\nNS.example.Com. 60 192.0.2.2",
		"TXT none.exAmple.c": "REFUSED",
		"TXT None.exAmple.Com": "NXDOMAIN aa\nauthority exAmple.Com. 60 SOA ns.exAmple.Com. hostmaster.exAmple.Com. " +
			"[7 3600 300 1209600 60]",
	} {
		if got := ask(t, "udp", s, question(asked)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", asked, got, want)
		}
	}
}

func TestServerName(t *testing.T) {
	for _, test := range []struct{ host, question, want string }{
		{"DNS.deep.example.com", "NS example.com", "NOERROR aa\nexample.com. 300 NS dns.deep.example.com.\nadditional dns.deep.example.com. 60 192.0.2.1\n" +
			"additional dns.deep.example.com. 60 2001:db8::1\nadditional dns.deep.example.com. 60 192.0.2.2"},
		{"dns.deep.example.com", "AAAA dns.deep.example.com", "NOERROR aa\ndns.deep.example.com. 60 2001:db8::1"},
		{"dns.deep.example.com", "A deep.example.com", strings.ReplaceAll(noData, "ns.example", "dns.deep.example")},
		{"dns.deep.example.com", "A ns.example.com", strings.ReplaceAll(noName, "ns.example", "dns.deep.example")},
		{"dns.deep.example.com", "NS sub.example.com", "NOERROR aa\nsub.example.com. 300 NS dns.deep.example.com."},
		{"dns.example.net", "NS example.com", "NOERROR aa\nexample.com. 300 NS dns.example.net."},
		{"dns.example.net", "A dns.example.net", "REFUSED"},
		{"example.com", "A example.com", "NOERROR aa\nexample.com. 60 192.0.2.1\nexample.com. 60 192.0.2.2"},
		{"_mesh.office.example.com", "TXT _mesh.office.example.com", "NOERROR aa\n" +
			`_mesh.office.example.com. 60 16 ["v=mesh1 n=1"] <nil>` + "\n" + `_mesh.office.example.com. 60 16 ["other"] <nil>`},
		{"_mesh.office.example.com", "AAAA _mesh.office.example.com", "NOERROR aa\n_mesh.office.example.com. 60 2001:db8::1"},
	} {
		s := start(t, name(test.host), testZones())
		if got := ask(t, "udp", s, question(test.question)); got != test.want {
			t.Errorf("host %s, %s:\n%s\nwant\n%s", test.host, test.question, got, test.want)
		}
	}
}

// All names are in NS; only the first is this server's own.
func TestSeveralServerNames(t *testing.T) {
	config := Config{Addresses: []string{"127.0.0.1:0"}, Hosts: []dns.Name{name("A.example.com"), name("b.example.net")}}
	s := startWith(t, config, testZones())
	for asked, want := range map[string]string{
		"NS example.com": "NOERROR aa\nexample.com. 300 NS a.example.com.\nexample.com. 300 NS b.example.net.\n" +
			"additional a.example.com. 60 192.0.2.1\nadditional a.example.com. 60 2001:db8::1\nadditional a.example.com. 60 192.0.2.2",
		"SOA example.com":    "NOERROR aa\n" + strings.ReplaceAll(soaText, "ns.example.com", "a.example.com"),
		"AAAA a.example.com": "NOERROR aa\na.example.com. 60 2001:db8::1",
		"A ns.example.com":   strings.ReplaceAll(noName, "ns.example.com", "a.example.com"),
	} {
		if got := ask(t, "udp", s, question(asked)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", asked, got, want)
		}
	}
}

// A zone named like the server's name in the zone around it does not hide the
// address that the delegation of the zone around rests on.
func TestZoneAtTheServerName(t *testing.T) {
	backend := testZones()
	backend.serials["ns.example.com."] = 9
	soa := "ns.example.com. 60 SOA ns.ns.example.com. hostmaster.ns.example.com. [9 3600 300 1209600 60]"
	for _, test := range []struct{ host, question, want string }{
		{"", "A ns.example.com", "NOERROR aa\nns.example.com. 60 192.0.2.1\nns.example.com. 60 192.0.2.2"},
		{"", "AAAA ns.example.com", "NOERROR aa\nns.example.com. 60 2001:db8::1"},
		{"", "TXT ns.example.com", "NOERROR aa\nauthority " + soa},
		{"", "SOA ns.example.com", "NOERROR aa\n" + soa},
		{"", "DS ns.example.com", noData},
		{"", "A x.ns.example.com", "NXDOMAIN aa\nauthority " + soa},
		{"", "A sub.example.com", "NOERROR aa\nauthority " + subSOAText},
		{"dns.example.net", "A ns.example.com", "NOERROR aa\nauthority " +
			"ns.example.com. 60 SOA dns.example.net. hostmaster.ns.example.com. [9 3600 300 1209600 60]"},
	} {
		var host dns.Name
		if test.host != "" {
			host = name(test.host)
		}
		if got := ask(t, "udp", start(t, host, backend), question(test.question)); got != test.want {
			t.Errorf("host %q, %s:\n%s\nwant\n%s", test.host, test.question, got, test.want)
		}
	}
}

// Names that end as the question's does are pointers into it.
func TestCompressedSizes(t *testing.T) {
	s := start(t, "", testZones())
	for asked, want := range map[string]int{
		"TXT none.example.com":   12 + 18 + 4 + 12 + 5 + 13 + 20,
		"TXT office.example.com": 12 + 20 + 4 + 12 + 5 + 13 + 20,
		"SOA example.com":        12 + 13 + 4 + 12 + 5 + 13 + 20,
		"NS example.com":         12 + 13 + 4 + 12 + 5 + 3*(5+10) + 4 + 4 + 16,
	} {
		query := question(asked)
		packed := exchange(t, "udp", s.Addr(), query.Pack())
		if len(packed) != want {
			t.Errorf("%s: %d octets, want %d", asked, len(packed), want)
		}
	}
}

// A request's memory is used again: nothing of one answer may show in the next.
func TestAnswersDoNotMix(t *testing.T) {
	asked := []string{"TXT big.example.com", "TXT office.example.com", "NS example.com", "TXT example.net", "DS sub.example.com", "A ns.sub.example.com", "TXT no.example.com"}
	fresh := func() *Server { return &Server{backend: testZones(), log: slog.New(slog.DiscardHandler)} }
	used := fresh()
	for i := range 200 {
		query := question(asked[i*i%len(asked)])
		if i%3 == 0 {
			query.Additional = []dns.RR{dns.EDNS{UDPSize: uint16(i * 10), DO: i%2 == 0}.RR()}
		}
		got, want := used.answer(t.Context(), []byte("before"), query.Pack(), asker{limit: maxUDP}), fresh().answer(t.Context(), nil, query.Pack(), asker{limit: maxUDP})
		if string(got) != "before"+string(want) {
			t.Fatalf("%v: %x, want %x", query, got, want)
		}
	}
}

// Without an address the server's name has no records, and does not exist, as a secondary sees it.
func TestServerNameWithoutAddress(t *testing.T) {
	backend := testZones()
	backend.addresses = nil
	s := start(t, "", backend)
	for asked, want := range map[string]string{
		"A ns.example.com":   noName,
		"ANY ns.example.com": noName,
		"NS example.com":     "NOERROR aa\nexample.com. 300 NS ns.example.com.",
	} {
		if got := ask(t, "udp", s, question(asked)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", asked, got, want)
		}
	}
}

// An apex that leaves no room for "ns" or "hostmaster" stands for them.
func TestLongestApex(t *testing.T) {
	label := strings.Repeat("a", 63)
	apex := label + "." + label + "." + label + "." + label[:61] + "."
	backend := testZones()
	backend.serials[apex] = 1
	s := start(t, "", backend)
	query := question("SOA " + apex)
	query.Additional = []dns.RR{dns.EDNS{UDPSize: 4096}.RR()}
	want := fmt.Sprintf("NOERROR aa edns=0,1232,false\n%s 60 SOA %s %s [1 3600 300 1209600 60]", apex, apex, apex)
	if got := ask(t, "udp", s, query); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestRootZone(t *testing.T) {
	backend := testZones()
	backend.serials["."] = 9
	s := start(t, "", backend)
	want := "NXDOMAIN aa\nauthority . 60 SOA ns. hostmaster. [9 3600 300 1209600 60]"
	if got := ask(t, "udp", s, question("TXT example.net")); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestSizes(t *testing.T) {
	manyAddresses := testZones()
	for i := range 60 {
		manyAddresses.addresses = append(manyAddresses.addresses, netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}))
	}
	s := start(t, "", manyAddresses)
	for _, test := range []struct {
		network, question string
		udpSize           int // 0: no EDNS
		truncated         bool
		answers           int
	}{
		{"udp", "TXT mid.example.com", 0, true, 0},
		{"udp", "TXT mid.example.com", 1, true, 0},
		{"udp", "TXT mid.example.com", 512, true, 0},
		{"udp", "TXT mid.example.com", 832, true, 0},
		{"udp", "TXT mid.example.com", 833, false, 3},
		{"udp", "TXT mid.example.com", 65535, false, 3},
		{"tcp", "TXT mid.example.com", 0, false, 3},
		{"tcp", "TXT mid.example.com", 512, false, 3},
		{"udp", "TXT big.example.com", 65535, true, 0},
		{"tcp", "TXT big.example.com", 0, false, 30},
		{"udp", "NS example.com", 0, false, 1}, // without the addresses, which nobody asked for
		{"udp", "A ns.example.com", 0, true, 0},
		{"udp", "A ns.example.com", 1232, false, 62},
	} {
		query := question(test.question)
		if test.udpSize > 0 {
			query.Additional = []dns.RR{dns.EDNS{UDPSize: uint16(test.udpSize)}.RR()}
		}
		packed := exchange(t, test.network, s.Addr(), query.Pack())
		answer, err := dns.ParseMessage(packed)
		_, hasEDNS, _ := answer.EDNS()
		if err != nil || answer.Truncated != test.truncated || len(answer.Answers) != test.answers || hasEDNS != (test.udpSize > 0) ||
			len(answer.Questions) != 1 || answer.Truncated && len(answer.Authority) > 0 {
			t.Errorf("%+v: %d octets, %s", test, len(packed), show(answer))
		}
		if limit := max(512, min(test.udpSize, 1232)); test.network == "udp" && len(packed) > limit {
			t.Errorf("%+v: %d octets, at most %d are allowed", test, len(packed), limit)
		}
	}
}

// More than TCP can carry is a truncated answer there too.
func TestTooMuchForTCP(t *testing.T) {
	backend := testZones()
	backend.values["example.com."] = manyValues(300)
	s := start(t, "", backend)
	if got := ask(t, "tcp", s, question("TXT example.com")); got != "NOERROR aa tc" {
		t.Errorf("%.80s", got)
	}
}

func TestEDNS(t *testing.T) {
	s := start(t, "", testZones())
	opt := dns.EDNS{UDPSize: 4096}.RR()
	with := func(change func(*dns.RR)) dns.RR { rr := opt; change(&rr); return rr }
	const soa = "\n" + soaText
	for what, test := range map[string]struct {
		additional []dns.RR
		want       string
	}{
		"none":               {nil, "NOERROR aa" + soa},
		"plain":              {[]dns.RR{opt}, "NOERROR aa edns=0,1232,false" + soa},
		"DNSSEC OK":          {[]dns.RR{dns.EDNS{UDPSize: 512, DO: true}.RR()}, "NOERROR aa edns=0,1232,true" + soa},
		"version 1":          {[]dns.RR{dns.EDNS{UDPSize: 512, Version: 1, DO: true}.RR()}, "BADVERS edns=0,1232,true"},
		"unknown flags":      {[]dns.RR{with(func(rr *dns.RR) { rr.TTL = 0x7fff })}, "NOERROR aa edns=0,1232,false" + soa},
		"an unknown option":  {[]dns.RR{with(func(rr *dns.RR) { rr.Data = []byte("\xff\xfe\x00\x02ab") })}, "NOERROR aa edns=0,1232,false" + soa},
		"a cookie":           {[]dns.RR{with(func(rr *dns.RR) { rr.Data = []byte("\x00\x0a\x00\x0812345678") })}, "NOERROR aa edns=0,1232,false" + soa},
		"a broken option":    {[]dns.RR{with(func(rr *dns.RR) { rr.Data = []byte("\x00\x0a\x00\x0912345678") })}, "FORMERR edns=0,1232,false"},
		"two":                {[]dns.RR{opt, opt}, "FORMERR edns=0,1232,false"},
		"not at the root":    {[]dns.RR{with(func(rr *dns.RR) { rr.Name = name("a") })}, "FORMERR edns=0,1232,false"},
		"behind some record": {[]dns.RR{{Name: name("a"), Type: 1000, Class: 1}, opt}, "NOERROR aa edns=0,1232,false" + soa},
	} {
		query := question("SOA example.com")
		query.Additional = test.additional
		if got := ask(t, "udp", s, query); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, test.want)
		}
	}
}

func TestOtherMessages(t *testing.T) {
	s := start(t, "", testZones())
	edit := func(change func(*dns.Message)) dns.Message {
		m := question("SOA example.com")
		change(&m)
		return m
	}
	class := func(c dns.Class) dns.Message {
		return edit(func(m *dns.Message) { m.Questions[0].Class = c })
	}
	for what, test := range map[string]struct {
		query dns.Message
		want  string
	}{
		"recursion desired": {edit(func(m *dns.Message) { m.RecursionDesired = true }), "NOERROR aa rd\n" + soaText},
		"flags of answers": {edit(func(m *dns.Message) {
			m.Authoritative, m.Truncated, m.RecursionAvailable, m.Rcode = true, true, true, 5
		}), "NOERROR aa\n" + soaText},
		"class CH":   {class(3), "REFUSED"},
		"class NONE": {class(dns.ClassNONE), "REFUSED"},
		"class ANY":  {class(dns.ClassANY), "REFUSED"},
		"IQUERY":     {edit(func(m *dns.Message) { m.Opcode = 1 }), "NOTIMP"},
		"STATUS":     {edit(func(m *dns.Message) { m.Opcode = 2; m.Questions = nil }), "NOTIMP"},
		"NOTIFY":     {edit(func(m *dns.Message) { m.Opcode = 4; m.RecursionDesired = true }), "NOTIMP rd"},
		"UPDATE": {edit(func(m *dns.Message) {
			m.Opcode = dns.OpcodeUpdate
			m.Authority = []dns.RR{{Name: name("example.com"), Type: 16, Class: 1}}
		}), "NOTIMP"},
		"opcode 15":   {edit(func(m *dns.Message) { m.Opcode = 15 }), "NOTIMP"},
		"no question": {edit(func(m *dns.Message) { m.Questions = nil }), "FORMERR"},
		"IXFR with its SOA": {edit(func(m *dns.Message) {
			m.Questions[0].Type = dns.TypeIXFR
			m.Authority = []dns.RR{{Name: name("example.com"), Type: dns.TypeSOA, Class: 1, Data: dns.SOA{MName: name("a"), RName: name("b")}.Data()}}
		}), "REFUSED"},
	} {
		for _, network := range []string{"udp", "tcp"} {
			if got := ask(t, network, s, test.query); got != test.want {
				t.Errorf("%s over %s:\n%s\nwant\n%s", what, network, got, test.want)
			}
		}
	}
}

func TestBrokenMessages(t *testing.T) {
	s := start(t, "", testZones())
	whole := question("SOA example.com")
	asked := string(whole.Pack()[dns.HeaderSize:])
	// Behind the ID: the flags, QDCOUNT, no records.
	header := func(flags string, questions byte) string {
		return "\x12\x67" + flags + "\x00" + string([]byte{questions}) + "\x00\x00\x00\x00\x00\x00"
	}
	const query, dso, formErr, notImp = "\x01\x00", "\x30\x00", "\x81\x01", "\xb0\x04"
	for what, test := range map[string]struct{ message, want string }{
		"two questions":           {header(query, 2) + asked + asked, header(formErr, 0)},
		"two questions, one cut":  {header(query, 2) + asked + "\x07", header(formErr, 0)},
		"a name cut short":        {header(query, 1) + "\x05a", header(formErr, 0)},
		"nothing behind a header": {header(query, 1), header(formErr, 0)},
		"as long as UDP takes":    {header(query, 1) + asked + strings.Repeat("\x00", 60_000), header(formErr, 1) + asked},
		"an octet too many":       {header(query, 1) + asked + "\x00", header(formErr, 1) + asked},
		"opcode 6, other format":  {header(dso, 0) + "\x00\x01\x00\x00", header(notImp, 0)},
	} {
		if got := exchange(t, "udp", s.Addr(), []byte(test.message)); string(got) != test.want {
			t.Errorf("%s: %x, want %x", what, got, test.want)
		}
	}
}

func TestNoAnswer(t *testing.T) {
	s := start(t, "", testZones())
	query := question("SOA example.com")
	query.Response = true
	conn := dial(t, "udp", s.Addr())
	for _, message := range [][]byte{query.Pack(), {}, {1}, query.Pack()[:11]} {
		send(t, conn, message)
		if answer := s.answer(t.Context(), nil, message, asker{limit: maxUDP}); answer != nil {
			t.Errorf("answer %x to %x", answer, message)
		}
		// Over TCP the connection ends.
		stream := dial(t, "tcp", s.Addr())
		send(t, stream, message)
		if answer, err := receive(stream); err == nil {
			t.Errorf("answer %x to %x", answer, message)
		}
	}
	query.Response, query.ID = false, 1
	send(t, conn, query.Pack())
	if answer, err := receive(conn); err != nil || answer[1] != 1 {
		t.Errorf("the first answer is %x, %v", answer, err)
	}
}

func TestUnknownKey(t *testing.T) {
	s := start(t, "", testZones())
	key, err := dns.ParseKey("mesh-key", "c2VjcmV0")
	if err != nil {
		t.Fatal(err)
	}
	query := question("SOA example.com")
	query.Additional = []dns.RR{dns.EDNS{UDPSize: 4096}.RR()}
	signed, mac := key.Sign(query.Pack(), time.Now())
	answer := exchange(t, "udp", s.Addr(), signed)
	m, err := dns.ParseMessage(answer)
	if got, want := show(m), "NOTAUTH edns=0,1232,false\nadditional mesh-key. 0 type 250, 29 octets"; err != nil || got != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
	report, _ := errors.AsType[*dns.TSIGError](key.Verify(answer, mac, time.Now()))
	if report == nil || report.Code != dns.RcodeBadKey {
		t.Errorf("the client reads %v", report)
	}
}

// Names as long as they can be leave no room for TSIG in 512 octets.
func TestUnknownKeyWithoutRoom(t *testing.T) {
	s := start(t, "", testZones())
	long := name(strings.Repeat(strings.Repeat("a", 62)+".", 4))
	query := dns.Message{ID: 1, Questions: []dns.Question{{Name: long, Type: 16, Class: 1}}}
	query.Additional = []dns.RR{
		dns.EDNS{UDPSize: 512}.RR(),
		{Name: name(strings.Repeat(strings.Repeat("b", 62)+".", 4)), Type: dns.TypeTSIG, Class: dns.ClassANY, Data: append([]byte(long), make([]byte, 16)...)},
	}
	if got, want := ask(t, "udp", s, query), "NOTAUTH tc edns=0,1232,false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := ask(t, "tcp", s, query); !strings.Contains(got, "type 250") {
		t.Errorf("over TCP: %s", got)
	}
}

func TestBackendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		backend := testZones()
		backend.err = errors.New("disk on fire")
		s := &Server{backend: backend, log: slog.New(slog.NewTextHandler(&log, nil))}
		query := question("TXT _mesh.office.example.com")
		lines := func() int { return strings.Count(log.String(), "disk on fire") }
		for range 100 {
			answer, err := dns.ParseMessage(s.answer(t.Context(), nil, query.Pack(), asker{limit: maxUDP}))
			if err != nil || show(answer) != "SERVFAIL" || len(answer.Questions) != 1 {
				t.Fatalf("%s, %v", show(answer), err)
			}
		}
		if lines() != 1 || !strings.Contains(log.String(), "_mesh.office.example.com.") {
			t.Errorf("after 100 failures the log is %s", log.String())
		}
		<-time.After(failureInterval)
		s.answer(t.Context(), nil, query.Pack(), asker{limit: maxUDP})
		if lines() != 2 || !strings.Contains(log.String(), "not_logged_before=99") {
			t.Errorf("a minute later the log is %s", log.String())
		}
	})
}

func TestAnswersAreCounted(t *testing.T) {
	s := start(t, "", testZones())
	for _, text := range []string{"SOA example.com", "A example.com", "TXT none.example.com", "TXT example.net", "AXFR example.com"} {
		ask(t, "udp", s, question(text))
	}
	badVersion, update := question("SOA example.com"), question("SOA example.com")
	badVersion.Additional = []dns.RR{dns.EDNS{Version: 1}.RR()}
	update.Opcode = dns.OpcodeUpdate
	ask(t, "udp", s, badVersion)
	ask(t, "tcp", s, update)
	counted := page(s)
	for rcode, want := range map[string]int{"NOERROR": 2, "NXDOMAIN": 1, "REFUSED": 2, "BADVERS": 1, "NOTIMP": 1, "FORMERR": 0, "SERVFAIL": 0, "NOTAUTH": 0, "BADCOOKIE": 0} {
		if line := fmt.Sprintf("meshddns_dns_answers_total{rcode=%q} %d\n", rcode, want); !strings.Contains(counted, line) {
			t.Errorf("no %q in\n%s", line, counted)
		}
	}
	if n := strings.Count(counted, "meshddns_dns_answers_total{"); n != 9 {
		t.Errorf("%d rcodes are counted, want 9", n)
	}
}

func TestConcurrentQueries(t *testing.T) {
	s := start(t, "", testZones())
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() {
			network := []string{"udp", "tcp"}[i%2]
			for range 50 {
				if got := ask(t, network, s, question("TXT none.example.com")); got != noName {
					t.Error(got)
				}
			}
		})
	}
	clients.Wait()
	if counted := page(s); !strings.Contains(counted, `answers_total{rcode="NXDOMAIN"} 800`+"\n") {
		t.Errorf("not 800 answers are counted:\n%s", counted)
	}
}
