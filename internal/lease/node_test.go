package lease

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/web"
	"meshddns/test/support"
)

func password(user, token string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+token))
}

// TestPut: a node publishes the endpoints of its slot, in its own name, and keeps them.
func TestPut(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"})
	const body = `{"endpoints":["tcp://192.0.2.7:1","udp://192.0.2.7:2"]}`
	for i, test := range []struct{ header, want string }{
		{bearer(token), `{"data":{"endpoints":["tcp://192.0.2.7:1","udp://192.0.2.7:2"],"expires_at":"2026-03-04T13:00:00.000Z","changed":true,"left_out":[]}}`},
		{bearer(token), `{"data":{"endpoints":["tcp://192.0.2.7:1","udp://192.0.2.7:2"],"expires_at":"2026-03-04T13:00:10.000Z","changed":false,"left_out":[]}}`},
		{"Authorization: bearer  " + token, `{"data":{"endpoints":["tcp://192.0.2.7:1","udp://192.0.2.7:2"],"expires_at":"2026-03-04T13:00:20.000Z","changed":false,"left_out":[]}}`},
		{password("anyone", token), `{"data":{"endpoints":["tcp://192.0.2.7:1","udp://192.0.2.7:2"],"expires_at":"2026-03-04T13:00:30.000Z","changed":false,"left_out":[]}}`},
	} {
		if answer, text := w.do("PUT", "/lease", body, test.header); answer.StatusCode != 200 || text != test.want {
			t.Errorf("%d: %d %s, want %s", i, answer.StatusCode, text, test.want)
		}
		w.pass(10 * time.Second)
	}
	if got := w.callers(1); !slices.Equal(got, []string{"lease.renewed by lease l1"}) {
		t.Errorf("%q", got)
	}
	if n := strings.Count(w.log.String(), `"lease l1"`); n != 1 {
		t.Errorf("%d audit lines in %s", n, &w.log)
	}
	if answer, list := w.do("GET", "/d/"+full, ""); answer.StatusCode != 200 || list != "tcp://192.0.2.1:11010\ntcp://192.0.2.7:1\nudp://192.0.2.7:2" {
		t.Errorf("the list: %d %s", answer.StatusCode, list)
	}
	if answer, text := w.do("PUT", "/lease", `{"endpoints":[]}`, bearer(token)); answer.StatusCode != 200 || text != `{"data":{"endpoints":[],"expires_at":"","changed":true,"left_out":[]}}` {
		t.Errorf("no endpoints: %d %s", answer.StatusCode, text)
	}
}

// TestPutRefuses: a refused request changes nothing.
func TestPutRefuses(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a", Schemes: []string{"tcp"}, CIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	w.do("PUT", "/lease", `{"endpoints":["tcp://192.0.2.7:1"]}`, bearer(token))
	w.pass(time.Minute)
	for _, test := range []struct {
		path, body string
		status     int
		code       msg.ID
	}{
		{"/lease", `{"endpoints":["udp://192.0.2.7:1"]}`, 400, msg.LeaseScheme},
		{"/lease", `{"endpoints":["tcp://198.51.100.1:1"]}`, 400, msg.LeaseAddress},
		{"/lease", `{"endpoints":["tcp://192.0.2.7"]}`, 400, msg.LeaseEndpoint},
		{"/lease", `{"endpoints":null}`, 400, msg.LeaseEndpointsMissing},
		{"/lease", `{}`, 400, msg.LeaseEndpointsMissing},
		{"/lease", `[]`, 400, ""},
		{"/lease", ``, 400, ""},
		{"/lease?slot=b", `{"endpoints":["tcp://192.0.2.8:1"]}`, 400, msg.QueryInvalid},
		{"/lease", `{"endpoints":["` + strings.Repeat("a", 2<<20) + `"]}`, 413, ""},
	} {
		answer, text := w.do("PUT", test.path, test.body, bearer(token))
		if code := msg.ID(answer.Header.Get("X-Error-Code")); answer.StatusCode != test.status || test.code != "" && code != test.code {
			t.Errorf("%s %.60s: %d %s %s", test.path, test.body, answer.StatusCode, code, text)
		}
	}
	if got := w.leased(); got != `a["tcp://192.0.2.7:1"]` || len(w.callers(0)) != 2 {
		t.Errorf("%s %q", got, w.callers(0))
	}
	w.do("PUT", "/lease", `{"endpoints":["tcp://192.0.2.7:2"]}`, bearer(token))
	answer, text := w.do("PUT", "/lease", `{"endpoints":["tcp://192.0.2.7:3"]}`, bearer(token))
	if answer.StatusCode != 429 || answer.Header.Get("Retry-After") != "5" || answer.Header.Get("X-Error-Code") != string(msg.LeaseTooSoon) {
		t.Errorf("a change too soon: %d %v %s", answer.StatusCode, answer.Header, text)
	}
	w.db.Exec(`UPDATE bindings SET status = 'releasing'`)
	if answer, text := w.do("PUT", "/lease", `{"endpoints":["tcp://192.0.2.7:2"]}`, bearer(token)); answer.StatusCode != 409 {
		t.Errorf("a usage that is released: %d %s", answer.StatusCode, text)
	}
}

// TestLeftOut: a node is told which of its endpoints have no room, in which format, and why; its own change at once, that of
// another node after 5 seconds.
func TestLeftOut(t *testing.T) {
	w := newListenerWorld(t)
	w.db.Exec(`UPDATE usages SET txt_endpoints = '["tcp://192.0.2.1:1"]' WHERE seq = 1`)
	w.db.Exec(`INSERT INTO usage_options (usage, formats, checking, peer_id) VALUES (1, '["mesh1","hostport"]', '', '')`)
	one, other := w.lease("u1", Rules{Slot: "b"}), w.lease("u1", Rules{Slot: "a"})
	long := "tcp://" + strings.Repeat("x", 60) + "." + strings.Repeat("x", 60) + "." + strings.Repeat("x", 60) + ":1"
	put := func(token, endpoint string) string {
		t.Helper()
		w.pass(5 * time.Second)
		_, text := w.do("PUT", "/lease", `{"endpoints":["`+endpoint+`"]}`, bearer(token), "Accept-Language: en")
		_, text, _ = strings.Cut(text, `"left_out":`)
		return text
	}
	long1 := `{"format":"mesh1","endpoint":"` + long + `","reason":"the value has 257 octets, 255 at most"}`
	long2 := `{"format":"hostport","endpoint":"` + long + `","reason":"the host is a name, and this format has addresses only"}`
	for _, step := range []struct{ token, endpoint, want string }{
		{one, long, `[` + long2 + `]}}`},
		{other, "tcp://192.0.2.7:11010", `[]}}`},
		{one, long, `[` + long1 + "," + long2 + `]}}`},
		{other, "tcp://192.0.2.7:11010", `[]}}`},
		{one, "tcp://192.0.2.8:1", `[]}}`},
	} {
		if got := put(step.token, step.endpoint); got != step.want {
			t.Errorf("%.40s: left_out is %s, want %s", step.endpoint, got, step.want)
		}
	}
	if _, text := w.do("PUT", "/lease", `{"endpoints":["`+long+`"]}`, bearer(one)); strings.Contains(text, "left_out") {
		t.Errorf("a refusal: %s", text)
	}
}

// TestHook: the query of a hook becomes one endpoint, which replaces those of its protocol, or all if it names none.
func TestHook(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"})
	for _, test := range []struct{ query, client, want string }{
		{"?addr=192.0.2.7&port=1234&proto=udp", remote, `"udp://192.0.2.7:1234"`},
		{"?addr=192.0.2.7&port=1234&proto=udp", remote, `"udp://192.0.2.7:1234"`},
		{"?addr=2001:db8::7&port=1&proto=tcp", remote, `"udp://192.0.2.7:1234","tcp://[2001:db8::7]:1"`},
		{"?addr=%3A%3Affff:192.0.2.8&port=65535", remote, `"tcp://192.0.2.8:65535"`},
		{"?addr=10.0.0.1&port=1", remote, ""},
		{"?port=1&addr=", "1.1.1.1", `"tcp://1.1.1.1:1"`},
		{"?port=1&proto=udp", "2606:4700::1", `"tcp://1.1.1.1:1","udp://[2606:4700::1]:1"`},
		{"?port=1", "10.0.0.1", ""},
		{"?port=1", "", ""},
		{"?addr=192.0.2.7", remote, ""},
		{"?addr=192.0.2.7&port=0", remote, ""},
		{"?addr=192.0.2.7&port=65536", remote, ""},
		{"?addr=192.0.2.7&port=+1", remote, ""},
		{"?addr=0.0.0.0&port=1", remote, ""},
		{"?addr=127.0.0.1&port=1", remote, ""},
		{"?addr=::1&port=1", remote, ""},
		{"?addr=224.0.0.1&port=1", remote, ""},
		{"?addr=fe80::1%25eth0&port=1", remote, ""},
		{"?addr=a.example&port=1", remote, ""},
		{"?addr=192.0.2.7&port=1&proto=a b", remote, ""},
		{"?addr=192.0.2.7&port=1&proto=", remote, ""},
		{"?addr=192.0.2.7&port=1&proto={x}", remote, ""},
		{"?address=192.0.2.7&port=1", remote, ""},
		{"?addr=192.0.2.7&port=1&port=2", remote, ""},
		{"?addr=192.0.2.7&port=1;x", remote, ""},
		{"", remote, ""},
	} {
		before := w.leased()
		w.pass(5 * time.Second)
		answer, text := w.do("GET", "/lease"+strings.ReplaceAll(test.query, " ", "%20"), "", bearer(token), "X-Forwarded-For: "+test.client)
		switch {
		case test.want == "" && (answer.StatusCode != 400 || w.leased() != before):
			t.Errorf("%s from %s: %d %s, %s", test.query, test.client, answer.StatusCode, text, w.leased())
		case test.want != "" && (answer.StatusCode != 200 || w.leased() != "a["+test.want+"]" || !strings.Contains(text, `"endpoints":[`+test.want+`]`)):
			t.Errorf("%s from %s: %d %s, %s", test.query, test.client, answer.StatusCode, text, w.leased())
		}
	}
}

// TestHookOfEachProtocol: natmap calls its hook once for tcp and once for udp, at any times. Each call replaces what it is about
// and has its own pause; a lease changes four times in 5 seconds. What no call tells for the lease's time goes.
func TestHookOfEachProtocol(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"}) // of an hour
	for i, step := range []struct {
		after      time.Duration
		proto      string
		port, code int
		want       string
	}{
		{0, "tcp", 1, 200, `tcp 1`},
		{0, "udp", 2, 200, `tcp 1 udp 2`},
		{0, "tcp", 1, 200, `tcp 1 udp 2`},
		{time.Second, "tcp", 3, 429, `tcp 1 udp 2`},
		{4 * time.Second, "tcp", 3, 200, `tcp 3 udp 2`},
		{0, "udp", 2, 200, `tcp 3 udp 2`},
		{time.Second, "ws", 4, 200, `tcp 3 udp 2 ws 4`},
		{0, "wss", 5, 200, `tcp 3 udp 2 ws 4 wss 5`},
		{0, "udp", 6, 200, `tcp 3 udp 6 ws 4 wss 5`},
		{3 * time.Second, "quic", 7, 429, `tcp 3 udp 6 ws 4 wss 5`},
		{time.Second, "quic", 7, 200, `tcp 3 udp 6 ws 4 wss 5 quic 7`},
		{59 * time.Minute, "tcp", 3, 200, `tcp 3 udp 6 ws 4 wss 5 quic 7`},
		{58 * time.Second, "quic", 7, 200, `tcp 3 quic 7`},
		{5 * time.Second, "", 8, 200, `tcp 8`},
	} {
		w.pass(step.after)
		path := fmt.Sprintf("/lease?addr=192.0.2.7&port=%d", step.port)
		if step.proto != "" {
			path += "&proto=" + step.proto
		}
		answer, text := w.do("GET", path, "", bearer(token))
		stands := strings.NewReplacer("://192.0.2.7:", " ", `","`, " ", `"`, "").Replace(w.leased())
		if answer.StatusCode != step.code || stands != "a["+step.want+"]" {
			t.Errorf("%d: %d %s, stands %s, want %s", i, answer.StatusCode, text, stands, step.want)
		}
	}
}

// TestWrongTokens: a client may be wrong 10 times in a minute; a right token passes in any case.
func TestWrongTokens(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"})
	const body = `{"endpoints":["tcp://192.0.2.7:1"]}`
	for range 20 { // no token is not a wrong one
		answer, _ := w.do("PUT", "/lease", body)
		if answer.StatusCode != 401 || strings.Join(answer.Header.Values("WWW-Authenticate"), ", ") != `Basic realm="meshddns", Bearer` || answer.Header.Get("X-Error-Code") != string(msg.Unauthorized) {
			t.Fatalf("%d %v", answer.StatusCode, answer.Header)
		}
	}
	for i, header := range []string{
		bearer("x"), bearer(token + "x"), bearer(token[1:]), bearer(strings.ToUpper(token)), bearer("' OR 1=1 --"), password(token, "x"),
		"Authorization: Bearer x", bearer(token + "="), bearer("x"), bearer("x"),
	} {
		if answer, text := w.do("PUT", "/lease", body, header); answer.StatusCode != 401 {
			t.Errorf("%d: %d %s", i, answer.StatusCode, text)
		}
	}
	answer, text := w.do("GET", "/lease?addr=192.0.2.7&port=1", body, bearer("x"))
	wait, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if answer.StatusCode != 429 || err != nil || wait < 1 || wait > 60 || answer.Header.Get("X-Error-Code") != string(msg.TooManyAttempts) {
		t.Errorf("%d %v %s", answer.StatusCode, answer.Header, text)
	}
	if answer, text := w.do("GET", "/nic/update?hostname=a.example.com&password=x", ""); answer.StatusCode != 503 || text != "911" {
		t.Errorf("/nic/update: %d %s", answer.StatusCode, text)
	}
	if answer, text := w.do("PUT", "/lease", body, bearer("x"), "X-Forwarded-For: 198.51.100.10"); answer.StatusCode != 401 {
		t.Errorf("another client: %d %s", answer.StatusCode, text)
	}
	if w.leased() != "a[]" {
		t.Fatal(w.leased())
	}
	if answer, text := w.do("PUT", "/lease", body, bearer(token)); answer.StatusCode != 200 {
		t.Errorf("the right token: %d %s", answer.StatusCode, text)
	}
	w.pass(2 * time.Hour)
	w.must(w.leases.Delete(t.Context(), "u1", "l1"))
	if answer, _ := w.do("PUT", "/lease", body, bearer(token), "X-Forwarded-For: 198.51.100.11"); answer.StatusCode != 401 {
		t.Errorf("the token of a lease that is deleted: %d", answer.StatusCode)
	}
	if strings.Contains(w.log.String(), token) {
		t.Errorf("the token is in the log: %s", &w.log)
	}
}

// TestTokenBesideAnother: a password that a proxy put into Authorization hides no right token, and X-Api-Key counts at doors only.
func TestTokenBesideAnother(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"})
	key, query, update := "X-Api-Key: "+token, "password="+token, "/nic/update?hostname=a.example.com&myip=192.0.2.7&"
	for _, test := range []struct {
		call, authorization, key string
		status                   int
	}{
		{"POST /door", "", key, 200}, {"POST /door", password("proxy", "x"), key, 200}, {"POST /door", bearer("x"), key, 200},
		{"POST /door", bearer(token), "X-Api-Key: x", 200}, {"POST /door", password("me", token), "", 200}, {"POST /door", bearer("x"), "X-Api-Key: y", 401},
		{"GET " + update + query, password("proxy", "x"), "", 200}, {"GET " + update + query, bearer("x"), "", 200}, {"GET " + update + "password=x", bearer(token), "", 200},
		{"GET " + update, "", key, 401}, {"GET " + update, password("proxy", "x"), key, 401},
		{"GET /lease?addr=192.0.2.7&port=1", "", key, 401}, {"PUT /lease", "", key, 401}, {"GET /lease?addr=192.0.2.7&port=1&" + query, "", "", 401},
		{"POST /door?" + query, "", "", 401},
	} {
		w.pass(10 * time.Second)
		method, path, _ := strings.Cut(test.call, " ")
		if answer, text := w.do(method, path, "", test.authorization, test.key); answer.StatusCode != test.status {
			t.Errorf("%v: %d %s", test, answer.StatusCode, text)
		}
	}
}

// TestOwnSlot: a token changes the endpoints of its slot and of nothing else.
func TestOwnSlot(t *testing.T) {
	w := newListenerWorld(t)
	a, b, c := w.lease("u1", Rules{Slot: "a"}), w.lease("u1", Rules{Slot: "b"}), w.lease("u2", Rules{Slot: "c"})
	for i, token := range []string{a, b, c} {
		w.do("PUT", "/lease", `{"endpoints":["tcp://192.0.2.7:`+strconv.Itoa(i+1)+`"]}`, bearer(token))
	}
	w.pass(time.Minute)
	w.do("PUT", "/lease", `{"endpoints":["tcp://192.0.2.8:1"],"slot":"b","id":"l2","usage":2}`, bearer(a))
	if got := w.leased(); got != `a["tcp://192.0.2.8:1"] b["tcp://192.0.2.7:2"] c["tcp://192.0.2.7:3"]` {
		t.Error(got)
	}
	if answer, text := w.do("GET", "/nic/update?hostname=b.example.com&myip=192.0.2.9", "", password("x", b)); answer.StatusCode != 200 || text != "nohost" {
		t.Errorf("the name of another usage: %d %s", answer.StatusCode, text)
	}
	if got := w.leased(); got != `a["tcp://192.0.2.8:1"] b["tcp://192.0.2.7:2"] c["tcp://192.0.2.7:3"]` {
		t.Error(got)
	}
}

// TestClient: only a trusted proxy tells the client's address, and only the last one that is not a
// proxy counts.
func TestClient(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"})
	for i, test := range []struct{ base, forwarded, want string }{
		{w.behind, "1.1.1.1", "1.1.1.1"},
		{w.behind, "8.8.8.8, 1.1.1.2", "1.1.1.2"},
		{w.behind, "1.1.1.3, 203.0.113.5", "1.1.1.3"},
		{w.behind, "1.1.1.4,203.0.113.5 , 127.0.0.1", "1.1.1.4"},
		{w.behind, "::ffff:1.1.1.5", "1.1.1.5"},
		{w.behind, "2606:4700::1", "2606:4700::1"},
		{w.behind, "203.0.113.5", "203.0.113.5"},
		{w.behind, "1.1.1.6, unknown", ""},
		{w.behind, "", ""},
		{w.behind, "1.1.1.6:80", "1.1.1.6"},
		{w.behind, "8.8.8.8, 1.1.1.7:51008, 203.0.113.5:51009", "1.1.1.7"},
		{w.behind, "[2606:4700::2]:51008", "2606:4700::2"},
		{w.behind, "[::ffff:1.1.1.8]:51008", "1.1.1.8"},
		{w.behind, "[fe80::1%eth0]:80", ""},
		{w.behind, "fe80::1%eth0", ""},
		{w.behind, "1.1.1.6:http", ""},
		{w.plain, "1.1.1.7", "127.0.0.1"},
	} {
		w.pass(time.Minute)
		w.send("PUT", test.base+"/lease", `{"endpoints":["tcp://192.0.2.7:`+strconv.Itoa(i+1)+`"]}`, bearer(token), "X-Forwarded-For: "+test.forwarded)
		l, err := w.leases.Find(t.Context(), Token(token))
		if err != nil || l.RenewedBy != test.want || !strings.HasSuffix(l.Endpoints[0], ":"+strconv.Itoa(i+1)) {
			t.Errorf("%q: from %q %v, want %q", test.forwarded, l.RenewedBy, err, test.want)
		}
	}
	w.pass(time.Minute)
	if answer, text := w.send("GET", w.plain+"/lease?port=1", "", bearer(token), "X-Forwarded-For: 1.1.1.1"); answer.StatusCode != 400 {
		t.Errorf("an untrusted client: %d %s", answer.StatusCode, text)
	}
	for i := range 11 { // a client cannot count as many
		answer, _ := w.send("PUT", w.plain+"/lease", "{}", bearer("x"), "X-Forwarded-For: 1.1.1."+strconv.Itoa(i))
		if want := []int{401, 429}[i/10]; answer.StatusCode != want {
			t.Errorf("wrong token %d: %d", i, answer.StatusCode)
		}
	}
}

// TestAllow: a 405 names the methods that are served, and no other one.
func TestAllow(t *testing.T) {
	w := newListenerWorld(t)
	for _, path := range []string{"/lease", "/nic/update", "/d/" + full} {
		refused, _ := w.do("PATCH", path, "")
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"} {
			answer, _ := w.do(method, path, "")
			if named := slices.Contains(strings.Split(refused.Header.Get("Allow"), ", "), method); named != (answer.StatusCode != 405) {
				t.Errorf("%s %s: %d, and Allow: %s", method, path, answer.StatusCode, refused.Header.Get("Allow"))
			}
		}
	}
}

// TestNothingElse: there is no administration and no listing, and HEAD does not renew.
func TestNothingElse(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"})
	for _, test := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/", 404}, {"GET", "/d", 404}, {"GET", "/d/", 404}, {"GET", "/d/example.com", 404}, {"GET", "/leases", 404}, {"GET", "/lease/l1", 404},
		{"GET", "/lease/", 404}, {"GET", "/healthz", 404}, {"GET", "/metrics", 404}, {"GET", "/api/v1/ddns/config", 404}, {"GET", "/api/v1/ddns/usages/u1/leases", 404},
		{"POST", "/api/v1/ddns/usages/u1/leases", 404}, {"GET", "/nic", 404}, {"GET", "/nic/update/x", 404}, {"GET", "//lease", 404}, {"GET", "/d/../lease", 404},
		{"HEAD", "/lease?addr=192.0.2.7&port=1", 405}, {"HEAD", "/nic/update?hostname=a.example.com&myip=192.0.2.7", 405},
		{"POST", "/lease", 405}, {"DELETE", "/lease", 405}, {"OPTIONS", "/lease", 405}, {"POST", "/nic/update", 405}, {"PUT", "/d/" + full, 405},
		{"HEAD", "/d/" + full, 200},
	} {
		answer, text := w.do(test.method, test.path, "", bearer(token))
		if answer.StatusCode != test.status || (answer.Header.Get("Allow") != "") != (test.status == 405) {
			t.Errorf("%s %s: %d %v %s", test.method, test.path, answer.StatusCode, answer.Header, text)
		}
	}
	for _, header := range []string{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example", "X-Meshddns-Notification: 1"} {
		if answer, text := w.do("GET", "/lease?addr=192.0.2.7&port=1", "", bearer(token), header); answer.StatusCode != 403 {
			t.Errorf("%s: %d %s", header, answer.StatusCode, text)
		}
	}
	if w.leased() != "a[]" {
		t.Error(w.leased())
	}
}

// TestRefusalsInTheLog: refusals are a line a second and kind in the log, which counts the others,
// however many a node causes.
func TestRefusalsInTheLog(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a", Schemes: []string{"tcp"}})
	refused := []struct {
		path, body string
		status     int
	}{
		{"/lease", `{"endpoints":1}`, 400}, {"/lease", `{"endpoints":["udp://192.0.2.7:1"]}`, 400},
		{"/lease?x=1", `{"endpoints":[]}`, 400}, {"/lease", strings.Repeat(" ", web.MaxBody+1), 413},
	}
	began := time.Now()
	const requests = 100
	for range requests {
		for _, r := range refused {
			if answer, text := w.do("PUT", r.path, r.body, bearer(token)); answer.StatusCode != r.status {
				t.Fatalf("%s: %d %s", r.path, answer.StatusCode, text)
			}
		}
	}
	counts := regexp.MustCompile(`msg="request refused" who="lease l1"|msg="more: request refused" count=(\d+)`)
	told := func() (refused int) {
		for _, found := range counts.FindAllStringSubmatch(w.log.String(), -1) {
			more, err := strconv.Atoi(found[1])
			if err != nil {
				more = 1
			}
			refused += more
		}
		return refused
	}
	support.Eventually(t, support.Limit, "all refusals are told", func() bool { return told() == len(refused)*requests })
	if lines, most := len(counts.FindAllString(w.log.String(), -1)), len(refused)*(int(time.Since(began)/time.Second)+1); lines > most {
		t.Errorf("%d lines in the time of %d", lines, most)
	}
	if strings.Contains(w.log.String(), "msg=change") {
		t.Errorf("a refusal has an audit line:\n%s", w.log.String())
	}
}
