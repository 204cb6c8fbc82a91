package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"meshddns/test/support"
)

// A first boot with a provisioning file answers dig before any call of the API. A boot
// with a lost disk answers the same, and the state is a file that a boot takes as well.
func TestProvisionedBoot(t *testing.T) {
	support.Need(t, "dig")
	dir := t.TempDir()
	file, credentials := filepath.Join(dir, "10-site.json"), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	site := func(port string) string {
		return `{"owner": "0123456789ab",
			"configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": {"credential": "dns-key"}, "domain": "mesh.example.com",
				"txt_record_name": "@", "enabled": true, "sync_mode": "auto", "txt_endpoints": ["tcp://203.0.113.7:` + port + `"]},
			"services": [{"id": "svc", "name": "Service", "config": {"domain": "mesh.example.com"}}]}`
	}
	write(file, site("1"))
	write(filepath.Join(dir, "20-usages.json"), `{"usages": [{"service_id": "svc", "prefix_mode": "custom", "custom_prefix": "office", "network_id": 18446744073709551615}]}`)
	write(filepath.Join(credentials, "dns-key"), "open-sesame\n")
	t.Setenv("CREDENTIALS_DIRECTORY", credentials)
	answers := func(p *program, port string) {
		t.Helper()
		want := `"v=mesh1 n=18446744073709551615 o=0123456789ab tcp://203.0.113.7:` + port + `"`
		p.eventually("dig answers "+want, func() bool { return p.dig("+short", "_mesh.office.mesh.example.com", "TXT") == want })
		if strings.Contains(p.log.String(), "sesame") {
			t.Errorf("a secret is in the log:\n%s", p.log)
		}
	}
	p := start(t, "-db", filepath.Join(t.TempDir(), "one.db"), "-provision", dir)
	answers(p, "1")

	write(file, site("2"))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	answers(p, "2")

	state := filepath.Join(t.TempDir(), "state.json")
	write(state, strings.Replace(p.call(200, "GET", "/api/v1/ddns/state", "").body, `"********"`, `{"credential": "dns-key"}`, 1))
	p.stop()
	answers(start(t, "-db", filepath.Join(t.TempDir(), "two.db"), "-provision", dir), "2")

	answers(start(t, "-db", filepath.Join(t.TempDir(), "three.db"), "-provision", state), "2")

	out, err := command(t, "-check", "-provision", dir).CombinedOutput()
	if err != nil || string(out) != "ok\n" {
		t.Errorf("-check: %v %s", err, out)
	}
	write(file, `{"owner": 7}`)
	out, err = command(t, "-check", "-provision", dir).Output()
	if code := exitCode(err); code != 1 || string(out) != file+":1: owner: is 7, want a string\n" {
		t.Errorf("-check: status %d, %s", code, out)
	}
}

// The right to challenges comes from a file, GET state has it, and the token works at a copy of the appliance. A file that takes the
// right away takes the values away, too.
func TestProvisionedChallenges(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state.json")
	const token, name = "0123456789abcdef-of-the-node", "_acme-challenge.office.mesh.example.com"
	site := func(file, acme string) {
		support.WriteFile(t, file, `{"configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": "-", "domain": "mesh.example.com",
				"txt_record_name": "@", "enabled": true, "sync_mode": "auto", "txt_endpoints": ["tcp://203.0.113.7:1"]},
			"services": [{"id": "svc", "name": "Service", "config": {"domain": "mesh.example.com"}}],
			"usages": [{"service_id": "svc", "prefix_mode": "custom", "custom_prefix": "office", "network_id": 7, "leases": [{"slot": "a", "ttl": 3600, "token": "`+token+`"`+acme+`}]}]}`)
	}
	put := func(status int, nodes *program, text string) {
		t.Helper()
		nodes.call(status, "POST", "/update", `{"txt":"`+proof(text)+`"}`, "X-Api-Key", token)
	}
	stands := func(p *program, want ...string) {
		t.Helper()
		p.eventually("the values "+strings.Join(want, " "), func() bool {
			got := strings.Fields(p.txt(name))
			slices.Sort(got)
			slices.Sort(want)
			return slices.Equal(got, want)
		})
	}
	file := filepath.Join(dir, "site.json")
	site(file, `, "acme": true`)
	p, nodes := startNodes(t, filepath.Join(t.TempDir(), "one.db"), "-provision", dir)
	put(200, nodes, "1")
	stands(p, proof("1"))

	written := p.call(200, "GET", "/api/v1/ddns/state", "").body
	if strings.Count(written, `"acme":true`) != 1 || strings.Contains(written, proof("1")) {
		t.Errorf("the state is %s", written)
	}
	support.WriteFile(t, state, strings.Replace(written, `"********"`, `"-"`, 1))
	second, nodesOfSecond := startNodes(t, filepath.Join(t.TempDir(), "two.db"), "-provision", state)
	put(200, nodesOfSecond, "2")
	stands(second, proof("2"))
	if again := second.call(200, "GET", "/api/v1/ddns/state", "").body; leasesIn(again) != leasesIn(written) {
		t.Errorf("the state of the copy is\n%s\nwant\n%s", again, written)
	}

	// Another member changes, and the values stay.
	put(200, nodes, "3")
	site(file, `, "acme": true, "schemes": ["tcp"]`)
	reload := func(acme string) {
		t.Helper()
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		p.eventually("the state has "+acme, func() bool {
			return strings.Contains(p.call(200, "GET", "/api/v1/ddns/state", "").body, acme)
		})
	}
	reload(`"schemes":["tcp"]`)
	p.settled()
	stands(p, proof("1"), proof("3"))
	for _, without := range []string{"", `, "acme": false`} {
		site(file, `, "acme": true`)
		reload(`"acme":true`)
		put(200, nodes, "4")
		site(file, without)
		reload(`"acme":false`)
		stands(p)
		put(403, nodes, "4")
	}
}

// leasesIn gives what a document of the state has of leases.
func leasesIn(state string) string {
	_, leases, _ := strings.Cut(state, `"leases":`)
	return leases
}

// exitCode is the status that a program has ended with.
func exitCode(err error) int {
	if ended, ok := err.(*exec.ExitError); ok {
		return ended.ExitCode()
	}
	return 0
}
