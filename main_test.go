package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provision"
	"meshddns/test/api"
	"meshddns/test/support"
)

// appProcess is the program, run inside the test on a port of its own choice.
type appProcess struct {
	t       testing.TB
	hangUps chan os.Signal
	log     *support.Log
	url     string
}

func runProgram(t testing.TB, environ []string, args ...string) *appProcess {
	t.Helper()
	p := &appProcess{t: t, hangUps: make(chan os.Signal, 1), log: &support.Log{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	args = append([]string{"-listen", "127.0.0.1:0", "-ipv4", "none", "-ipv6", "none", "-db", filepath.Join(t.TempDir(), "meshddns.db")}, args...)
	go func() {
		ended <- run(ctx, process{args: args, environ: environ, hangUps: p.hangUps, stdout: io.Discard, stderr: p.log})
	}()
	t.Cleanup(func() {
		cancel()
		if err := support.Receive(t, ended); err != nil {
			t.Error(err)
		}
	})
	p.logged("msg=started")
	_, listen, _ := strings.Cut(p.log.String(), "listen=")
	listen, _, _ = strings.Cut(listen, " ")
	p.url = "http://" + listen
	return p
}

// logged waits for a text in the log.
func (p *appProcess) logged(text string) {
	p.t.Helper()
	support.Eventually(p.t, support.Limit, text, func() bool { return strings.Contains(p.log.String(), text) })
}

// status is that of the answer to a GET of the configuration with a token.
func (p *appProcess) status(token string) int {
	p.t.Helper()
	request, err := http.NewRequest("GET", p.url+"/api/v1/ddns/config", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Timeout: support.Patience}).Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// The API is at all addresses, with the guards of each: a unix socket needs no token.
func TestSeveralAddresses(t *testing.T) {
	socket, file := filepath.Join(t.TempDir(), "api"), filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("a-token-0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := runProgram(t, nil, "-listen", "unix:"+socket+",127.0.0.1:0", "-token-file", file, "-dns-nsid", "here")
	addresses := strings.Split(strings.TrimPrefix(p.url, "http://"), ",")
	if len(addresses) != 3 || addresses[1] != socket {
		t.Fatalf("listens on %q", addresses)
	}
	for i, want := range []int{401, 200, 401} {
		client := &http.Client{Timeout: support.Patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if i == 1 {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", addresses[i])
		}}}
		response, err := client.Get("http://localhost/api/v1/ddns/config")
		client.CloseIdleConnections()
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != want {
			t.Errorf("%s: status %d, want %d", addresses[i], response.StatusCode, want)
		}
	}
	if log := p.log.String(); strings.Count(log, "a setting has no effect") != 1 || !strings.Contains(log, "setting=-dns-nsid") {
		t.Error(log)
	}
}

// A hang-up ends nothing: the token file is read again, and when it is broken
// the old tokens stay.
func TestHangUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const old, new = "old-token-0123456789", "new-token-0123456789"
	write(old)
	p := runProgram(t, nil, "-token-file", file)
	for _, step := range []struct {
		content, log string
		old, new     int
	}{
		{"too-short", `level=ERROR msg="reload: what was stays" step="read the token file again"`, 200, 401},
		{old + "\n" + new, `level=INFO msg=reload step="read the token file again"`, 200, 200},
		{new, `level=INFO msg=reload step="read the token file again"`, 401, 200},
	} {
		write(step.content)
		before := strings.Count(p.log.String(), step.log)
		p.hangUps <- syscall.SIGHUP
		support.Eventually(t, support.Limit, step.log, func() bool { return strings.Count(p.log.String(), step.log) > before })
		if o, n := p.status(old), p.status(new); o != step.old || n != step.new {
			t.Errorf("after %s: old %d, new %d", step.log, o, n)
		}
	}
	if log := p.log.String(); strings.Contains(log, "-token-") || strings.Contains(log, "too-short") {
		t.Errorf("a token is in the log:\n%s", log)
	}
}

// A hang-up applies the provision file again: what differs is changed, and with a fault in
// the form of the file all stays as it is.
func TestHangUpProvisions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	write := func(name, more string) {
		writeFile(t, file, `{"services": [{"id": "a", "name": "`+name+`", "config": {"domain": "a.example"}}]`+more+`}`)
	}
	write("one", "")
	p := runProgram(t, nil, "-provision", file)
	if log := p.log.String(); strings.Index(log, "msg=provisioned") > strings.Index(log, "msg=started") {
		t.Errorf("started before it was provisioned:\n%s", log)
	}
	for _, step := range []struct{ name, more, log, want string }{
		{"two", "", `msg=reload step="apply the provision file again"`, "two"},
		{"two", "", `changes=0`, "two"},
		{"three", `, "usages": [{"service_id": "none", "prefix_mode": "auto", "network_id": 1}]`, `usages[0].service_id: no such service`, "three"},
		{"four", `,`, `not JSON`, "three"},
		{"five", "", `changes=1`, "five"},
	} {
		write(step.name, step.more)
		before := strings.Count(p.log.String(), step.log)
		p.hangUps <- syscall.SIGHUP
		support.Eventually(t, support.Limit, step.log, func() bool { return strings.Count(p.log.String(), step.log) > before })
		response, err := (&http.Client{Timeout: support.Patience}).Get(p.url + "/api/v1/ddns/services/a")
		if err != nil {
			t.Fatal(err)
		}
		var body struct{ Data serviceAnswer }
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil || body.Data.Name != step.want {
			t.Errorf("%s: the service's name is %q, %v, want %q", step.name, body.Data.Name, err, step.want)
		}
		response.Body.Close()
	}
}

// A program without anything to read again lives on.
func TestHangUpForNothing(t *testing.T) {
	p := runProgram(t, nil)
	p.hangUps <- syscall.SIGHUP
	p.logged("there is nothing to read again")
	if got := p.status("any"); got != 200 {
		t.Errorf("status %d", got)
	}
}

// The steps are done in order, all of them, whatever one says.
func TestReloadSteps(t *testing.T) {
	log := &support.Log{}
	var done []string
	note := func(what string, err error) step {
		return step{what, func(context.Context) error { done = append(done, what); return err }}
	}
	reload(t.Context(), []step{note("a", nil), note("b", errors.New("broken")), note("c", nil)}, slog.New(slog.NewTextHandler(log, nil)))
	if got := strings.Join(done, ""); got != "abc" {
		t.Errorf("done %q", got)
	}
	if got := log.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "step=b error=broken") || strings.Count(got, "level=INFO") != 2 {
		t.Error(got)
	}
}

// TestProvisionMistakes finds what testdata/provision/mistakes.txt says of the files in
// it; "go test -update" writes it anew. "no credentials" is without a folder of them.
func TestProvisionMistakes(t *testing.T) {
	const golden = "testdata/provision/mistakes.txt"
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	credentials := t.TempDir()
	for name, value := range map[string]string{
		"key": "sesame-sesame\n", "empty": "\n", "latin1": "caf\xe9", "large": strings.Repeat("x", 64<<10+1), "folder/x": "",
	} {
		writeFile(t, filepath.Join(credentials, name), value)
	}
	blocks := strings.Split(strings.TrimSpace(string(text)), "\n\n# ")
	for i, block := range blocks {
		given, want, _ := strings.Cut(block, "\n-> ")
		dir := t.TempDir()
		parts := strings.Split("\n"+strings.TrimRight(given, "\n"), "\nfile ")
		for _, part := range parts[1:] {
			name, body, _ := strings.Cut(part, "\n")
			body = api.Expanded(body)
			if quoted, ok := strings.CutPrefix(body, "bytes "); ok {
				if body, err = strconv.Unquote(quoted); err != nil {
					t.Fatal(err)
				}
			}
			writeFile(t, filepath.Join(dir, name), body)
		}
		from := provision.CredentialFolder{Folder: credentials}
		if strings.Contains(parts[0], "\nno credentials") {
			from.Folder = ""
		}
		got := "ok"
		if err := provision.Read(dir, from).Check(checks{}); err != nil {
			got = strings.ReplaceAll(err.Error(), dir+"/", "")
		}
		if got = strings.ReplaceAll(got, "\n", "\n   "); got != strings.TrimRight(want, "\n") && !*update {
			t.Errorf("# %s\n-> %s\nwant\n-> %s", given, got, want)
		}
		if strings.Contains(got, "sesame") {
			t.Errorf("a secret is in\n%s", got)
		}
		blocks[i] = strings.TrimRight(given, "\n") + "\n-> " + got
	}
	if *update {
		writeFile(t, golden, strings.Join(blocks, "\n\n# ")+"\n")
	}
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// applied applies documents to an appliance as SIGHUP does, and gives the audit lines and the
// faults.
func (a *appliance) applied(t testing.TB, documents ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, text := range documents {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("%d.json", i)), text)
	}
	credentials := t.TempDir()
	writeFile(t, filepath.Join(credentials, "key"), "sesame\n")
	before := len(a.Logs.String())
	err := a.provision(t.Context(), dir, provision.CredentialFolder{Folder: credentials}, false)
	if err != nil {
		return strings.ReplaceAll(err.Error(), dir+"/", "")
	}
	lines := a.audited(before)
	for _, m := range a.provisioned.faults {
		lines = append(lines, strings.ReplaceAll(m.String(), dir+"/", ""))
	}
	return strings.Join(lines, "\n")
}

var auditLine = regexp.MustCompile(`msg=change who=(.*)`)

// audited gives the audit lines from an octet of the log on, without what varies.
func (a *appliance) audited(from int) (lines []string) {
	for _, found := range auditLine.FindAllStringSubmatch(a.Logs.String()[from:], -1) {
		line, _, _ := strings.Cut(api.UUIDText.ReplaceAllString(found[1], "<id>"), ` code="" file=`)
		lines = append(lines, line)
	}
	return lines
}

const wholeDocument = `{
  "configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": {"credential": "key"}, "domain": "example.com", "txt_record_name": "@"},
  "services": [
    {"id": "a", "name": "A", "config": {"domain": "a.example", "provider": "webhook", "access_key_id": "x", "access_key_secret": {"credential": "key"}, "n": 1.50}},
    {"id": "b", "name": "B", "config": {"domain": "b.example"}}
  ],
  "usages": [
    {"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615, "network_name": "office"},
    {"service_id": "b", "prefix_mode": "custom", "custom_prefix": "Office", "network_id": 1, "txt_endpoints": ["tcp://192.0.2.1:1"], "description": "mine"}
  ]
}`

// A document is applied by the operations of requests, once: what is there stays as it
// is, byte for byte, and what differs is changed.
func TestProvision(t *testing.T) {
	a := newAppliance(t, stopClock)
	const (
		configured = `provision what="PUT /api/v1/ddns/config" id="" status=200`
		serviceA   = `provision what="PUT /api/v1/ddns/services/{id}" id=a status=200`
		serviceB   = `provision what="PUT /api/v1/ddns/services/{id}" id=b status=200`
		reserved   = `provision what="POST /api/v1/ddns/usages" id=<id> status=200`
		patched    = `provision what="PATCH /api/v1/ddns/usages/{id}" id=<id> status=200`
		released   = `provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=200`
		deletedB   = `provision what="DELETE /api/v1/ddns/services/{id}" id=b status=200`
		adopted    = `provision what="POST /api/v1/ddns/adopt" id=0123456789ab status=200`
	)
	replace := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(wholeDocument) }
	for _, step := range []struct{ name, document, want string }{
		{"all of it", wholeDocument, strings.Join([]string{configured, serviceA, serviceB, reserved, reserved}, "\n")},
		{"once more", wholeDocument, ""},
		{"masked", replace(`{"credential": "key"}`, `"********"`), ""},
		{"in another writing", replace("1.50", "1.5", `"Office"`, `"oFFICE"`, `"id": "b", "name": "B"`, `"name": "B",   "id": "b"`), ""},
		{"only parts of it", `{"services": [{"id": "b", "name": "B", "config": {"domain": "b.example"}}], "prune": false}`, ""},
		{"less said of a usage", replace(`, "txt_endpoints": ["tcp://192.0.2.1:1"], "description": "mine"`, ""), ""},
		{"another name", replace(`"name": "B"`, `"name": "C"`), serviceB},
		{"another number", replace(`1.50`, `1.51`, `"name": "B"`, `"name": "C"`), serviceA},
		{"another secret", `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example", "provider": "webhook", "access_key_id": "x", "access_key_secret": "other", "n": 1.51}}]}`, serviceA},
		{"a masked secret beside a change", `{"services": [{"id": "a", "name": "D", "config": {"domain": "a.example", "provider": "webhook", "access_key_id": "x", "access_key_secret": "********"}}]}`, serviceA},
		{"endpoints and a description", replace(`"mine"`, `"yours"`, ":1\"", ":2\"", `"name": "B"`, `"name": "C"`), serviceA + "\n" + patched},
		{"a network's name", `{"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615, "network_name": "home"}]}`, patched},
		{"a usage twice", `{"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 5}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`, reserved + "\n" + reserved},
		{"a usage twice once more", `{"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 5}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`, ""},
		{"an owner", `{"owner": "0123456789ab"}`, adopted},
		{"an owner once more", `{"owner": "0123456789ab"}`, ""},
		{"its own owner", `{"owner": "` + a.store.owner + `"}`, ""},
		{"a prefix for another network", `{"prune": true, "services": [{"id": "a", "name": "D", "config": {"domain": "a.example"}}],
			"usages": [{"service_id": "b", "prefix_mode": "custom", "custom_prefix": "office", "network_id": 7},
				{"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`,
			released + "\n" + serviceA + "\n" + reserved},
		{"usages that nobody manages keep their service", `{"prune": true, "services": [{"id": "a", "name": "D", "config": {"domain": "a.example"}}]}`, ""},
		{"pruned", `{"prune": true, "services": [{"id": "a", "name": "D", "config": {"domain": "a.example"}}],
			"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`,
			released + "\n" + deletedB},
	} {
		before := a.Files(t)
		if got := a.applied(t, step.document); got != step.want {
			t.Errorf("%s:\n%s\nwant\n%s", step.name, got, step.want)
		}
		if same := bytes.Equal(before, a.Files(t)); same != (step.want == "") {
			t.Errorf("%s: the database is the same: %v", step.name, same)
		}
	}
	if strings.Contains(a.Logs.String(), "sesame") {
		t.Error("the log has a secret")
	}
}

// A fault names the file, the line and the member. A fault of the form keeps all of the files from
// being applied, another one its entry; a prune that is refused removes nothing.
func TestProvisionFaults(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/bare", `{"name":"x","config":{}}`)
	for i := range 9 {
		a.Must(t, "POST", "/api/v1/ddns/usages", fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"p%d","network_id":%d}`, i, i))
	}
	const fine = `{"owner": "0123456789ab", "services": [{"id": "new", "name": "N", "config": {"domain": "new.example"}}]}`
	usages := func(to int) (all []string) {
		for i := range to {
			all = append(all, fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"p%d","network_id":%d}`, i, i))
		}
		return all
	}
	a.applied(t, fine)
	before := a.AllRows(t)
	for _, step := range []struct{ name, document, want string }{
		{"masked on a new appliance", `{
"configuration": {"provider": "builtin", "access_key_id": "-", "domain": "example.com", "txt_record_name": "@",
  "access_key_secret": "********"},
"services": [{"id": "s", "name": "S", "config": {"provider": "x", "access_key_id": "y",
  "access_key_secret": "********", "more": {"token":
    "********"}}}]}`,
			`1.json:3: configuration.access_key_secret: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here
1.json:5: services[0].config.access_key_secret: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here
1.json:6: services[0].config.more.token: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here`},
		{"several", `{
"services": [
  {"id": "svc", "name": "x", "config": {"domain":
    "other.example"}},
  {"id": "bad id", "name": "x", "config": {}}],
"usages": [
  {"service_id": "none", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "bare", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "bad id", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "new", "prefix_mode": "custom", "network_id": 1,
   "custom_prefix": "a.b"}]}`,
			`1.json:5: services[1].id: the id is not valid: 1 to 128 characters of letters, digits and . _ ~ -
1.json:11: usages[3].custom_prefix: the prefix may hold only a-z A-Z 0-9 _ -`},
		{"several of what is stored", `{
"services": [
  {"id": "svc", "name": "x", "config": {"domain":
    "other.example"}}],
"usages": [
  {"service_id": "none", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "bare", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "svc", "prefix_mode": "auto", "network_id": 1}]}`,
			`1.json:4: services[0].config.domain: the service has usages, its domain cannot change
1.json:6: usages[0].service_id: no such service
1.json:7: usages[1].service_id: the service's config has no domain`},
		{"a prefix of another network", `{"usages": [{"service_id": "svc", "prefix_mode": "custom", "custom_prefix": "P0", "network_id": 5}]}`,
			`1.json:1: usages[0].custom_prefix: the prefix is taken by network 0`},
		{"endpoints of a new usage", `{"usages": [{"service_id": "svc", "prefix_mode": "auto", "network_id": 5, "txt_endpoints": ["x"]}]}`,
			`1.json:1: usages[0].txt_endpoints: txt_endpoints: "x" is not scheme://host:port`},
		{"too many usages", `{"usages": [` + strings.Join(usages(5), ",") + `],
"prune": true}`, `1.json:2: prune: 4 of 9 usages are not in the document, more than a third: only "all" removes so many`},
	} {
		t.Run(step.name, func(t *testing.T) {
			if got := a.applied(t, fine, step.document); got != step.want {
				t.Errorf("\n%s\nwant\n%s", got, step.want)
			}
			if !slices.Equal(before, a.AllRows(t)) {
				t.Error("the database is another one")
			}
		})
	}
	few := `{"usages": [` + strings.Join(usages(6), ",") + `], "prune": true}`
	if got := len(strings.Split(a.applied(t, few), "\n")); got != 3 {
		t.Errorf("%d are pruned, want 3", got)
	}
	if got := len(strings.Split(a.applied(t, `{"usages": [], "services": [], "prune": "all"}`), "\n")); got != 9 {
		t.Errorf("%d are pruned, want 6 usages and 3 services", got)
	}
}

// randomDocument is a document of everything that clients can say, secrets as they are.
func randomDocument(random *rand.Rand) string {
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	endpoints := func() string {
		return pick(`[]`, `["tcp://192.0.2.1:1"]`, `["wg://[2001:db8::1]:51820","tcp://{ipv4}:11010"]`)
	}
	text := func() string {
		return strconv.Quote(pick("", "office", "a <b> & 'c'", "办公室", "mesh sync - x", "\\ 😀"))
	}
	document := map[string]json.RawMessage{"owner": json.RawMessage(fmt.Sprintf(`"%012x"`, random.Uint64()>>16))}
	if random.IntN(4) > 0 {
		document["configuration"] = json.RawMessage(fmt.Sprintf(`{"provider":%q,"access_key_id":"id","access_key_secret":"hidden-%d","endpoint":%q,
			"domain":"Example.com.","txt_record_name":%q,"txt_endpoints":%s,"sync_mode":%q,"retry_interval":%s,"max_retries":%s,"enabled":%s}`,
			pick("builtin", "webhook", "nobody's"), random.IntN(100), pick("", "https://dns.example"), pick("@", "_txt"), endpoints(), pick("", "manual", "odd"),
			pick("null", "-1", "9223372036854775807"), pick("null", "0"), pick("true", "false")))
	}
	var services, usages []json.RawMessage
	for i := range random.IntN(5) {
		services = append(services, json.RawMessage(fmt.Sprintf(`{"id":"s-%d","name":%s,"config":{"domain":"s%d.example","txt_endpoints":%s%s}}`, i, pick(`"x"`, `"办公室"`), i, endpoints(),
			pick("", `,"big":18446744073709551617,"rate":1.50,"list":[1,{"a_token":"hidden"}]`, `,"provider":"webhook","access_key_id":"k","access_key_secret":"hidden <&>"`))))
		for j := range random.IntN(6) {
			u := fmt.Sprintf(`{"service_id":"s-%d","prefix_mode":"custom","custom_prefix":"Prefix_%d","network_id":%d,"txt_endpoints":%s,"description":%s}`,
				i, j, random.Uint64()>>random.IntN(64), endpoints(), text())
			if random.IntN(2) == 0 {
				u = fmt.Sprintf(`{"service_id":"s-%d","prefix_mode":"auto","network_id":%s,"network_name":%s}`, i, pick("0", "42", "18446744073709551615"), text())
			}
			usages = append(usages, json.RawMessage(u))
		}
	}
	for name, list := range map[string][]json.RawMessage{"services": services, "usages": usages} {
		document[name], _ = json.Marshal(append([]json.RawMessage{}, list...))
	}
	whole, _ := json.Marshal(document)
	return string(whole)
}

// state gives the document that GET state answers with, checked as JSON and in its order.
func (a *appliance) stateDocument(t testing.TB) string {
	t.Helper()
	var answer struct{ Data json.RawMessage }
	if err := json.Unmarshal([]byte(a.Must(t, "GET", "/api/v1/ddns/state", "")), &answer); err != nil {
		t.Fatal(err)
	}
	return string(answer.Data)
}

// What GET state gives, applied where it comes from, changes nothing; on a new appliance,
// with the secrets in place, it gives the same state, the owner included.
func TestStateIsADocument(t *testing.T) {
	for seed := range uint64(25) {
		random := rand.New(rand.NewPCG(9, seed))
		document := randomDocument(random)
		fresh := func() *appliance {
			a := newAppliance(t, stopClock)
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "whole.json"), document)
			if err := a.provision(t.Context(), dir, provision.CredentialFolder{}, true); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, document)
			}
			return a
		}
		a := fresh()
		state := a.stateDocument(t)
		if strings.Contains(state, "hidden") {
			t.Errorf("seed %d: a secret is in %s", seed, state)
		}
		before, from := a.Files(t), len(a.Logs.String())
		if got := a.applied(t, state); got != "" || !bytes.Equal(before, a.Files(t)) || !strings.Contains(a.Logs.String()[from:], "changes=0") {
			t.Errorf("seed %d: the own state changes %s\n%s", seed, got, state)
		}
		pruned := strings.Replace(state, `{"owner"`, `{"prune":true,"owner"`, 1)
		if got := a.applied(t, pruned); got != "" || !bytes.Equal(before, a.Files(t)) {
			t.Errorf("seed %d: the own state prunes %s\n%s", seed, got, state)
		}
		if again := fresh().stateDocument(t); again != state {
			t.Errorf("seed %d: a new appliance has\n%s\nwant\n%s", seed, again, state)
		}
	}
}

// -check tells every mistake of flags and files, a line each, and neither opens nor binds
// anything.
func TestCheckFlag(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	db, good, bad := filepath.Join(dir, "x.db"), filepath.Join(dir, "good.json"), filepath.Join(dir, "bad.json")
	writeFile(t, good, `{"services": [{"id": "a", "name": "A", "config": {"access_key_secret": {"credential": "key"}}}]}`)
	writeFile(t, bad, "{\"owner\":\n 5, \"prune\": 1}")
	for _, test := range []struct {
		args    string
		environ []string
		out     string
		failed  bool
	}{
		{"-provision " + good, nil, "ok, but for 1 credentials, which are not looked at: $CREDENTIALS_DIRECTORY is not set\n", false},
		{"", nil, "ok\n", false},
		{"-provision " + good, []string{"CREDENTIALS_DIRECTORY=" + dir},
			good + ":1: services[0].config.access_key_secret.credential: the credential \"key\": no such file or directory\n", true},
		{"-provision " + bad + " -log-format x -dns-host 192.0.2.1", nil, "-dns-host: \"192.0.2.1\" is an address: want a name, such as ns1.example.com\n" +
			"-log-format: \"x\" is no format of a log: want text or json\n" +
			bad + ":2: owner: is 5, want a string\n" + bad + ":2: prune: want true, false or \"all\"\n", true},
		{"-provision " + filepath.Join(dir, "none"), nil, filepath.Join(dir, "none") + ": no such file or directory\n", true},
	} {
		var out, log bytes.Buffer
		args := append([]string{"-check", "-db", db, "-listen", taken.Addr().String()}, strings.Fields(test.args)...)
		err := run(t.Context(), process{args: args, environ: test.environ, stdout: &out, stderr: &log})
		if out.String() != test.out || (err != nil) != test.failed || log.Len() > 0 {
			t.Errorf("%s: %v, log %q\n%s\nwant\n%s", test.args, err, log.String(), out.String(), test.out)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// At a start a new database takes the owner of the file, and a database that has marked
// something adopts it; at SIGHUP, while values are being marked, it is adopted.
func TestProvisionOwner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	owned := func(owner string) string {
		writeFile(t, file, `{"owner": "`+owner+`", "services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}]}`)
		return file
	}
	for _, test := range []struct {
		name   string
		start  bool
		before string // a request
		want   string
	}{
		{"new", true, "", "0123456789ab []"},
		{"at SIGHUP", false, "", "own [0123456789ab]"},
		{"with a service", true, `{"name":"x","config":{}}`, "own [0123456789ab]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "meshddns.db")
			a := newApplianceOn(t, path, stopClock)
			own := a.store.owner
			if test.before != "" {
				a.Must(t, "PUT", "/api/v1/ddns/services/b", test.before)
			}
			for range 2 {
				if err := a.provision(t.Context(), owned("0123456789ab"), provision.CredentialFolder{}, test.start); err != nil {
					t.Fatal(err)
				}
				state, err := a.store.ledger.State(t.Context(), nil)
				if got := strings.Replace(fmt.Sprint(a.store.owner, " ", state.Adopted), own, "own", 1); got != test.want || err != nil || state.Owner != a.store.owner {
					t.Errorf("%s, want %s; %v, %s", got, test.want, err, state.Owner)
				}
			}
			if stored := support.Rows(t, a.Open(t), `SELECT owner FROM appliance`); stored[0] != a.store.owner {
				t.Errorf("%q is stored", stored)
			}
		})
	}
}

// A usage whose release is under way is kept when a document has it again.
func TestProvisionKeepsWhatIsReleased(t *testing.T) {
	a := newAppliance(t)
	const with = `{"configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": "-", "domain": "example.com", "txt_record_name": "@",
		"enabled": true, "sync_mode": "auto"}, "services": [{"id": "b", "name": "B", "config": {"domain": "b.example.com"}}],
		"usages": [{"service_id": "b", "prefix_mode": "custom", "custom_prefix": "Office", "network_id": 1}]}`
	a.applied(t, with)
	const name = "_mesh.office.b.example.com"
	support.Eventually(t, support.Limit, "published", func() bool { return strings.Contains(a.Ask(t, name), "n=1 ") })
	db := a.Open(t)
	defer db.Close()
	if _, err := db.Exec(`UPDATE bindings SET status = 'releasing' WHERE network_id = 1`); err != nil {
		t.Fatal(err)
	}
	if state := a.stateDocument(t); strings.Contains(state, "Office") {
		t.Errorf("what is being released is in %s", state)
	}
	if got, want := a.applied(t, with), `provision what="POST /api/v1/ddns/usages" id=<id> status=200`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	if got := a.Ask(t, name); !strings.Contains(got, "n=1 ") {
		t.Errorf("the name has %q", got)
	}
	if rows := support.Rows(t, db, `SELECT count(*) FROM bindings WHERE status = 'active' AND network_id = 1`); rows[0] != "1" {
		t.Errorf("%q usages", rows)
	}
}

// The state is sent as it is read, page by page: a state that breaks off does not look
// whole, and one that cannot be read is refused.
func TestStateIsStreamed(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.AddUsages(t, 60*usagePage, 4000) // more than sockets hold
	whole := a.stateDocument(t)
	if got := strings.Count(whole, `"service_id":"svc"`); got != 40*usagePage {
		t.Errorf("%d usages, want those with a network: %d", got, 40*usagePage)
	}
	var largest, before, sum int
	for piece, err := range a.state(httptest.NewRequest("GET", "/", nil)) {
		if err != nil {
			t.Fatal(err)
		}
		before, sum, largest = sum, sum+len(piece), max(largest, len(piece))
	}
	if largest > 64<<10 || before < 10*largest {
		t.Errorf("a piece has %d of %d octets", largest, sum)
	}
	response, err := a.HTTP.Get(a.URL + "/api/v1/ddns/state")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	db := a.Open(t)
	defer db.Close()
	if _, err := db.Exec(`ALTER TABLE usages RENAME TO away`); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(a.Logs.String(), "answer broken off") {
		t.Errorf("the answer ends with %v", err)
	}
	if response, body := a.Do(t, "GET", "/api/v1/ddns/state", nil, ""); response.StatusCode != 500 {
		t.Error(response.Status, body)
	}
}

// The service manager is told when the program serves, reads its files again and stops, and the
// watchdog for as long as the database answers.
func TestServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Close() })
	manager.SetReadDeadline(time.Now().Add(support.Patience))
	told := func(want string) {
		t.Helper()
		buffer := make([]byte, 4096)
		var all []string
		for {
			n, err := manager.Read(buffer)
			if err != nil {
				t.Fatalf("%q is not told, but %q: %v", want, all, err)
			}
			if all = append(all, string(buffer[:n])); strings.HasPrefix(all[len(all)-1], want) {
				return
			}
		}
	}
	t.Cleanup(func() { told("STOPPING=1\n") }) // before the socket is closed, after the program
	p := runProgram(t, []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=1000000"})
	told("READY=1\nSTATUS=HTTP on " + strings.TrimPrefix(p.url, "http://") + "; services 0, prefixes 0, names published 0")
	told("STATUS=HTTP on ")
	told("WATCHDOG=1")
	p.hangUps <- syscall.SIGHUP
	told("RELOADING=1\n")
	told("READY=1\n")
}

// A variable of another form is an error of start-up: systemd would wait for ever.
func TestServiceManagerThatCannotBeTold(t *testing.T) {
	db := filepath.Join(t.TempDir(), "meshddns.db")
	for variable, want := range map[string]string{
		"NOTIFY_SOCKET=notify": `NOTIFY_SOCKET: "notify": want a path or @name`,
		"WATCHDOG_USEC=30s":    `WATCHDOG_USEC: "30s": want microseconds`,
	} {
		err := run(t.Context(), process{args: []string{"-db", db}, environ: []string{variable}, stdout: io.Discard, stderr: io.Discard})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", variable, err)
		}
	}
}

// movedPrefix gives a document whose prefix office is network's.
func movedPrefix(network string) string {
	return `{"configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": "-", "domain": "example.com", "txt_record_name": "@",
		"enabled": true, "sync_mode": "auto"}, "services": [{"id": "b", "name": "B", "config": {"domain": "b.example.com"}}], "prune": true,
		"usages": [{"service_id": "b", "prefix_mode": "custom", "custom_prefix": "office", "network_id": ` + network + `},
			{"service_id": "b", "prefix_mode": "auto", "network_id": ` + network + `}]}`
}

// A prefix that is published for one network moves to another: its value is withdrawn, what
// else the file has is applied at once, and the prefix is reserved when it is free.
func TestProvisionMovesAPrefix(t *testing.T) {
	a := newAppliance(t)
	a.applied(t, movedPrefix("1"))
	const name = "_mesh.office.b.example.com"
	support.Eventually(t, support.Limit, "published", func() bool {
		published, _ := a.Page(t, "state=published")
		return len(published) == 2
	})
	const want = `provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=202
provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=202
provision what="POST /api/v1/ddns/usages" id=<id> status=200
0.json:3: usages[0].custom_prefix: the prefix is taken by network 1`
	if got := a.applied(t, movedPrefix("7")); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	if a.provisionPause() != provisionPause {
		t.Errorf("it is tried again after %v", a.provisionPause())
	}
	support.Eventually(t, support.Limit, "withdrawn", func() bool { return !strings.Contains(a.Ask(t, name), "n=1 ") })
	before := len(a.Logs.String())
	support.Eventually(t, support.Limit, "reserved", func() bool { a.provisionAgain(t.Context(), "x"); return a.provisionPause() == 0 })
	if got := strings.Join(a.audited(before), "\n"); got != `provision what="POST /api/v1/ddns/usages" id=<id> status=200` {
		t.Errorf("what waited has made\n%s", got)
	}
	support.Eventually(t, support.Limit, "published", func() bool { return strings.Contains(a.Ask(t, name), "n=7 ") })
	if n := a.provisioned.count.Load(); n != 0 {
		t.Errorf("%d faults are left", n)
	}
}

// What the stored state does not allow waits, and the rest is applied. It is logged once, is in
// the metrics and the health, and is applied when the state allows it.
func TestProvisionWaits(t *testing.T) {
	a := newAppliance(t, stopClock)
	a.Must(t, "PUT", "/api/v1/ddns/services/b", `{"name":"B","config":{"domain":"b.example"}}`)
	id := a.Reserve(t, "b", "office", 1)
	const document = `{"configuration": {"provider": "x", "access_key_id": "-", "access_key_secret": "********", "domain": "example.com", "txt_record_name": "@"},
"services": [{"id": "b", "name": "Moved", "config": {"domain": "moved.example"}}, {"id": "c", "name": "C", "config": {"domain": "c.example"}}],
"usages": [{"service_id": "b", "prefix_mode": "auto", "network_id": 2},
  {"service_id": "c", "prefix_mode": "auto", "network_id": 3},
  {"service_id": "none", "prefix_mode": "auto", "network_id": 4}]}`
	const want = `provision what="PUT /api/v1/ddns/services/{id}" id=c status=200
provision what="POST /api/v1/ddns/usages" id=<id> status=200
0.json:1: configuration.access_key_secret: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here
0.json:2: services[0].config.domain: the service has usages, its domain cannot change
0.json:5: usages[2].service_id: no such service`
	if got := a.applied(t, document); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	tells := func(faults, health string) {
		t.Helper()
		if page := a.Must(t, "GET", "/metrics", ""); !strings.Contains(page, "\nmeshddns_provision_faults "+faults+"\n") {
			t.Errorf("the metrics have no %s faults:\n%s", faults, page)
		}
		if got := a.Must(t, "GET", "/healthz", ""); !strings.Contains(got, health) {
			t.Errorf("healthz: %s, want %s", got, health)
		}
	}
	tells("3", "预置文件未完全应用")
	again := func(waits int, want ...string) {
		t.Helper()
		before := len(a.Logs.String())
		a.provisionAgain(t.Context(), "x")
		if got := a.audited(before); !slices.Equal(got, want) || len(a.provisioned.faults) != waits {
			t.Errorf("%q, %d faults, want %q, %d", got, len(a.provisioned.faults), want, waits)
		}
		if log := a.Logs.String()[before:]; strings.Contains(log, "not applied") {
			t.Errorf("what was told is told once more: %s", log)
		}
	}
	again(3)
	a.Must(t, "DELETE", "/api/v1/ddns/usages/"+id+"?force=1", "")
	again(2, `provision what="PUT /api/v1/ddns/services/{id}" id=b status=200`, `provision what="POST /api/v1/ddns/usages" id=<id> status=200`)
	a.Must(t, "PUT", "/api/v1/ddns/services/none", `{"name":"N","config":{"domain":"none.example"}}`)
	a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"x","access_key_id":"-","access_key_secret":"sesame","domain":"other.example","txt_record_name":"@"}`)
	again(0, `provision what="PUT /api/v1/ddns/config" id="" status=200`, `provision what="POST /api/v1/ddns/usages" id=<id> status=200`)
	tells("0", `"正常"`)
}

// A form that is wrong changes nothing, not even what is right beside it; what waited of the file
// before waits on.
func TestProvisionForm(t *testing.T) {
	a := newAppliance(t, stopClock)
	const waiting = `0.json:1: usages[0].service_id: no such service`
	if got := a.applied(t, `{"usages": [{"service_id": "none", "prefix_mode": "auto", "network_id": 4}]}`); got != waiting {
		t.Fatal(got)
	}
	before := a.AllRows(t)
	const want = `0.json:1: services[1].name: name must not be empty`
	got := a.applied(t, `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}, {"id": "x", "name": "", "config": {}}]}`)
	if got != want || !slices.Equal(before, a.AllRows(t)) {
		t.Errorf("%s, and the database is another one: %v", got, !slices.Equal(before, a.AllRows(t)))
	}
	if n := a.provisioned.count.Load(); n != 2 || a.provisionPause() == 0 {
		t.Errorf("%d faults, again after %v", n, a.provisionPause())
	}
	if got := a.applied(t, `{"services": []}`); got != "" || a.provisioned.count.Load() != 0 {
		t.Errorf("a file without mistakes: %s, %d faults", got, a.provisioned.count.Load())
	}
}

// While the database fails, all of the file waits.
func TestProvisionWaitsForTheDatabase(t *testing.T) {
	a := newAppliance(t, stopClock)
	db := a.Open(t)
	if _, err := db.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON services BEGIN SELECT RAISE(ABORT, 'no'); END`); err != nil {
		t.Fatal(err)
	}
	if got := a.applied(t, `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}]}`); !strings.Contains(got, "no") {
		t.Errorf("the fault is %q", got)
	}
	before := len(a.Logs.String())
	a.provisionAgain(t.Context(), "x")
	if log := a.Logs.String()[before:]; log != "" || a.provisioned.count.Load() != 1 {
		t.Errorf("the same fault again: %s, %d faults", log, a.provisioned.count.Load())
	}
	if _, err := db.Exec(`DROP TRIGGER refuse`); err != nil {
		t.Fatal(err)
	}
	a.provisionAgain(t.Context(), "x")
	if log := a.Logs.String()[before:]; !strings.Contains(log, "msg=provisioned") || a.provisioned.count.Load() != 0 || a.provisionPause() != 0 {
		t.Errorf("the database works: %s, %d faults", log, a.provisioned.count.Load())
	}
}

// No fault of the file keeps the program from starting: it serves what is stored, and takes the
// file at the next hang-up. Each mistake is a line of the log.
func TestProvisionFaultsAtTheStart(t *testing.T) {
	dir := t.TempDir()
	file, db := filepath.Join(dir, "x.json"), filepath.Join(dir, "x.db")
	for _, test := range []struct {
		name, document string
		log            []string
	}{
		{"no JSON", `{`, []string{`level=ERROR msg="the provision file is not applied: what was stays" error=` + file + `:1: not JSON`}},
		{"two mistakes", `{"owner": 1, "more": 2}`, []string{file + `:1: owner: is 1, want a string`, file + `:1: more: no such member`}},
		{"no credential", `{"services": [{"id": "a", "name": "A", "config": {"access_key_secret": {"credential": "key"}}}]}`, []string{`$CREDENTIALS_DIRECTORY is not set`}},
		{"no such service", `{"usages": [{"service_id": "none", "prefix_mode": "auto", "network_id": 1}]}`,
			[]string{`level=WARN msg="a part of the provision file is not applied" error="` + file + `:1: usages[0].service_id: no such service"`}},
		{"no file", "", []string{`no such file or directory`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			os.Remove(file)
			if test.document != "" {
				writeFile(t, file, test.document)
			}
			p := runProgram(t, nil, "-db", db, "-provision", file)
			for _, want := range test.log {
				if log := strings.ReplaceAll(p.log.String(), `error="`+file, `error=`+file); !strings.Contains(log, strings.ReplaceAll(want, `error="`+file, `error=`+file)) {
					t.Errorf("the log has no %s\n%s", want, log)
				}
			}
			if got := p.health(); !strings.Contains(got, "not fully applied") {
				t.Errorf("healthz says %s", got)
			}
			writeFile(t, file, `{}`)
			p.hangUps <- syscall.SIGHUP
			support.Eventually(t, support.Limit, "healthy", func() bool { return p.health() == "ok" })
		})
	}
}

// health is what healthz says.
func (p *appProcess) health() string {
	p.t.Helper()
	request, err := http.NewRequest("GET", p.url+"/healthz", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Accept-Language", "en")
	response, err := (&http.Client{Timeout: support.Patience}).Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	var body struct{ Message string }
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil || response.StatusCode != 200 {
		p.t.Fatalf("healthz: %d %s, %v", response.StatusCode, text, err)
	}
	return body.Message
}

// What waits is tried again after its pause, beside hang-ups, and never when nothing waits.
func TestRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		pauses := []time.Duration{time.Second, time.Minute, 0}
		begin, done := time.Now(), []time.Duration(nil)
		again := repeated{
			after: func() time.Duration { return pauses[0] },
			do:    func(context.Context) { done, pauses = append(done, time.Since(begin)), pauses[1:] },
		}
		ended := make(chan error)
		go func() { ended <- onHangUp(ctx, nil, nil, again) }()
		time.Sleep(time.Hour) // of a clock that does not wait
		cancel()
		if err := <-ended; err != nil || !slices.Equal(done, []time.Duration{time.Second, 61 * time.Second}) {
			t.Errorf("done at %v, %v", done, err)
		}
	})
}

// An error of many lines is as many lines of the log, up to a bound.
func TestLogLines(t *testing.T) {
	a := newAppliance(t, stopClock)
	var all provision.Mistakes
	for range 2 * maxFaultLines {
		all = append(all, provision.Mistake{File: "f", Line: 1, Reason: "bad"})
	}
	before := len(a.Logs.String())
	logLines(a.log, 0, "m", all)
	if log := a.Logs.String()[before:]; strings.Count(log, `error="f:1: bad"`) != maxFaultLines || !strings.Contains(log, "more=100") {
		t.Error(log)
	}
}

// The journal has the time of each line already, so a line of text has none there. JSON keeps its
// time, and so does text that goes elsewhere.
func TestLogTime(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	info, err := write.Stat()
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	journal := []string{fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino)}
	lines := bufio.NewReader(read)
	for _, test := range []struct {
		environ      []string
		format, want string
	}{
		{journal, "text", "<4>level=WARN msg=m g.time=1\n"},
		{journal, "", "<4>level=WARN msg=m g.time=1\n"},
		{journal, "json", `<4>{"time":"`},
		{nil, "text", "time="},
		{nil, "json", `{"time":"`},
	} {
		process{environ: test.environ, stderr: write}.newLog(test.format).Warn("m", slog.Group("g", "time", 1))
		if got, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(got, test.want) {
			t.Errorf("%v, %s: %q, %v, want %q", test.environ, test.format, got, err, test.want)
		}
	}
}
