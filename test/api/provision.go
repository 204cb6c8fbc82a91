package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"meshddns/test/support"
)

// Applied applies documents to an appliance as SIGHUP does, and gives the audit lines and the
// faults.
func (a *Appliance) Applied(t testing.TB, documents ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, text := range documents {
		support.WriteFile(t, filepath.Join(dir, fmt.Sprintf("%d.json", i)), text)
	}
	credentials := t.TempDir()
	support.WriteFile(t, filepath.Join(credentials, "key"), "sesame\n")
	before := len(a.Logs.String())
	err := a.Provision(t.Context(), dir, credentials)
	if err != nil {
		return strings.ReplaceAll(err.Error(), dir+"/", "")
	}
	lines := a.Audited(before)
	for _, fault := range a.Faults() {
		lines = append(lines, strings.ReplaceAll(fault, dir+"/", ""))
	}
	return strings.Join(lines, "\n")
}

var auditLine = regexp.MustCompile(`msg=change who=(.*)`)

// Audited gives the audit lines from an octet of the log on, without what varies.
func (a *Appliance) Audited(from int) (lines []string) {
	for _, found := range auditLine.FindAllStringSubmatch(a.Logs.String()[from:], -1) {
		line, _, _ := strings.Cut(UUIDText.ReplaceAllString(found[1], "<id>"), ` code="" file=`)
		lines = append(lines, line)
	}
	return lines
}

const wholeDocument = `{
  "configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": {"credential": "key"}, "domain": "example.com", "txt_record_name": "@"},
  "services": [
    {"id": "a", "name": "A", "config": {"domain": "a.example", "provider": "webhook", "access_key_id": "x", "access_key_secret": {"credential": "key"}, "n": 1.50}},
    {"id": "b", "name": "B", "config": {"domain": "b.example"}}
  ],
  "usages": [
    {"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615, "network_name": "office"},
    {"service_id": "b", "prefix_mode": "custom", "custom_prefix": "Office", "network_id": 1, "txt_endpoints": ["tcp://192.0.2.1:1"], "description": "mine"}
  ]
}`

// A document is applied by the operations of requests, once: what is there stays as it
// is, byte for byte, and what differs is changed.
func (suite Suite) testProvision(t *testing.T) {
	a := suite.Start(t, Options{Stopped: true})
	const (
		configured = `provision what="PUT /api/v1/ddns/config" id="" status=200`
		serviceA   = `provision what="PUT /api/v1/ddns/services/{id}" id=a status=200`
		serviceB   = `provision what="PUT /api/v1/ddns/services/{id}" id=b status=200`
		reserved   = `provision what="POST /api/v1/ddns/usages" id=<id> status=200`
		patched    = `provision what="PATCH /api/v1/ddns/usages/{id}" id=<id> status=200`
		released   = `provision what="DELETE /api/v1/ddns/usages/{id}" id=<id> status=200`
		deletedB   = `provision what="DELETE /api/v1/ddns/services/{id}" id=b status=200`
		owned      = `provision what=owner id=0123456789ab status=200`
	)
	replace := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(wholeDocument) }
	for _, step := range []struct{ name, document, want string }{
		{"all of it", wholeDocument, strings.Join([]string{configured, serviceA, serviceB, reserved, reserved}, "\n")},
		{"once more", wholeDocument, ""},
		{"masked", replace(`{"credential": "key"}`, `"********"`), ""},
		{"in another writing", replace("1.50", "1.5", `"Office"`, `"oFFICE"`, `"id": "b", "name": "B"`, `"name": "B",   "id": "b"`), ""},
		{"only parts of it", `{"services": [{"id": "b", "name": "B", "config": {"domain": "b.example"}}], "prune": false}`, ""},
		{"less said of a usage", replace(`, "txt_endpoints": ["tcp://192.0.2.1:1"], "description": "mine"`, ""), ""},
		{"another name", replace(`"name": "B"`, `"name": "C"`), serviceB},
		{"another number", replace(`1.50`, `1.51`, `"name": "B"`, `"name": "C"`), serviceA},
		{"another secret", `{"services": [{"id": "a", "name": "A", "config": {"domain": "a.example", "provider": "webhook", "access_key_id": "x", "access_key_secret": "other", "n": 1.51}}]}`, serviceA},
		{"a masked secret beside a change", `{"services": [{"id": "a", "name": "D", "config": {"domain": "a.example", "provider": "webhook", "access_key_id": "x", "access_key_secret": "********"}}]}`, serviceA},
		{"endpoints and a description", replace(`"mine"`, `"yours"`, ":1\"", ":2\"", `"name": "B"`, `"name": "C"`), serviceA + "\n" + patched},
		{"a network's name", `{"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615, "network_name": "home"}]}`, patched},
		{"a usage twice", `{"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 5}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`, reserved + "\n" + reserved},
		{"a usage twice once more", `{"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 5}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`, ""},
		{"an owner", `{"owner": "0123456789ab"}`, owned},
		{"an owner once more", `{"owner": "0123456789ab"}`, ""},
		{"a prefix for another network", `{"prune": true, "services": [{"id": "a", "name": "D", "config": {"domain": "a.example"}}],
			"usages": [{"service_id": "b", "prefix_mode": "custom", "custom_prefix": "office", "network_id": 7},
				{"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`,
			released + "\n" + serviceA + "\n" + reserved},
		{"usages that nobody manages keep their service", `{"prune": true, "services": [{"id": "a", "name": "D", "config": {"domain": "a.example"}}]}`, ""},
		{"pruned", `{"prune": true, "services": [{"id": "a", "name": "D", "config": {"domain": "a.example"}}],
			"usages": [{"service_id": "a", "prefix_mode": "auto", "network_id": 18446744073709551615}, {"service_id": "a", "prefix_mode": "auto", "network_id": 5}]}`,
			released + "\n" + deletedB},
	} {
		before := a.provisioned(t)
		if got := a.Applied(t, step.document); got != step.want {
			t.Errorf("%s:\n%s\nwant\n%s", step.name, got, step.want)
		}
		if same := slices.Equal(before, a.provisioned(t)); same != (step.want == "") {
			t.Errorf("%s: the database is the same: %v", step.name, same)
		}
	}
	if strings.Contains(a.Logs.String(), "sesame") {
		t.Error("the log has a secret")
	}
}

// customUsage is the body of a usage with a prefix of its own.
func customUsage(i int) string {
	return fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"p%d","network_id":%d}`, i, i)
}

// customUsages joins the bodies of the first usages.
func customUsages(to int) string {
	var all []string
	for i := range to {
		all = append(all, customUsage(i))
	}
	return strings.Join(all, ",")
}

// faultyDocuments are documents, and the faults that they are told to have.
var faultyDocuments = []struct{ name, document, want string }{
	{"masked on a new appliance", `{
"configuration": {"provider": "builtin", "access_key_id": "-", "domain": "example.com", "txt_record_name": "@",
  "access_key_secret": "********"},
"services": [{"id": "s", "name": "S", "config": {"provider": "x", "access_key_id": "y",
  "access_key_secret": "********", "more": {"token":
    "********"}}}]}`,
		`1.json:3: configuration.access_key_secret: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here
1.json:5: services[0].config.access_key_secret: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here
1.json:6: services[0].config.more.token: is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here`},
	{"several", `{
"services": [
  {"id": "svc", "name": "x", "config": {"domain":
    "other.example"}},
  {"id": "bad id", "name": "x", "config": {}}],
"usages": [
  {"service_id": "none", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "bare", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "bad id", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "new", "prefix_mode": "custom", "network_id": 1,
   "custom_prefix": "a.b"}]}`,
		`1.json:5: services[1].id: the id is not valid: 1 to 128 characters of letters, digits and . _ ~ -
1.json:11: usages[3].custom_prefix: the prefix may hold only a-z A-Z 0-9 _ -`},
	{"several of what is stored", `{
"services": [
  {"id": "svc", "name": "x", "config": {"domain":
    "other.example"}}],
"usages": [
  {"service_id": "none", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "bare", "prefix_mode": "auto", "network_id": 1},
  {"service_id": "svc", "prefix_mode": "auto", "network_id": 1}]}`,
		`1.json:4: services[0].config.domain: the service has usages, its domain cannot change
1.json:6: usages[0].service_id: no such service
1.json:7: usages[1].service_id: the service's config has no domain`},
	{"a prefix of another network", `{"usages": [{"service_id": "svc", "prefix_mode": "custom", "custom_prefix": "P0", "network_id": 5}]}`,
		`1.json:1: usages[0].custom_prefix: the prefix is taken by network 0`},
	{"endpoints of a new usage", `{"usages": [{"service_id": "svc", "prefix_mode": "auto", "network_id": 5, "txt_endpoints": ["x"]}]}`,
		`1.json:1: usages[0].txt_endpoints: txt_endpoints: "x" is not scheme://host:port, with a port from 1 to 65535 and an IPv6 address in brackets`},
	{"too many usages", `{"usages": [` + customUsages(5) + `],
"prune": true}`, `1.json:2: prune: 4 of 9 usages are not in the document, more than a third: only "all" removes so many`},
}

// provisioned are the rows that a provisioning file may change, without those that the reconciler changes
// meanwhile.
func (a *Appliance) provisioned(t *testing.T) (all []string) {
	for _, rows := range []string{
		`adopted`, `accounts`, `configuration`, `services`, `bindings`, `notifications`,
		`(SELECT id, txt_endpoints, description FROM usages)`, `(SELECT seq FROM events WHERE kind NOT GLOB 'record.*' AND kind NOT GLOB 'zone.*')`,
	} {
		all = append(all, support.Rows(t, a.Reader, `SELECT * FROM `+rows+` ORDER BY 1`)...)
	}
	return all
}

// A fault names the file, the line and the member. A fault of the form keeps all of the files from
// being applied, another one its entry; a prune that is refused removes nothing.
func (suite Suite) testProvisionFaults(t *testing.T) {
	a := suite.Start(t, Options{Stopped: true})
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/bare", `{"name":"x","config":{}}`)
	for i := range 9 {
		a.Must(t, "POST", "/api/v1/ddns/usages", customUsage(i))
	}
	const fine = `{"owner": "0123456789ab", "services": [{"id": "new", "name": "N", "config": {"domain": "new.example"}}]}`
	a.Applied(t, fine)
	before := a.AllRows(t)
	for _, step := range faultyDocuments {
		t.Run(step.name, func(t *testing.T) {
			if got := a.Applied(t, fine, step.document); got != step.want {
				t.Errorf("\n%s\nwant\n%s", got, step.want)
			}
			if told := a.ForgetRefusals(t); told != 1 {
				t.Errorf("%d events of the refusal, want 1", told)
			}
			if !slices.Equal(before, a.AllRows(t)) {
				t.Error("the database is another one")
			}
		})
	}
	few := `{"usages": [` + customUsages(6) + `], "prune": true}`
	if got := len(strings.Split(a.Applied(t, few), "\n")); got != 3 {
		t.Errorf("%d are pruned, want 3", got)
	}
	if got := len(strings.Split(a.Applied(t, `{"usages": [], "services": [], "prune": "all"}`), "\n")); got != 9 {
		t.Errorf("%d are pruned, want 6 usages and 3 services", got)
	}
}

// randomDocument is a document of everything that clients can say, secrets as they are.
func randomDocument(random *rand.Rand) string {
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	endpoints := func() string {
		return pick(`[]`, `["tcp://192.0.2.1:1"]`, `["wg://[2001:db8::1]:51820","tcp://{ipv4}:11010"]`)
	}
	text := func() string {
		return strconv.Quote(pick("", "office", "a <b> & 'c'", "办公室", "mesh sync - x", "\\ 😀"))
	}
	document := map[string]json.RawMessage{"owner": json.RawMessage(fmt.Sprintf(`"%012x"`, random.Uint64()>>16))}
	if random.IntN(4) > 0 {
		document["configuration"] = json.RawMessage(fmt.Sprintf(`{"provider":%q,"access_key_id":"id","access_key_secret":"hidden-%d","endpoint":%q,
			"domain":"Example.com.","txt_record_name":%q,"txt_endpoints":%s,"sync_mode":%q,"retry_interval":%s,"max_retries":%s,"enabled":%s}`,
			pick("builtin", "webhook", "nobody's"), random.IntN(100), pick("", "https://dns.example"), pick("@", "_txt"), endpoints(), pick("", "manual", "odd"),
			pick("null", "-1", "9223372036854775807"), pick("null", "0"), pick("true", "false")))
	}
	var services, usages []json.RawMessage
	for i := range random.IntN(5) {
		services = append(services, json.RawMessage(fmt.Sprintf(`{"id":"s-%d","name":%s,"config":{"domain":"s%d.example","txt_endpoints":%s%s}}`, i, pick(`"x"`, `"办公室"`), i, endpoints(),
			pick("", `,"big":18446744073709551617,"rate":1.50,"list":[1,{"a_token":"hidden"}]`, `,"provider":"webhook","access_key_id":"k","access_key_secret":"hidden <&>"`))))
		for j := range random.IntN(6) {
			u := fmt.Sprintf(`{"service_id":"s-%d","prefix_mode":"custom","custom_prefix":"Prefix_%d","network_id":%d,"txt_endpoints":%s,"description":%s}`,
				i, j, random.Uint64()>>random.IntN(64), endpoints(), text())
			if random.IntN(2) == 0 {
				u = fmt.Sprintf(`{"service_id":"s-%d","prefix_mode":"auto","network_id":%s,"network_name":%s}`, i, pick("0", "42", "18446744073709551615"), text())
			}
			var leases []string
			for range random.IntN(4) {
				leases = append(leases, fmt.Sprintf(`{"slot":"slot-%d","ttl":%s,"schemes":%s,"cidrs":%s,"template":%s,%s}`, len(leases), pick("60", "604800"),
					pick("[]", `["tcp","wg"]`), pick("[]", `["192.0.2.9/24","2001:db8::1"]`), pick("[]", `["tcp://{ip}:11010"]`),
					pick(fmt.Sprintf(`"token":"hidden-%020d"`, random.Uint64()), fmt.Sprintf(`"token_hash":"%064x"`, random.Uint64()))))
			}
			if len(leases) > 0 {
				u = u[:len(u)-1] + `,"leases":[` + strings.Join(leases, ",") + `]}`
			}
			usages = append(usages, json.RawMessage(u))
		}
	}
	var targets, secondaries []json.RawMessage
	for i := range random.IntN(3) {
		targets = append(targets, json.RawMessage(fmt.Sprintf(`{"id":"n-%d","kind":%q,"url":"https://ops.example%s"%s,"enabled":%s}`, i, pick("generic", "dingtalk"),
			pick("", "/", "/hidden", "?key=hidden", "/hidden?key=hidden"), pick("", `,"secret":"hidden"`, `,"events":["record.*"],"language":"en"`), pick("true", "false"))))
	}
	for i := range random.IntN(3) {
		secondaries = append(secondaries, json.RawMessage(fmt.Sprintf(`{"id":"x-%d","address":"192.0.2.%d%s","zones":%s%s%s}`, i, i+1, pick("", ":53"), pick(`["*"]`, `["s0.example"]`),
			pick("", fmt.Sprintf(`,"key_name":"x%d.example","key_secret":"aGlkZGVuIGhpZGRlbg==","from":%s`, i, pick("[]", `["2001:db8::/64"]`))), pick("", `,"notify":true`, `,"notify":false`))))
	}
	for name, list := range map[string][]json.RawMessage{"services": services, "usages": usages, "notifications": targets, "secondaries": secondaries} {
		document[name], _ = json.Marshal(append([]json.RawMessage{}, list...))
	}
	whole, _ := json.Marshal(document)
	return string(whole)
}

// state gives the document that GET state answers with, checked as JSON and in its order.
func (a *Appliance) StateDocument(t testing.TB) string {
	t.Helper()
	var answer struct{ Data json.RawMessage }
	support.Must(t, json.Unmarshal([]byte(a.Must(t, "GET", "/api/v1/ddns/state", "")), &answer))
	return string(answer.Data)
}

// What GET state gives, applied where it comes from, changes nothing; on a new appliance,
// with the secrets in place, it gives the same state, the owner included.
func (suite Suite) testStateIsADocument(t *testing.T) {
	for seed := range uint64(25) {
		random := rand.New(rand.NewPCG(9, seed))
		document := randomDocument(random)
		fresh := func() *Appliance {
			a := suite.Start(t, Options{Stopped: true, Idle: true})
			dir := t.TempDir()
			support.WriteFile(t, filepath.Join(dir, "whole.json"), document)
			if err := a.Provision(t.Context(), dir, ""); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, document)
			}
			return a
		}
		a := fresh()
		state := a.StateDocument(t)
		if strings.Contains(state, "hidden") {
			t.Errorf("seed %d: a secret is in %s", seed, state)
		}
		before, from := a.Files(t), len(a.Logs.String())
		if got := a.Applied(t, state); got != "" || !bytes.Equal(before, a.Files(t)) || !strings.Contains(a.Logs.String()[from:], "changes=0") {
			t.Errorf("seed %d: the own state changes %s\n%s", seed, got, state)
		}
		pruned := strings.Replace(state, `{"owner"`, `{"prune":true,"owner"`, 1)
		if got := a.Applied(t, pruned); got != "" || !bytes.Equal(before, a.Files(t)) {
			t.Errorf("seed %d: the own state prunes %s\n%s", seed, got, state)
		}
		if again := fresh().StateDocument(t); again != state {
			t.Errorf("seed %d: a new appliance has\n%s\nwant\n%s", seed, again, state)
		}
	}
}

// A usage whose release is under way is kept when a document has it again.
func (suite Suite) testProvisionKeepsWhatIsReleased(t *testing.T) {
	a := suite.Start(t, Options{})
	const with = `{"configuration": {"provider": "builtin", "access_key_id": "-", "access_key_secret": "-", "domain": "example.com", "txt_record_name": "@",
		"enabled": true, "sync_mode": "auto"}, "services": [{"id": "b", "name": "B", "config": {"domain": "b.example.com"}}],
		"usages": [{"service_id": "b", "prefix_mode": "custom", "custom_prefix": "Office", "network_id": 1}]}`
	a.Applied(t, with)
	const name = "_mesh.office.b.example.com"
	support.Eventually(t, support.Limit, "published", func() bool { return strings.Contains(a.Ask(t, name), "n=1 ") })
	db := a.Open(t)
	defer db.Close()
	support.Exec(t, db, `UPDATE bindings SET status = 'releasing' WHERE network_id = 1`)
	if state := a.StateDocument(t); strings.Contains(state, "Office") {
		t.Errorf("what is being released is in %s", state)
	}
	changed := strings.Replace(with, `"network_id": 1`, `"network_id": 1, "description": "kept"`, 1)
	if got, want := a.Applied(t, changed), `provision what="POST /api/v1/ddns/usages" id=<id> status=200`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	if got := a.Ask(t, name); !strings.Contains(got, "n=1 ") {
		t.Errorf("the name has %q", got)
	}
	if rows := support.Rows(t, db, `SELECT count(*) FROM bindings JOIN usages USING (seq) WHERE status = 'active' AND network_id = 1 AND description = 'kept'`); rows[0] != "1" {
		t.Errorf("%q usages", rows)
	}
}
