package lease

import (
	"bytes"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/msg"
)

// TestDyndns: the codes and the endpoints of one update after another. "" keeps the endpoints.
func TestDyndns(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"})
	for _, test := range []struct{ query, client, code, leased string }{
		{"hostname=a.example.com&myip=192.0.2.7", remote, "good 192.0.2.7", `"tcp://192.0.2.7:11010"`},
		{"hostname=a.example.com&myip=192.0.2.7", remote, "nochg 192.0.2.7", ""},
		{"hostname=_mesh.a.example.com&myip=192.0.2.7", remote, "nochg 192.0.2.7", ""},
		{"hostname=_MESH.A.Example.COM.&myip=192.0.2.8", remote, "good 192.0.2.8", `"tcp://192.0.2.8:11010"`},
		{"hostname=a.example.com,b.example.com,A.EXAMPLE.com&myip=192.0.2.9", remote, "good 192.0.2.9\nnohost\ngood 192.0.2.9", `"tcp://192.0.2.9:11010"`},
		{"hostname=b.example.com&myip=192.0.2.1", remote, "nohost", ""},
		{"hostname=example.com&myip=192.0.2.1", remote, "nohost", ""},
		{"hostname=a&myip=192.0.2.1", remote, "nohost", ""},
		{"hostname=&myip=192.0.2.1", remote, "nohost", ""}, // the user is the name of a host then
		{"hostname=,&myip=192.0.2.1", remote, "notfqdn", ""},
		{"hostname=a.example.com&myip=192.0.2.7,2001:db8::7", remote, "good 192.0.2.7,2001:db8::7", `"tcp://192.0.2.7:11010","tcp://[2001:db8::7]:11010"`},
		{"hostname=a.example.com&myip=192.0.2.7&myipv6=2001:db8::8", remote, "good 192.0.2.7,2001:db8::8", `"tcp://192.0.2.7:11010","tcp://[2001:db8::8]:11010"`},
		{"hostname=a.example.com&myip=preserve&myipv6=2001:db8::9", remote, "good 2001:db8::9", `"tcp://192.0.2.7:11010","tcp://[2001:db8::9]:11010"`},
		{"hostname=a.example.com&myip=192.0.2.8&myipv6=Preserve", remote, "good 192.0.2.8", `"tcp://192.0.2.8:11010","tcp://[2001:db8::9]:11010"`},
		{"hostname=a.example.com&myip=preserve&myipv6=preserve", remote, "nochg", ""},
		{"hostname=a.example.com&myip=::ffff:192.0.2.7", remote, "good 192.0.2.7", `"tcp://192.0.2.7:11010","tcp://[2001:db8::9]:11010"`},
		{"hostname=a.example.com&myip=preserve", remote, "nochg", ""},
		{"hostname=a.example.com&myip=192.0.2.7&myipv6=no", remote, "nochg 192.0.2.7", ""},
		{"hostname=a.example.com&myip=192.0.2.8&myipv6=2001:db8::/64", remote, "good 192.0.2.8", `"tcp://192.0.2.8:11010","tcp://[2001:db8::9]:11010"`},
		{"hostname=a.example.com&myip=0.0.0.0&myipv6=2001:db8::10", remote, "good 2001:db8::10", `"tcp://192.0.2.8:11010","tcp://[2001:db8::10]:11010"`},
		{"hostname=a.example.com&myip=192.0.2.9,nonsense&myipv6=fe80::1", remote, "good 192.0.2.9", `"tcp://192.0.2.9:11010","tcp://[2001:db8::10]:11010"`},
		{"hostname=a.example.com&myip=100.64.0.5&myipv6=2001:db8::11", remote, "good 2001:db8::11", `"tcp://192.0.2.9:11010","tcp://[2001:db8::11]:11010"`},
		{"hostname=a.example.com", "1.1.1.1", "good 1.1.1.1", `"tcp://1.1.1.1:11010","tcp://[2001:db8::11]:11010"`},
		{"hostname=a.example.com&myip=&myipv6=", "2606:4700::1", "good 2606:4700::1", `"tcp://1.1.1.1:11010","tcp://[2606:4700::1]:11010"`},
		{"hostname=a.example.com&system=dyndns&wildcard=NOCHG&mx=%zz&myip=192.0.2.7", remote, "good 192.0.2.7", `"tcp://192.0.2.7:11010","tcp://[2606:4700::1]:11010"`},
		{"hostname=b.example.com&offline=YES", remote, "nohost", ""},
		{"hostname=a.example.com&offline=no&myip=192.0.2.7", remote, "nochg 192.0.2.7", ""},
		{"hostname=a.example.com&offline=yes&myip=192.0.2.7", remote, "good", " "},
		{"hostname=a.example.com&offline=YES", remote, "nochg", ""},
		{"hostname=a.example.com&myip=192.0.2.7", remote, "good 192.0.2.7", `"tcp://192.0.2.7:11010"`},
	} {
		want := w.leased()
		if test.leased != "" {
			want = "a[" + strings.TrimSpace(test.leased) + "]"
		}
		w.pass(5 * time.Second)
		answer, text := w.do("GET", "/nic/update?"+test.query, "", password("me", token), "X-Forwarded-For: "+test.client)
		if answer.StatusCode != 200 || text != test.code || w.leased() != want {
			t.Errorf("%s: %d %q %s, want %q %s", test.query, answer.StatusCode, text, w.leased(), test.code, want)
		}
		if answer.Header.Get("Content-Length") != strconv.Itoa(len(text)+1) || answer.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %v", test.query, answer.Header)
		}
	}
}

// TestDyndnsFamilies: a router that sends each family in a request of its own keeps both, and each has a limit and
// a time of its own.
func TestDyndnsFamilies(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"})
	for _, test := range []struct {
		after               time.Duration
		query, code, leased string
	}{
		{0, "myip=192.0.2.7", "good 192.0.2.7", `"tcp://192.0.2.7:11010"`},
		{0, "myip=2001:db8::7", "good 2001:db8::7", `"tcp://192.0.2.7:11010","tcp://[2001:db8::7]:11010"`},
		{4 * time.Second, "myip=192.0.2.8", "911", `"tcp://192.0.2.7:11010","tcp://[2001:db8::7]:11010"`},
		{0, "myipv6=2001:db8::8", "911", `"tcp://192.0.2.7:11010","tcp://[2001:db8::7]:11010"`},
		{0, "myip=192.0.2.7&myipv6=2001:db8::7", "nochg 192.0.2.7,2001:db8::7", `"tcp://192.0.2.7:11010","tcp://[2001:db8::7]:11010"`},
		{0, "myip=2001:db8::7,192.0.2.7", "911", `"tcp://192.0.2.7:11010","tcp://[2001:db8::7]:11010"`}, // another order
		{time.Second, "myip=192.0.2.8", "good 192.0.2.8", `"tcp://192.0.2.8:11010","tcp://[2001:db8::7]:11010"`},
		{0, "myipv6=2001:db8::8", "good 2001:db8::8", `"tcp://192.0.2.8:11010","tcp://[2001:db8::8]:11010"`},
		{time.Hour - time.Second, "myip=192.0.2.8", "nochg 192.0.2.8", `"tcp://192.0.2.8:11010","tcp://[2001:db8::8]:11010"`},
		{time.Second, "myip=192.0.2.8", "good 192.0.2.8", `"tcp://192.0.2.8:11010"`}, // IPv6 was told an hour ago
		{time.Minute, "myipv6=2001:db8::8", "good 2001:db8::8", `"tcp://192.0.2.8:11010","tcp://[2001:db8::8]:11010"`},
		{time.Hour - time.Second, "myip=preserve&myipv6=2001:db8::8", "nochg 2001:db8::8", `"tcp://192.0.2.8:11010","tcp://[2001:db8::8]:11010"`},
		{time.Hour - time.Second, "myipv6=2001:db8::8", "nochg 2001:db8::8", `"tcp://192.0.2.8:11010","tcp://[2001:db8::8]:11010"`},
	} {
		w.pass(test.after)
		_, text := w.do("GET", "/nic/update?hostname=a.example.com&"+test.query, "", password("me", token))
		if text != test.code || w.leased() != "a["+test.leased+"]" {
			t.Errorf("%s: %q %s, want %q %s", test.query, text, w.leased(), test.code, test.leased)
		}
	}
}

// TestDyndnsPaths: routers put slashes of their own around the path, and their clients end at a redirect or a 404.
func TestDyndnsPaths(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"})
	for path, status := range map[string]int{
		"//nic/update": 200, "/nic//update": 200, "/nic/update/": 200, "///nic///update//": 200,
		"//nic/updates": 404, "//nic/update/x": 404, "//lease": 404, "//nic": 404,
	} {
		if answer, text := w.do("GET", path+"?hostname=a.example.com&myip=192.0.2.7", "", password("me", token)); answer.StatusCode != status {
			t.Errorf("%s: %d %s", path, answer.StatusCode, text)
		}
	}
	if answer, _ := w.do("HEAD", "//nic/update", ""); answer.StatusCode != 405 {
		t.Errorf("HEAD: %d", answer.StatusCode)
	}
}

// TestDyndnsTrouble: what cannot be done is a 911 with the status 503, and the log says why.
func TestDyndnsTrouble(t *testing.T) {
	w := newListenerWorld(t)
	tokens := map[string]string{
		"a": w.lease("u1", Rules{Slot: "a"}),
		"b": w.lease("u1", Rules{Slot: "b", Schemes: []string{"wss"}}),
		"c": w.lease("u1", Rules{Slot: "c", CIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}),
	}
	last := func(slot string) *refusal {
		l, err := w.leases.Find(t.Context(), Token(tokens[slot]))
		w.must(err)
		return w.leases.show(l).LastRefused
	}
	for _, test := range []struct{ slot, query, client, log string }{
		{"a", "myip=nonsense", remote, "query_invalid"},
		{"a", "myip=0.0.0.0", remote, "query_invalid"},
		{"a", "myip=0.0.0.0&myipv6=fe80::1", remote, "query_invalid"},
		{"a", "myip=no&myipv6=preserve", remote, "query_invalid"},
		{"a", "myipv6=2001:db8::/64", remote, "query_invalid"},
		{"a", "", "10.0.0.1", "lease_address_missing"},
		{"a", "", "unknown", "lease_address_missing"},
		{"b", "myip=192.0.2.7", remote, "lease_template_missing"},
		{"c", "myip=198.51.100.7", remote, "lease_address_refused"},
		{"a", "myip=192.168.178.2", remote, "lease_address_refused"},
	} {
		answer, text := w.do("GET", "/nic/update?hostname=a.example.com&"+test.query, "", password("me", tokens[test.slot]), "X-Forwarded-For: "+test.client)
		if log := w.log.String(); answer.StatusCode != http.StatusServiceUnavailable || text != "911" || !strings.Contains(log, test.log) {
			t.Errorf("%s %s: %d %q; the log says %s", test.slot, test.query, answer.StatusCode, text, log)
		}
		if last := last(test.slot); last == nil || string(last.Reason) != test.log || last.At != "2026-03-04T12:00:00.000Z" {
			t.Errorf("%s %s: last refused %+v", test.slot, test.query, last)
		}
	}
	if w.leased() != "a[] b[] c[]" {
		t.Error(w.leased())
	}
	if a, b, c := last("a").Address, last("b").Address, last("c").Address; a != "192.168.178.2" || b != remote || c != "198.51.100.7" {
		t.Errorf("refused addresses %s, %s, %s", a, b, c)
	}
	if text := string(events.JSON(last("c"))); text != `{"at":"2026-03-04T12:00:00.000Z","reason":"lease_address_refused","address":"198.51.100.7"}` {
		t.Error(text)
	}
	var figures bytes.Buffer
	w.leases.WriteMetrics(daemon.NewPage(&figures), 0, 0)
	for _, want := range []string{`{reason="lease_address_refused"} 2`, `{reason="query_invalid"} 5`, `{reason="lease_address_missing"} 2`, `{reason="lease_template_missing"} 1`} {
		if !strings.Contains(figures.String(), "meshddns_lease_refused_total"+want+"\n") {
			t.Errorf("%s is not in\n%s", want, &figures)
		}
	}
	w.do("GET", "/nic/update?hostname=a.example.com&myip=192.0.2.7", "", password("me", tokens["a"]))
	if last("a") != nil {
		t.Errorf("after a renewal: last refused %+v", last("a"))
	}
	if answer, text := w.do("GET", "/nic/update?hostname=a.example.com&myip=192.0.2.8", "", password("me", tokens["a"])); answer.StatusCode != 503 || text != "911" {
		t.Errorf("a change too soon: %d %s", answer.StatusCode, text)
	}
	if last("a").Reason != msg.LeaseTooSoon || !strings.Contains(w.log.String(), "code=lease_too_soon") {
		t.Errorf("a change too soon: last refused %+v; the log says %s", last("a"), &w.log)
	}
	w.db.Exec(`UPDATE bindings SET status = 'releasing'`)
	if answer, text := w.do("GET", "/nic/update?hostname=a.example.com&myip=192.0.2.8", "", password("me", tokens["a"])); answer.StatusCode != 200 || text != "nohost" {
		t.Errorf("a usage that is released: %d %s", answer.StatusCode, text)
	}
	for _, token := range tokens {
		if strings.Contains(w.log.String(), token) {
			t.Errorf("a token is in the log: %s", &w.log)
		}
	}
}

// TestDyndnsTokens: the token is a password or in the query.
func TestDyndnsTokens(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a", Template: []string{"tcp://{ip}:1", "udp://{ip}:1"}})
	for _, test := range []struct{ query, header, code string }{
		{"hostname=a.example.com&myip=192.0.2.1", password("me", token), "good 192.0.2.1"},
		{"hostname=a.example.com&myip=192.0.2.2", bearer(token), "good 192.0.2.2"},
		{"hostname=a.example.com&myip=192.0.2.3&password=" + token, "", "good 192.0.2.3"},
		{"hostname=a.example.com&myip=192.0.2.4&username=me&password=" + token, password("me", ""), "good 192.0.2.4"},
		{"myip=192.0.2.5", password("a.example.com", token), "good 192.0.2.5"},
		{"myip=192.0.2.6&password=" + token, "", "notfqdn"},
		{"hostname=a.example.com&myip=192.0.2.6", "", "badauth"},
		{"hostname=a.example.com&myip=192.0.2.6", password("me", "x"), "badauth"},
		{"hostname=a.example.com&myip=192.0.2.6", password(token, "me"), "badauth"},
		{"hostname=a.example.com&myip=192.0.2.6&password=x", "", "badauth"},
		{"hostname=a.example.com&myip=192.0.2.6", "Authorization: Basic ???", "badauth"},
	} {
		w.pass(5 * time.Second)
		before := w.leased()
		answer, text := w.do("GET", "/nic/update?"+test.query, "", test.header)
		status := map[bool]int{true: 401, false: 200}[test.code == "badauth"]
		if answer.StatusCode != status || text != test.code || (answer.Header.Get("WWW-Authenticate") != "") != (status == 401) {
			t.Errorf("%s %s: %d %q, want %q", test.query, test.header, answer.StatusCode, text, test.code)
		}
		if changed := w.leased() != before; changed != strings.HasPrefix(test.code, "good") {
			t.Errorf("%s: %s", test.code, w.leased())
		}
	}
	if got := w.leased(); got != `a["tcp://192.0.2.5:1","udp://192.0.2.5:1"]` {
		t.Error(got)
	}
	if strings.Contains(w.log.String(), token) {
		t.Errorf("the token is in the log: %s", &w.log)
	}
}

// TestDyndnsHosts: a request may have 20 names, each with a line.
func TestDyndnsHosts(t *testing.T) {
	w := newListenerWorld(t)
	token := w.lease("u1", Rules{Slot: "a"})
	_, text := w.do("GET", "/nic/update?myip=192.0.2.7&hostname=a.example.com"+strings.Repeat(",b.example.com", 30), "", password("me", token))
	if want := "good 192.0.2.7" + strings.Repeat("\nnohost", 19); text != want {
		t.Errorf("%q", text)
	}
}
