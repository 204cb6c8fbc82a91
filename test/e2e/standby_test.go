package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

// member is a program with -term, and the agent that writes its file.
type member struct {
	*program
	file, db             string
	plain, secure, local *program // clients of its addresses; the embedded one is of plain
	nodes                *program
}

var standbyAt = regexp.MustCompile(`msg=standby listen=(\S+) nodes=(\S*)`)

// prepared is a member that does not run yet, with addresses of every kind.
func prepared(t *testing.T, args ...string) *member {
	t.Helper()
	dir := t.TempDir()
	pair := newPairFiles(t)
	pair.put(t, time.Now().Add(30*24*time.Hour))
	m := &member{program: &program{t: t, log: &support.Log{}, dns: support.FreeAddress(t)}, file: filepath.Join(dir, "term"), db: filepath.Join(dir, "db", "meshddns.db")}
	support.Must(t, os.Mkdir(filepath.Dir(m.db), 0o700))
	m.cmd = exec.Command(binary(t), slices.Concat([]string{"-listen", "127.0.0.1:0,tls:127.0.0.1:0,unix:" + filepath.Join(dir, "api"), "-node-listen", "127.0.0.1:0", "-dns-listen", m.dns, "-tls-cert", pair.cert, "-tls-key", pair.key,
		"-db", m.db, "-term", m.file, "-ipv4", "203.0.113.7", "-ipv6", "none", "-sync-interval", "24h"}, args)...)
	m.cmd.Env, m.cmd.Stderr = support.Environ(), m.log
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the program:\n%s", m.log)
		}
	})
	return m
}

// begin starts a member, and returns when it is a standby.
func (m *member) begin() *member {
	m.t.Helper()
	support.Start(m.t, m.cmd)
	m.eventually("the member has started", func() bool { return strings.Contains(m.log.String(), "msg=standby ") || support.Ended(m.cmd) })
	if strings.Contains(m.log.String(), "address already in use") { // another process took the port meanwhile
		words, address := slices.Clone(m.cmd.Args), support.FreeAddress(m.t)
		words[slices.Index(words, m.dns)], m.dns = address, address
		m.log.Take()
		next := exec.Command(words[0], words[1:]...)
		next.Env, next.Stderr, m.cmd = m.cmd.Env, m.log, next
		return m.begin()
	}
	m.logged("msg=standby ")
	found := standbyAt.FindStringSubmatch(m.log.String())
	listen := strings.Split(found[1], ",")
	if len(listen) != 3 {
		m.t.Fatalf("listens at %q", listen)
	}
	m.plain, m.nodes = strangers(m.t, listen[0]), strangers(m.t, found[2])
	for _, address := range listen[1:] {
		if strings.HasPrefix(address, "/") {
			m.local = &program{t: m.t, http: address}
			m.local.connect()
			continue
		}
		m.secure = strangers(m.t, strings.TrimPrefix(address, "tls:"))
		transport := m.secure.client.Transport.(*http.Transport)
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}), err
		}
	}
	m.http, m.client = m.plain.http, m.plain.client
	return m
}

// uptime is the time of CLOCK_BOOTTIME in seconds.
func uptime(t *testing.T) (seconds float64) {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	support.Must(t, err)
	seconds, err = strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	support.Must(t, err)
	return seconds
}

// grant gives a term that ends in some seconds, as the agent does, and returns its end.
func (m *member) grant(term, after int, seconds float64) (until float64) {
	m.t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	support.Must(m.t, err)
	now := uptime(m.t)
	until = now + seconds
	support.WriteFile(m.t, m.file+".new", fmt.Sprintf(`{"term": %d, "after": %d, "asked": %.2f, "until": %.2f, "boot_id": %q}`, term, after, now, until, strings.TrimSpace(string(boot))))
	support.Must(m.t, os.Rename(m.file+".new", m.file))
	return until
}

// writer returns when a member with a grant writes.
func (m *member) writer() {
	m.t.Helper()
	m.eventually("the member writes", func() bool { return strings.Contains(m.log.String(), "msg=started ") || support.Ended(m.cmd) })
	if support.Ended(m.cmd) {
		m.t.Fatalf("it has ended:\n%s", m.log)
	}
}

// ends waits for the end of a member, and wants its status to be 0 if it tells nothing, else 1.
func (m *member) ends(told string) {
	m.t.Helper()
	m.eventually("the member ends", func() bool { return support.Ended(m.cmd) })
	err := m.cmd.Wait()
	if (err == nil) != (told == "") || told != "" && !strings.Contains(m.log.String(), "meshddns: "+told) {
		m.t.Fatalf("it ends with %v, want %q:\n%s", err, told, m.log)
	}
}

// again is a member on the same database and file, with other arguments.
func (m *member) again(args ...string) *member {
	n := prepared(m.t, append(args, "-db", m.db)...)
	for i, word := range n.cmd.Args {
		if word == n.file {
			n.cmd.Args[i] = m.file
		}
	}
	n.file, n.db = m.file, m.db
	return n
}

// TestStandby asks a standby by every way, for all that the program has, with each role: it answers nothing but that it is one.
// It opens no database, reads its token file again, and ends in good order.
func TestStandby(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens")
	w := &roleWorld{file: tokens}
	w.write(t, roleFile)
	m := prepared(t, "-token-file", tokens, "-provision", filepath.Join(t.TempDir(), "absent.json"), "-dns-catalog", "catalog.invalid").begin()
	paths := []string{"/nothing", "/api/v1/ddns/usages/a/b/c", "/api/v1/ddns/../../metrics", "//", "/d/x", "/lease", "/static/x.css"}
	for route := range mayUse {
		_, path, _ := strings.Cut(route, " ")
		if path = fill(path, "none", "none"); !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"}
	var asked atomic.Int64
	ask := func(to *program, status int, code, method, path string, header ...string) {
		a, err := to.ask(method, path, "[", append(header, "Accept-Language", "en")...)
		asked.Add(1)
		if err != nil || a.status != status || a.header.Get("X-Error-Code") != code {
			t.Errorf("%s %s %q at %s: %d %s, %v, want %d %s", method, path, header, to.http, a.status, a.body, err, status, code)
		} else if body := `{"error":"this machine is a standby: ask the other one"}` + "\n"; code == "standby" && method != "HEAD" && a.body != body {
			t.Errorf("%s %s: %s", method, path, a.body)
		}
	}
	callers := map[string]string{"wrong": "wrong-0123456789abcdef"}
	for caller, token := range roleTokens {
		callers[caller] = token
	}
	var work sync.WaitGroup
	for _, to := range []*program{m.plain, m.secure, m.local} {
		work.Go(func() {
			for _, path := range paths {
				for i, method := range methods {
					for caller, token := range callers {
						if i > 2 && caller != "admin" && caller != "wrong" {
							continue
						}
						accept := []string{"Accept", "text/html"}
						if token != "" {
							accept = append(accept, "Authorization", "Bearer "+token)
						}
						status, code := 503, "standby"
						if probe := path == "/healthz" || path == "/" && method == "OPTIONS"; to != m.local && !probe && (caller == "nobody" || caller == "wrong") {
							status, code = 401, "unauthorized"
						}
						ask(to, status, code, method, path, accept...)
					}
				}
			}
			admin := []string{"Authorization", "Bearer " + roleTokens["admin"]}
			ask(to, 403, "cross_site", "POST", usagesPath, append(admin, "Sec-Fetch-Site", "cross-site")...)
			ask(to, 403, "own_notification", "POST", usagesPath, append(admin, "X-Meshddns-Notification", "1")...)
			if to != m.local {
				ask(to, 403, "host_not_allowed", "GET", "/", append(admin, "Host", "evil.example")...)
			}
		})
	}
	work.Wait()
	for _, path := range []string{"/lease", "/nic/update", "/update", "/present", "/cleanup", "/register", "/d/_mesh.own.example.com", "/", "/healthz", "/nothing"} {
		for _, method := range methods {
			ask(m.nodes, 503, "standby", method, path, "Authorization", "Bearer "+roleTokens["admin"])
			ask(m.nodes, 503, "standby", method, path)
		}
	}
	t.Logf("%d requests", asked.Load())
	for _, query := range [][]string{{"mesh.example.com", "SOA"}, {"mesh.example.com", "SOA", "+tcp"}, {"x.catalog.invalid", "PTR"}, {"version.bind", "TXT", "CH", "+tcp"}, {".", "NS"}} {
		if got := m.dig(query...); !strings.Contains(got, "status: REFUSED") {
			t.Errorf("dig %q: %s", query, got)
		}
	}

	w.write(t, "admin only only-0123456789abcdef\n")
	support.Must(t, m.cmd.Process.Signal(syscall.SIGHUP))
	m.logged(`msg=reload step="read the token file again"`)
	ask(m.plain, 401, "unauthorized", "GET", configPath, "Authorization", "Bearer "+roleTokens["admin"])
	ask(m.plain, 503, "standby", "GET", configPath, "Authorization", "Bearer only-0123456789abcdef")
	w.write(t, "short\n")
	support.Must(t, m.cmd.Process.Signal(syscall.SIGHUP))
	m.logged(`msg="reload: what was stays" step="read the token file again"`)
	ask(m.plain, 503, "standby", "GET", configPath, "Authorization", "Bearer only-0123456789abcdef")
	m.stop()
	if entries, err := os.ReadDir(filepath.Dir(m.db)); err != nil || len(entries) > 0 {
		t.Errorf("beside the database that was not opened: %v %v", entries, err)
	}
	if log := m.log.String(); strings.Contains(log, "msg=started") || strings.Contains(log, "absent.json") {
		t.Error("it has begun to write")
	}
}

// TestStandbyWatchdog: a standby is READY, and tells the watchdog that it lives, without a database. So does the writer after it.
func TestStandbyWatchdog(t *testing.T) {
	t.Parallel()
	m := prepared(t)
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	support.Must(t, err)
	defer manager.Close()
	manager.SetReadDeadline(time.Now().Add(support.Slowest * limit))
	told := func(want string) {
		t.Helper()
		for all, buffer := []string(nil), make([]byte, 4096); ; {
			n, err := manager.Read(buffer)
			if all = append(all, string(buffer[:n])); err != nil {
				t.Fatalf("%q is not told, but %q: %v", want, all, err)
			}
			if strings.HasPrefix(all[len(all)-1], want) {
				return
			}
		}
	}
	m.cmd.Env = append(m.cmd.Env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=1000000")
	m.begin()
	told("READY=1\nSTATUS=standby; no term in " + m.file)
	for range 3 {
		told("WATCHDOG=1")
	}
	support.Must(t, m.cmd.Process.Signal(syscall.SIGHUP))
	told("RELOADING=1\n")
	told("READY=1\nSTATUS=standby; no term in ")
	if _, err := os.Stat(m.db); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the database: %v", err)
	}
	m.grant(1, 0, 100)
	told("READY=1\nSTATUS=HTTP on ")
	told("WATCHDOG=1")
	support.Must(t, m.cmd.Process.Signal(syscall.SIGTERM))
	told("STOPPING=1\n")
	m.ends("")
}

// TestNoConnectionIsRefused connects all the time while a standby becomes the writer.
func TestNoConnectionIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("own", func(t *testing.T) {
		t.Parallel()
		m := prepared(t).begin()
		m.connectAll(map[string]string{m.plain.http: "tcp", m.secure.http: "tcp", m.local.http: "unix", m.nodes.http: "tcp", m.dns: "tcp"})
	})
	t.Run("inherited", func(t *testing.T) {
		t.Parallel()
		m := &member{file: filepath.Join(t.TempDir(), "term")}
		sockets, addresses := []any{}, map[string]string{}
		for range 3 {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			support.Must(t, err)
			defer l.Close()
			sockets, addresses[l.Addr().String()] = append(sockets, l), "tcp"
		}
		local, err := net.Listen("unix", filepath.Join(t.TempDir(), "api"))
		support.Must(t, err)
		defer local.Close()
		packets, err := net.ListenPacket("udp", sockets[2].(net.Listener).Addr().String())
		support.Must(t, err)
		defer packets.Close()
		addresses[local.Addr().String()] = "unix"
		m.program = inheriting(t, "http:node:dns:dns:http", sockets[0], sockets[1], sockets[2], packets, local)
		m.cmd.Args = append(m.cmd.Args, "-term", m.file)
		m.http, m.dns = sockets[0].(net.Listener).Addr().String(), packets.LocalAddr().String()
		support.Start(t, m.cmd)
		m.logged("msg=standby ")
		m.connectAll(addresses)
	})
}

// connectAll connects to addresses until the member writes, and then some more.
func (m *member) connectAll(addresses map[string]string) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	var work sync.WaitGroup
	counts := make(chan int, len(addresses))
	for address, network := range addresses {
		work.Go(func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				conn, err := net.DialTimeout(network, address, support.Slowest*limit)
				if err != nil {
					m.t.Errorf("%s: %v", address, err)
					break
				}
				conn.Close()
			}
			counts <- n
		})
	}
	if got := m.dig("mesh.example.com", "SOA"); !strings.Contains(got, "status: REFUSED") {
		m.t.Error(got)
	}
	m.grant(1, 0, 100)
	m.writer()
	for network := range map[string]bool{"+tcp": true, "+notcp": true} {
		if got := m.dig("mesh.example.com", "SOA", network); !strings.Contains(got, "status: REFUSED") { // it has no such zone
			m.t.Error(got)
		}
	}
	m.connect()
	if a := m.call(200, "GET", "/healthz", ""); a.field("term") != "1" {
		m.t.Error(a.body)
	}
	cancel()
	work.Wait()
	for range addresses {
		m.t.Logf("%d connections", <-counts)
	}
	m.stop()
}

// half sends the first part of a request, and returns what sends the rest, which returns what gives the answer.
func (m *member) half(text, rest string) (finish func() func() string) {
	m.t.Helper()
	conn, err := net.Dial("tcp", m.plain.http)
	support.Must(m.t, err)
	m.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(support.Slowest * limit))
	_, err = conn.Write([]byte(text))
	support.Must(m.t, err)
	return func() func() string {
		conn.Write([]byte(rest))
		return func() string {
			answer := make([]byte, 4096)
			n, _ := conn.Read(answer)
			return string(answer[:n])
		}
	}
}

// TestTermEnds: a term ends 2 s before until, also when until moves back. No request that begins later is acknowledged, those
// that are under way are told and store nothing, and the program ends with status 0. It is stopped meanwhile, as on a machine that pauses.
func TestTermEnds(t *testing.T) {
	t.Parallel()
	for try := 1; !termEnds(t); try++ {
		if t.Logf("a header takes longer than its time, and is not under way when the term ends"); try == 5 {
			t.Fatal("the machine is too slow")
		}
	}
}

// termEnds returns false if a request's header took as long as the program waits for it.
func termEnds(t *testing.T) (inTime bool) {
	m := prepared(t).begin()
	m.grant(1, 0, 119)
	m.writer()
	m.client.Transport.(*http.Transport).DisableKeepAlives = false
	m.configure("manual", "tcp://203.0.113.7:1")
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	last := make([]float64, 4) // time before the last request that was acknowledged
	for i := range last {
		client := strangers(t, m.http)
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				now := uptime(t)
				a, err := client.try([]string{"GET", "PUT", "POST", "POST"}[i], []string{configPath, "/api/v1/ddns/services/svc", "/api/v1/ddns/services", syncPath}[i],
					[]string{"", `{"name":"x","config":{"domain":"mesh.example.com"}}`, fmt.Sprintf(`{"id":"s-%d","name":"x","config":{}}`, n), ""}[i])
				switch {
				case err != nil: // it ends
				case a.status == 200:
					last[i] = now
				case a.status != 503 || a.header.Get("X-Error-Code") != "term_over":
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
	const body = `{"id":"late","name":"x","config":{}}`
	head := fmt.Sprintf(" HTTP/1.1\r\nHost: localhost\r\nAccept-Language: en\r\nContent-Length: %d\r\n\r\n", len(body))
	until := m.grant(1, 0, 12) // long enough that a busy program sees it
	m.eventually("the term ends soon", func() bool { return uptime(t) >= until-5 })
	began := time.Now()
	under := map[string]func() func() string{
		"change": m.half("POST /api/v1/ddns/services"+head, body), "other change": m.half("DELETE "+configPath+" HTTP/1.1\r\nHost: localhost\r\nAccept-Language: en\r\n", "\r\n"),
		"page": m.half("GET / HTTP/1.1\r\nAccept: text/html\r\nAccept-Language: en\r\nHost: localhost\r\n", "\r\n"), "read": m.half("GET "+configPath+" HTTP/1.1\r\nHost: localhost\r\nAccept-Language: en\r\n", "\r\n"),
		"probe": m.half("GET /healthz HTTP/1.1\r\nHost: localhost\r\nAccept-Language: en\r\n", "\r\n"),
	}
	m.eventually("the last second begins", func() bool { return uptime(t) >= until-3 })
	support.Must(t, m.cmd.Process.Signal(syscall.SIGSTOP))
	_, err := syscall.Wait4(m.cmd.Process.Pid, nil, syscall.WUNTRACED, nil) // until the last thread has stopped
	support.Must(t, err)
	answers := map[string]func() string{}
	for name, finish := range under {
		answers[name] = finish()
	}
	m.eventually("the term ends", func() bool { return uptime(t) >= until-2 })
	support.Must(t, m.cmd.Process.Signal(syscall.SIGCONT))
	inTime = true
	for name, answer := range answers {
		if got := answer(); got == "" && time.Since(began) >= 5*time.Second {
			inTime = false
		} else if !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "X-Error-Code: term_over\r\n") || !strings.HasSuffix(got, `{"error":"the term of this machine is over, a change may have been stored: ask the other one"}`+"\n") {
			t.Errorf("%s: %q", name, got)
		}
	}
	m.ends("")
	cancel()
	work.Wait()
	for i, at := range last {
		if at == 0 || at >= until-2 {
			t.Errorf("client %d: a request that began at %.2f is acknowledged, and the term has ended at %.2f", i, at, until-2)
		}
	}
	m.logged(`msg="the term is over, and the program ends" term=1`)
	db := openDatabase(t, m.db)
	if stored := support.Rows(t, db, `SELECT id FROM services WHERE id = 'late' UNION ALL SELECT 'deleted' WHERE NOT EXISTS (SELECT 1 FROM configuration)`); len(stored) > 0 {
		t.Errorf("stored after the end: %q", stored)
	}
	return inTime
}

// TestSlowClientsAtTheEnd: clients that never end keep the program for no longer than a second after its term.
func TestSlowClientsAtTheEnd(t *testing.T) {
	t.Parallel()
	m := prepared(t).begin()
	m.grant(1, 0, 119)
	m.writer()
	for i := range 40 {
		m.call(200, "POST", "/api/v1/ddns/services", fmt.Sprintf(`{"id":"s-%d","name":%q,"config":{}}`, i, strings.Repeat("x", 200)))
	}
	var reading atomic.Int64
	for _, text := range []string{"GET /api/v1/ddns/backup", "GET /api/v1/ddns/events/stream", "POST /api/v1/ddns/sync?wait=30", "POST /api/v1/ddns/services"} {
		conn, err := net.Dial("tcp", m.http)
		support.Must(t, err)
		defer conn.Close()
		conn.(*net.TCPConn).SetReadBuffer(4096)
		_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n{", text, 1000)
		support.Must(t, err)
		go func() {
			for octet := make([]byte, 1); ; reading.Add(1) { // 32 KiB in 15 s are fast enough for the server
				conn.Write([]byte(" "))
				if _, err := conn.Read(octet); err != nil {
					return
				}
				<-time.After(time.Millisecond)
			}
		}()
	}
	m.eventually("clients read", func() bool { return reading.Load() > 100 })
	support.Must(t, os.Remove(m.file))
	m.ends("")
}

// TestTermOfDatabase: what a program with a term, another one, or none may do with a database of a term.
func TestTermOfDatabase(t *testing.T) {
	t.Parallel()
	m := prepared(t).begin()
	m.grant(5, 0, 100)
	m.writer()
	m.call(200, "PUT", "/api/v1/ddns/services/kept", `{"name":"x","config":{}}`)
	support.Must(t, os.Remove(m.file)) // the right was given back
	m.ends("")

	stored := func() string { return fmt.Sprint(support.Rows(t, openDatabase(t, m.db), `SELECT term FROM appliance`)) }
	refused := func(term, after int, told string) {
		t.Helper()
		n := m.again().begin()
		n.grant(term, after, 100)
		n.ends("open " + m.db + ": it is the database of term " + told)
		support.Must(t, os.Remove(m.file))
	}
	if got := stored(); got != "[5]" {
		t.Errorf("stored: %s", got)
	}
	none := filepath.Join(filepath.Dir(m.db), "none")
	n := prepared(t, "-db", none).begin()
	n.grant(9, 3, 100)
	n.ends(none + ": it is the database of term 0: want that of term 3, which was restored for term 9, or of term 9 itself")
	if beside, err := filepath.Glob(none + "*"); err != nil || len(beside) > 0 {
		t.Errorf("in place of a database that is missing: %q, %v", beside, err)
	}
	refused(9, 3, "5: want that of term 3, which was restored for term 9, or of term 9 itself")
	refused(9, 0, "5: want that of term 0, which was restored for term 9, or of term 9 itself")
	refused(4, 3, "5: want that of term 3, which was restored for term 4, or of term 4 itself")

	n = m.again().begin() // a restart in the same term, after a kill
	n.grant(5, 0, 100)
	n.writer()
	n.call(200, "GET", "/api/v1/ddns/services/kept", "")
	support.Kill(n.cmd)
	n = m.again().begin()
	n.writer()
	n.call(200, "GET", "/api/v1/ddns/services/kept", "")
	n.grant(7, 5, 100) // the file has another term
	n.ends("")
	if got := stored(); got != "[5]" {
		t.Errorf("stored: %s", got)
	}
	n = m.again().begin()
	n.writer()
	n.call(200, "GET", "/api/v1/ddns/services/kept", "")
	n.stop()
	if got := stored(); got != "[7]" {
		t.Errorf("stored: %s", got)
	}

	n = m.again()
	without := slices.Index(n.cmd.Args, "-term")
	n.cmd.Args = slices.Delete(n.cmd.Args, without, without+2)
	support.Start(t, n.cmd)
	n.ends("open " + m.db + ": it is the database of term 7, which one of two machines writes: start with -term FILE, or take the term out with -term none")
	n = m.again("-term", "none")
	support.Start(t, n.cmd)
	n.writer()
	n.stop()
	if got := stored(); got != "[0]" {
		t.Errorf("stored: %s", got)
	}
}

// TestTermOnFullDisk: a new term cannot be stored on a full disk, so the program does not write in it. A restart in the old term
// reads as ever.
func TestTermOnFullDisk(t *testing.T) {
	notShort(t)
	support.Need(t, "mount")
	t.Parallel()
	if !inNamespaces(t, 0, syscall.CLONE_NEWNS) {
		return
	}
	m := prepared(t).begin()
	support.Must(t, syscall.Mount("tmpfs", filepath.Dir(m.db), "tmpfs", 0, "size=2m"))
	t.Cleanup(func() { syscall.Unmount(filepath.Dir(m.db), syscall.MNT_DETACH) })
	m.grant(1, 0, 119)
	m.writer()
	m.call(200, "PUT", "/api/v1/ddns/services/kept", `{"name":"x","config":{}}`)
	support.Kill(m.cmd)
	filler := filepath.Join(filepath.Dir(m.db), "filler")
	for size := 1 << 20; size > 0; size /= 2 {
		for file, err := os.OpenFile(filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err == nil; {
			if _, err = file.Write(make([]byte, size)); err != nil {
				file.Close()
			}
		}
	}
	m.grant(2, 1, 119)
	n := m.again().begin()
	n.ends("open " + m.db + ": commit: database or disk is full")
	m.grant(1, 0, 119)
	n = m.again().begin()
	n.writer()
	n.call(200, "GET", "/api/v1/ddns/services/kept", "")
	if a, err := n.try("GET", "/healthz", ""); err != nil || a.status != 503 || a.header.Get("X-Error-Code") != "disk_full" {
		t.Errorf("healthz: %d %s %v", a.status, a.body, err)
	}
	support.Kill(n.cmd)
	support.Must(t, os.Remove(filler))
	m.grant(2, 1, 119)
	n = m.again().begin()
	n.writer()
	n.call(200, "DELETE", "/api/v1/ddns/services/kept", "")
}
