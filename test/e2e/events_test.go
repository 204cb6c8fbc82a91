package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"meshddns/internal/mesh"
	"meshddns/test/support"
)

// compareEvents looks whether the events tell exactly what the tables have.
func compareEvents(t *testing.T, path string) {
	t.Helper()
	for _, wrong := range eventFaults(t, path, `SELECT 1`) {
		t.Error(wrong)
	}
}

// eventFaults rebuilds the tables from the events alone, and returns where they differ, and each event
// that does not follow from those before it. It sees one moment of a database that is in use, after a
// statement that does not stay.
func eventFaults(t *testing.T, path, statement string) (wrong []string) {
	t.Helper()
	db := openDatabase(t, path)
	defer db.Close() // rolls back
	db.SetMaxOpenConns(1)
	for _, statement := range []string{`BEGIN`, statement} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(statement, err)
		}
	}
	told := retold{}
	rows := support.Cells(t, db, `
		SELECT seq, kind, name, usage_id, service_id, coalesce(network_id, 0), before, after, coalesce(nullif(detail, '') ->> '$.provider', ''),
		       coalesce(nullif(detail, '') ->> '$.zone', ''), coalesce(nullif(detail, '') ->> '$.record', '') FROM events ORDER BY seq`)
	want := int64(0)
	for _, row := range rows {
		seq, err := strconv.ParseInt(row[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if want++; row[1] == "database.restored" {
			want = max(want, seq)
		}
		if seq != want {
			wrong = append(wrong, fmt.Sprintf("event %d stands where %d should", seq, want))
		}
		e := toldEvent{kind: row[1], name: row[2], usage: row[3], service: row[4], network: row[5], before: members(row[6]), after: members(row[7]), provider: row[8], zone: row[9], record: row[10]}
		if fault := told.learn(e); fault != "" {
			wrong = append(wrong, fmt.Sprintf("event %s, %s: %s", row[0], row[1], fault))
		}
	}
	stored := retold{}
	for _, row := range support.Cells(t, db, storedState) {
		stored[row[0]] = row[1]
	}
	for _, about := range slices.Sorted(maps.Keys(stored)) {
		if told[about] != stored[about] && told[about] != open {
			wrong = append(wrong, fmt.Sprintf("%s is %s, and the events tell %s", about, stored[about], told[about]))
		}
	}
	for _, about := range slices.Sorted(maps.Keys(told)) {
		if stored[about] == "" && told[about] != open {
			wrong = append(wrong, fmt.Sprintf("%s does not exist, and the events tell %s", about, told[about]))
		}
	}
	return wrong
}

// storedState reads what events tell about: a key, and the state in the form of retold.
const storedState = `
	SELECT 'service ' || id, name || ' ' || coalesce(domain, '') || ' ' || provider || ' ' || txt_endpoints FROM services
	UNION ALL SELECT 'configuration', provider || ' ' || domain || ' ' || sync_mode || ' ' || coalesce(retry_interval, '') || ' ' || txt_endpoints FROM configuration
	UNION ALL SELECT 'usage ' || u.id, u.name || ' ' || b.network_id || ' ' || b.status || ' ' || u.description || ' ' || u.txt_endpoints
	          FROM usages u JOIN bindings b ON b.seq = u.seq
	UNION ALL SELECT 'value ' || name || CASE owner WHEN '' THEN '' ELSE ' ' || owner || ' ' || type END || ' ' || provider || ' ' ||
	                 zone || ' ' ||
	                 CASE owner WHEN '' THEN standing ELSE substr(standing, instr(standing, char(10)) + 1) END, count(DISTINCT endpoint)
	          FROM places JOIN accounts ON accounts.id = account WHERE standing <> '' GROUP BY 1`

// toldEvent is a row of events. A text stands in its member "".
type toldEvent struct {
	kind, name, usage, service, network, provider, zone, record string
	before, after                                               map[string]string
}

// members returns the members of a JSON object, or the text of a JSON string, as texts.
func members(text string) map[string]string {
	var raw map[string]json.RawMessage
	var value string
	var values []string
	all := map[string]string{}
	if json.Unmarshal([]byte(text), &values) == nil && len(values) > 0 { // of a record in another format
		all[""] = strings.Join(values, "\n")
	} else if json.Unmarshal([]byte(text), &value) == nil {
		all[""] = value
	} else if json.Unmarshal([]byte(text), &raw) == nil {
		for name, member := range raw {
			if json.Unmarshal(member, &value) == nil {
				all[name] = value
			} else {
				all[name] = string(member)
			}
		}
	}
	return all
}

// retold is the state that events tell, each thing as one line.
type retold map[string]string

// open is the state of a value of which events do not tell whether it stands.
const open = "?"

// learn takes one event, and returns what is wrong with it.
func (r retold) learn(e toldEvent) (fault string) {
	service := func(m map[string]string) string {
		return m["name"] + " " + m["domain"] + " " + m["provider"] + " " + m["txt_endpoints"]
	}
	configuration := func(m map[string]string) string {
		return m["provider"] + " " + m["domain"] + " " + m["sync_mode"] + " " + m["retry_interval"] + " " + m["txt_endpoints"]
	}
	usage := func(m map[string]string) string {
		return e.name + " " + e.network + " " + m["status"] + " " + m["description"] + " " + m["txt_endpoints"]
	}
	switch e.kind {
	case "service.created", "service.changed", "service.deleted":
		return r.replace("service "+e.service, shown(e.before, service), shown(e.after, service))
	case "configuration.changed":
		return r.replace("configuration", shown(e.before, configuration), shown(e.after, configuration))
	case "usage.reserved":
		e.after["status"], e.after["txt_endpoints"] = string(mesh.Active), "[]"
		return r.replace("usage "+e.usage, "", usage(e.after))
	case "usage.changed":
		return r.replace("usage "+e.usage, usage(e.before), usage(e.after))
	case "usage.releasing":
		return r.release(e)
	case "usage.released":
		if r["usage "+e.usage] == "" {
			return "no such usage"
		}
		delete(r, "usage "+e.usage)
	case "record.published", "record.changed", "record.withdrawn":
		return r.stand(e, e.before[""], -1) + r.stand(e, e.after[""], 1)
	case "orphan.found", "leftover.gone": // by one or several keys; it stands, or a person said that it does not
		r[e.value(e.before[""])] = open
	}
	return ""
}

// value is the key of a value at the event's name, provider and zone.
func (e toldEvent) value(text string) string {
	name := e.name
	if e.record != "" {
		name += " " + e.record
	}
	return "value " + name + " " + e.provider + " " + e.zone + " " + text
}

// stand adds to the number of endpoints where a value stands.
func (r retold) stand(e toldEvent, text string, more int) (fault string) {
	if text == "" {
		return ""
	}
	about := e.value(text)
	if r[about] == open {
		return ""
	}
	number, _ := strconv.Atoi(r[about])
	if number += more; number < 0 {
		return about + " did not stand; "
	}
	if r[about] = strconv.Itoa(number); number == 0 {
		delete(r, about)
	}
	return ""
}

// shown returns a state as a line, "" for none.
func shown(m map[string]string, line func(map[string]string) string) string {
	if len(m) == 0 {
		return ""
	}
	return line(m)
}

// replace replaces a state, which must be the one that the event says; "" is none.
func (r retold) replace(about, before, after string) (fault string) {
	if r[about] != before {
		fault = fmt.Sprintf("%s was %q, not %q", about, r[about], before)
	}
	if r[about] = after; after == "" {
		delete(r, about)
	}
	return fault
}

// release makes a usage one that is being released.
func (r retold) release(e toldEvent) (fault string) {
	about, begin := "usage "+e.usage, e.name+" "+e.network+" "
	active := begin + string(mesh.Active)
	if len(r[about]) < len(active) || r[about][:len(active)] != active {
		return fmt.Sprintf("%s was %q", about, r[about])
	}
	r[about] = begin + string(mesh.Releasing) + r[about][len(active):]
	return ""
}

// The comparison finds each kind of loss, and each event too many. A value that a new zone takes over from the one around it is
// told in its new zone.
func TestEventsFindLoss(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "meshddns.db")
	p := start(t, "-db", path)
	p.configure("auto", "tcp://203.0.113.7:1")
	p.call(200, "PUT", servicesPath+"other", `{"name":"Other","config":{}}`)
	id := p.call(200, "POST", usagesPath+"?wait=20", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"a","network_id":1}`).field("id")
	p.call(200, "PATCH", usagesPath+"/"+id+"?wait=20", `{"txt_endpoints":["tcp://203.0.113.8:1"]}`)
	p.call(200, "PATCH", usagesPath+"/"+id+"?wait=20", `{"formats":["mesh1","hostport"]}`)
	p.call(200, "PUT", servicesPath+"inner", `{"name":"Inner","config":{"domain":"a.mesh.example.com","provider":"builtin"}}`)
	p.call(200, "POST", "/api/v1/ddns/sync", "")
	moved := p.call(200, "GET", "/api/v1/ddns/events?kind=record.*", "").body
	if begin, rest, ok := strings.Cut(moved, `"record.withdrawn"`); !ok || !strings.Contains(rest, `"zone":"a.mesh.example.com"`) || strings.Contains(begin, `"zone":"a.mesh.example.com"`) {
		t.Errorf("the move is not told: %s", moved)
	}
	p.stop()
	compareEvents(t, path)
	for _, loss := range []string{
		`DELETE FROM events WHERE kind = 'usage.reserved'`,
		`DELETE FROM events WHERE seq = (SELECT max(seq) FROM events WHERE kind = 'record.changed')`,
		`UPDATE events SET seq = seq + 1 WHERE seq = (SELECT max(seq) FROM events)`,
		`INSERT INTO events SELECT seq + 100, at, kind, name, usage, usage_id, service_id, network_id, caller, before, after, detail FROM events WHERE kind = 'usage.changed'`,
		`UPDATE events SET after = '{}' WHERE kind = 'configuration.changed'`,
		`UPDATE services SET name = 'old' WHERE id = 'other'`,
		`UPDATE usages SET txt_endpoints = '[]'`,
		`DELETE FROM usages`,
		`UPDATE places SET standing = '' WHERE name GLOB '_mesh.*'`,
		`UPDATE configuration SET sync_mode = 'manual'`,
	} {
		if len(eventFaults(t, path, loss)) == 0 {
			t.Errorf("%s is not found", loss)
		}
	}
}
