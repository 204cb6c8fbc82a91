package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meshddns/test/support"
)

// Everything is withdrawn by a call that is repeated, although SIGKILL ends the program within it. The provisioning file, from
// which all came, would add it again, so the answer warns.
func TestResetAfterKills(t *testing.T) {
	notShort(t)
	t.Parallel()
	const names, statePath = 1500, "/api/v1/ddns/state"
	db, file := filepath.Join(t.TempDir(), "meshddns.db"), filepath.Join(t.TempDir(), "state.json")
	var usages []string
	for i := range names {
		usages = append(usages, fmt.Sprintf(`{"service_id": "svc", "prefix_mode": "custom", "custom_prefix": "n%d", "network_id": %[1]d}`, i))
	}
	content := `{"configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": "-", "domain": "mesh.example.com", "txt_record_name": "@",
		"txt_endpoints": ["tcp://203.0.113.7:1"], "sync_mode": "auto", "enabled": true},
		"services": [{"id": "svc", "name": "Service", "config": {"domain": "mesh.example.com"}}], "usages": [` + strings.Join(usages, ",") + `]}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "-db", db, "-provision", file)
	p.settled()
	if a := p.call(200, "DELETE", statePath+"?dry_run=1", "", "Accept-Language", "en"); a.field("names") != fmt.Sprint(names+1) || !strings.Contains(a.body, "adds its entries again") {
		t.Errorf("a preview: %s", a.body)
	}
	left := struct{ Usages, Services, Names int }{Usages: names}
	for kill := 1; kill <= 4; kill++ {
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			p.try("DELETE", statePath, "")
		}()
		select {
		case <-answered:
		case <-time.After(time.Duration(kill) * 40 * time.Millisecond): // whenever it comes
		}
		support.Kill(p.cmd)
		support.Receive(t, answered)
		p = start(t, "-db", db)
	}
	p.eventually("only second looks are left", func() bool {
		a, err := p.try("DELETE", statePath, "")
		if err != nil || json.Unmarshal([]byte(a.body), &struct{ Data any }{&left}) != nil {
			return false
		}
		return left.Usages == 0 && left.Services == 0 && a.field("configuration") == "false" && p.txt("mesh.example.com") == ""
	})
	if got := p.txt("_mesh.n7.mesh.example.com"); got != "" {
		t.Errorf("_mesh.n7.mesh.example.com has %s", got)
	}
	p.stop()
	for _, wrong := range []string{"usages", "bindings", "services", "configuration", "zone_records"} {
		if rows := support.Rows(t, support.OpenSQLite(t, db, ""), "SELECT count(*) FROM "+wrong); rows[0] != "0" {
			t.Errorf("%s: %s rows are left", wrong, rows[0])
		}
	}
}
