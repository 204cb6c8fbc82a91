package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"meshddns/internal/answers"
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
		ended <- support.Unlocked(func() error {
			return run(ctx, process{args: args, environ: environ, hangUps: p.hangUps, stdout: io.Discard, stderr: p.log})
		})
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
	t.Parallel()
	socket, file := filepath.Join(t.TempDir(), "api"), filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("a-token-0123456789\n"), 0o600); err != nil {
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

// The status page takes a token as the password, and the program samples for its chart.
func TestStatusPage(t *testing.T) {
	t.Parallel()
	tokens, file := filepath.Join(t.TempDir(), "tokens"), filepath.Join(t.TempDir(), "page.db")
	if err := os.WriteFile(tokens, []byte("a-token-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := runProgram(t, nil, "-token-file", tokens, "-language", "en", "-db", file)
	for _, test := range []struct {
		method, password, accept string
		status                   int
		want                     string
	}{
		{"GET", "a-token-0123456789", "text/html", 200, ""},
		{"HEAD", "a-token-0123456789", "text/html", 200, ""},
		{"GET", "b-token-0123456789", "text/html", 401, `Basic realm="meshddns"`},
		{"GET", "b-token-0123456789", "*/*", 401, `Basic realm="meshddns"`},
		{"GET", "a-token-0123456789", "*/*", 404, ""},
		{"POST", "a-token-0123456789", "*/*", 401, "Bearer"},
	} {
		request, err := http.NewRequest(test.method, p.url+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", test.accept)
		request.SetBasicAuth("anybody", test.password)
		response, err := (&http.Client{Timeout: support.Patience}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != test.status || response.Header.Get("WWW-Authenticate") != test.want {
			t.Errorf("%+v: %s, %v, %v", test, response.Status, response.Header, err)
		}
		if test.status == 200 && test.method == "GET" && !strings.Contains(string(text), `<html lang="en">`) {
			t.Errorf("not in the language of -language: %s", text)
		}
	}
	db := support.OpenSQLite(t, file, "mode=ro&_busy_timeout=5000")
	support.Eventually(t, support.Limit, "a sample", func() bool {
		var count int
		return db.QueryRow(`SELECT count(*) FROM samples`).Scan(&count) == nil && count == 1
	})
}

// A hang-up ends nothing: the token file is read again, and when it is broken
// the old tokens stay.
func TestHangUp(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const old, new = "old-token-0123456789", "new-token-0123456789"
	write(old + "\n")
	p := runProgram(t, nil, "-token-file", file)
	for _, step := range []struct {
		content, log string
		old, new     int
	}{
		{new + "\n" + old, `level=ERROR msg="reload: what was stays" step="read the token file again"`, 200, 401},
		{"too-short\n", `level=ERROR msg="reload: what was stays" step="read the token file again"`, 200, 401},
		{old + "\n" + new + "\n", `level=INFO msg=reload step="read the token file again"`, 200, 200},
		{new + "\n", `level=INFO msg=reload step="read the token file again"`, 401, 200},
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

// A hang-up applies the provisioning file again: what differs is changed, and with a fault in
// the form of the file all stays as it is.
func TestHangUpProvisions(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.json")
	write := func(name, more string) {
		support.WriteFile(t, file, `{"services": [{"id": "a", "name": "`+name+`", "config": {"domain": "a.example"}}]`+more+`}`)
	}
	write("one", "")
	p := runProgram(t, nil, "-provision", file)
	if log := p.log.String(); strings.Index(log, "msg=provisioned") > strings.Index(log, "msg=started") {
		t.Errorf("started before it was provisioned:\n%s", log)
	}
	for _, step := range []struct{ name, more, log, want string }{
		{"two", "", `msg=reload step="apply the provisioning file again"`, "two"},
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
		var body struct{ Data answers.Service }
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil || body.Data.Name != step.want {
			t.Errorf("%s: the service's name is %q, %v, want %q", step.name, body.Data.Name, err, step.want)
		}
		response.Body.Close()
	}
}

// A program without anything to read again lives on.
func TestHangUpForNothing(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	const golden = "testdata/provision/mistakes.txt"
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	credentials := t.TempDir()
	for name, value := range map[string]string{
		"key": "sesame-sesame\n", "empty": "\n", "latin1": "caf\xe9", "large": strings.Repeat("x", 64<<10+1), "folder/x": "",
	} {
		support.WriteFile(t, filepath.Join(credentials, name), value)
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
			support.WriteFile(t, filepath.Join(dir, name), body)
		}
		from := provision.CredentialFolder{Folder: credentials}
		if strings.Contains(parts[0], "\nno credentials") {
			from.Folder = ""
		}
		got := "ok"
		if err := provision.Read(dir, from).Check(entryForms); err != nil {
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
		support.WriteFile(t, golden, strings.Join(blocks, "\n\n# ")+"\n")
	}
}

// -check tells every mistake of flags and files, a line each, and neither opens nor binds
// anything.
func TestCheckFlag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	db, good, bad := filepath.Join(dir, "x.db"), filepath.Join(dir, "good.json"), filepath.Join(dir, "bad.json")
	support.WriteFile(t, good, `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example", "access_key_secret": {"credential": "key"}}}]}`)
	support.WriteFile(t, bad, "{\"owner\":\n 5, \"prune\": 1}")
	folder, nested := t.TempDir(), filepath.Join(t.TempDir(), "nested.json")
	support.WriteFile(t, filepath.Join(folder, "._a.json"), "\x00\x05\x16\x07")
	support.WriteFile(t, nested, `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}, {"id": "b", "name": "B", "config": {"domain": "y.X.a.example"}}],
		"usages": [{"service_id": "a", "prefix_mode": "custom", "custom_prefix": "x", "network_id": 1}, {"service_id": "b", "prefix_mode": "custom", "custom_prefix": "x", "network_id": 1}]}`)
	roles := filepath.Join(t.TempDir(), "roles")
	if err := os.WriteFile(roles, []byte("# ours\nread wall 0123456789abcdef\nservice:none wall 0123456789abcdeF\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args    string
		environ []string
		out     string
		failed  bool
	}{
		{"-provision " + good, nil, "ok, but for 1 credentials, which are not looked at: $CREDENTIALS_DIRECTORY is not set\n", false},
		{"", nil, "ok\n", false},
		{"-provision " + folder, []string{"MESHDDNS_PORT=tcp://10.96.0.7:8053"}, "warning: MESHDDNS_PORT: unknown setting, which has no effect\nwarning: " +
			filepath.Join(folder, "._a.json") + ": is passed over, because its name begins with a dot\nok\n", false},
		{"-provision " + bad, []string{"MESHDDNS_PORT=tcp://10.96.0.7:8053"}, "warning: MESHDDNS_PORT: unknown setting, which has no effect\n" +
			bad + ":2: owner: is 5, want a string\n" + bad + ":2: prune: want true, false or \"all\"\n", true},
		{"-provision " + good, []string{"CREDENTIALS_DIRECTORY=" + dir},
			good + ":1: services[0].config.access_key_secret.credential: the credential \"key\": no such file or directory\n", true},
		{"-provision " + bad + " -log-format x -dns-listen 127.0.0.1:0 -dns-host 192.0.2.1", nil, "-dns-host: \"192.0.2.1\" is an address: want a name, such as ns1.example.com\n" +
			"-log-format: \"x\" is not a log format: want text or json\n" +
			bad + ":2: owner: is 5, want a string\n" + bad + ":2: prune: want true, false or \"all\"\n", true},
		{"-token-file " + roles, nil, "-token-file: token file " + roles + ": line 3: the same name with another role\n", true},
		{"-provision " + nested, nil, "warning: " + nested + ":2: usages[0]: the other formats and the certificates of _mesh.x.a.example are for names at or above the domain " +
			"y.x.a.example of another service or of the configuration\nok\n", false},
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

// A database that has published nothing takes the owner of the file, also when the first file had a fault; one that may have
// published a value adopts it.
func TestProvisionOwner(t *testing.T) {
	t.Parallel()
	const taken, adopted = "0123456789ab []", "own [0123456789ab]"
	file, faulty := filepath.Join(t.TempDir(), "x.json"), filepath.Join(t.TempDir(), "y.json")
	const document = `{"owner": "0123456789ab", "services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}]}`
	support.WriteFile(t, file, document)
	support.WriteFile(t, faulty, strings.Replace(document, `"name"`, `"nmae"`, 1))
	for name, test := range map[string]struct {
		before func(*appliance)
		want   string
	}{
		"new": {func(*appliance) {}, taken},
		"with a faulty file before": {func(a *appliance) {
			if err := a.apply(t.Context(), faulty, provision.CredentialFolder{}); err == nil {
				t.Error("the faulty file is applied")
			}
		}, taken},
		"with a service": {func(a *appliance) { a.Must(t, "PUT", "/api/v1/ddns/services/b", `{"name":"x","config":{}}`) }, taken},
		"with a paused account": {func(a *appliance) {
			a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"example.com","txt_record_name":"@"}`)
		}, taken},
		"with a published value": {func(a *appliance) {
			a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"example.com","txt_record_name":"@","enabled":true,"sync_mode":"auto"}`)
			a.Must(t, "POST", "/api/v1/ddns/sync", "")
		}, adopted},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "meshddns.db")
			a := newApplianceOn(t, path)
			own := a.ops.store.ledger.Owner()
			test.before(a)
			for range 2 {
				if err := a.apply(t.Context(), file, provision.CredentialFolder{}); err != nil {
					t.Fatal(err)
				}
				state, err := a.ops.store.ledger.State(t.Context(), nil)
				if got := strings.Replace(fmt.Sprint(a.ops.store.ledger.Owner(), " ", state.Adopted), own, "own", 1); got != test.want || err != nil || state.Owner != a.ops.store.ledger.Owner() {
					t.Errorf("%s, want %s; %v, %s", got, test.want, err, state.Owner)
				}
			}
			if stored := support.Rows(t, a.Open(t), `SELECT owner FROM appliance`); stored[0] != a.ops.store.ledger.Owner() {
				t.Errorf("%q is stored", stored)
			}
		})
	}
}

// The state is sent as it is read, page by page: a state that breaks off does not look
// whole, and one that cannot be read is refused.
func TestStateIsStreamed(t *testing.T) {
	t.Parallel()
	a := newAppliance(t, stopClock)
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.AddUsages(t, 60*usagePage, 4000) // more than sockets hold
	whole := a.StateDocument(t)
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
	t.Parallel()
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
	t.Parallel()
	a := newAppliance(t)
	a.Applied(t, movedPrefix("1"))
	const name = "_mesh.office.b.example.com"
	support.Eventually(t, support.Limit, "published", func() bool {
		published, _ := a.Page(t, "state=published")
		return len(published) == 2
	})
	const want = `provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=202
provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=202
provision what="POST /api/v1/ddns/usages" id=<id> status=200
0.json:3: usages[0].custom_prefix: the prefix is taken by network 1`
	if got := a.Applied(t, movedPrefix("7")); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	if a.files.Tries() != 1 {
		t.Errorf("%d tries", a.files.Tries())
	}
	support.Eventually(t, support.Limit, "withdrawn", func() bool { return !strings.Contains(a.Ask(t, name), "n=1 ") })
	before := len(a.Logs.String())
	support.Eventually(t, support.Limit, "reserved", func() bool { a.files.Again(t.Context()); return a.files.Tries() == 0 })
	if got := strings.Join(a.Audited(before), "\n"); got != `provision what="POST /api/v1/ddns/usages" id=<id> status=200` {
		t.Errorf("what waited has made\n%s", got)
	}
	support.Eventually(t, support.Limit, "published", func() bool { return strings.Contains(a.Ask(t, name), "n=7 ") })
	if n := a.provisionFaults.Load(); n != 0 {
		t.Errorf("%d faults are left", n)
	}
}

// What the stored state does not allow waits, and the rest is applied. It is logged once, is in
// the metrics and the health, and is applied when the state allows it.
func TestProvisionWaits(t *testing.T) {
	t.Parallel()
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
	if got := a.Applied(t, document); got != want {
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
	again := func(waits int64, want ...string) {
		t.Helper()
		before := len(a.Logs.String())
		a.files.Again(t.Context())
		if got := a.Audited(before); !slices.Equal(got, want) || a.provisionFaults.Load() != waits {
			t.Errorf("%q, %d faults, want %q, %d", got, a.provisionFaults.Load(), want, waits)
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
	t.Parallel()
	a := newAppliance(t, stopClock)
	const waiting = `0.json:1: usages[0].service_id: no such service`
	if got := a.Applied(t, `{"usages": [{"service_id": "none", "prefix_mode": "auto", "network_id": 4}]}`); got != waiting {
		t.Fatal(got)
	}
	a.ForgetRefusals(t)
	before := a.AllRows(t)
	const want = `0.json:1: services[1].name: name must not be empty`
	got := a.Applied(t, `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}, {"id": "x", "name": "", "config": {}}]}`)
	a.ForgetRefusals(t)
	if got != want || !slices.Equal(before, a.AllRows(t)) {
		t.Errorf("%s, and the database is another one: %v", got, !slices.Equal(before, a.AllRows(t)))
	}
	if n := a.provisionFaults.Load(); n != 2 || a.files.Tries() == 0 {
		t.Errorf("%d faults, %d tries", n, a.files.Tries())
	}
	if got := a.Applied(t, `{"services": []}`); got != "" || a.provisionFaults.Load() != 0 {
		t.Errorf("a file without mistakes: %s, %d faults", got, a.provisionFaults.Load())
	}
}

// While the database fails, all of the file waits.
func TestProvisionWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	a := newAppliance(t, stopClock)
	db := a.Open(t)
	if _, err := db.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON services BEGIN SELECT RAISE(ABORT, 'no'); END`); err != nil {
		t.Fatal(err)
	}
	if got := a.Applied(t, `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example"}}]}`); !strings.Contains(got, "no") {
		t.Errorf("the fault is %q", got)
	}
	before := len(a.Logs.String())
	a.files.Again(t.Context())
	if log := a.Logs.String()[before:]; log != "" || a.provisionFaults.Load() != 1 {
		t.Errorf("the same fault again: %s, %d faults", log, a.provisionFaults.Load())
	}
	if _, err := db.Exec(`DROP TRIGGER refuse`); err != nil {
		t.Fatal(err)
	}
	a.files.Again(t.Context())
	if log := a.Logs.String()[before:]; !strings.Contains(log, "msg=provisioned") || a.provisionFaults.Load() != 0 || a.files.Tries() != 0 {
		t.Errorf("the database works: %s, %d faults", log, a.provisionFaults.Load())
	}
}

// No fault of the file keeps the program from starting: it serves what is stored, and takes the
// file at the next hang-up. Each mistake is a line of the log.
func TestProvisionFaultsAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, db := filepath.Join(dir, "x.json"), filepath.Join(dir, "x.db")
	for _, test := range []struct {
		name, document string
		log            []string
	}{
		{"no JSON", `{`, []string{`level=ERROR msg="the provisioning file is not applied: what was stays" error=` + file + `:1: not JSON`}},
		{"two mistakes", `{"owner": 1, "more": 2}`, []string{file + `:1: owner: is 1, want a string`, file + `:1: more: no such member`}},
		{"no credential", `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example", "access_key_secret": {"credential": "key"}}}]}`, []string{`$CREDENTIALS_DIRECTORY is not set`}},
		{"no such service", `{"usages": [{"service_id": "none", "prefix_mode": "auto", "network_id": 1}]}`,
			[]string{`level=WARN msg="a part of the provisioning file is not applied" error="` + file + `:1: usages[0].service_id: no such service"`}},
		{"no file", "", []string{`no such file or directory`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			os.Remove(file)
			if test.document != "" {
				support.WriteFile(t, file, test.document)
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
			support.WriteFile(t, file, `{}`)
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
		log, queue := process{environ: test.environ, stderr: write}.newLog(test.format)
		log.Warn("m", slog.Group("g", "time", 1))
		queue.Close()
		if got, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(got, test.want) {
			t.Errorf("%v, %s: %q, %v, want %q", test.environ, test.format, got, err, test.want)
		}
	}
}

// TestLogIsPrintable: a text from outside neither ends a line nor changes how a terminal shows it.
func TestLogIsPrintable(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		log, queue := process{stderr: write}.newLog(format)
		log.Warn("m", "name", "a\u009b31m\u202e\u0085\x1b\x00\xffb", "error", errors.New("c\u009bd"), "stack", "one\ntwo")
		queue.Close()
		write.Close()
		if got, err := io.ReadAll(read); err != nil || !strings.Contains(string(got), "a?31m? ??") || !strings.Contains(string(got), "c?d") || !strings.Contains(string(got), `one\ntwo`) {
			t.Errorf("%s: %q, %v", format, got, err)
		}
	}
}

// isProgram is the variable with which the test binary is the program.
const isProgram = "TEST_IS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(isProgram) != "" {
		main()
		return
	}
	flag.Parse()
	flag.Set("test.parallel", "16") // many of these tests wait
	os.Exit(m.Run())
}

// childProgram is the program in a process of its own.
type childProgram struct {
	t   testing.TB
	cmd *exec.Cmd
	url string
}

// startProgram starts the program as a child by a command, whose last argument is the path of this test.
// Its standard error is a pipe.
func startProgram(t testing.TB, read, write *os.File, command ...string) *childProgram {
	t.Helper()
	args := append(command[1:], "-listen", "127.0.0.1:0", "-ipv4", "none", "-ipv6", "none", "-db", filepath.Join(t.TempDir(), "meshddns.db"))
	cmd := exec.Command(command[0], args...)
	cmd.Env, cmd.Stderr = append(support.Environ(), isProgram+"=1"), write
	support.Start(t, cmd)
	write.Close()
	read.SetReadDeadline(time.Now().Add(support.Patience))
	for lines := bufio.NewReader(read); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if listen, _, found := support.Listening(line); found {
			return &childProgram{t, cmd, "http://" + listen}
		}
	}
}

// ask asks the API, and gives the status, the code and the body of the answer.
func (p *childProgram) ask(method, path, body string) (status int, code, answer string) {
	p.t.Helper()
	request, err := http.NewRequest(method, p.url+"/api/v1/ddns"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := (&http.Client{Timeout: support.Patience}).Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("X-Error-Code"), string(text)
}

// With as many waiting requests as one client may have, its further ones do not wait, and all others are answered.
func TestManyWait(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p := startProgram(t, read, write, "sh", "-c", `ulimit -n 64 && exec "$0" "$@"`, os.Args[0]) // 24 connections, 6 that wait, 4 of one client
	go io.Copy(io.Discard, read)
	must := func(method, path, body string) string {
		t.Helper()
		status, _, answer := p.ask(method, path, body)
		if status != 200 {
			t.Fatalf("%s %s: %d %s", method, path, status, answer)
		}
		return answer
	}
	must("PUT", "/config", `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"mesh.example.com","txt_record_name":"@","enabled":true,"sync_mode":"auto","txt_endpoints":["tcp://203.0.113.7:11010"]}`)
	must("PUT", "/services/s", `{"name": "S", "config": {"domain": "mesh.example.com"}}`)
	must("PUT", "/notifications/n", `{"kind": "generic", "url": "http://127.0.0.1:1/"}`)
	for range 4 {
		request, err := http.NewRequestWithContext(t.Context(), "GET", p.url+"/api/v1/ddns/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", "text/event-stream")
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("%+v, %v", response, err)
		}
		defer response.Body.Close()
	}
	for _, call := range [][2]string{{"/sync", ""}, {"/sync?dry_run=1", ""}, {"/test", "{}"}, {"/notifications/n/test", ""}} {
		if status, code, body := p.ask("POST", call[0], call[1]); status != 503 || code != "too_many_waiting" {
			t.Errorf("POST %s: %d %s", call[0], status, body)
		}
	}
	var reserved struct{ Data struct{ ID string } }
	answer := must("POST", "/usages?wait=30", `{"service_id":"s","prefix_mode":"auto","network_id":1}`)
	if err := json.Unmarshal([]byte(answer), &reserved); err != nil || !strings.Contains(answer, `"publish"`) {
		t.Errorf("%s, %v", answer, err)
	}
	must("PATCH", "/usages/"+reserved.Data.ID, `{"txt_endpoints": ["tcp://203.0.113.8:1"]}`)
	if status, _, body := p.ask("DELETE", "/usages/"+reserved.Data.ID+"?wait=30", ""); status != 200 && status != 202 {
		t.Errorf("%d %s", status, body)
	}
}

// A reader of standard error that goes, or that stops reading, stops neither the answers nor the end of
// the program.
func TestStandardErrorThatFails(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"gone": true, "stuck": false} {
		t.Run(name, func(t *testing.T) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			const setPipeSize = 1031 // F_SETPIPE_SZ of fcntl(2): the smallest pipe is full soon
			syscall.Syscall(syscall.SYS_FCNTL, write.Fd(), setPipeSize, 4096)
			p := startProgram(t, read, write, os.Args[0])
			if gone {
				read.Close()
			}
			for i := range 60 { // 150 octets of log each
				if status, _, body := p.ask("PUT", fmt.Sprint("/services/s", i), `{"name": "S", "config": {"domain": "mesh.example.com"}}`); status != 200 {
					t.Errorf("change %d: %d %s", i, status, body)
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- support.Stop(p.cmd) }()
			if err := support.Receive(t, ended); err != nil {
				t.Error(err)
			}
		})
	}
}
