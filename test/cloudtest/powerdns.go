package cloudtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// PowerDNS is a PowerDNS Authoritative Server 4.7 with its HTTP API: it
// replaces sets in one transaction, and shows disabled records only to who
// asks for a whole zone.
func PowerDNS(t testing.TB) *Cloud {
	return start(t, &Cloud{Provider: "powerdns", AccessKeyID: "localhost", AccessKeySecret: "fake-pdns-api-key"}, vendor{
		authorize: pdnsAuthorize, serve: pdnsServe, spell: pdnsSpell, read: pdnsRead,
		throttle: pdnsPlain(http.StatusTooManyRequests, "Too Many Requests"), // a proxy's: the server has no limit
	})
}

// pdnsPlain is an answer of the web server, pdnsError one of the API.
func pdnsPlain(status int, text string) Answer {
	return Answer{Status: status, Header: map[string]string{"Content-Type": "text/plain; charset=utf-8"}, Body: text}
}

func pdnsError(format string, args ...any) Answer {
	return JSON(http.StatusUnprocessableEntity, map[string]any{"error": fmt.Sprintf(format, args...)})
}

func pdnsAuthorize(c *Cloud, r Request) *Answer {
	if r.Header.Get("X-Api-Key") != c.AccessKeySecret {
		failure := pdnsPlain(http.StatusUnauthorized, "Unauthorized")
		return &failure
	}
	return nil
}

func pdnsServe(c *Cloud, r Request) Answer {
	below, ok := strings.CutPrefix(r.Path, "/api/v1/servers/"+c.AccessKeyID)
	id, isZone := strings.CutPrefix(below, "/zones/")
	z, known := c.zoneNamed(id)
	switch {
	case ok && below == "" && r.Method == http.MethodGet:
		return JSON(http.StatusOK, map[string]any{"type": "Server", "id": c.AccessKeyID, "daemon_type": "authoritative", "version": "4.7.3"})
	case ok && below == "/zones" && r.Method == http.MethodGet:
		return pdnsZones(c, r)
	case !ok || !isZone || !known:
		return pdnsPlain(http.StatusNotFound, "Not Found")
	case r.Method == http.MethodGet:
		return pdnsShow(c, r, z)
	case r.Method == http.MethodPatch:
		return pdnsPatch(c, r, z)
	}
	return pdnsPlain(http.StatusMethodNotAllowed, "Method Not Allowed")
}

// pdnsZones gives the zone that is asked for, and all without that word.
func pdnsZones(c *Cloud, r Request) Answer {
	name := r.Query("zone")
	if name != "" && !strings.HasSuffix(name, ".") {
		return pdnsError("DNS Name '%s' is not canonical", name)
	}
	found := []any{}
	for _, z := range c.zones {
		if !z.private && (name == "" || z.name == fold(name)) { // the server has no private zones
			found = append(found, pdnsZone(z))
		}
	}
	return JSON(http.StatusOK, found)
}

func pdnsZone(z zone) map[string]any {
	return map[string]any{"id": z.name + ".", "name": z.name + ".", "kind": "Native", "serial": 1, "masters": []string{}, "account": "", "soa_edit_api": "DEFAULT"}
}

// pdnsShow gives the sets of a zone, or those that are asked for.
func pdnsShow(c *Cloud, r Request, z zone) Answer {
	query, err := url.ParseQuery(r.RawQuery)
	if err != nil {
		return pdnsPlain(http.StatusBadRequest, "Bad Request")
	}
	records := slices.Clone(c.records)
	if query.Has("rrset_name") {
		records = slices.DeleteFunc(c.at(z.name, query.Get("rrset_name"), query.Get("rrset_type")), func(r *record) bool { return r.off })
	}
	type key struct{ name, kind string }
	var order []key
	sets := map[key][]any{}
	ttl := map[key]uint32{}
	for _, record := range records {
		k := key{record.name, record.kind}
		if record.zone != z.name {
			continue
		}
		if sets[k] == nil {
			order = append(order, k)
		}
		sets[k] = append(sets[k], map[string]any{"content": record.content, "disabled": record.off})
		ttl[k] = record.ttl
	}
	shown := []any{}
	for _, k := range order {
		shown = append(shown, map[string]any{"name": k.name + ".", "type": k.kind, "ttl": ttl[k], "records": sets[k], "comments": []any{}})
	}
	answer := pdnsZone(z)
	if r.Query("rrsets") != "false" {
		answer["rrsets"] = shown
	}
	return JSON(http.StatusOK, answer)
}

// pdnsChange is what becomes of a set.
type pdnsChange struct {
	Name, Type, ChangeType string
	TTL                    *uint32
	Records                []pdnsEntry
}

type pdnsEntry struct {
	Content  string
	Disabled bool
}

func pdnsPatch(c *Cloud, r Request, z zone) Answer {
	var body struct{ RRsets []pdnsChange }
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return pdnsPlain(http.StatusBadRequest, "Bad Request")
	}
	if body.RRsets == nil {
		return pdnsError("No rrsets given in update request")
	}
	for _, change := range body.RRsets {
		if refusal := change.refusal(c, z); refusal != nil {
			return *refusal
		}
	}
	for _, change := range body.RRsets {
		change.apply(c)
	}
	c.changes++
	return Answer{Status: http.StatusNoContent}
}

// refusal checks a change as the server does.
func (p pdnsChange) refusal(c *Cloud, z zone) *Answer {
	fail := func(format string, args ...any) *Answer { return new(pdnsError(format, args...)) }
	set := "RRset " + p.Name + " IN " + p.Type
	switch {
	case !strings.HasSuffix(p.Name, "."):
		return fail("DNS Name '%s' is not canonical", p.Name)
	case p.ChangeType != "REPLACE" && p.ChangeType != "DELETE":
		return fail("Changetype not understood")
	case c.zoneOf(fold(p.Name)).name != z.name:
		return fail("%s: Name is out of zone", set)
	case p.ChangeType == "DELETE":
		return nil
	case p.TTL == nil:
		return fail("Key 'ttl' not an Integer or not present")
	}
	seen := map[string]bool{}
	for _, record := range p.Records {
		if _, ok := pdnsStrings(record.Content); !ok {
			return fail("Record %s/%s '%s': Not in expected format (parsed as '\"%[3]s\"')", p.Name, p.Type, record.Content)
		}
		if seen[record.Content] {
			return fail("Duplicate record in %s with content \"%s\"", set, record.Content)
		}
		seen[record.Content] = true
	}
	if c.aliased(p.Name) {
		return fail("%s: Conflicts with pre-existing RRset", set)
	}
	return nil
}

// apply leaves records that stay in their place, so that they do not hide.
func (p pdnsChange) apply(c *Cloud) {
	c.records = slices.DeleteFunc(c.records, func(r *record) bool {
		return r.name == fold(p.Name) && r.kind == p.Type && !slices.ContainsFunc(p.Records, func(e pdnsEntry) bool { return e.Content == r.content })
	})
	for _, wanted := range p.Records {
		r := c.same(p.Name, p.Type, wanted.Content)
		if r == nil {
			r = c.insert(p.Name, p.Type, wanted.Content, *p.TTL)
		}
		r.ttl, r.off = *p.TTL, wanted.Disabled
	}
}

// pdnsSpell quotes and escapes, as other programs do it.
func pdnsSpell(value []string) string {
	var parts []string
	for _, s := range value {
		text := ""
		for _, octet := range []byte(s) {
			switch {
			case octet == '"' || octet == '\\':
				text += `\` + string(octet)
			case octet < 0x20 || octet > 0x7e:
				text += fmt.Sprintf(`\%03d`, octet)
			default:
				text += string(octet)
			}
		}
		parts = append(parts, `"`+text+`"`)
	}
	return strings.Join(parts, " ")
}

// pdnsRead is what the public gets: strings that are too long are cut.
func pdnsRead(content string) (value []string) {
	parts, _ := pdnsStrings(content)
	for _, part := range parts {
		value = append(value, readPlain(part)...)
	}
	return value
}

// pdnsStrings reads quoted strings with spaces between.
func pdnsStrings(content string) (parts []string, ok bool) {
	for rest := content; ; {
		if rest == "" || rest[0] != '"' {
			return nil, false
		}
		part := ""
		for rest = rest[1:]; rest != "" && rest[0] != '"'; {
			switch {
			case rest[0] != '\\':
				part, rest = part+rest[:1], rest[1:]
			case len(rest) > 3 && rest[1] >= '0' && rest[1] <= '9':
				part, rest = part+string([]byte{byte(number(rest[1:4]))}), rest[4:]
			case len(rest) > 1:
				part, rest = part+rest[1:2], rest[2:]
			default:
				return nil, false
			}
		}
		if rest == "" {
			return nil, false
		}
		parts = append(parts, part)
		if rest = strings.TrimLeft(rest[1:], " "); rest == "" {
			return parts, true
		}
	}
}
