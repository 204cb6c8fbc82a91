package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stored is an appliance in memory. Like rules it refuses bodies, and also a service while it is locked,
// a usage of a service that it lacks, and a prefix that another network has.
type stored struct {
	rules
	owner, configuration string
	services             map[string]string
	targets              map[string]string
	usages               []storedUsage
	last                 int64
	locked               map[string]bool
	fails                string // the request that fails as a database does
}

type storedUsage struct {
	ID                           string
	service, prefix, description string
	network                      float64
	leases                       map[string]string // bodies by slot
}

func (s *stored) did(request, id string) (Change, error) {
	if s.fails == request {
		return Change{}, errors.New("the database is broken")
	}
	return Did(request, id, nil)
}

func (s *stored) Save(_ context.Context, part string, e Entry) (Change, error) {
	body := e.Body
	switch part {
	case Owner:
		return s.saveOwner(strings.Trim(string(body), `"`))
	case Configuration:
		return s.saveConfiguration(body)
	case Services:
		return s.saveService(body)
	case Usages:
		return s.saveUsage(e)
	}
	return s.saveTarget(body)
}

// saveLeases saves the leases of a usage as the operations do: a refusal keeps the others.
func (s *stored) saveLeases(u storedUsage, e Entry) (changed bool, err error) {
	var faults []error
	v := e.value()
	list := member(v, Leases)
	if list == nil {
		return false, nil
	}
	if e.prune {
		for slot := range u.leases {
			if !strings.Contains(string(e.Body), fmt.Sprintf(`"slot": %q`, slot)) {
				delete(u.leases, slot)
				changed = true
			}
		}
	}
	for i, item := range list.Items {
		slot, text := item.Member("slot").Text, string(e.raw[item.Begin:item.End])
		switch {
		case s.locked[slot]:
			faults = append(faults, refusal(fmt.Sprintf("leases.[%d].token", i)))
		case u.leases[slot] != text:
			u.leases[slot], changed = text, true
		}
	}
	return changed, errors.Join(faults...)
}

func (s *stored) Held(_ context.Context, part string) iter.Seq2[string, error] {
	var all []string
	switch part {
	case Usages:
		for _, u := range s.usages {
			all = append(all, u.ID)
		}
	case Services:
		all = slices.Sorted(maps.Keys(s.services))
	case Notifications:
		all = slices.Sorted(maps.Keys(s.targets))
	}
	return func(yield func(string, error) bool) {
		for _, held := range all {
			if !yield(held, nil) {
				return
			}
		}
	}
}

func (s *stored) Remove(_ context.Context, part, id string) (Change, error) {
	switch part {
	case Usages:
		s.usages = slices.DeleteFunc(s.usages, func(u storedUsage) bool { return u.ID == id })
	case Services:
		delete(s.services, id)
	default:
		delete(s.targets, id)
	}
	return s.did("DELETE "+part+"/{id}", id)
}

func (s *stored) saveOwner(owner string) (Change, error) {
	if owner == s.owner {
		return Change{}, nil
	}
	s.owner = owner
	return s.did("POST adopt", owner)
}

func (s *stored) saveConfiguration(body []byte) (Change, error) {
	if s.locked["configuration"] {
		return Change{}, refusal("domain")
	}
	if s.configuration == string(body) {
		return Change{}, nil
	}
	s.configuration = string(body)
	return s.did("PUT config", "")
}

func (s *stored) saveService(body []byte) (Change, error) {
	var v struct{ ID string }
	json.Unmarshal(body, &v)
	if s.locked[v.ID] {
		return Change{}, refusal("domain")
	}
	if s.services[v.ID] == string(body) {
		return Change{}, nil
	}
	s.services[v.ID] = string(body)
	return s.did("PUT services/{id}", v.ID)
}

func usageOf(body []byte) (u storedUsage) {
	members := map[string]any{}
	json.Unmarshal(body, &members)
	u.service, _ = members["service_id"].(string)
	u.prefix, _ = members["custom_prefix"].(string)
	u.description, _ = members["description"].(string)
	u.network, _ = members["network_id"].(float64)
	return u
}

func (s *stored) same(u storedUsage) int {
	return slices.IndexFunc(s.usages, func(o storedUsage) bool {
		return o.service == u.service && o.prefix == u.prefix && o.network == u.network
	})
}

func (s *stored) saveUsage(e Entry) (Change, error) {
	c, err := s.saveOneUsage(e.Body)
	i := s.same(usageOf(e.Body))
	if err != nil || i < 0 {
		return c, err
	}
	changed, err := s.saveLeases(s.usages[i], e)
	if changed && c.What == "" {
		c, _ = s.did("POST usages/{id}/leases", s.usages[i].ID)
	}
	return c, err
}

func (s *stored) saveOneUsage(body []byte) (Change, error) {
	u := usageOf(body)
	if i := s.same(u); i >= 0 {
		if s.usages[i].description == u.description {
			return Change{}, nil
		}
		s.usages[i].description = u.description
		return s.did("PATCH usages/{id}", s.usages[i].ID)
	}
	if _, there := s.services[u.service]; !there {
		return Change{}, refusal("service_id")
	}
	for _, other := range s.usages {
		if other.service == u.service && other.prefix == u.prefix {
			return Change{}, refusal("custom_prefix")
		}
	}
	s.last++
	u.ID, u.leases = fmt.Sprint("u", s.last), map[string]string{}
	s.usages = append(s.usages, u)
	return s.did("POST usages", u.ID)
}

func (s *stored) SameUsages(_ context.Context, body []byte) (all []string, err error) {
	if i := s.same(usageOf(body)); i >= 0 {
		all = append(all, s.usages[i].ID)
	}
	return all, nil
}

// apply applies documents, each one file, and returns the result in words.
func (s *stored) apply(t *testing.T, documents ...string) (said string, waits *Document) {
	t.Helper()
	dir := t.TempDir()
	for i, text := range documents {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("%d.json", i)), text)
	}
	return s.applyDocument(t, Read(dir, CredentialFolder{}), dir)
}

func (s *stored) applyDocument(t *testing.T, d *Document, dir string) (said string, waits *Document) {
	t.Helper()
	done, err := d.Apply(t.Context(), s)
	if err != nil {
		said = "not applied: " + err.Error() + "\n"
	}
	for _, c := range done.Changes {
		said += fmt.Sprintf("%s %s %d from %s\n", strings.TrimPrefix(c.What, "/api"), c.ID, c.Status, filepath.Base(c.File))
	}
	for _, m := range done.Faults {
		said += m.String() + "\n"
	}
	return strings.ReplaceAll(strings.ReplaceAll(said, dir+"/", ""), "/api/v1/ddns/", ""), done.Waits
}

func newStored() *stored { return &stored{services: map[string]string{}, locked: map[string]bool{}} }

const services = `{"owner": "0123456789ab", "configuration": {"domain": "example.com"}, "services": [
{"id": "a", "name": "A", "config": {}}, {"id": "b", "name": "B", "config": {}}]}`

const usages = `{"usages": [
{"service_id": "a", "prefix_mode": "custom", "custom_prefix": "x", "network_id": 1},
{"service_id": "b", "prefix_mode": "custom", "custom_prefix": "y", "network_id": 2}]}`

// TestApply applies each document twice: the second time changes nothing.
func TestApply(t *testing.T) {
	s := newStored()
	for _, step := range []struct {
		name      string
		documents []string
		want      string
	}{
		{"nothing", []string{`{}`}, ""},
		{"all parts, of two files", []string{services, usages}, `POST adopt 0123456789ab 200 from 0.json
PUT config  200 from 0.json
PUT services/{id} a 200 from 0.json
PUT services/{id} b 200 from 0.json
POST usages u1 200 from 1.json
POST usages u2 200 from 1.json
`},
		{"a part", []string{`{"services": [{"id": "b", "name": "C", "config": {}}], "prune": false}`}, "PUT services/{id} b 200 from 0.json\n"},
		{"a description", []string{strings.Replace(usages, `"network_id": 2`, `"network_id": 2, "description": "new"`, 1)}, "PATCH usages/{id} u2 200 from 0.json\n"},
		{"a prefix for another network", []string{strings.Replace(usages, `{"usages"`, `{"prune": true, "usages"`, 1), `{}`}, "PATCH usages/{id} u2 200 from 0.json\n"},
		{"released before it is reserved again", []string{`{"prune": true, "usages": [
{"service_id": "a", "prefix_mode": "custom", "custom_prefix": "x", "network_id": 7}, {"service_id": "b", "prefix_mode": "custom", "custom_prefix": "y", "network_id": 2}]}`},
			"DELETE usages/{id} u1 200 from 0.json\nPOST usages u3 200 from 0.json\n"},
		{"usages keep their services", []string{strings.Replace(usages, `{"usages"`, `{"services": [], "prune": "all", "usages"`, 1)},
			"DELETE usages/{id} u3 200 from 0.json\nPOST usages u4 200 from 0.json\n"},
		{"null is absent", []string{`{"services": null, "usages": null, "prune": "all"}`}, ""},
		{"everything is pruned", []string{`{"services": [], "usages": [], "prune": "all"}`},
			"DELETE usages/{id} u2 200 from 0.json\nDELETE usages/{id} u4 200 from 0.json\nDELETE services/{id} a 200 from 0.json\nDELETE services/{id} b 200 from 0.json\n"},
	} {
		if got, waits := s.apply(t, step.documents...); got != step.want || waits != nil {
			t.Errorf("%s: waits %v\n%s\nwant\n%s", step.name, waits, got, step.want)
		}
		before := fmt.Sprint(*s)
		if got, _ := s.apply(t, step.documents...); got != "" || before != fmt.Sprint(*s) {
			t.Errorf("%s, once more:\n%s", step.name, got)
		}
	}
}

// TestPrune removes at most three entries that the document lacks, or at most a third; "all" removes all.
// A refused prune removes nothing of any kind, and the rest is applied.
func TestPrune(t *testing.T) {
	s := newStored()
	s.apply(t, services)
	list := func(from, to int) (all []string) {
		for i := from; i < to; i++ {
			all = append(all, fmt.Sprintf(`{"service_id": "a", "custom_prefix": "p%d", "network_id": %d}`, i, i))
		}
		return all
	}
	document := func(prune string, usages []string) string {
		return `{"services": [], "usages": [` + strings.Join(usages, ",") + "],\n\"prune\": " + prune + "}"
	}
	s.apply(t, document("false", list(0, 12)))
	for _, step := range []struct {
		name, document string
		lines          int
		refused        string
	}{
		{"too many", document("true", list(5, 13)), 2, "0.json:2: prune: 5 of 12 usages are not in the document, more than a third: only \"all\" removes so many\n"},
		{"too many once more", document("true", list(5, 13)), 1, "0.json:2: prune: 5 of 13 usages are not in the document, more than a third: only \"all\" removes so many\n"},
		{"a third", document("true", list(4, 13)), 4 + 1, ""},
		{"three of few", document("true", list(7, 13)), 3, ""},
		{"all", document(`"all"`, nil), 6 + 1, ""},
	} {
		got, waits := s.apply(t, step.document)
		if strings.Count(got, "\n") != step.lines || !strings.HasSuffix(got, step.refused) || step.refused == "" && strings.Contains(got, "prune:") || waits != nil {
			t.Errorf("%s: waits %v\n%s", step.name, waits, got)
		}
	}
}

// TestWaits has entries that the stored state does not allow. The rest is applied, all faults are
// reported, and the entries are applied when they are allowed.
func TestWaits(t *testing.T) {
	s := newStored()
	s.locked["a"], s.locked["configuration"] = true, true
	const none = `{"usages": [{"service_id": "b", "custom_prefix": "y", "network_id": 2, "description": "twice"}, {"service_id": "none"}]}`
	got, waits := s.apply(t, services, strings.Replace(usages, "y", "z", 1), none)
	const want = `POST adopt 0123456789ab 200 from 0.json
PUT services/{id} b 200 from 0.json
POST usages u1 200 from 1.json
POST usages u2 200 from 2.json
0.json:1: configuration.domain: is refused
0.json:2: services[0].domain: is refused
2.json:1: usages[1].service_id: is refused
`
	if got != want || waits == nil {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	if again, still := s.applyDocument(t, waits, ""); strings.Count(again, "\n") != 3 || still == nil {
		t.Errorf("while nothing changes:\n%s", again)
	}
	clear(s.locked)
	s.services["none"] = ""
	again, still := s.applyDocument(t, waits, "")
	if strings.Count(again, "200 from") != 4 || strings.Count(again, "\n") != 4 || still != nil {
		t.Errorf("when all is allowed:\n%s", again)
	}
}

// TestLeases saves, keeps, prunes and keeps waiting leases. A usage without a list of leases keeps all, and so does a prune
// that is refused.
func TestLeases(t *testing.T) {
	s := newStored()
	s.apply(t, services)
	document := func(prune, more string) string {
		return `{"prune": ` + prune + `, "usages": [{"service_id": "a", "custom_prefix": "x", "network_id": 1` + more + `}]}`
	}
	leases := func(ttl int, slots ...string) string {
		var all []string
		for _, slot := range slots {
			all = append(all, fmt.Sprintf(`{"slot": %q, "ttl": %d, "token_hash": %q}`, slot, ttl, slot))
		}
		return `, "leases": [` + strings.Join(all, ",\n") + `]`
	}
	const changed = "POST usages/{id}/leases u1 200 from 0.json\n"
	for _, step := range []struct{ name, document, want, slots string }{
		{"made", document("false", leases(60, "a", "b", "c")), "POST usages u1 200 from 0.json\n", "[a b c]"},
		{"again", document("true", leases(60, "a", "b", "c")), "", "[a b c]"},
		{"changed", document("false", leases(61, "a", "b")), changed, "[a b c]"},
		{"without the member", document("true", ""), "", "[a b c]"},
		{"null", document("true", `, "leases": null`), "", "[a b c]"},
		{"pruned", document("true", leases(61, "a", "b")), changed, "[a b]"},
		{"with a description", document("true", `, "description": "y"`+leases(61, "b")), "PATCH usages/{id} u1 200 from 0.json\n", "[b]"},
		{"all pruned", document("true", `, "description": "y", "leases": []`), changed, "[]"},
	} {
		got, waits := s.apply(t, step.document)
		if slots := fmt.Sprint(slices.Sorted(maps.Keys(s.usages[0].leases))); got != step.want || waits != nil || slots != step.slots {
			t.Errorf("%s: waits %v, %s\n%s\nwant\n%s", step.name, waits, slots, got, step.want)
		}
	}
	s.locked["b"], s.locked["d"] = true, true
	got, waits := s.apply(t, document("false", `, "description": "y"`+leases(60, "a", "b", "c", "d")))
	if want := changed + "0.json:2: usages[0].leases[1].token: is refused\n0.json:4: usages[0].leases[3].token: is refused\n"; got != want || waits == nil {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
	clear(s.locked)
	if again, still := s.applyDocument(t, waits, ""); strings.Count(again, "\n") != 1 || still != nil || len(s.usages[0].leases) != 4 {
		t.Errorf("when all is allowed:\n%s", again)
	}
}

// TestFormKeepsAll has a mistake of form in one of two files: nothing is applied.
func TestFormKeepsAll(t *testing.T) {
	s := newStored()
	got, _ := s.apply(t, services, `{"usages": [{"network_id": "1"}]}`)
	if want := "not applied: 1.json:1: usages[0].network_id: is a string, want an integer from 0 to 18446744073709551615\n"; got != want || len(s.services) > 0 {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestBrokenDatabase ends at the first failed request, and names its entry.
func TestBrokenDatabase(t *testing.T) {
	for request, want := range map[string]string{
		"POST adopt":           "0.json:1: owner",
		"PUT config":           "0.json:1: configuration",
		"PUT services/{id}":    "0.json:2: services[0]",
		"POST usages":          "1.json:2: usages[0]",
		"DELETE usages/{id}":   "2.json:2: prune",
		"DELETE services/{id}": "2.json:2: prune",
	} {
		s := newStored()
		s.services["old"] = "x"
		s.usages = []storedUsage{{ID: "old", service: "old"}}
		s.fails = request
		got, waits := s.apply(t, services, usages, "{\n\"prune\": true}")
		if got != "not applied: "+want+": the database is broken\n" || waits != nil {
			t.Errorf("%s: %s", request, got)
		}
	}
}

func (s *stored) saveTarget(body []byte) (Change, error) {
	var v struct{ ID string }
	json.Unmarshal(body, &v)
	if s.locked[v.ID] {
		return Change{}, refusal("url")
	}
	if s.targets[v.ID] == string(body) {
		return Change{}, nil
	}
	s.targets[v.ID] = string(body)
	return s.did("PUT notifications/{id}", v.ID)
}

// TestNotifications saves, keeps, prunes and keeps waiting targets, with credentials in their places.
func TestNotifications(t *testing.T) {
	s := &stored{services: map[string]string{}, targets: map[string]string{"old": ""}, locked: map[string]bool{"c": true}}
	const document = `{"prune": true, "notifications": [{"id": "a", "kind": "generic", "url": "https://a/"}, {"id": "c", "kind": "generic", "url": "https://a/"}]}`
	said, waits := s.apply(t, document)
	if said != "DELETE notifications/{id} old 200 from 0.json\nPUT notifications/{id} a 200 from 0.json\n0.json:1: notifications[1].url: is refused\n" {
		t.Errorf("%s", said)
	}
	if waits == nil || len(waits.Entries[Notifications]) != 1 || len(s.targets) != 1 {
		t.Errorf("%+v, %v", waits, s.targets)
	}
	folder, file := t.TempDir(), filepath.Join(t.TempDir(), "a.json")
	writeFile(t, filepath.Join(folder, "key"), "https://b/c\n")
	writeFile(t, file, `{"notifications": [{"id": "b", "kind": "generic", "secret": {"credential": "key"}, "url": {"credential": "key"}}]}`)
	if _, err := Read(file, CredentialFolder{Folder: folder}).Apply(t.Context(), s); err != nil || strings.Count(s.targets["b"], `"https://b/c"`) != 2 {
		t.Errorf("%v: %s", err, s.targets["b"])
	}
	unread := Read(file, CredentialFolder{Optional: true})
	if err := unread.Check(rules{}); err != nil || unread.Unread != 2 {
		t.Errorf("%v, %d are unread", err, unread.Unread)
	}
	writeFile(t, file, `{"notifications": [{"id": "b", "kind": "generic", "url": {"key": "x"}, "secret": 1}]}`)
	if err := Read(file, CredentialFolder{}).Check(rules{}); err == nil || strings.Count(err.Error(), aSecret) != 2 {
		t.Error(err)
	}
}
