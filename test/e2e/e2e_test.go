package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/test/support"
)

const (
	configPath = "/api/v1/ddns/config"
	syncPath   = "/api/v1/ddns/sync"
	usagesPath = "/api/v1/ddns/usages"
)

// configure stores a configuration for the built-in server.
func (p *program) configure(mode, endpoint string) {
	p.t.Helper()
	p.call(200, "PUT", configPath, fmt.Sprintf(`{"provider":"builtin","access_key_id":"-","access_key_secret":"-",
		"domain":"mesh.example.com","txt_record_name":"@","enabled":true,"sync_mode":%q,"txt_endpoints":[%q]}`, mode, endpoint))
	p.call(200, "PUT", "/api/v1/ddns/services/svc", `{"name":"Service","config":{"domain":"mesh.example.com"}}`)
}

// A release that SIGKILL cuts short is taken up by the next start.
func TestReleaseAfterKill(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "meshddns.db")
	p := start(t, "-db", db)
	p.configure("auto", "tcp://203.0.113.7:1")
	id := p.call(200, "POST", usagesPath, `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"office","network_id":1}`).field("id")
	p.call(200, "POST", syncPath, "")
	support.Kill(p.cmd)
	// This is how a release leaves the database before it calls the provider.
	execute(t, db, `UPDATE bindings SET status = 'releasing' WHERE usage_id = ?`, id)

	p = start(t, "-db", db)
	p.eventually("the usage is gone", func() bool {
		a, err := p.try("GET", usagesPath+"/"+id, "")
		return err == nil && a.status == 404
	})
	if got := p.dig("+noall", "+comments", "_mesh.office.mesh.example.com", "TXT"); !strings.Contains(got, "NXDOMAIN") {
		t.Errorf("the released name is still there:\n%s", got)
	}
}

// execute runs a statement on a database that no program has open.
func execute(t *testing.T, path, statement string, args ...any) {
	t.Helper()
	db := openDatabase(t, path)
	defer db.Close()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatal(err)
	}
}

// An address that changes on the interface is in DNS soon after; while
// nothing changes, nothing is written.
func TestAddressChange(t *testing.T) {
	support.Need(t, "dig", "ip")
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	ip(t, "link set lo up")
	ip(t, "link add wan type veth peer name isp")
	ip(t, "link set isp up")
	ip(t, "link set wan up")
	ip(t, "address add 192.31.195.7/32 dev wan")
	ip(t, "route add default dev wan")
	db := filepath.Join(t.TempDir(), "meshddns.db")
	p := start(t, "-db", db, "-sync-interval", "1s", "-ipv6", "none")
	p.configure("auto", "tcp://{ipv4}:11010")
	published := func(address string) func() bool {
		return func() bool {
			return strings.HasSuffix(p.txt("mesh.example.com"), " tcp://"+address+":11010")
		}
	}
	p.eventually("the first address is published", published("192.31.195.7"))
	if got := p.dig("+short", "ns.mesh.example.com", "A"); got != "192.31.195.7" {
		t.Errorf("ns.mesh.example.com A = %q", got)
	}

	before, runs := quietState(t, p, db), p.runs()
	p.eventually("three more synchronisations", func() bool { return p.runs() >= runs+3 })
	if after := quietState(t, p, db); after != before {
		t.Errorf("something was written while nothing changed: %s, then %s", before, after)
	}

	ip(t, "address add 192.31.195.8/32 dev wan")
	ip(t, "address del 192.31.195.7/32 dev wan")
	ip(t, "route replace default dev wan")
	p.eventually("the new address is published", published("192.31.195.8"))
}

// quietState is the SOA, and what is stored of names and places: a pass that
// finds nothing to do writes only that there was one.
func quietState(t *testing.T, p *program, path string) string {
	t.Helper()
	db := support.OpenSQLite(t, path, "_query_only=1&_busy_timeout=5000")
	defer db.Close()
	var stored string
	err := db.QueryRow(`
		SELECT coalesce((SELECT group_concat(concat_ws(' ', name, version, due, lane)) FROM names), '') || ' ' ||
		       coalesce((SELECT group_concat(concat_ws(' ', name, state, standing, doubt, look_at, attempts, at)) FROM places), '')`).Scan(&stored)
	if err != nil {
		t.Fatal(err)
	}
	return p.dig("+short", "mesh.example.com", "SOA") + " " + stored
}

// runs counts the ended synchronisations.
func (p *program) runs() (n int) {
	found := regexp.MustCompile(`meshddns_sync_runs_total{result="ok"} (\d+)`).FindStringSubmatch(p.call(200, "GET", "/metrics", "").body)
	if found != nil {
		fmt.Sscan(found[1], &n)
	}
	return n
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket := filepath.Join(dir, "api.sock")
	p := start(t, "-listen", "unix:"+socket, "-db", filepath.Join(dir, "meshddns.db"))
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode of the socket: %v, %v", info, err)
	}
	p.configure("manual", "tcp://203.0.113.7:1")
	p.logged(fmt.Sprintf("who=\"uid %d pid %d\"", os.Getuid(), os.Getpid()))
	inUse := fmt.Sprintf("meshddns.db is in use by another meshddns, process %d\n", p.cmd.Process.Pid)
	for db, named := range map[string]bool{"second.db": false, "meshddns.db": true} {
		second, err := command(t, "-listen", "unix:"+socket, "-db", filepath.Join(dir, db)).CombinedOutput()
		if err == nil || strings.Contains(string(second), inUse) != named || !strings.Contains(string(second), "another program listens there") {
			t.Errorf("a second program with %s: %v, %s", db, err, second)
		}
	}
	p.call(200, "GET", "/healthz", "")
	support.Kill(p.cmd)
	start(t, "-listen", "unix:"+socket, "-db", filepath.Join(dir, "meshddns.db")).call(200, "GET", configPath, "")
}

func TestTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, []byte("first-token-0123456789\nsecond-token-987654321\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "-listen", "0.0.0.0:0", "-allow-host", "ddns.example.com", "-token-file", file, "-db", filepath.Join(dir, "meshddns.db"))
	p.call(200, "GET", "/healthz", "")
	refused := p.call(401, "GET", configPath, "", "Accept-Language", "en")
	if refused.body != `{"error":"the token is missing or wrong"}`+"\n" || refused.header.Get("X-Error-Code") != "unauthorized" || refused.header.Get("WWW-Authenticate") == "" {
		t.Errorf("refused with %+v", refused)
	}
	p.call(200, "GET", configPath, "", "Authorization", "Bearer first-token-0123456789")
	p.call(200, "GET", configPath, "", "Authorization", "Bearer second-token-987654321", "Host", "ddns.example.com")
	p.call(200, "GET", configPath, "", "Authorization", "Bearer second-token-987654321", "Host", "192.0.2.1:8053")
	stranger := p.call(403, "GET", configPath, "", "Authorization", "Bearer second-token-987654321", "Host", "evil.example.com", "Accept-Language", "en")
	if want := `{"error":"the Host \"evil.example.com\" is not allowed: the flag -allow-host lets it in"}`; stranger.body != want+"\n" {
		t.Errorf("refused with %s, want %s", stranger.body, want)
	}
	p.call(403, "GET", configPath, "", "Authorization", "Bearer second-token-987654321", "Sec-Fetch-Site", "cross-site")
	p.call(200, "PUT", "/api/v1/ddns/services/a", `{"name":"a","config":{}}`, "Authorization", "Bearer second-token-987654321")
	p.logged(`who="token 2" what="PUT /api/v1/ddns/services/{id}" id=a status=200`)
	for range 10 {
		p.call(401, "GET", configPath, "", "Authorization", "Bearer wrong")
	}
	p.call(429, "GET", configPath, "", "Authorization", "Bearer wrong")
	p.call(200, "GET", configPath, "", "Authorization", "Bearer first-token-0123456789")
	p.logged(`status=401 code=unauthorized host=`)
	p.logged(`msg="more: request refused" count=`)
	if err := os.WriteFile(file, []byte("third-token-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.logged("msg=reload ")
	p.call(200, "GET", configPath, "", "Authorization", "Bearer third-token-0123456789")
	p.call(429, "GET", configPath, "", "Authorization", "Bearer first-token-0123456789")
	if strings.Contains(p.log.String(), "-token-") {
		t.Error("a token is in the log")
	}
}

// What cannot work is refused at the start, in words, with exit status 1, and leaves no database.
func TestRefusedStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	open := filepath.Join(dir, "open-token")
	if err := os.WriteFile(open, []byte("a-token-that-is-long-enough\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	notes := filepath.Join(dir, "notes")
	if err := os.WriteFile(notes, []byte("these are notes, not a database\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer.db")
	execute(t, newer, `PRAGMA user_version = 99`)
	for want, args := range map[string][]string{
		"address already in use":          {"-listen", taken.Addr().String()},
		"in use: stop the other program":  {"-node-listen", taken.Addr().String()},
		"DNS on " + taken.Addr().String(): {"-dns-listen", taken.Addr().String()},
		"needs -tls-cert and -tls-key":    {"-listen", "tls:127.0.0.1:0"},
		"-token-file is required":         {"-listen", "0.0.0.0:0"},
		"has no path":                     {"-listen", "unix:"},
		"is abstract and has no file":     {"-listen", "127.0.0.1:0,unix:@meshddns"},
		"-socket-group \"no group\"":      {"-listen", "unix:" + filepath.Join(dir, "s"), "-socket-group", "no group"},
		"-token-file: ":                   {"-token-file", open},
		"schema version 99 is newer":      {"-db", newer},
		"unexpected argument \"extra\"":   {"extra"},
		"-nope: unknown flag":             {"-nope"},
		"-ipv4: ":                         {"-ipv4", "2001:db8::1"},
		"-ipv6: ":                         {"-ipv6", "url:ftp://example.com"},
		"-dns-host: ":                     {"-dns-host", "a..b"},
		"-sync-interval: \"1ms\" is too":  {"-sync-interval", "1ms"},
		"-log-format: \"xml\"":            {"-log-format", "xml"},
		"no such file or directory":       {"-db", filepath.Join(dir, "absent", "meshddns.db")},
		"has no port from 0 to 65535":     {"-dns-listen", "127.0.0.1:99999"},
		"dns: ":                           {"-dns-listen", "192.0.2.1:0"},
		"is not a database":               {"-db", notes},
		"MESHDDNS_SYNC_INTERVAL: ":        nil,
		"is not an address to listen on":  {"-listen", "127.0.0.1"},
	} {
		t.Run(want, func(t *testing.T) {
			if !slices.Contains(args, "-listen") {
				args = append(args, "-listen", "127.0.0.1:0")
			}
			folder := t.TempDir()
			cmd := command(t, append([]string{"-db", filepath.Join(folder, "a.db")}, args...)...)
			if strings.HasPrefix(want, "MESHDDNS_") {
				cmd.Env = append(cmd.Env, "MESHDDNS_SYNC_INTERVAL=soon")
			}
			out, err := cmd.CombinedOutput()
			if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), want) {
				t.Errorf("%v: exit status %d, %q; want %q", args, cmd.ProcessState.ExitCode(), out, want)
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				t.Errorf("%v: it leaves %v, %v", args, left, err)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	out, err := command(t, "-version").Output()
	if err != nil || !strings.HasPrefix(string(out), "meshddns ") {
		t.Errorf("-version: %q, %v", out, err)
	}
}

// SIGTERM ends the program in good order: the log is written back into the
// database and its companions are gone.
func TestStop(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "meshddns.db")
	p := start(t, "-db", db)
	p.configure("auto", "tcp://203.0.113.7:1")
	p.stop()
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(db + suffix); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", suffix, err)
		}
	}
	again := start(t, "-db", db, "-log-format", "text")
	again.cmd.Process.Signal(syscall.SIGINT)
	if err := again.cmd.Wait(); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
}

// The clouds are reached through the proxy that the environment names, and
// what is secret goes to the cloud alone.
func TestProxy(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, fmt.Sprint(r.Method, " ", r.Host, r.Header))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	t.Setenv("NO_PROXY", "")
	p := start(t, "-db", filepath.Join(t.TempDir(), "meshddns.db"))
	for _, provider := range []string{"alidns", "cloudflare", "route53"} {
		answer := p.call(200, "POST", "/api/v1/ddns/test", fmt.Sprintf(
			`{"provider":%q,"access_key_id":"key","access_key_secret":"hidden-secret","domain":"example.com","txt_record_name":"@"}`, provider))
		if !strings.Contains(answer.body, `"network","ok":false`) {
			t.Errorf("%s: %s", provider, answer.body)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	got := strings.Join(asked, "\n")
	for _, want := range []string{"CONNECT alidns.aliyuncs.com:443", "CONNECT api.cloudflare.com:443", "CONNECT route53.amazonaws.com:443"} {
		if !strings.Contains(got, want) || strings.Contains(got, "hidden-secret") {
			t.Errorf("the proxy was asked\n%s, want %s", got, want)
		}
	}
}
