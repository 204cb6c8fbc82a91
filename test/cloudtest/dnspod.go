package cloudtest

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// DNSPod is DNSPod's older API. It has no signature, and so no clock either.
func DNSPod(t testing.TB) *Cloud {
	return start(t, &Cloud{
		Provider: "dnspod", AccessKeyID: "730060", AccessKeySecret: "e1a8af14dc5dcbafd83680b3d2a553c4", MinTTL: 600,
	}, vendor{
		authorize: dnspodAuthorize, serve: dnspodServe, spell: tencentSpell, read: tencentRead,
		throttle: dnspodFailure("-2", "API usage is limited"),
	})
}

// dnspodFailure is an HTTP 200 like every answer.
func dnspodFailure(code, message string) Answer {
	return JSON(http.StatusOK, map[string]any{"status": map[string]any{"code": code, "message": message, "created_at": "2015-01-18 22:12:35"}})
}

func dnspodAnswer(answer map[string]any) Answer {
	answer["status"] = map[string]any{"code": "1", "message": "Action completed successful", "created_at": "2015-01-18 22:12:35"}
	return JSON(http.StatusOK, answer)
}

func dnspodAuthorize(c *Cloud, r Request) *Answer {
	fail := func(code, message string) *Answer { return new(dnspodFailure(code, message)) }
	agent := r.Header.Get("User-Agent")
	switch form := dnspodForm(r); {
	case r.Method != http.MethodPost:
		return fail("2", "Only POST is allowed")
	case !strings.Contains(agent, "/") || strings.HasPrefix(agent, "Go-http-client"):
		return fail("-2", "API usage is limited") // who does not say who it is will be shut out
	case form.Get("login_token") != c.AccessKeyID+","+c.AccessKeySecret:
		return fail("-1", "Login fails, please check login information")
	}
	return nil
}

// dnspodForm reads the parameters, which are in the body alone.
func dnspodForm(r Request) url.Values {
	form, err := url.ParseQuery(string(r.Body))
	if err != nil || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		return nil
	}
	return form
}

func dnspodServe(c *Cloud, r Request) Answer {
	form := dnspodForm(r)
	if form.Get("format") != "json" {
		return Answer{Status: http.StatusOK, Header: map[string]string{"Content-Type": "text/xml"}, Body: `<?xml version="1.0"?><dnspod><status><code>1</code></status></dnspod>`}
	}
	if r.Path == "/Domain.List" {
		return dnspodDomains(c, form)
	}
	z, ok := c.zoneWhere(func(z zone) bool { return !z.private && strconv.Itoa(z.id) == form.Get("domain_id") })
	if !ok {
		return dnspodFailure("6", "Domain id invalid")
	}
	switch r.Path {
	case "/Domain.Purview":
		return dnspodPurview(c, form)
	case "/Record.List":
		return dnspodList(c, form, z)
	case "/Record.Create", "/Record.Modify":
		return dnspodWrite(c, form, z, r.Path == "/Record.Modify")
	case "/Record.Remove":
		if !c.delete(number(form.Get("record_id"))) {
			return dnspodFailure("8", "Record id invalid")
		}
		return dnspodAnswer(map[string]any{})
	}
	return dnspodFailure("3", "Unknown error")
}

// dnspodDomains searches for a part of the name. Ids are numbers here, and
// texts elsewhere.
func dnspodDomains(c *Cloud, form url.Values) Answer {
	var found []any
	for _, z := range c.zones {
		if strings.Contains(z.name, form.Get("keyword")) && !z.private {
			found = append(found, map[string]any{"id": z.id, "name": z.name, "punycode": z.name, "status": "enable", "grade": "DP_Free", "ttl": "600"})
		}
	}
	if len(found) == 0 && form.Get("error_on_empty") != "no" {
		return dnspodFailure("9", "No domains")
	}
	shown := fromOffset(found, number(form.Get("offset")), c.size(number(form.Get("length")), 3000, 3000))
	return dnspodAnswer(map[string]any{"info": map[string]any{"domain_total": len(found), "all_total": len(c.zones)}, "domains": shown})
}

// dnspodPurview names what a plan has in the language that was asked for.
func dnspodPurview(c *Cloud, form url.Values) Answer {
	name := "Minimum TTL"
	if form.Get("lang") == "cn" {
		name = "记录TTL最低"
	}
	return dnspodAnswer(map[string]any{"purview": []any{
		map[string]any{"name": "URL转发条数", "value": 10},
		map[string]any{"name": name, "value": c.MinTTL},
		map[string]any{"name": "混合泛解析支持", "value": "no"},
	}})
}

// dnspodList gives the whole zone when sub_domain is missing; all its numbers
// are texts.
func dnspodList(c *Cloud, form url.Values, z zone) Answer {
	var found []any
	for _, record := range namedOrAll(c, z, form.Get("sub_domain"), form.Get("record_type")) {
		enabled := "1"
		if record.off {
			enabled = "0"
		}
		found = append(found, map[string]any{
			"id": strconv.Itoa(record.id), "name": relativeName(record.name, z.name), "type": record.kind, "value": record.content,
			"ttl": strconv.Itoa(int(record.ttl)), "line": "默认", "line_id": "0", "enabled": enabled, "weight": nil, "mx": "0", "remark": "",
		})
	}
	shown := fromOffset(found, number(form.Get("offset")), c.size(number(form.Get("length")), 500, 3000))
	if len(shown) == 0 && form.Get("error_on_empty") != "no" {
		return dnspodFailure("10", "No records")
	}
	return dnspodAnswer(map[string]any{
		"domain": map[string]any{"id": z.id, "name": z.name, "grade": "DP_Free"},
		"info":   map[string]any{"sub_domains": "1", "record_total": strconv.Itoa(len(found))}, "records": shown,
	})
}

func dnspodWrite(c *Cloud, form url.Values, z zone, modify bool) Answer {
	old := c.record(number(form.Get("record_id")))
	name, value, ttl := fullName(form.Get("sub_domain"), z.name), form.Get("value"), number(form.Get("ttl"))
	if form.Get("ttl") == "" {
		ttl = 600
	}
	switch {
	case modify && (old == nil || old.zone != z.name):
		return dnspodFailure("8", "Record id invalid")
	case form.Get("record_line") != "默认" && form.Get("record_line_id") != "0":
		return dnspodFailure("26", "Record line is invalid")
	case form.Get("record_type") != "TXT":
		return dnspodFailure("27", "Record type is invalid")
	case ttl < int(c.MinTTL) || ttl > 604800:
		return dnspodFailure("32", "TTL is out of the limit")
	case value == "":
		return dnspodFailure("34", "Record value is invalid")
	case c.aliased(name):
		return dnspodFailure("31", "Conflicting records exist")
	case c.same(name, "TXT", value) != nil:
		return dnspodFailure("104", "The record exists already")
	}
	if modify {
		c.changes++
		old.name, old.content, old.ttl, old.off = name, value, uint32(ttl), false
	} else {
		old = c.insert(name, "TXT", value, uint32(ttl))
	}
	return dnspodAnswer(map[string]any{"record": map[string]any{"id": strconv.Itoa(old.id), "name": form.Get("sub_domain"), "status": "enable"}})
}
