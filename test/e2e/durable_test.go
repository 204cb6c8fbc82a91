package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meshddns/test/servertest"
	"meshddns/test/support"
)

// deafSocket is a socket that accepts and never answers.
func deafSocket(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "silent")
	l, err := net.Listen("unix", path)
	support.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return path
}

// TestNotReplicated: without a replica a durable change waits for 30 s and stays. The repetition of a POST with its key waits,
// too. What is refused, or is not durable, waits for nothing.
func TestNotReplicated(t *testing.T) {
	notShort(t)
	t.Parallel()
	for name, socket := range map[string]string{"silent": deafSocket(t), "absent": filepath.Join(t.TempDir(), "none")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "-db", filepath.Join(t.TempDir(), "meshddns.db"), "-replica-socket", socket, "-ipv4", "none", "-ipv6", "none")
			p.configure("manual", "tcp://203.0.113.7:1")
			ids := map[string]string{}
			for _, prefix := range []string{"changed", "released"} {
				ids[prefix] = p.reserve(prefix)
			}
			const repeated = `{"service_id":"svc","prefix_mode":"auto","network_id":9}`
			first := p.call(200, "POST", usagesPath, repeated, "Idempotency-Key", "k").field("id")
			var work sync.WaitGroup
			for _, ask := range [][]string{
				{"POST", "/api/v1/ddns/services?durable=1", `{"id":"posted","name":"x","config":{}}`}, {"PATCH", usagesPath + "/" + ids["changed"] + "?durable=true", `{"description":"changed"}`},
				{"DELETE", usagesPath + "/" + ids["released"] + "?durable=1&force=1", ""}, {"POST", usagesPath + "?durable=1&wait=1", repeated, "Idempotency-Key", "k"},
			} {
				work.Go(func() {
					began := time.Now()
					a, err := p.try(ask[0], ask[1], ask[2], append(ask[3:], "Accept-Language", "en")...)
					took := time.Since(began)
					if err != nil || a.status != 504 || a.header.Get("X-Error-Code") != "not_replicated" || a.body != `{"error":"the change is stored, but the replica has not confirmed it within 30 s"}`+"\n" {
						t.Errorf("%q: %d %s %v", ask, a.status, a.body, err)
					}
					if took < 30*time.Second {
						t.Errorf("%q: after %v", ask, took)
					}
				})
			}
			began := time.Now()
			p.call(200, "POST", "/api/v1/ddns/services?durable=0", `{"id":"quick","name":"x","config":{}}`)
			p.call(400, "PUT", "/api/v1/ddns/services/quick?durable=1", `{"name":"x","config":{}}`)
			p.call(400, "POST", "/api/v1/ddns/services?durable=1", `{"id":"?","name":"x","config":{}}`)
			p.call(404, "DELETE", "/api/v1/ddns/services/none?durable=1", "")
			p.call(404, "POST", "/api/v1/ddns/none?durable=1", "")
			p.call(400, "GET", "/api/v1/ddns/services/quick?durable=1", "")
			if took := time.Since(began); took >= 30*time.Second {
				t.Errorf("what does not wait took %v", took)
			}
			work.Wait()
			p.call(200, "GET", "/api/v1/ddns/services/posted", "")
			if a := p.call(200, "GET", usagesPath+"/"+ids["changed"], ""); a.field("description") != "changed" {
				t.Error(a.body)
			}
			p.call(404, "GET", usagesPath+"/"+ids["released"], "")
			if a := p.call(200, "GET", usagesPath+"/available?network_id=9", ""); strings.Count(a.body, `"network_id":9`) != 1 || !strings.Contains(a.body, first) {
				t.Error(a.body)
			}
			p.logged("code=not_replicated")
			p.stop()
		})
	}
}

// TestDurableRights: the flag gives no role more than it has, and a refused request waits for nothing.
func TestDurableRights(t *testing.T) {
	t.Parallel()
	w := newRoleWorld(t)
	before := w.stored()
	for _, route := range w.routes {
		method, path, _ := strings.Cut(route, " ")
		if method == "GET" || path == "/{$}" {
			continue
		}
		for caller, p := range w.as {
			want, code := 403, "not_permitted"
			if role := roleOf(caller); role == "admin" || strings.Contains(mayUse[route], role) {
				want, code = 400, "query_invalid" // there is no replica, or it is a PUT
			} else if caller == "nobody" {
				want, code = 401, "unauthorized"
			}
			for _, body := range []string{"{}", ""} {
				a, err := p.try(method, fill(path, w.usages["own"][0], w.leases["own"])+"?durable=1", body)
				if err != nil || a.status != want || a.header.Get("X-Error-Code") != code {
					t.Errorf("%s as %s: %d %s %v, want %d", route, caller, a.status, a.body, err, want)
				}
			}
		}
	}
	if after := w.stored(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// TestDurable: what was acknowledged with the flag is in the replica, when the machine dies right after it.
func TestDurable(t *testing.T) {
	notShort(t)
	support.Need(t, "litestream")
	t.Parallel()
	at := newReplicaPlaces(t)
	m := prepared(t, "-db", at.db(), "-replica-socket", at.node+".sock").begin()
	m.db = at.db()
	litestream := at.replicate(t)
	m.grant(1, 0, 119)
	m.writer()
	acked := make(chan answer, 1)
	go func() {
		a, err := m.try("POST", "/api/v1/ddns/services?durable=1", `{"id":"first","name":"x","config":{}}`)
		if err != nil {
			t.Error(err)
		}
		acked <- a
	}()
	tries := 0
	m.eventually("the replica has the change", func() bool {
		tries++
		path, err := at.restore(t, fmt.Sprint("try-", tries))
		return err == nil && len(support.Rows(t, openDatabase(t, path), `SELECT 1 FROM services WHERE id = 'first'`)) == 1
	})
	select {
	case a := <-acked:
		t.Errorf("it is acknowledged before the term was renewed: %d %s", a.status, a.body)
	default:
	}
	m.grant(1, 0, 119)
	if a := support.Receive(t, acked); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}

	renewals := make(chan struct{})
	var agent sync.WaitGroup
	agent.Go(func() {
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			select {
			case <-tick.C:
				m.grant(1, 0, 119)
			case <-renewals:
				return
			}
		}
	})
	var mu sync.Mutex
	var all []string
	var work sync.WaitGroup
	enough := make(chan struct{}, 4)
	for i := range 4 {
		client := strangers(t, m.http)
		work.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("s-%d-%d", i, n)
				a, err := client.try("POST", "/api/v1/ddns/services?durable=1", fmt.Sprintf(`{"id":%q,"name":"x","config":{}}`, id))
				if err != nil {
					return // the machine has died
				}
				if a.status != 200 {
					t.Errorf("%d %s", a.status, a.body)
					enough <- struct{}{}
					return
				}
				mu.Lock()
				all = append(all, id)
				mu.Unlock()
				if n == 3 {
					enough <- struct{}{}
				}
			}
		})
	}
	support.Receive(t, enough)
	support.Must(t, litestream.Process.Signal(syscall.SIGKILL))
	support.Kill(m.cmd)
	work.Wait()
	close(renewals)
	agent.Wait()
	path, err := at.restore(t, "restored")
	support.Must(t, err)
	there := strings.Join(support.Rows(t, openDatabase(t, path), `SELECT id FROM services`), " ") + " "
	for _, id := range append(all, "first") {
		if !strings.Contains(there, id+" ") {
			t.Errorf("%s was acknowledged, and the replica lacks it", id)
		}
	}
	t.Logf("%d acknowledged changes are in the replica", len(all)+1)
}

// TestDurableAtTheEnd: a durable change that waits when the term ends is told so, and stays.
func TestDurableAtTheEnd(t *testing.T) {
	t.Parallel()
	m := prepared(t, "-replica-socket", deafSocket(t)).begin()
	m.grant(1, 0, 119)
	m.writer()
	answered := make(chan answer, 1)
	go func() {
		a, err := m.try("POST", "/api/v1/ddns/services?durable=1", `{"id":"kept","name":"x","config":{}}`)
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	m.eventually("the change is stored", func() bool {
		a, err := strangers(t, m.http).try("GET", "/api/v1/ddns/services/kept", "")
		return err == nil && a.status == 200
	})
	m.grant(2, 1, 119)
	if a := support.Receive(t, answered); a.status != 503 || a.header.Get("X-Error-Code") != "term_over" {
		t.Errorf("%d %s", a.status, a.body)
	}
	m.ends("")
	if n := len(support.Rows(t, openDatabase(t, m.db), `SELECT id FROM services WHERE id = 'kept'`)); n != 1 {
		t.Error("the change is not kept")
	}
}

// TestUnmarkedInReplica: when a value without a mark stands at the provider, a restored replica knows that it is ours, although the
// machine dies right after it. It prints what the waits for the replica cost.
func TestUnmarkedInReplica(t *testing.T) {
	notShort(t)
	support.Need(t, "litestream")
	at := newReplicaPlaces(t)
	took := map[bool][2]time.Duration{} // for all names, and for one
	for _, replicated := range []bool{false, true} {
		server := servertest.Knot(t)
		words := []string{"-db", filepath.Join(t.TempDir(), "meshddns.db"), "-ipv4", "none", "-ipv6", "none"}
		if replicated {
			words = append(words, "-db", at.db(), "-replica-socket", at.node+".sock")
		}
		p := start(t, words...)
		var litestream *exec.Cmd
		if replicated {
			litestream = at.replicate(t)
		}
		p.call(200, "PUT", configPath, fmt.Sprintf(`{"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":%q,"txt_record_name":"@","enabled":true,
			"sync_mode":"manual","txt_endpoints":["tcp://203.0.113.7:1"]}`, servertest.Key, servertest.Secret, server.Addr, servertest.Zone))
		p.call(200, "PUT", "/api/v1/ddns/services/svc", fmt.Sprintf(`{"name":"Service","config":{"domain":%q}}`, servertest.Zone))
		sync := func() time.Duration {
			began := time.Now()
			p.call(200, "POST", syncPath, "")
			return time.Since(began)
		}
		p.call(200, "PATCH", usagesPath+"/"+p.reserve("first"), `{"formats":["mesh1","a"]}`)
		sync() // the first call waits for a snapshot
		ids := []string{}
		for n := range 100 {
			ids = append(ids, p.reserve(fmt.Sprint(replicated, "-", n)))
			p.call(200, "PATCH", usagesPath+"/"+ids[n], `{"formats":["mesh1","a"]}`)
		}
		all, one := sync(), time.Duration(0)
		for n := range 20 {
			p.call(200, "PATCH", usagesPath+"/"+ids[n], fmt.Sprintf(`{"txt_endpoints":["tcp://203.0.113.%d:1"]}`, 100+n))
			one += sync() / 20
		}
		took[replicated] = [2]time.Duration{all, one}
		if !replicated {
			p.stop()
			continue
		}
		support.Must(t, litestream.Process.Signal(syscall.SIGKILL))
		support.Kill(p.cmd)
		path, err := at.restore(t, "restored")
		support.Must(t, err)
		known := strings.Join(support.Rows(t, openDatabase(t, path), `SELECT owner, standing, doubt FROM places WHERE type = 'A'`), "\n")
		for n := range 20 {
			if value := fmt.Sprintf("203.0.113.%d", 100+n); !strings.Contains(known, value) {
				t.Errorf("the replica does not know %s", value)
			}
		}
	}
	for i, what := range []string{"100 new names", "one change"} {
		t.Logf("%s: %v, with a replica %v: %.1f times", what, took[false][i], took[true][i], float64(took[true][i])/float64(took[false][i]))
	}
}
