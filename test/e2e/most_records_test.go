package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"meshddns/test/servertest"
	"meshddns/test/support"
)

// TestMostRecordsAtBIND: BIND takes a name whose sets have as many records as the program publishes, as a secondary, as a resolver
// and as the primary of the provider rfc2136. An endpoint more stops no change of another name.
func TestMostRecordsAtBIND(t *testing.T) {
	notShort(t)
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	ip(t, "link set lo up")
	primary := servertest.BIND(t)
	s := newSecondaries(t, filepath.Join(t.TempDir(), "meshddns.db"), makers[2])
	s.call(200, "POST", servicesPath[:len(servicesPath)-1], fmt.Sprintf(`{"id":"cloud","name":"Cloud","config":{"domain":%q,%s}}`, servertest.Zone, accountAt(primary)))
	resolver := startForwarder(t, meshZone, primaryDNS)
	for _, nodes := range []int{100, 101} {
		var endpoints []string
		for i := range nodes {
			endpoints = append(endpoints, fmt.Sprintf("tcp://192.0.2.%d:11010", i))
		}
		list, _ := json.Marshal(endpoints)
		for _, service := range []string{"svc", "cloud"} {
			made := s.call(200, "POST", usagesPath, fmt.Sprintf(`{"service_id":%q,"prefix_mode":"custom","custom_prefix":"n%d","network_id":%[2]d}`, service, nodes))
			shown := s.call(200, "PATCH", usagesPath+"/"+made.field("id")+"?wait=20",
				fmt.Sprintf(`{"formats":["a","srv:_x._tcp","easytier-srv","srv:_easytier._tcp","ip4p"],"txt_endpoints":%s}`, list))
			if got := strings.Count(shown.body, `"reason":"too_many"`); got != 4*(nodes-100) {
				t.Errorf("%d endpoints: %d are left out of four sets", nodes, got)
			}
			zone, servers := meshZone, []string{makers[2].address, resolver}
			if service == "cloud" {
				zone, servers = servertest.Zone, []string{primary.Addr}
			}
			for _, set := range []string{"A ", "SRV _x._tcp.", "SRV _easytier._tcp.", "AAAA ip4p."} {
				kind, below, _ := strings.Cut(set, " ")
				for _, server := range servers {
					s.eventually(fmt.Sprintf("%s at %s has 100 records of %d endpoints", set, server, nodes), func() bool {
						host, port, _ := net.SplitHostPort(server)
						out, _ := exec.Command("kdig", "@"+host, "-p", port, "+tcp", "+short", fmt.Sprintf("%sn%d.%s", below, nodes, zone), kind).Output()
						return strings.Count(string(out), "\n") == 100
					})
				}
			}
		}
	}
	s.reserve()
	s.follow(meshZone)
}

// startForwarder starts BIND as a resolver that asks a server for a zone, and gives its address.
func startForwarder(t *testing.T, zone, server string) string {
	t.Helper()
	const address = "127.0.0.1:5308"
	folder := t.TempDir()
	host, port, _ := net.SplitHostPort(server)
	support.WriteFile(t, filepath.Join(folder, "named.conf"), fmt.Sprintf(`
options { directory %q; listen-on port 5308 { 127.0.0.1; }; listen-on-v6 { none; }; pid-file none; session-keyfile none; recursion yes; dnssec-validation no; };
controls { };
zone %q { type forward; forward only; forwarders { %s port %s; }; };
`, folder, zone, host, port))
	cmd := exec.Command("named", "-g", "-c", filepath.Join(folder, "named.conf"))
	support.Start(t, cmd)
	t.Cleanup(func() { support.Kill(cmd) })
	return address
}
