// A control: each reader sees a zone that breaks the rule of its client.

package clients

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// serve answers for the records of a zone file.
func serve(t *testing.T, zone string) (address string) {
	t.Helper()
	var records []dns.RR
	parser := dns.NewZoneParser(strings.NewReader(zone), "example.com.", "")
	for record, ok := parser.Next(); ok; record, ok = parser.Next() {
		records = append(records, record)
	}
	if err := parser.Err(); err != nil {
		t.Fatal(err)
	}
	packets, listener := listenBoth(t)
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) { answer(w, question, records) })
	for _, server := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: listener, Handler: handler}} {
		go server.ActivateAndServe()
		t.Cleanup(func() { server.Shutdown() })
	}
	return packets.LocalAddr().String()
}

// listenBoth listens at one port over UDP and TCP. A port that is free for one may be taken for the other.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	var err error
	for range 20 {
		listener, listens := net.Listen("tcp", "127.0.0.1:0")
		if listens != nil {
			t.Fatal(listens)
		}
		var packets net.PacketConn
		if packets, err = net.ListenPacket("udp", listener.Addr().String()); err == nil {
			return packets, listener
		}
		listener.Close()
	}
	t.Fatal(err)
	return nil, nil
}

// answer writes the records at the name of a question, those that UDP has room for.
func answer(w dns.ResponseWriter, question *dns.Msg, records []dns.RR) {
	reply := new(dns.Msg).SetReply(question)
	asked := question.Question[0]
	for _, record := range records {
		if strings.EqualFold(record.Header().Name, asked.Name) && record.Header().Rrtype == asked.Qtype {
			reply.Answer = append(reply.Answer, record)
		}
	}
	reply.Authoritative, reply.Compress = true, true
	if _, udp := w.LocalAddr().(*net.UDPAddr); udp {
		size := dns.MinMsgSize
		if edns := question.IsEdns0(); edns != nil {
			size = int(edns.UDPSize())
		}
		reply.Truncate(size)
	}
	w.WriteMsg(reply)
}

// good is what has to stand for two endpoints, tcp://203.0.113.7:1 and udp://203.0.113.7:2, in all formats.
const good = `
_mesh.berlin 60 TXT "v=mesh1 n=42 o=000000000000 tcp://203.0.113.7:1 udp://203.0.113.7:2"
berlin 60 TXT "203.0.113.7:1"
berlin 60 TXT "203.0.113.7:2"
berlin 60 A 203.0.113.7
_nodes._tcp.berlin 60 SRV 1 1 1 203-0-113-7.berlin
_nodes._udp.berlin 60 SRV 1 1 2 203-0-113-7.berlin
_easytier._tcp.berlin 60 SRV 1 1 1 203-0-113-7.berlin
_easytier._udp.berlin 60 SRV 1 1 2 203-0-113-7.berlin
203-0-113-7.berlin 60 A 203.0.113.7
ip4p.berlin 60 AAAA 2001::1:cb00:7107
ip4p.berlin 60 AAAA 2001::2:cb00:7107
_dnsaddr.berlin 60 TXT "dnsaddr=/ip4/203.0.113.7/tcp/1/p2p/` + libp2pID + `"
_dnsaddr.berlin 60 TXT "dnsaddr=/ip4/203.0.113.7/udp/2/p2p/` + libp2pID + `"
_iroh.` + irohID + `.berlin 60 TXT "addr=203.0.113.7:2"
`

// goodList is the list over HTTP.
const goodList = "tcp://203.0.113.7:1\nudp://203.0.113.7:2\n"

// faults are changes of the good zone, and the clients that see them.
var faults = []struct{ name, old, new, clients string }{
	{"nothing", "", "", ""},
	{"a word that is no endpoint", " udp://", " x://", "EasyTier txt"},
	{"the record of another program before ours", `_mesh.berlin 60 TXT "v`, `_mesh.berlin 60 TXT "v=spf1 -all"` + "\n" + `_mesh.berlin 60 TXT "v`, "EasyTier txt"},
	{"the endpoints in a second string", `000000000000 tcp`, `000000000000" "tcp`, "EasyTier txt"},
	{"priorities of 0", "SRV 1 1", "SRV 0 1", "EasyTier srv"},
	{"a port of 0", "SRV 1 1 1 ", "SRV 1 1 0 ", "EasyTier srv,Xray srv,go-discover tcp"},
	{"a target without address", "203-0-113-7.berlin 60 A", "other.berlin 60 A", "EasyTier srv,Xray srv,go-discover tcp,go-discover udp"},
	{"a third record of SRV", "_nodes._tcp", "_nodes._tcp.berlin 60 SRV 0 1 9 203-0-113-7.berlin\n_nodes._tcp", "Xray srv,go-discover tcp"},
	{"a record of SRV is missing", "_nodes._udp", "_other._udp", "go-discover udp"},
	{"another address of the target", "berlin 60 A 203.0.113.7\nip4p", "berlin 60 A 203.0.113.8\nip4p", "EasyTier srv,Xray srv,go-discover tcp,go-discover udp"},
	{"a host name among the addresses", `"203.0.113.7:1"`, `"h.example.net:1"`, "vnt,Xray txt"},
	{"another record beside the addresses", "\nberlin 60 A", "\nberlin 60 TXT \"v=spf1 -all\"\nberlin 60 A", "vnt"},
	{"another address", "\nberlin 60 A 203.0.113.7", "\nberlin 60 A 203.0.113.8", "Nebula"},
	{"no address", "\nberlin 60 A", "\nparis 60 A", "Nebula"},
	{"another order of IP4P", "2001::1:cb00:7107", "2001::cb00:7107:1", "natmap"},
	{"an address of Teredo", "2001::1:cb00:7107", "2001:0:1::1:cb00:7107", "natmap"},
	{"a multiaddr that libp2p does not know", "/tcp/1/p2p", "/tcp/1/wg/p2p", "libp2p"},
	{"a value without dnsaddr=", "dnsaddr=/ip4/203.0.113.7/tcp", "/ip4/203.0.113.7/tcp", "libp2p"},
	{"a list of addresses", "addr=203.0.113.7:2", "addr=203.0.113.7:2 203.0.113.8:2", "iroh"},
	{"an unknown key", `TXT "addr=`, `TXT "v=1"` + "\n_iroh." + irohID + `.berlin 60 TXT "addr=`, "iroh"},
}

// control starts a DNS server and a web server, and returns the names of the clients that see a fault.
func control(t *testing.T, zone, list string) (seen []string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			w.Header().Set("Location", strings.TrimSpace(list[strings.LastIndex(strings.TrimSpace(list), "\n")+1:]))
			w.WriteHeader(http.StatusFound)
			return
		}
		w.Write([]byte(list))
	}))
	defer server.Close()
	zones := serve(t, zone)
	w := &world{dns: zones, node: server.URL, parent: "berlin.example.com", irohID: irohID, resolver: useServer(zones)}
	l, err := w.startNebula(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.patience = time.Second
	addr := netip.MustParseAddr("203.0.113.7")
	var readings []reading
	for _, peer := range []string{libp2pID, irohID} {
		r := round{formats: formats, peer: peer, endpoints: []endpoint{{"tcp", addr, "", 1}, {"udp", addr, "", 2}}}
		for _, reading := range w.readings(r, l) {
			if reading.format == "dnsaddr" && peer == irohID || reading.format == "iroh" && peer == libp2pID {
				continue // its records are of the other peer
			}
			readings = append(readings, reading)
		}
	}
	for _, reading := range readings {
		if err := reading.check(); err != nil && !slices.Contains(seen, reading.client) {
			seen = append(seen, reading.client)
		}
	}
	return seen
}

// TestControl: each reader fails on the faults that are its client's, and on no other.
func TestControl(t *testing.T) {
	for _, fault := range faults {
		zone := good
		if fault.old != "" {
			zone = strings.ReplaceAll(good, fault.old, fault.new)
		}
		if got := strings.Join(control(t, zone, goodList), ","); got != fault.clients {
			t.Errorf("%s is seen by %s, not by %s", fault.name, got, fault.clients)
		}
	}
	for _, list := range []string{"tcp://203.0.113.7:1\n", "tcp://203.0.113.7:1\nudp://203.0.113.8:2\n", "tcp://203.0.113.7:1\n203.0.113.7:2\n"} {
		got := control(t, good, list)
		if !slices.Contains(got, "EasyTier http") {
			t.Errorf("the list %q is seen by %q", list, got)
		}
	}
}
