package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/test/support"
)

// slowClients is how many there are, fewDescriptors how many the program may have.
var slowClients, fewDescriptors = support.Count(300, 1000), support.Count(160, 512)

const maxMemory = 64 << 10 // KiB

// A thousand clients, in the long form, that are slow to ask or do not read, where descriptors are few,
// keep no other client out and take no memory.
func TestSlowClients(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := filepath.Join(t.TempDir(), "meshddns.db")
	fillUsages(t, db, 20_000)
	for name, behave := range map[string]func(net.Conn, <-chan time.Time) error{
		"header": func(c net.Conn, tick <-chan time.Time) error {
			return drip(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", "y", tick)
		},
		"body": func(c net.Conn, tick <-chan time.Time) error {
			return drip(c, "POST "+usagesPath+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n{", " ", tick)
		},
		"unread": func(c net.Conn, tick <-chan time.Time) error {
			c.(*net.TCPConn).SetReadBuffer(4096)
			return drip(c, "GET "+usagesPath+"/available HTTP/1.1\r\nHost: localhost\r\n\r\n", "\r\n", tick)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := startWith(t, nil, withDescriptors(fewDescriptors, binary(t)), "-db", db)
			end := crowd(p.http, behave)
			defer end()
			crowdedOut := regexp.MustCompile(`meshddns_http_connections_crowded_out_total (\d+)`)
			p.eventually("as many connections have made room", func() bool {
				found := crowdedOut.FindStringSubmatch(p.probe("/metrics"))
				if found == nil {
					return false
				}
				n, err := strconv.Atoi(found[1])
				return err == nil && n >= slowClients
			})
			for range 5 {
				p.probe("/healthz")
				p.probe(usagesPath + "/available?limit=1")
			}
			if peak := peakMemory(t, p.cmd.Process.Pid); peak > maxMemory {
				t.Errorf("%d KiB of memory, want %d at most", peak, maxMemory)
			} else {
				t.Logf("%d KiB of memory at most", peak)
			}
			end()
			p.rest()
		})
	}
}

// probe asks over a connection of its own. A client that is not scheduled for long enough
// to look slow asks again.
func (p *program) probe(path string) (body string) {
	p.t.Helper()
	begun, tries := time.Now(), 0
	p.eventually(path+" is answered", func() bool {
		tries++
		p.client.CloseIdleConnections()
		a, err := p.try("GET", path, "")
		body = a.body
		return err == nil && a.status == 200
	})
	if took := time.Since(begun); tries > 1 || took > time.Second {
		p.t.Logf("%s took %v, asked %d times", path, took, tries)
	}
	return body
}

// drip sends the begin of a request and then a little at each tick, and ends when the
// server has closed the connection.
func drip(c net.Conn, begin, more string, tick <-chan time.Time) error {
	_, err := io.WriteString(c, begin)
	for err == nil {
		<-tick
		_, err = io.WriteString(c, more)
	}
	return err
}

// crowd keeps slow clients connected until it is told to end.
func crowd(address string, behave func(net.Conn, <-chan time.Time) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for i := range slowClients {
		clients.Go(func() {
			select { // not all at once, for this process is to answer too
			case <-time.After(time.Duration(i) * time.Second / time.Duration(slowClients)):
			case <-ctx.Done():
			}
			ticker := time.NewTicker(time.Second)
			defer ticker.Stop()
			for ctx.Err() == nil {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { c.Close() })
				behave(c, ticker.C)
				stop()
				c.Close()
				select { // connecting without a pause would take all time of this machine
				case <-ticker.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return func() { cancel(); clients.Wait() }
}

// withDescriptors gives the words that run a program with few descriptors.
func withDescriptors(limit int, words ...string) []string {
	return after(fmt.Sprintf("ulimit -n %d", limit), words...)
}

// fillUsages makes a database with usages.
func fillUsages(t *testing.T, db string, count int) {
	t.Helper()
	p := start(t, "-db", db)
	p.configure("manual", "tcp://203.0.113.7:1")
	p.call(200, "POST", usagesPath, `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"first","network_id":1}`)
	p.stop()
	execute(t, db, `
		WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
		INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		SELECT format('00000000-0000-7000-8000-%012d', n), provider_id, usage_type, prefix_mode, 'n' || n, record_type, description, is_exclusive,
		       txt_endpoints, replace(name, 'first', 'n' || n), created_at
		FROM numbers, (SELECT * FROM usages LIMIT 1)`, count)
	execute(t, db, `
		INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status)
		SELECT seq, id, seq, id, provider_id, 'active' FROM usages WHERE seq NOT IN (SELECT seq FROM bindings)`)
	execute(t, db, `INSERT INTO names (name, version, due, lane, pass) SELECT name, 1, NULL, '', 0 FROM usages WHERE name NOT IN (SELECT name FROM names)`)
}

// peakMemory is the most that a process has had, in KiB.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "kB")
	peak, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

// A request whose body does not come is answered at once if the answer does not depend
// on it, be it the guard's, the routes' or that the body is too large.
func TestUnsentBody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("a-token-that-is-long-enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "-db", filepath.Join(t.TempDir(), "meshddns.db"), "-token-file", file)
	const quickly = 4 * time.Second
	const token = "\r\nAuthorization: Bearer a-token-that-is-long-enough"
	large := fmt.Sprintf("%x\r\n%s\r\n", 70<<10, strings.Repeat(" ", 70<<10))
	for begin, status := range map[string]int{
		"POST /api/v1/ddns/usages HTTP/1.1\r\nContent-Length: 10":                                                 401,
		"POST /api/v1/ddns/nothing HTTP/1.1\r\nContent-Length: 10" + token:                                        404,
		"DELETE /api/v1/ddns/sync HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 10" + token:                 405,
		"POST /api/v1/ddns/usages HTTP/1.1\r\nContent-Length: 70000" + token:                                      413,
		"POST /api/v1/ddns/usages HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 70000" + token:              413,
		"POST /api/v1/ddns/usages HTTP/1.1\r\nTransfer-Encoding: chunked" + token + "\r\nHost: a\r\n\r\n" + large: 413,
	} {
		c, err := net.Dial("tcp", p.http)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if !strings.Contains(begin, "Host:") {
			begin += "\r\nHost: localhost\r\n\r\n"
		}
		begin = strings.Replace(begin, "Host: a", "Host: localhost", 1)
		begun := time.Now()
		c.SetDeadline(begun.Add(support.Slowest * limit))
		io.WriteString(c, begin)
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		took := time.Since(begun)
		slow := took > quickly && took > support.Paced(quickly)
		if err != nil || response.StatusCode != status || !response.Close || slow {
			t.Errorf("%.60q: %v, %v after %v; want %d and the end of the connection", begin, response, err, took, status)
		}
	}
}
