package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/test/support"
)

// TestManyHangingZones has an account of forty zones accept calls and answer none. What
// is at another account is changed meanwhile, before the first call is given up.
func TestManyHangingZones(t *testing.T) {
	notShort(t)
	t.Parallel()
	const zones = 40
	w := &history{t: t, host: newHost()}
	t.Cleanup(w.host.close)
	w.host.say, w.host.kill, w.host.beside = w.say, func() {}, func(guard) bool { return false }
	many, well := w.host.open("webhook", "many"), w.host.open("webhook", "well", "well.example")
	for _, a := range []*account{many, well} {
		w.host.addKey(a, a.provider, a.name+"-key", "secret-of-"+a.name)
	}
	w.db = filepath.Join(scratch(t), "meshddns.db")
	w.start()
	w.p.configure("auto", "tcp://203.0.113.7:1")
	reserve := func(id, zone string, a *account) (usage string) {
		c := credentials{provider: a.provider, keyID: a.name + "-key", secret: "secret-of-" + a.name}
		w.p.call(200, "PUT", servicesPath+id, modelService{id: id, domain: zone, credentials: c, endpoints: []string{"tcp://203.0.113.7:2"}}.body(w.host.addrs))
		return w.p.call(200, "POST", usagesPath, jsonText(map[string]any{"service_id": id, "prefix_mode": "custom", "custom_prefix": "a", "network_id": 1})).field("id")
	}
	usages := []string{reserve("well", "well.example", well)}
	for n := range zones {
		zone := fmt.Sprintf("z%d.example", n)
		w.host.mu.Lock()
		many.zones[zone] = map[string][]standing{}
		w.host.mu.Unlock()
		usages = append(usages, reserve(zone[:strings.Index(zone, ".")], zone, many))
	}
	w.p.eventually("everything is published", func() bool {
		return !slices.ContainsFunc(usages, func(id string) bool { return w.publication(id).State != "published" })
	})
	w.p.call(200, "POST", syncPath, "") // the next one begins a pass of its own
	w.looked()
	b := w.bar(many, func(hostCall) bool { return true })
	done := w.syncBeside()
	if !w.caught(b, 0) {
		t.Fatal("no zone is asked")
	}
	w.elapse(time.Second) // the other zones wait beside the call, or for it
	since := w.givenUp()
	w.p.call(200, "PATCH", usagesPath+"/"+usages[0], `{"txt_endpoints":["tcp://203.0.113.7:3"]}`)
	at := spot{well, "well.example", "_mesh.a.well.example"}
	changed := func() bool {
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		return slices.ContainsFunc(texts(w.host.values(at)), func(text string) bool { return strings.HasSuffix(text, ":3") })
	}
	if !support.Within(limit, changed) || w.waited(since, at) {
		t.Errorf("a change at another account waits for %d zones that hang", zones)
	}
	w.lift(many)
	<-done
}

// TestManyHangingZonesControl lets the program work on one zone after the other, which
// TestManyHangingZones has to find.
func TestManyHangingZonesControl(t *testing.T) {
	long(t, "MESHDDNS_HISTORY_CONTROLS")
	const inSlot = "func (e *Engine) inSlot(t turn, work func()) {\n"
	changes := overlay(t, "../../internal/reconcile/lane.go", inSlot, "var oneZone sync.Mutex\n\n"+inSlot+"\toneZone.Lock()\n\tdefer oneZone.Unlock()\n")
	program, err := compile(filepath.Join(t.TempDir(), "meshddns-quick"), "-tags", "quick", "-overlay", changes)
	if err != nil {
		t.Fatal(err)
	}
	test := exec.Command(os.Args[0], "-test.run=^TestManyHangingZones$")
	test.Env = append(os.Environ(), programName+"="+program)
	if out, err := test.CombinedOutput(); err == nil || !strings.Contains(string(out), "waits for 40 zones that hang") {
		t.Errorf("not found: %v\n%s", err, out)
	}
}
