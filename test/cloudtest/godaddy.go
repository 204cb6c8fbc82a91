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

// GoDaddy is the Domains API of GoDaddy, version 1, as a small account sees
// it: calls for whole domains are refused. There are no disabled records.
func GoDaddy(t testing.TB) *Cloud {
	return start(t, &Cloud{
		Provider: "godaddy", AccessKeyID: "FakeKey_FakeFakeFakeFakeFake", AccessKeySecret: "FakeSecretFakeSecretFa", MinTTL: 600,
	}, vendor{
		authorize: goDaddyAuthorize, serve: goDaddyServe, spell: spellPlain, read: readPlain,
		throttle: goDaddyAnswer(http.StatusTooManyRequests, map[string]any{
			"code": "TOO_MANY_REQUESTS", "message": "Too many requests received within interval", "retryAfterSec": 7,
		}),
	})
}

func goDaddyAnswer(status int, value any) Answer {
	a := JSON(status, value)
	a.Header["X-Request-Id"] = "bq7TFLQGMjZ5mhyVW6nR3G"
	return a
}

func goDaddyFailure(status int, code, message string) Answer {
	return goDaddyAnswer(status, map[string]any{"code": code, "message": message})
}

// goDaddyInvalid is the refusal of one field of a record.
func goDaddyInvalid(code, path, message string) *Answer {
	return new(goDaddyAnswer(http.StatusUnprocessableEntity, map[string]any{
		"code": "INVALID_BODY", "message": "Request body doesn't fulfill schema, see details in `fields`",
		"fields": []any{map[string]any{"code": code, "path": path, "message": message}},
	}))
}

// goDaddyAuthorize compares the key: there is no signature and no clock.
func goDaddyAuthorize(c *Cloud, r Request) *Answer {
	fail := func(code, message string) *Answer {
		return new(goDaddyFailure(http.StatusUnauthorized, code, message))
	}
	pair, ok := strings.CutPrefix(r.Header.Get("Authorization"), "sso-key ")
	switch {
	case !ok || strings.Count(pair, ":") != 1:
		return fail("MALFORMED_CREDENTIALS", "Unauthorized : Malformed Authorization header")
	case pair != c.AccessKeyID+":"+c.AccessKeySecret:
		return fail("UNABLE_TO_AUTHENTICATE", "Unauthorized : Could not authenticate API key/secret")
	}
	return nil
}

func goDaddyServe(c *Cloud, r Request) Answer {
	parts := strings.Split(r.Path, "/")
	if len(parts) < 3 || parts[1] != "v1" || parts[2] != "domains" {
		return goDaddyFailure(http.StatusNotFound, "NOT_FOUND", "Not Found")
	}
	if len(parts) != 7 && len(parts) != 6 || parts[4] != "records" || len(parts) == 6 && r.Method != http.MethodGet {
		return goDaddyFailure(http.StatusForbidden, "ACCESS_DENIED", "Authenticated user is not allowed access")
	}
	domain, full := goDaddyUnescape(parts[3]), ""
	if strings.HasPrefix(domain, "_") {
		return goDaddyFailure(http.StatusUnprocessableEntity, "INVALID_DOMAIN", "Domain is invalid")
	}
	z, ok := c.zoneNamed(domain)
	if !ok {
		return goDaddyFailure(http.StatusNotFound, "UNKNOWN_DOMAIN", "The given domain is not registered, or does not have a zone file")
	}
	if len(parts) == 7 {
		full = fullName(goDaddyUnescape(parts[6]), z.name)
	}
	switch {
	case r.Method == http.MethodGet:
		return goDaddyList(c, r, z, full, parts[5])
	case r.Method == http.MethodPut && parts[5] == "TXT":
		return goDaddyPut(c, r, full)
	case r.Method == http.MethodDelete && parts[5] == "TXT":
		return goDaddyDelete(c, full)
	}
	return goDaddyFailure(http.StatusNotFound, "NOT_FOUND", "Not Found")
}

func goDaddyUnescape(part string) string {
	if text, err := url.PathUnescape(part); err == nil {
		return text
	}
	return part
}

// goDaddyList counts pages, the first being 1.
func goDaddyList(c *Cloud, r Request, z zone, name, kind string) Answer {
	found := []any{}
	if kind == "NS" && name == z.name {
		for _, server := range []string{"ns01.domaincontrol.com", "NS02.domaincontrol.com"} {
			found = append(found, map[string]any{"data": server, "name": "@", "ttl": 3600, "type": "NS"})
		}
	}
	for _, record := range c.at(z.name, name, kind) {
		if !record.off {
			found = append(found, map[string]any{
				"data": record.content, "name": relativeName(record.name, z.name), "ttl": record.ttl, "type": record.kind,
			})
		}
	}
	return goDaddyAnswer(http.StatusOK, page(found, max(1, number(r.Query("offset"))), c.size(number(r.Query("limit")), 500, 500)))
}

type goDaddyBody []goDaddyEntry

type goDaddyEntry struct {
	Data *string
	TTL  *int
}

func goDaddyRefusal(c *Cloud, r Request, body goDaddyBody, name string) *Answer {
	switch {
	case r.Header.Get("Content-Type") != "application/json":
		return goDaddyInvalid("UNEXPECTED_TYPE", "body", "is not an array")
	case len(body) == 0:
		return goDaddyInvalid("TOO_SHORT", "records", "must have at least 1 item")
	case c.aliased(name):
		return goDaddyInvalid("DUPLICATE_RECORD", "records", "Another record with the same attributes already exists")
	}
	seen := map[string]bool{}
	for i, entry := range body {
		path := fmt.Sprintf("records[%d]", i)
		switch {
		case entry.Data == nil:
			return goDaddyInvalid("MISSING_REQUIRED", path+".data", "is required")
		case entry.TTL != nil && *entry.TTL < int(c.MinTTL):
			return goDaddyInvalid("MIN_VALUE", path+".ttl", "must be at least 600")
		case seen[*entry.Data]:
			return goDaddyInvalid("DUPLICATE_RECORD", path, "Another record with the same attributes already exists")
		}
		seen[*entry.Data] = true
	}
	return nil
}

// goDaddyPut keeps what is there and to be there, so that only what is new
// shows late.
func goDaddyPut(c *Cloud, r Request, name string) Answer {
	var body goDaddyBody
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return *goDaddyInvalid("UNEXPECTED_TYPE", "body", "is not an array")
	}
	if refusal := goDaddyRefusal(c, r, body, name); refusal != nil {
		return *refusal
	}
	c.changes++
	c.records = slices.DeleteFunc(c.records, func(r *record) bool {
		return goDaddyAt(r, name) && !slices.ContainsFunc(body, func(e goDaddyEntry) bool { return *e.Data == r.content })
	})
	for _, entry := range body {
		ttl := 3600
		if entry.TTL != nil {
			ttl = *entry.TTL
		}
		made := c.same(name, "TXT", *entry.Data)
		if made == nil {
			made = c.insert(name, "TXT", *entry.Data, uint32(ttl))
		}
		made.ttl = uint32(ttl)
	}
	return Answer{Status: http.StatusOK, Header: map[string]string{"X-Request-Id": "bq7TFLQGMjZ5mhyVW6nR3G"}}
}

func goDaddyAt(r *record, name string) bool { return r.name == fold(name) && r.kind == "TXT" && !r.off }

func goDaddyDelete(c *Cloud, name string) Answer {
	before := len(c.records)
	c.records = slices.DeleteFunc(c.records, func(r *record) bool { return goDaddyAt(r, name) })
	if len(c.records) == before {
		return goDaddyFailure(http.StatusNotFound, "NOT_FOUND", "No records found")
	}
	c.changes++
	return Answer{Status: http.StatusNoContent, Header: map[string]string{"X-Request-Id": "bq7TFLQGMjZ5mhyVW6nR3G"}}
}
