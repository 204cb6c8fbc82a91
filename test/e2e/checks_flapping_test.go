package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

// One of two endpoints opens and closes once a second, for the time in MESHDDNS_FLAPPING. However often that is, the
// provider gets at most one change a minute, and the other endpoint stays.
func TestFlapping(t *testing.T) {
	long(t, "MESHDDNS_FLAPPING")
	if !checksRun(t) {
		return
	}
	length, err := time.ParseDuration(os.Getenv("MESHDDNS_FLAPPING"))
	if err != nil {
		t.Fatal(err)
	}
	living, flapping := serve(t, "127.0.0.1:7001"), serve(t, "127.0.0.1:7002")
	cloud := cloudtest.Webhook(t)
	p := start(t, checksArgs(filepath.Join(t.TempDir(), "meshddns.db"))...)
	p.call(200, "PUT", configPath, fmt.Sprintf(`{"provider":"webhook","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":%q,
		"txt_record_name":"@","enabled":true,"sync_mode":"auto","txt_endpoints":["udp://203.0.113.7:1"]}`, cloud.AccessKeyID, cloud.AccessKeySecret, cloud.URL, cloudtest.Zone))
	p.call(200, "PUT", servicesPath+"svc", fmt.Sprintf(`{"name":"Service","config":{"domain":%q}}`, cloudtest.Zone))
	one, two := "tcp://"+living.address, "tcp://"+flapping.address
	id := p.addChecked("office", `{"kind":"tcp","interval":5,"fall":1,"rise":1}`, one, two)
	support.Eventually(t, limit, "both endpoints are alive", func() bool { return p.alive(id, 2) })
	cloud.Asked()

	flaps := 0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); flaps++ {
		if flapping.close(); flaps%2 == 1 {
			if err := flapping.listen(); err != nil {
				t.Fatal(err)
			}
		}
		<-tick.C
	}
	writes := 0
	for _, r := range cloud.Asked() {
		if r.Method == "POST" {
			writes++
		}
	}
	most := int((length + time.Minute - 1) / time.Minute)
	published := strings.Join(cloud.All(cloudtest.Zone), "\n")
	t.Logf("an endpoint opened and closed %d times in %v: %d writes at the provider (want 1 to %d)", flaps, length, writes, most)
	if writes < 1 || writes > most || !strings.Contains(published, one) {
		t.Errorf("%d writes; the zone has\n%s", writes, published)
	}
}

// EasyTier takes one endpoint of the value at random. While one of four is dead, a quarter of its first attempts fails;
// once the check has found it dead, less than one in a hundred does.
func TestDraw(t *testing.T) {
	if !checksRun(t) {
		return
	}
	p := startChecks(t, filepath.Join(t.TempDir(), "meshddns.db"))
	var all []*served
	var endpoints []string
	for port := range 4 {
		all = append(all, serve(t, fmt.Sprint("127.0.0.1:", 7001+port)))
		endpoints = append(endpoints, "tcp://"+all[port].address)
	}
	p.reserveChecked("office", tcpCheck, endpoints...)
	all[2].close()
	before := failedDraws(strings.Fields(p.published("office")))
	p.publishes(checkedWithin, "office", strings.Join([]string{endpoints[0], endpoints[1], endpoints[3]}, " "))
	after := failedDraws(strings.Fields(p.published("office")))
	t.Logf("failed first attempts: %.1f %% while the dead endpoint is published, %.1f %% after", before, after)
	if before < 18 || before > 32 || after >= 1 {
		t.Error("want 25 % before, less than 1 % after")
	}
}

// failedDraws returns how many of 1 000 first attempts fail, in percent.
func failedDraws(published []string) float64 {
	failed := 0
	for range 1000 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(published[rand.IntN(len(published))], "tcp://"))
		if err != nil {
			failed++
			continue
		}
		conn.Close()
	}
	return float64(failed) / 10
}
