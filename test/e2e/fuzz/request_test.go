package fuzz

import (
	"fmt"
	"net/url"
	"strings"
)

// token is the one that the program asks for.
const token = "0123456789abcdef-the-token"

// request is one as it goes over the wire.
type request struct {
	method, target string
	headers        []string
	body           string
	hasBody        bool
	wrong          bool // net/http itself may refuse it, in its own words
	keyless        bool // without the right token, Host or site: the guards refuse it
}

func (r request) wire() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s HTTP/1.1\r\n", r.method, r.target)
	for _, line := range r.headers {
		out.WriteString(line + "\r\n")
	}
	out.WriteString("\r\n" + r.body)
	return out.String()
}

// next makes a request: most are nearly right, for what is refused at once finds nothing.
func (g *generator) next() request {
	o := g.operation()
	r := request{method: o.method, target: g.path(o)}
	if q := g.query(o); q != "" {
		r.target += "?" + q
	}
	body := ""
	if r.hasBody = o.shape != nil; r.hasBody {
		t := g.value(o.shape, "")
		switch body = text(t); {
		case g.chance(25):
			body = g.mutated(t)
		case g.chance(12):
			body = g.broken(body)
		}
	} else if g.chance(3) {
		r.hasBody, body = true, pick(g, "{}", "x", strings.Repeat("y", 70_000))
	}
	host, auth := "127.0.0.1", "Authorization: Bearer "+token
	switch g.IntN(60) {
	case 0:
		r.method = pick(g, "HEAD", "OPTIONS", "TRACE", "PATCH", "PUT", "DELETE", "POST", "GET", "BREW", "get", "QUERY", "CONNECT", strings.Repeat("M", 300))
	case 1:
		r.target, r.wrong = g.oddTarget(r.target), true
	case 2:
		host = pick(g, "localhost", "LOCALHOST:80", "[::1]", "evil.example", "127.0.0.1.example", "127.0.0.1:99999", "a b", "", "xn--a")
		r.keyless, r.wrong = true, true
	case 3:
		auth = pick(g, "", "Authorization: Bearer wrong", "Authorization: "+token, "Authorization: Basic eDp5", "Authorization: Bearer "+token+"x", "authorization:bearer "+token)
		r.keyless = true
	case 4:
		r.headers = append(r.headers, pick(g, "Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: nonsense", "Origin: null", "Origin: http://127.0.0.1"))
		r.keyless = true
	case 5:
		r.headers = append(r.headers, g.wrongHeader())
		r.wrong = true
	}
	r.headers = append(r.headers, "Host: "+host, auth)
	if auth == "" {
		r.headers = r.headers[:len(r.headers)-1]
	}
	if !strings.HasPrefix(o.path, "/api/") && g.chance(70) { // the pages, most of all
		r.headers = append(r.headers, "Accept: text/html")
	}
	if g.chance(30) {
		r.headers = append(r.headers, g.oddHeader())
	}
	r.encode(g, body)
	return r
}

// encode puts the body on the wire, whole or in chunks.
func (r *request) encode(g *generator, body string) {
	switch {
	case !r.hasBody:
	case g.chance(80):
		r.headers = append(r.headers, fmt.Sprintf("Content-Length: %d", len(body)))
		r.body = body
	default:
		r.headers = append(r.headers, "Transfer-Encoding: chunked")
		for len(body) > 0 {
			n := min(len(body), 1+g.IntN(8192))
			r.body += fmt.Sprintf("%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		r.body += "0\r\n\r\n"
	}
}

// operation picks one. What takes long, or makes much to list, is asked for less often, and
// what was made goes again: else memory would grow with what is stored.
func (g *generator) operation() *operation {
	if len(g.only) > 0 {
		return pick(g, g.only...)
	}
	for i, made := range [][]string{g.usages, g.services} {
		if len(made) > most && g.chance(40) {
			if remove := g.d.route("DELETE", "/api/v1/ddns/"+[]string{"usages", "services"}[i]+"/x"); remove != nil {
				return remove
			}
		}
	}
	for {
		if o := pick(g, g.d.operations...); !g.chance(rare[o.String()]) {
			return o
		}
	}
}

// most is how much one client keeps.
const most = 20

// rare says how many of a hundred requests are not made.
var rare = map[string]int{
	"POST /api/v1/ddns/test": 80, "POST /api/v1/ddns/sync": 80, "POST /api/v1/ddns/adopt": 70, "GET /api/v1/ddns/backup": 93,
	"GET /api/v1/ddns/openapi.json": 90, "GET /api/v1/ddns/state": 80, "DELETE /api/v1/ddns/state": 99, "GET /metrics": 80, "GET /api/v1/ddns/services": 60, "GET /api/v1/ddns/usages/available": 60,
}

// path fills in what is in braces.
func (g *generator) path(o *operation) string {
	before, after, ok := strings.Cut(o.path, "{id}")
	if !ok {
		return o.path
	}
	if strings.Contains(after, "{lease}") && len(g.leases) > 0 && g.chance(90) {
		l := pick(g, g.leases...)
		return before + l.usage + strings.Replace(after, "{lease}", l.id, 1)
	}
	id := g.service()
	switch {
	case (strings.HasSuffix(before, "/usages/") || before == "/names/") && len(g.usages) > 0:
		id = pick(g, g.usages...)
	case strings.HasSuffix(before, "/services/") && (g.chance(20) || len(g.services) > most) && len(g.services) > 0:
		id = pick(g, g.services...)
	case strings.HasSuffix(before, "/leftovers/"):
		id = fmt.Sprint(g.IntN(300))
	}
	if g.chance(10) {
		id = pick(g, "0", "-1", "99999999999999999999", "00000000-0000-0000-0000-000000000000", "%00", "%ff", "%2e%2e", "a%2fb", "a%20b", "%E6%96%87", "..", "'--",
			strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("%41", 1500), "*", "{id}", "available", "~", "%c0%af")
	}
	return before + id + after
}

// oddTarget changes a target as a whole.
func (g *generator) oddTarget(target string) string {
	switch g.IntN(8) {
	case 0:
		return target + "/"
	case 1:
		return "/" + target
	case 2:
		return "/x/.." + target
	case 3:
		return strings.Replace(target, "ddns", pick(g, "DDNS", "%64dns", "ddns%2f", "ddns/.", "ddns;a=b", "ddns%00"), 1)
	case 4:
		return "http://127.0.0.1" + target
	case 5:
		return pick(g, "/", "/api", "/favicon.ico", "/metrics/", "/healthz%20", "/api/v1/ddns/", "/%2e%2e/etc/passwd", "/"+strings.Repeat("a/", 2000))
	case 6:
		return target + pick(g, "#x", "?", "??", "?a=b?c", "?%", "?;", "?a=1;b=2")
	}
	return target + pick(g, "%zz", "%", "%2", "%00")
}

// durable is the flag that needs a replica, which the program does not have here.
const durable = "durable"

// query writes the parameters, most of them as the document wants.
func (g *generator) query(o *operation) string {
	var parts []string
	for _, p := range o.parameters {
		if p.in != "query" || !p.required && g.chance(50) {
			continue
		}
		value := g.string(object{}, p.name)
		var literal string
		if t := text(g.value(p.shape, p.name)); strings.HasPrefix(t, `"`) {
			value = unquoted(t)
		}
		if p.name == durable && g.chance(90) { // with another value it is refused, and nothing else is looked at
			value = pick(g, "0", "false")
		}
		if g.chance(8) {
			value = pick(g, "", "2", "yes", "TRUE", "-1", "1001", "01", "+5", " 1", "99999999999999999999", "1e3", "\x00", "文", strings.Repeat("9", 3000), "pending", "'")
		}
		literal = url.QueryEscape(p.name) + "=" + url.QueryEscape(value)
		if parts = append(parts, literal); g.chance(4) {
			parts = append(parts, literal)
		}
	}
	if g.chance(3) {
		parts = append(parts, pick(g, "x=y", "%zz=1", "a=%", "a;b", "&&", "=", "limit", "dry_run=1", strings.Repeat("a=b&", 500)))
	}
	return strings.Join(parts, "&")
}

// oddHeader is one that net/http lets through.
func (g *generator) oddHeader() string {
	return pick(g,
		"Accept-Language: en", "Accept-Language: zh-CN,zh;q=0.9,en;q=0.8", "Accept-Language: en;q=2, zh;q=-1", "Accept-Language: "+strings.Repeat("en;q=0.1,", 500),
		"Accept-Language: \xff\xfe", "Accept-Language:", "Accept-Language: *;q=", "Accept-Language: en;q=NaN",
		"Content-Type: text/plain", "Content-Type: application/json; charset=utf-16", "Content-Type: multipart/form-data; boundary=x", "Content-Type: \x80",
		"Content-Encoding: gzip", "Accept: image/png", "Accept: text/html,*/*;q=0.8", "Accept-Encoding: gzip, br", "Range: bytes=0-1", "If-None-Match: *", "If-Match: \"x\"",
		"If-Modified-Since: Mon, 02 Jan 2096 15:04:05 GMT", "Expect: 100-continue", "Connection: close", "Connection: keep-alive, x", "Upgrade: h2c", "X-HTTP-Method-Override: DELETE",
		"X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: evil.example", "Forwarded: for=\"_x\"", "Cookie: a=b; "+strings.Repeat("c=d; ", 300), "TE: trailers", "X-Error-Code: x", "Referer: http://evil.example/",
	)
}

// wrongHeader is one that net/http does not take, or need not.
func (g *generator) wrongHeader() string {
	return pick(g,
		"Content-Length: 5\r\nContent-Length: 6", "Content-Length: -1", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "No colon", "a b: c", ": x", "X: a\x00b",
		"X: "+strings.Repeat("x", 20_000), "Expect: a miracle", "Host: twice", " folded: x", "X\xff: y",
	)
}
