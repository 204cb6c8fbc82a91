package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"meshddns/test/cloudtest"
)

// TestProbeAfterKill kills the program when the provider has made the value of a
// connection test: the next start withdraws it, and erases the key that it was made with.
func TestProbeAfterKill(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Webhook(t)
	target, err := url.Parse(cloud.URL)
	if err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(t.TempDir(), "meshddns.db")
	p := startAt(t, quickBinary(t), "-db", db)
	var once sync.Once
	hand := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before := len(cloud.All(cloudtest.Zone))
		hand.ServeHTTP(w, r)
		if len(cloud.All(cloudtest.Zone)) > before {
			once.Do(func() { p.cmd.Process.Kill() })
		}
	}))
	defer front.Close()
	p.configure("manual", "tcp://203.0.113.7:1")
	secret := cloud.AccessKeySecret
	body := fmt.Sprintf(`{"provider":"webhook","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":%q,"txt_record_name":"@","write_test":true}`,
		cloud.AccessKeyID, secret, front.URL, cloudtest.Zone)
	if a, err := p.try("POST", "/api/v1/ddns/test", body); err == nil {
		t.Fatalf("the test was over before the kill: %s", a.body)
	}
	p.cmd.Wait()
	if left := cloud.All(cloudtest.Zone); len(left) != 1 || !strings.HasPrefix(left[0], "_mesh-test-") {
		t.Fatalf("at the kill the zone has %q, want the probe", left)
	}
	p = startAt(t, quickBinary(t), "-db", db)
	p.eventually("the probe is withdrawn", func() bool { return len(cloud.All(cloudtest.Zone)) == 0 })
	p.eventually("the key is erased", func() bool { return !inFiles(t, db, secret) })
	if a := p.call(200, "GET", "/api/v1/ddns/leftovers", ""); strings.Contains(a.body, "_mesh-test-") {
		t.Errorf("leftovers: %s", a.body)
	}
}

// A connection test that is in flight when the program is stopped is finished, and sees its value at the
// built-in server.
func TestProbeAtStop(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "meshddns.db")
	p := startAt(t, quickBinary(t), "-db", path)
	p.configure("manual", "tcp://203.0.113.7:1")
	db := openDatabase(t, path)
	defer db.Close()
	db.SetMaxOpenConns(1)
	run := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	run("BEGIN IMMEDIATE") // the connection test waits before it writes its value
	said := make(chan string, 1)
	go func() {
		a, err := p.try("POST", "/api/v1/ddns/test", `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"mesh.example.com","txt_record_name":"@","write_test":true}`)
		said <- fmt.Sprint(a.body, err)
	}()
	p.eventually("the connection test is in flight", func() bool {
		return strings.Contains(p.call(200, "GET", "/metrics", "").body, "meshddns_http_requests_in_flight 2\n") // with this one
	})
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.eventually("the program refuses requests", func() bool {
		conn, err := net.Dial("tcp", p.http)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	run("ROLLBACK")
	if got := <-said; strings.Count(got, `"ok":true,"skipped":false`) != 9 {
		t.Errorf("the connection test: %s", got)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// inFiles reports whether a text is in the database's file or its log.
func inFiles(t *testing.T, db, text string) bool {
	t.Helper()
	for _, path := range []string{db, db + "-wal"} {
		data, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(text)) {
			return true
		}
	}
	return false
}
