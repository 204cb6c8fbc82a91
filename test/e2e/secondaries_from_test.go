package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// elsewhere has what lets makers ask from another address than the one that takes NOTIFY, and the range of it.
var elsewhere = []struct {
	maker
	from   string // in the program's form
	asks   string
	change [2]string // of a file
}{
	{makers[0], "127.0.1.8/30", "127.0.1.9", [2]string{"address: 127.0.0.1@5300\n", "address: 127.0.0.1@5300\n    via: 127.0.1.9\n"}},
	{makers[1], "127.0.2.0/24", "127.0.2.7", [2]string{"    request-xfr:", "    outgoing-interface: 127.0.2.7\n    request-xfr:"}},
	{makers[2], "127.0.3.1/32", "127.0.3.1", [2]string{"recursion no;", "recursion no;\n    transfer-source 127.0.3.1;"}},
}

// TestSecondariesFromElsewhere: servers of other makers that ask from a range have each change within seconds, by IXFR. The
// range without the key, or the key without the range, gets nothing. A server whose range is taken away keeps the old zone,
// and has the new one when the range comes back.
func TestSecondariesFromElsewhere(t *testing.T) {
	notShort(t)
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	ip(t, "link set lo up")
	s := newSecondaries(t, filepath.Join(t.TempDir(), "meshddns.db"))
	for _, e := range elsewhere {
		s.from(e.name, e.address, e.from)
		s.peers = append(s.peers, newPeer(t, e.maker, e.change[0], e.change[1]))
	}
	s.fill(20)
	before := s.metric(`meshddns_dns_transfers_total{kind="ixfr",result="sent"}`)
	for range 5 {
		s.change()
		s.rest(meshZone)
	}
	if sent := s.metric(`meshddns_dns_transfers_total{kind="ixfr",result="sent"}`) - before; sent < 5*float64(len(elsewhere)) {
		t.Errorf("%v transfers of changes for 5 changes", sent)
	}
	for n, e := range elsewhere {
		other := elsewhere[(n+1)%len(elsewhere)]
		for _, test := range []struct{ from, key, want string }{
			{e.asks, e.name, "2 SOA"}, {"127.0.0.1", e.name, "2 SOA"}, {other.asks, e.name, "REFUSED"},
			{e.asks, other.name, "REFUSED"}, {e.asks, "", "REFUSED"}, {"127.0.4.1", e.name, "REFUSED"},
		} {
			if got := asksFor(t, "AXFR", test.from, test.key); got != test.want {
				t.Errorf("the key of %q from %s: %s, want %s", test.key, test.from, got, test.want)
			}
		}
	}
	s.eachServer(elsewhere[0].name, "127.0.1.8", "127.0.1.10", "127.0.1.11")
	lost := s.peers[0]
	s.from(lost.name, lost.address, "")
	old := serialOf(lost.address, meshZone)
	s.peers = s.peers[1:]
	refused := s.metric("meshddns_dns_transfers_refused_total")
	s.reserve()
	s.rest(meshZone)
	s.eventually("the lost one asks", func() bool { return s.metric("meshddns_dns_transfers_refused_total") > refused })
	if serial := serialOf(lost.address, meshZone); serial != old {
		t.Errorf("%s has serial %s, want %s", lost.name, serial, old)
	}
	s.from(lost.name, lost.address, elsewhere[0].from)
	s.peers = append(s.peers, lost)
	s.rest(meshZone)
	for _, e := range elsewhere {
		s.eventually(e.name+" is known to have the zone", func() bool {
			return strings.Contains(s.call(200, "GET", "/api/v1/ddns/secondaries/"+e.name, "").body, fmt.Sprintf(`"fetched_serial":%s,`, serialOf(primaryDNS, meshZone)))
		})
	}
}

// eachServer asks as three servers of one secondary. Two of them get the changes since the version that they were sent. The
// third one names that version, too, and gets the zone whole: it may have it from a database that is lost.
func (s *secondaries) eachServer(key, one, other, third string) {
	s.t.Helper()
	since := ""
	s.eventually("changes for each server", func() bool { // the end of a transfer may be noted after the next question
		asksFor(s.t, "AXFR", one, key)
		asksFor(s.t, "AXFR", other, key)
		since = serialOf(primaryDNS, meshZone)
		s.reserve()
		changes := []string{asksFor(s.t, "IXFR="+since, one, key), asksFor(s.t, "IXFR="+since, other, key)}
		return slices.Equal(changes, []string{"4 SOA", "4 SOA"})
	})
	if got := asksFor(s.t, "IXFR="+since, third, key); got != "2 SOA" {
		s.t.Errorf("a server that was sent nothing: %s", got)
	}
}

// from makes a peer a secondary that also asks from a range, "" for none.
func (s *secondaries) from(id, address, from string) {
	s.t.Helper()
	ranges := "[]"
	if from != "" {
		ranges = fmt.Sprintf("[%q]", from)
	}
	body := fmt.Sprintf(`"address":%q,"from":%s,"key_name":%q,"key_secret":`, address, ranges, id+".example")
	if stored := s.call(200, "PUT", "/api/v1/ddns/secondaries/"+id, "{"+body+`"`+peerSecret+`"}`).body; !strings.Contains(stored, body) {
		s.t.Errorf("stored: %s", stored)
	}
}

// asksFor transfers the zone to an address with the key of a maker, "" for none. It gives the number of SOA records, or
// REFUSED.
func asksFor(t *testing.T, kind, from, key string) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(primaryDNS)
	args := []string{"-b", from, "@" + host, "-p", port, meshZone, kind, "+noall", "+answer"}
	if key != "" {
		args = append(args, "-y", "hmac-sha256:"+key+".example:"+peerSecret)
	}
	out, err := exec.Command("kdig", args...).CombinedOutput()
	text := string(out)
	switch {
	case strings.Contains(text, "REFUSED"):
		return "REFUSED"
	case err != nil:
		t.Fatal(err, text)
	}
	return fmt.Sprintf("%d SOA", strings.Count(strings.ReplaceAll(text, " ", "\t"), "\tSOA\t"))
}

// metric gives a figure of the page of metrics.
func (s *secondaries) metric(name string) (figure float64) {
	s.t.Helper()
	_, rest, found := strings.Cut(s.call(200, "GET", "/metrics", "").body, "\n"+name+" ")
	if _, err := fmt.Sscan(rest, &figure); err != nil || !found {
		s.t.Fatalf("metric %s: %v", name, err)
	}
	return figure
}
