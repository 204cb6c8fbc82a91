package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ownersFile has a token for an administrator and for each service.
const ownersFile = `admin boss boss-0123456789abcdef
service:elder elder elder-0123456789abcdef
service:twin twin twin-0123456789abcdef
service:outer outer outer-0123456789abcdef
`

// ownerWorld is a program with nested services and a usage that others want to take: 777 is its network.
type ownerWorld struct {
	*program // as an administrator
	nodes    *program
	as       map[string]*program // by token
}

func newOwnerWorld(t *testing.T) *ownerWorld {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, []byte(ownersFile), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &ownerWorld{as: map[string]*program{}}
	w.program, w.nodes = startNodes(t, filepath.Join(dir, "meshddns.db"), "-token-file", file, "-ipv4", "192.31.195.9", "-dns-catalog", "catalog.mesh.example.com", "-dns-host", "ns.example.com,ns1.host.example.com")
	for _, token := range []string{"boss", "elder", "twin", "outer"} {
		p := &program{t: t, log: w.log, http: w.http}
		p.connect()
		p.client.Transport = bearer{token + "-0123456789abcdef", p.client.Transport}
		w.as[token] = p
	}
	w.client = w.as["boss"].client
	w.configureRecord("cfg.mesh")
	for service, domain := range map[string]string{"elder": "mesh.example.com", "twin": "mesh.example.com", "outer": "example.com", "deep": "x.around.mesh.example.com"} {
		w.call(200, "PUT", "/api/v1/ddns/services/"+service, fmt.Sprintf(`{"name":%q,"config":{"domain":%q,"provider":"builtin"}}`, service, domain))
	}
	for _, body := range []string{`"service_id":"elder","custom_prefix":"office"`, `"service_id":"deep","custom_prefix":"inner"`} {
		token := "elder"
		if strings.Contains(body, "deep") {
			token = "boss"
		}
		w.as[token].call(200, "POST", usagesPath+"?wait=30", "{"+body+`,"prefix_mode":"custom","network_id":777,"formats":["mesh1","a","hostport","srv:_x._udp"],"txt_endpoints":["udp://198.51.100.1:777"]}`)
	}
	w.settled()
	return w
}

func (w *ownerWorld) configureRecord(name string) {
	w.call(200, "PUT", configPath, `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"example.com","txt_record_name":"`+name+`","enabled":true,"sync_mode":"auto","txt_endpoints":["tcp://203.0.113.7:1"]}`)
}

// shown is what DNS has at every owner name that a usage with a P has.
func (w *ownerWorld) shown(p string) string {
	var questions []string
	for _, name := range []string{"_mesh." + p, p, "_x._udp." + p, "ip4p." + p, "_dnsaddr." + p, "_acme-challenge." + p, "inner.x.around.mesh.example.com"} {
		for _, kind := range []string{"TXT", "A", "AAAA", "SRV"} {
			questions = append(questions, name, kind)
		}
	}
	return w.dig(append([]string{"+tcp", "+keepopen", "+noall", "+answer", "+nottlid"}, questions...)...)
}

// ownerRows are the rows of the tables in docs/security.md, and how an attacker of each kind comes to them: the service and the
// prefix of his usage, its network, and the name of the configuration's record.
var ownerRows = map[string]struct {
	service, tenant, prefix, p string
	network                    int
	record                     string
}{
	"no other usage has it":                                                                   {"twin", "twin", "free", "free.mesh.example.com", 5, ""},
	"a usage of another service has it, for the same network":                                 {"twin", "twin", "office", "office.mesh.example.com", 777, ""},
	"a usage of another service has it, for another network":                                  {"twin", "twin", "office", "office.mesh.example.com", 5, ""},
	"the configuration's record has it":                                                       {"twin", "twin", "cfg", "cfg.mesh.example.com", 5, "_mesh.cfg.mesh"},
	"no other domain is there or below":                                                       {"twin", "twin", "free", "free.mesh.example.com", 5, ""},
	"the domain of another service, or of the configuration, is there or below":               {"outer", "outer", "mesh", "mesh.example.com", 5, ""},
	"the program answers for the name: `ns.<zone>`, a `-dns-host`, the catalog":               {"outer", "outer", "ns", "ns.example.com", 5, ""},
	"a `-dns-host` lies below, for which a certificate of `*.p.d` may be valid: certificates": {"outer", "outer", "host", "host.example.com", 5, ""},
	"the configuration's TXT record is there":                                                 {"twin", "twin", "txt", "txt.mesh.example.com", 5, "txt.mesh"},
}

var ownerRow = regexp.MustCompile("(?m)^\\| (.+) \\| `([a-z_]+)`(, with a warning)? \\| `([a-z_]+)`(, with a warning)? \\|$")

// TestOwnerAttacks attacks each owner name by each right: it reserves, changes formats and endpoints, renews a lease and puts a challenge,
// and looks at DNS. docs/security.md says what each may do.
func TestOwnerAttacks(t *testing.T) {
	notShort(t)
	t.Parallel()
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := ownerRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) != len(ownerRows) {
		t.Fatalf("docs/security.md has %d rows, want %d", len(rows), len(ownerRows))
	}
	w := newOwnerWorld(t)
	name := true
	for _, row := range rows {
		a, known := ownerRows[row[1]]
		if !known {
			t.Fatalf("docs/security.md has the row %q", row[1])
		}
		if name = name && !strings.Contains(row[1], "domain"); a.record != "" {
			w.configureRecord(a.record)
		}
		w.attack(t, row[1]+", by an administrator", a.service, "boss", a.prefix, a.p, a.network, row[2], row[3] != "" || row[2] != "published", name)
		w.attack(t, row[1]+", by a tenant", a.service, a.tenant, a.prefix, a.p, a.network, row[4], row[5] != "" || row[4] != "published", name)
		w.configureRecord("cfg.mesh")
	}
}

// attack takes all that a token can have at a P, and gives it back. want is what it has then: at _mesh.P if name is true, else below.
func (w *ownerWorld) attack(t *testing.T, title, service, token, prefix, p string, network int, want string, warned, name bool) {
	t.Helper()
	w.quiet()
	before, last := w.shown(p), w.lastEvent()
	mine := w.as[token]
	reserved := mine.call(200, "POST", usagesPath+"?wait=30", fmt.Sprintf(
		`{"service_id":%q,"prefix_mode":"custom","custom_prefix":%q,"network_id":%d,"formats":["mesh1","a"],"txt_endpoints":["udp://198.51.100.66:1"]}`, service, prefix, network))
	id := reserved.field("id")
	patched := mine.call(200, "PATCH", usagesPath+"/"+id+"?wait=30", `{"formats":["mesh1","a","hostport","srv:_x._udp","ip4p"],"txt_endpoints":["udp://198.51.100.66:66"]}`)
	lease := mine.call(200, "POST", usagesPath+"/"+id+"/leases", `{"slot":"a","ttl":3600,"acme":true}`).field("token")
	w.nodes.call(200, "PUT", "/lease", `{"endpoints":["udp://198.51.100.67:67"]}`, "Authorization", "Bearer "+lease)
	challenge, err := w.nodes.ask("POST", "/update", `{"txt":"`+strings.Repeat("A", 43)+`"}`, "Authorization", "Bearer "+lease)
	if err != nil {
		t.Fatal(err)
	}
	w.quiet()
	shown, usage := w.shown(p), mine.call(200, "GET", usagesPath+"/"+id, "").body
	events := mine.call(200, "GET", fmt.Sprintf("%s/%s/events?after=%d", usagesPath, id, last), "").body
	at := func(owner, kind string) bool {
		return regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(owner) + `\.\s.*\s` + kind + `\s.*(198\.51\.100\.6[67]|AAAA)`).MatchString(shown)
	}
	stands := map[string]bool{"mesh1": at("_mesh."+p, "TXT"), "a": at(p, "A"), "hostport": at(p, "TXT"), "acme": at("_acme-challenge."+p, "TXT")}
	switch code := challenge.header.Get("X-Error-Code"); {
	case name && want == "conflict", want == "network_conflict" && token != "boss" && stands["hostport"]:
		if want == "conflict" && (shown != before || challenge.status != 409 || code != "conflict" || !strings.Contains(events, `"record.conflict"`)) {
			t.Errorf("%s: DNS has\n%s\nbefore\n%s\nthe challenge: %d %s\nthe events: %s", title, shown, before, challenge.status, challenge.body, events)
		}
	case strings.Contains(title, ": certificates, by"):
		if !stands["mesh1"] || !stands["a"] || !stands["hostport"] || stands["acme"] || challenge.status != 403 || code != want {
			t.Errorf("%s: %v, the challenge %d %s, in\n%s", title, stands, challenge.status, challenge.body, shown)
		}
		warned = false // only the node asks for certificates
	case want == "name_not_allowed":
		if !stands["mesh1"] || stands["a"] || stands["hostport"] || stands["acme"] || challenge.status != 403 || code != want || strings.Count(usage, want) == 0 && !strings.Contains(usage, `"state":"failed"`) {
			t.Errorf("%s: %v, the challenge %d %s, in\n%s\n%s", title, stands, challenge.status, challenge.body, shown, usage)
		}
	case want == "network_conflict":
		if !stands["mesh1"] || !stands["a"] || stands["hostport"] || !stands["acme"] {
			t.Errorf("%s: %v in\n%s", title, stands, shown)
		}
	default:
		if !stands["mesh1"] || !stands["a"] || !stands["hostport"] || !stands["acme"] || challenge.status != 200 {
			t.Errorf("%s: %v, the challenge %d %s, in\n%s", title, stands, challenge.status, challenge.body, shown)
		}
	}
	if told := reserved.body + patched.body; strings.Contains(told, `"warnings"`) != warned {
		t.Errorf("%s: the changes are answered with %s", title, told)
	}
	for _, answer := range []string{reserved.body, patched.body, usage, events, challenge.body} {
		if foreign := regexp.MustCompile(`n=777|elder|deep|198\.51\.100\.1:`).FindString(answer); token != "boss" && foreign != "" {
			t.Errorf("%s: a tenant sees %q in %s", title, foreign, answer)
		}
	}
	if sync := w.call(200, "POST", syncPath+"?dry_run=1", ""); token != "boss" && (strings.Contains(sync.body, `"ok":false`)) {
		t.Errorf("%s: a synchronisation fails: %s", title, sync.body)
	}
	mine.call(200, "DELETE", usagesPath+"/"+id+"?wait=30", "")
	w.quiet()
	if after := w.shown(p); after != before {
		t.Errorf("%s: after the release DNS has\n%s\nbefore\n%s", title, after, before)
	}
}

// quiet waits until nothing is under way.
func (w *ownerWorld) quiet() {
	w.t.Helper()
	w.eventually("nothing is due", func() bool {
		w.call(200, "GET", "/healthz", "")
		a := w.call(200, "GET", usagesPath+"/available?state=pending", "")
		b := w.call(200, "GET", usagesPath+"/available?state=withdrawing", "")
		sync, err := w.try("POST", syncPath, "")
		return strings.Contains(a.body, `"data":[]`) && strings.Contains(b.body, `"data":[]`) && err == nil && sync.status != 202
	})
}
