package cloudtest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Webhook is a bridge that keeps its values in memory. A password needs no
// clock, and a bridge does not show what is disabled.
func Webhook(t testing.TB) *Cloud {
	return start(t, &Cloud{Provider: "webhook", AccessKeyID: "meshddns", AccessKeySecret: "a password: of this bridge", MinTTL: 120}, vendor{
		authorize: hookAuthorize, serve: hookServe, spell: spellPlain, read: readPlain,
		throttle: hookFailure(http.StatusTooManyRequests, "throttled", "slowly, please"),
	})
}

func hookFailure(status int, kind, message string) Answer {
	return JSON(status, map[string]any{"error": message, "kind": kind})
}

func hookAuthorize(c *Cloud, r Request) *Answer {
	encoded, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic ")
	pair, err := base64.StdEncoding.DecodeString(encoded)
	user, password, _ := strings.Cut(string(pair), ":")
	if !ok || err != nil || user != c.AccessKeyID || password != c.AccessKeySecret {
		return new(Answer{Status: http.StatusUnauthorized, Header: map[string]string{"Www-Authenticate": `Basic realm="bridge"`}})
	}
	return nil
}

func hookServe(c *Cloud, r Request) Answer {
	switch {
	case r.Path != "/":
		return hookFailure(http.StatusBadRequest, "invalid", "no such path")
	case r.Method == http.MethodGet && r.Query("zones") == "all":
		return hookZones(c)
	case r.Method == http.MethodGet && r.Query("zone") != "":
		return hookNames(c, r.Query("zone"))
	case r.Method == http.MethodGet:
		return hookRead(c, r.Query("name"), cmp.Or(r.Query("type"), "TXT"))
	case r.Method == http.MethodPost:
		return hookChange(c, r)
	}
	return hookFailure(http.StatusMethodNotAllowed, "", "want GET or POST")
}

var hookServers = []string{"ns1.example.net", "ns2.example.net"}

func hookZones(c *Cloud) Answer {
	zones := []any{}
	for _, z := range c.zones {
		if !z.private {
			zones = append(zones, map[string]any{"zone": z.name, "min_ttl": c.MinTTL, "servers": hookServers})
		}
	}
	return JSON(http.StatusOK, map[string]any{"zones": zones})
}

// hookNames gives a whole zone.
func hookNames(c *Cloud, name string) Answer {
	z, ok := c.zoneNamed(name)
	if !ok {
		return hookFailure(http.StatusNotFound, "zone_not_found", "none of my zones")
	}
	at, names := map[string]map[string]any{}, []any{}
	for _, r := range c.at(z.name, "", "") {
		if r.off || r.kind != "TXT" && r.kind != "CNAME" {
			continue
		}
		if at[r.name] == nil {
			at[r.name] = map[string]any{"name": r.name, "ttl": r.ttl, "values": []string{}}
			names = append(names, at[r.name])
		}
		if r.kind == "CNAME" {
			at[r.name]["alias"] = r.content
		} else {
			at[r.name]["values"] = append(at[r.name]["values"].([]string), r.content)
		}
	}
	return JSON(http.StatusOK, map[string]any{"zone": z.name, "names": names})
}

func hookRead(c *Cloud, name, kind string) Answer {
	z := c.zoneOf(name)
	switch {
	case name == "" || name != fold(name) || !slices.Contains(kinds, kind):
		return hookFailure(http.StatusBadRequest, "invalid", "want a name in lower case, without the final dot, and a type of records")
	case z.name == "":
		return hookFailure(http.StatusNotFound, "", "none of my zones")
	case c.aliased(name):
		return hookFailure(http.StatusConflict, "conflict", "a CNAME is there")
	}
	values, ttl := []string{}, uint32(0)
	for _, record := range c.at(z.name, name, kind) {
		if !record.off {
			values, ttl = append(values, record.content), record.ttl
		}
	}
	return JSON(http.StatusOK, map[string]any{
		"zone": z.name, "type": kind, "ttl": ttl, "values": values, "min_ttl": c.MinTTL, "servers": hookServers,
	})
}

// hookChange compares with all values, also with those that do not show yet.
func hookChange(c *Cloud, r Request) Answer {
	var change struct {
		Zone, Name, Type  string
		TTL               uint32
		Seen, Add, Remove []string
	}
	err := json.Unmarshal(r.Body, &change)
	kind := cmp.Or(change.Type, "TXT")
	wrong := func(value string) bool { return !rightData(kind, value) }
	switch {
	case err != nil || change.Name != fold(change.Name) || change.Seen == nil || change.Add == nil || change.Remove == nil:
		return hookFailure(http.StatusBadRequest, "invalid", "not a change")
	case slices.ContainsFunc(change.Add, wrong):
		return hookFailure(http.StatusBadRequest, "invalid", "no value of this type of records")
	case change.Zone != c.zoneOf(change.Name).name:
		return hookFailure(http.StatusNotFound, "", "the name is not in this zone")
	case c.aliased(change.Name):
		return hookFailure(http.StatusConflict, "conflict", "a CNAME is there")
	case change.TTL < c.MinTTL:
		return hookFailure(http.StatusUnprocessableEntity, "invalid", "the TTL is too low")
	}
	there := map[string]*record{}
	for _, record := range c.records {
		if record.name == change.Name && record.kind == kind && !record.off {
			there[record.content] = record
		}
	}
	unseen := func(value string) bool { return there[value] == nil }
	if len(there) != len(change.Seen) || slices.ContainsFunc(change.Seen, unseen) {
		return hookFailure(http.StatusConflict, "", "the values have changed")
	}
	for _, value := range change.Add {
		if unseen(value) {
			c.insert(change.Name, kind, value, change.TTL)
		}
	}
	for _, value := range change.Remove {
		if !unseen(value) {
			c.delete(there[value].id)
		}
	}
	return Answer{Status: http.StatusNoContent}
}
