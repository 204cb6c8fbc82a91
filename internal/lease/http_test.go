package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/msg"
)

// TestPostWarns: a misspelled member is told, because the lease permits more than was meant.
func TestPostWarns(t *testing.T) {
	w := newWorld(t)
	status, _, answer := w.ask("POST", "/usages/u1/leases", `{"slot":"a","ttl":60,"cidr":["10.0.0.0/8"]}`)
	if status != 200 || !strings.Contains(answer, `"warnings":[`) || !strings.Contains(answer, "cidrs") {
		t.Errorf("%d %s", status, answer)
	}
}

// TestPost: only the answer has the token, and a token of 32 octets; the files of the database have a
// hash of it.
func TestPost(t *testing.T) {
	w := newWorld(t)
	status, _, answer := w.ask("POST", "/usages/u1/leases", `{"slot":"node-1","schemes":["tcp","ws"],"cidrs":["192.0.2.9/24","2001:db8::1"],"ttl":60,"template":["tcp://{ip}:11010"],"peer_id":"12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"}`)
	if status != 200 || !strings.Contains(answer, `"expires_at":"2026-03-04T12:01:00.000Z"`) || !strings.Contains(answer, `"slot":"node-1"`) {
		t.Fatalf("%d %s", status, answer)
	}
	_, rest, _ := strings.Cut(answer, `"token":"`)
	token, _, _ := strings.Cut(rest, `"`)
	if len(token) != 43 {
		t.Errorf("the token is %q", token)
	}
	_, _, list := w.ask("GET", "/usages/u1/leases", "")
	want := `{"data":[{"id":"l1","slot":"node-1","schemes":["tcp","ws"],"cidrs":["192.0.2.0/24","2001:db8::1/128"],"ttl":60,"template":["tcp://{ip}:11010"],"peer_id":"12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA","acme":false,"endpoints":[],"renewed_at":"","expires_at":"","from":""}]}`
	if strings.TrimSpace(list) != want {
		t.Errorf("the list is %s\nwant %s", list, want)
	}
	w.renew(Token(token), "tcp://192.0.2.7:1")
	w.want(`SELECT kind || ' ' || before || ' ' || after FROM events ORDER BY seq`,
		`lease.created  {"id":"l1","slot":"node-1","endpoints":[]}`,
		`lease.renewed {"id":"l1","slot":"node-1","endpoints":[]} {"id":"l1","slot":"node-1","endpoints":["tcp://192.0.2.7:1"]}`)
	hash := Token(token).hash()
	w.want(`SELECT lower(hex(token)) FROM leases`, hash)
	w.must(w.db.Close())
	var files []byte
	for _, end := range []string{"", "-wal", "-shm", "-journal"} {
		part, err := os.ReadFile(w.path + end)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		files = append(files, part...)
	}
	if bytes.Contains(files, []byte(token)) || !bytes.Contains(files, []byte("node-1")) {
		t.Error("the token is in the files of the database, or the slot is not")
	}
	if strings.Contains(w.said.String(), token) {
		t.Error("the token is in the log")
	}
}

// TestPostAtTheLimits: a lease has a slot of 32 characters, a time of a week, and 16 schemes, ranges and templates. One more of these
// is refused.
func TestPostAtTheLimits(t *testing.T) {
	w := newWorld(t)
	list := func(count int, form string) string {
		var all []string
		for i := range count {
			all = append(all, strconv.Quote(fmt.Sprintf(form, i)))
		}
		return strings.Join(all, ",")
	}
	for _, test := range []struct {
		schemes, ranges, templates int
		code                       msg.ID
	}{{16, 16, 16, ""}, {17, 16, 16, msg.LeaseSchemes}, {16, 17, 16, msg.LeaseCIDRs}, {0, 16, 17, msg.LeaseTemplate}} {
		body := fmt.Sprintf(`{"slot":%q,"ttl":604800,"schemes":[%s],"cidrs":[%s],"template":[%s]}`,
			strings.Repeat("a", 32), list(test.schemes, "s%d"), list(test.ranges, "192.0.2.%d"), list(test.templates, "s%d://{ip}:1"))
		if status, code, answer := w.ask("POST", "/usages/u1/leases", body); (status == 200) != (test.code == "") || code != test.code {
			t.Errorf("%+v: %d %s", test, status, answer)
		}
	}
}

// TestPostRefuses: what is refused changes nothing.
func TestPostRefuses(t *testing.T) {
	w := newWorld(t)
	w.db.Exec(`UPDATE bindings SET status = 'releasing' WHERE seq = 1`)
	w.db.Usage(2, "_mesh.b.example.com")
	w.db.Exec(`UPDATE usages SET record_type = 'A' WHERE seq = 2`)
	w.db.Usage(3, "_mesh.c.example.com")
	seventeen := strings.Repeat(`"tcp",`, 16) + `"tcp"`
	for _, test := range []struct {
		path, body string
		status     int
		code       msg.ID
	}{
		{"u3", `{"slot":"","ttl":60}`, 400, msg.LeaseSlot},
		{"u3", `{"ttl":60}`, 400, msg.LeaseSlot},
		{"u3", `{"slot":"A","ttl":60}`, 400, msg.LeaseSlot},
		{"u3", `{"slot":"a_b","ttl":60}`, 400, msg.LeaseSlot},
		{"u3", `{"slot":"a\n","ttl":60}`, 400, msg.LeaseSlot},
		{"u3", `{"slot":"` + strings.Repeat("a", 33) + `","ttl":60}`, 400, msg.LeaseSlot},
		{"u3", `{"slot":"a"}`, 400, msg.LeaseTTL},
		{"u3", `{"slot":"a","ttl":59}`, 400, msg.LeaseTTL},
		{"u3", `{"slot":"a","ttl":604801}`, 400, msg.LeaseTTL},
		{"u3", `{"slot":"a","ttl":9223372036854775807}`, 400, msg.LeaseTTL},
		{"u3", `{"slot":"a","ttl":-60}`, 400, msg.LeaseTTL},
		{"u3", `{"slot":"a","ttl":60,"schemes":["TCP"]}`, 400, msg.LeaseSchemes},
		{"u3", `{"slot":"a","ttl":60,"schemes":["tcp://"]}`, 400, msg.LeaseSchemes},
		{"u3", `{"slot":"a","ttl":60,"schemes":[""]}`, 400, msg.LeaseSchemes},
		{"u3", `{"slot":"a","ttl":60,"schemes":[` + seventeen + `]}`, 400, msg.LeaseSchemes},
		{"u3", `{"slot":"a","ttl":60,"cidrs":["192.0.2.0/33"]}`, 400, msg.LeaseCIDRs},
		{"u3", `{"slot":"a","ttl":60,"cidrs":["a.example"]}`, 400, msg.LeaseCIDRs},
		{"u3", `{"slot":"a","ttl":60,"cidrs":["::ffff:0.0.0.0/95"]}`, 400, msg.LeaseCIDRs},
		{"u3", `{"slot":"a","ttl":60,"cidrs":["192.0.2.0/24",""]}`, 400, msg.LeaseCIDRs},
		{"u3", `{"slot":"a","ttl":60,"cidrs":["fe80::1%eth0"]}`, 400, msg.LeaseCIDRs},
		{"u3", `{"slot":"a","ttl":60,"cidrs":[` + seventeen + `]}`, 400, msg.LeaseCIDRs},
		{"u3", `{"slot":"a","ttl":60,"template":["tcp://192.0.2.1:1"]}`, 400, msg.LeaseTemplate},
		{"u3", `{"slot":"a","ttl":60,"template":["tcp://{ip}"]}`, 400, msg.LeaseTemplate},
		{"u3", `{"slot":"a","ttl":60,"template":["{ip}:1"]}`, 400, msg.LeaseTemplate},
		{"u3", `{"slot":"a","ttl":60,"template":["tcp://{ip}{ip}:1"]}`, 400, msg.LeaseTemplate},
		{"u3", `{"slot":"a","ttl":60,"template":["tcp://a{ip}:1"]}`, 400, msg.LeaseTemplate},
		{"u3", `{"slot":"a","ttl":60,"template":["tcp://{ip}:{port}"]}`, 400, msg.LeaseTemplate},
		{"u3", `{"slot":"a","ttl":60,"template":["tcp://{ip}:1","udp://{ipv4}:1"]}`, 400, msg.LeaseTemplate},
		{"u3", `{"slot":"a","ttl":60,"schemes":["tcp"],"template":["udp://{ip}:1"]}`, 400, msg.LeaseScheme},
		{"u3", `{"slot":"a","ttl":60,"template":[` + seventeen + `]}`, 400, msg.LeaseTemplate},
		{"u3", `{"slot":"a","ttl":60,"peer_id":"nobody"}`, 400, msg.LeasePeerID},
		{"u3", `{"slot":"a","ttl":60,"peer_id":"a b"}`, 400, msg.LeasePeerID},
		{"u3", `{"slot":"a","ttl":60,"peer_id":"` + strings.Repeat("a", 129) + `"}`, 400, msg.LeasePeerID},
		{"u3", `{"slot":"a","ttl":"60"}`, 400, ""},
		{"u3?replace=yes", `{"slot":"a","ttl":60}`, 400, msg.QueryInvalid},
		{"u3?force=1", `{"slot":"a","ttl":60}`, 400, msg.QueryInvalid},
		{"u9", `{"slot":"a","ttl":60}`, 404, msg.UnknownUsage},
		{"u2", `{"slot":"a","ttl":60}`, 404, msg.UnknownUsage},
		{"u1", `{"slot":"a","ttl":60}`, 409, msg.LeaseReleased},
	} {
		usage, query, _ := strings.Cut(test.path, "?")
		status, code, answer := w.ask("POST", "/usages/"+usage+"/leases?"+query, test.body)
		if status != test.status || test.code != "" && code != test.code {
			t.Errorf("%s %s: %d %s %s, want %d %s", test.path, test.body, status, code, answer, test.status, test.code)
		}
	}
	if status, code, _ := w.ask("GET", "/usages/u9/leases", ""); status != 404 || code != msg.UnknownUsage {
		t.Errorf("the list of an unknown usage: %d %s", status, code)
	}
	w.want(`SELECT id FROM leases`)
	w.want(`SELECT kind FROM events`)
	w.want(`SELECT name FROM names`)
}

// TestReplace: a slot has one lease; the one that is replaced is worth nothing any more.
func TestReplace(t *testing.T) {
	w := newWorld(t)
	_, first := w.lease(`{"slot":"a","ttl":60}`)
	_, other := w.lease(`{"slot":"b","ttl":60}`)
	w.renew(first, "tcp://192.0.2.7:1")
	w.renew(other, "tcp://192.0.2.8:1")
	before := w.published()
	if status, code, answer := w.ask("POST", "/usages/u1/leases", `{"slot":"a","ttl":90}`); status != 409 || code != msg.LeaseExists {
		t.Errorf("a slot that has one: %d %s", status, answer)
	}
	w.renew(first, "tcp://192.0.2.7:1")
	if w.published() != before {
		t.Error("a refused lease publishes")
	}
	status, _, answer := w.ask("POST", "/usages/u1/leases?replace=1", `{"slot":"a","ttl":90}`)
	if status != 200 || strings.Contains(answer, string(first)) {
		t.Fatalf("%d %s", status, answer)
	}
	if _, err := w.try(first, "tcp://192.0.2.7:1"); err != ErrUnknown {
		t.Errorf("the old token: %v", err)
	}
	w.want(`SELECT slot || ' ' || ttl || ' ' || endpoints FROM leases ORDER BY slot`, "a 90 []", `b 60 ["tcp://192.0.2.8:1"]`)
	if w.published() == before {
		t.Error("the old endpoints are not withdrawn")
	}
	if got := w.told(); got != "lease.created lease.created lease.renewed lease.renewed lease.ended lease.created" {
		t.Error(got)
	}
	if status, _, answer := w.ask("POST", "/usages/u1/leases?replace=1", `{"slot":"c","ttl":60}`); status != 200 {
		t.Errorf("replace of nothing: %d %s", status, answer)
	}
}

// TestPostBound: a usage has 256 leases at most; one of them can be replaced.
func TestPostBound(t *testing.T) {
	w := newWorld(t)
	for i := range MaxLeases {
		w.lease(`{"slot":"s` + strconv.Itoa(i) + `","ttl":60}`)
	}
	if status, code, answer := w.ask("POST", "/usages/u1/leases", `{"slot":"a","ttl":60}`); status != 409 || code != msg.TooManyLeases {
		t.Errorf("%d %s", status, answer)
	}
	if status, _, answer := w.ask("POST", "/usages/u1/leases?replace=1", `{"slot":"s0","ttl":60}`); status != 200 {
		t.Errorf("%d %s", status, answer)
	}
}

// TestRemove: a lease that is deleted is withdrawn, and its token is worth nothing.
func TestRemove(t *testing.T) {
	w := newWorld(t)
	id, token := w.lease(`{"slot":"a","ttl":60}`)
	unused, _ := w.lease(`{"slot":"b","ttl":60}`)
	w.renew(token, "tcp://192.0.2.7:1")
	w.db.Usage(2, "_mesh.b.example.com")
	before := w.published()
	for path, want := range map[string]msg.ID{"/usages/u1/leases/l9": msg.UnknownLease, "/usages/u2/leases/" + id: msg.UnknownLease, "/usages/u9/leases/" + id: msg.UnknownUsage} {
		if status, code, _ := w.ask("DELETE", path, ""); status != 404 || code != want {
			t.Errorf("%s: %d %s", path, status, code)
		}
	}
	if status, _, answer := w.ask("DELETE", "/usages/u1/leases/"+unused, ""); status != 200 || w.published() != before {
		t.Errorf("a lease without endpoints: %d %s, %s publications", status, answer, w.published())
	}
	if status, _, answer := w.ask("DELETE", "/usages/u1/leases/"+id, ""); status != 200 || w.published() == before {
		t.Errorf("%d %s, %s publications", status, answer, w.published())
	}
	if _, err := w.try(token, "tcp://192.0.2.7:1"); err != ErrUnknown {
		t.Errorf("the token: %v", err)
	}
	if status, _, _ := w.ask("DELETE", "/usages/u1/leases/"+id, ""); status != 404 {
		t.Errorf("a second time: %d", status)
	}
	w.pass(2 * time.Minute)
	if got := w.told(); got != "lease.created lease.created lease.renewed lease.ended lease.ended" {
		t.Error(got)
	}
}

// TestRepeatedPostOfChallenges: a token that has put a challenge is in use, also after the challenge is withdrawn.
func TestRepeatedPostOfChallenges(t *testing.T) {
	w := newWorld(t)
	const path, body = "/usages/u1/leases", `{"slot":"a","ttl":60,"acme":true}`
	_, _, first := w.askAgain("POST", path, body, "order 1")
	var made struct{ Data struct{ Token Token } }
	w.must(json.Unmarshal([]byte(first), &made))
	l, err := w.Find(t.Context(), made.Data.Token)
	w.must(err)
	w.must(w.puts(l, 1))
	w.drops(l, 1, true)
	if status, code, _ := w.askAgain("POST", path, body, "order 1"); status != 409 || code != msg.LeaseExists {
		t.Errorf("a token in use for challenges only: %d %s", status, code)
	}
}

// TestRepeatedPost: a client that has not got the answer repeats the request, and gets the same lease with a token that works. No
// token is stored. Once the token is in use, the repetition is refused.
func TestRepeatedPost(t *testing.T) {
	w := newWorld(t)
	w.db.Usage(2, "_mesh.b.example.com")
	type made struct {
		Data struct {
			ID    string
			Token Token
		}
	}
	post := func(path, body, key string) (m made, status int, code msg.ID) {
		t.Helper()
		status, code, answer := w.askAgain("POST", path, body, key)
		if status == 200 {
			w.must(json.Unmarshal([]byte(answer), &m))
		}
		for _, stored := range w.db.Texts(`SELECT answer FROM replays`) {
			if m.Data.Token != "" && strings.Contains(stored, string(m.Data.Token)) {
				t.Errorf("the token is stored: %s", stored)
			}
		}
		return m, status, code
	}
	const path, body = "/usages/u1/leases", `{"slot":"a","ttl":60}`
	first, _, _ := post(path, body, "order 1")
	w.at = w.at.Add(answers.ReplaysKept - time.Second)
	w.restart()
	again, status, _ := post(path, body, "order 1")
	if status != 200 || again.Data.ID != first.Data.ID || again.Data.Token == first.Data.Token {
		t.Fatalf("%d %+v, first %+v", status, again, first)
	}
	if _, err := w.try(first.Data.Token, "tcp://192.0.2.7:1"); err != ErrUnknown {
		t.Errorf("the token of the lost answer: %v", err)
	}
	if got := w.told(); got != "lease.created" {
		t.Errorf("the events are %s", got)
	}
	for _, other := range []struct {
		path, body, key string
		status          int
		code            msg.ID
	}{
		{path, `{"slot":"a","ttl":61}`, "order 1", 409, msg.IdempotencyKeyReused},
		{"/usages/u2/leases", body, "order 1", 409, msg.IdempotencyKeyReused},
		{path + "?replace=1", body, "order 1", 409, msg.IdempotencyKeyReused},
		{path, body, "order 2", 409, msg.LeaseExists},
		{path, body, "", 409, msg.LeaseExists},
		{path, body, "bad\tkey", 400, msg.IdempotencyKeyInvalid},
	} {
		if _, status, code := post(other.path, other.body, other.key); status != other.status || code != other.code {
			t.Errorf("%s %s %q: %d %s, want %d %s", other.path, other.body, other.key, status, code, other.status, other.code)
		}
	}
	w.renew(again.Data.Token, "tcp://192.0.2.7:1")
	if _, status, code := post(path, body, "order 1"); status != 409 || code != msg.LeaseExists {
		t.Errorf("a token in use: %d %s", status, code)
	}
	w.renew(again.Data.Token, "tcp://192.0.2.7:1")
	w.ask("DELETE", path+"/"+first.Data.ID, "")
	if _, status, code := post(path, body, "order 1"); status != 404 || code != msg.UnknownLease {
		t.Errorf("a lease that has ended: %d %s", status, code)
	}
	w.at = w.at.Add(time.Second)
	if later, status, _ := post(path, body, "order 1"); status != 200 || later.Data.ID == first.Data.ID {
		t.Errorf("a day later: %d %+v", status, later)
	}
}
