package cloudtest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Porkbun is Porkbun's API, version 3, with both keys in the body. It has no
// clock in its requests, no record that is disabled, no private zones, no
// pages and no request ids.
func Porkbun(t testing.TB) *Cloud {
	throttled := pbFailure(http.StatusTooManyRequests, "RATE_LIMIT_EXCEEDED", "Rate limit exceeded.")
	throttled.Header["Retry-After"] = "5"
	return start(t, &Cloud{
		Provider: "porkbun", AccessKeyID: "pk1_FAKEKEYFAKEKEY", AccessKeySecret: "sk1_FAKESECRETFAKESECRET", MinTTL: 600,
	}, vendor{authorize: pbAuthorize, serve: pbServe, spell: spellPlain, read: readPlain, throttle: throttled})
}

// pbFailure is an error; older ones are words without a code.
func pbFailure(status int, code, message string) Answer {
	failure := map[string]string{"status": "ERROR", "message": message}
	if code != "" {
		failure["code"] = code
	}
	return JSON(status, failure)
}

func pbSuccess(more map[string]any) Answer {
	answer := map[string]any{"status": "SUCCESS"}
	for name, value := range more {
		answer[name] = value
	}
	return JSON(http.StatusOK, answer)
}

// pbBody is a request; the TTL is a string.
type pbBody struct {
	APIKey    string `json:"apikey"`
	SecretKey string `json:"secretapikey"`
	Name      string
	Type      string
	Content   string
	TTL       string
}

// pbAuthorize looks at the domain first, as nobody promises that it does not:
// a domain of others tells nothing about the keys.
func pbAuthorize(c *Cloud, r Request) *Answer {
	var b pbBody
	var failure Answer
	err := json.Unmarshal(r.Body, &b)
	switch _, _, ok := pbTarget(c, r); {
	case r.Method != http.MethodPost || err != nil:
		failure = pbFailure(http.StatusBadRequest, "", "All HTTP request must use POST.")
	case !ok && strings.HasPrefix(r.Path, pbBase+"dns/"):
		failure = pbFailure(http.StatusBadRequest, "INVALID_DOMAIN", "Invalid domain.")
	case b.APIKey != c.AccessKeyID:
		failure = pbFailure(http.StatusBadRequest, "INVALID_API_KEYS_001", "Invalid API key. (001)")
	case b.SecretKey != c.AccessKeySecret:
		failure = pbFailure(http.StatusBadRequest, "", "Invalid API key. (002)")
	default:
		return nil
	}
	return &failure
}

const pbBase = "/api/json/v3/"

// pbTarget reads dns/ACTION/DOMAIN[/ID]; a domain is one of the account.
func pbTarget(c *Cloud, r Request) (z zone, parts []string, ok bool) {
	parts = strings.Split(strings.TrimPrefix(r.Path, pbBase+"dns/"), "/")
	if len(parts) < 2 {
		return zone{}, parts, false
	}
	z, ok = c.zoneNamed(parts[1])
	return z, parts, ok
}

func pbServe(c *Cloud, r Request) Answer {
	var b pbBody
	if err := json.Unmarshal(r.Body, &b); err != nil {
		return pbFailure(http.StatusBadRequest, "", "Invalid JSON.")
	}
	if r.Path == pbBase+"ping" {
		return pbSuccess(map[string]any{"yourIp": "192.0.2.1", "credentialsValid": true})
	}
	z, parts, _ := pbTarget(c, r)
	switch action := parts[0]; {
	case action == "retrieve" && len(parts) == 2:
		return pbRetrieve(c, z)
	case action == "create" && len(parts) == 2:
		return pbCreate(c, z, b)
	case action == "edit" && len(parts) == 3:
		return pbEdit(c, z, parts[2], b)
	case action == "delete" && len(parts) == 3:
		if old := c.record(number(parts[2])); old == nil || old.zone != z.name || !c.delete(old.id) {
			return pbFailure(http.StatusBadRequest, "INVALID_RECORD_ID", "Invalid record ID.")
		}
		return pbSuccess(nil)
	}
	return JSON(http.StatusNotFound, nil)
}

// pbRetrieve lists the whole zone at once. Numbers are strings, but for some.
func pbRetrieve(c *Cloud, z zone) Answer {
	found := []any{}
	for _, one := range c.at(z.name, "", "") {
		shown := map[string]any{
			"id": strconv.Itoa(one.id), "name": one.name, "type": one.kind, "content": one.content,
			"ttl": strconv.FormatUint(uint64(one.ttl), 10), "prio": nil, "notes": "",
		}
		if one.id%2 == 0 {
			shown["id"], shown["ttl"] = one.id, one.ttl
		}
		found = append(found, shown)
	}
	return pbSuccess(map[string]any{"cloudflare": "enabled", "records": found})
}

// pbName completes a name; the zone's own is "", and "@" is any label.
func pbName(name, zone string) string {
	if name == "" {
		return zone
	}
	return fold(name) + "." + zone
}

// pbRefuses says whether a record cannot be. An alias excludes others.
func pbRefuses(c *Cloud, b pbBody, name string) bool {
	return b.Type != "TXT" || b.Content == "" || strings.HasSuffix(b.Content, " ") ||
		number(b.TTL) < int(c.MinTTL) || c.aliased(name)
}

func pbCreate(c *Cloud, z zone, b pbBody) Answer {
	name := pbName(b.Name, z.name)
	switch {
	case c.same(name, b.Type, b.Content) != nil:
		return pbFailure(http.StatusBadRequest, "DUPLICATE_RECORD", "A record with this exact name, type and content already exists.")
	case pbRefuses(c, b, name):
		return pbFailure(http.StatusBadRequest, "", "Create error: We were unable to create the DNS record.")
	}
	return pbSuccess(map[string]any{"id": c.insert(name, b.Type, b.Content, uint32(number(b.TTL))).id})
}

// pbEdit fails also when there is nothing to change.
func pbEdit(c *Cloud, z zone, id string, b pbBody) Answer {
	old := c.record(number(id))
	if old == nil || old.zone != z.name {
		return pbFailure(http.StatusBadRequest, "INVALID_RECORD_ID", "Invalid record ID.")
	}
	name := pbName(b.Name, z.name)
	if pbRefuses(c, b, name) || c.same(name, b.Type, b.Content) != nil {
		return pbFailure(http.StatusBadRequest, "", "Edit error: We were unable to edit the DNS record.")
	}
	c.changes++
	old.name, old.kind, old.content, old.ttl = name, b.Type, b.Content, uint32(number(b.TTL))
	return pbSuccess(nil)
}
