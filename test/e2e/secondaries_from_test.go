package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
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
			{e.asks, e.name, "NOERROR"}, {"127.0.0.1", e.name, "NOERROR"}, {other.asks, e.name, "REFUSED"},
			{e.asks, other.name, "REFUSED"}, {e.asks, "", "REFUSED"}, {"127.0.4.1", e.name, "REFUSED"},
		} {
			if got := asksFor(t, test.from, test.key); got != test.want {
				t.Errorf("the key of %q from %s: %s, want %s", test.key, test.from, got, test.want)
			}
		}
	}
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

// asksFor gives the rcode of a transfer to an address with the key of a maker, "" for none.
func asksFor(t *testing.T, from, key string) string {
	host, port, _ := net.SplitHostPort(primaryDNS)
	args := []string{"-b", from, "@" + host, "-p", port, meshZone, "AXFR"}
	if key != "" {
		args = append(args, "-y", "hmac-sha256:"+key+".example:"+peerSecret)
	}
	out, err := exec.Command("kdig", args...).CombinedOutput()
	switch text := string(out); {
	case err == nil && strings.Contains(text, "IN\tSOA"):
		return "NOERROR"
	case strings.Contains(text, "REFUSED"):
		return "REFUSED"
	default:
		return fmt.Sprint(err, text)
	}
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
