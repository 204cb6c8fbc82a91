package api

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/web"
	"meshddns/test/support"
)

// testPage has the status page for browsers only.
func (suite Suite) testPage(t *testing.T) {
	a := suite.Start(t, Options{})
	_, unknown := a.Do(t, "GET", "/nothing", nil, "")
	for _, accept := range []string{"", "*/*", "text/*", "application/json", "text/html;q=0", "text/htmlx"} {
		response, text := a.Do(t, "GET", "/", http.Header{"Accept": {accept}}, "")
		if response.StatusCode != 404 || !strings.HasPrefix(text, strings.TrimRight(unknown, "\"}\n")) || !strings.Contains(text, "/openapi.json") || response.Header.Get("X-Error-Code") != "not_found" || response.Header.Get("Vary") != "" {
			t.Errorf("Accept %q: %s, %v, %s", accept, response.Status, response.Header, text)
		}
	}
	for _, accept := range []string{"text/html", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/json, TEXT/HTML;q=0.1"} {
		response, text := a.Do(t, "GET", "/", http.Header{"Accept": {accept}, "Accept-Language": {"en"}}, "")
		if response.StatusCode != 200 || !strings.Contains(text, "<html lang=\"en\">") || !strings.Contains(text, "Nothing is configured yet") {
			t.Errorf("Accept %q: %s, %s", accept, response.Status, text)
		}
		for name, want := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cache-Control": "no-store", "Vary": "Accept, Accept-Language", "Set-Cookie": "", "Content-Length": fmt.Sprint(len(text)),
		} {
			if got := response.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		policy := response.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || !strings.HasSuffix(policy, "='; form-action 'self'; frame-ancestors 'none'; base-uri 'none'") {
			t.Error(policy)
		}
		if strings.Contains(text, "<script") || strings.Contains(text, " style=") || strings.Contains(text, `method="post"`) {
			t.Error(text)
		}
	}
	if _, text := a.Do(t, "GET", "/", http.Header{"Accept": {"text/html"}}, ""); !strings.Contains(text, "<html lang=\"zh\">") || !strings.Contains(text, "尚未配置") {
		t.Errorf("without Accept-Language: %s", text)
	}
	html := http.Header{"Accept": {"text/html"}}
	if response, text := a.Do(t, "HEAD", "/", html, ""); response.StatusCode != 200 || text != "" || response.ContentLength < 1000 {
		t.Errorf("HEAD: %s, %d octets, %q", response.Status, response.ContentLength, text)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
		if response, text := a.Do(t, method, "/", html, ""); response.StatusCode != 404 || text != unknown || response.Header.Get("Allow") != "" {
			t.Errorf("%s: %s, %s", method, response.Status, text)
		}
	}
	if response, _ := a.Do(t, "GET", "/?q=%zz", html, ""); response.StatusCode != 400 || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
		t.Errorf("a malformed query: %s", response.Status)
	}
	for _, path := range []string{"/names", "/names/none", "/nodes", "/zones", "/events", "/nothing", "/names/a/b", "/nodes/"} {
		status := map[bool]int{true: 200, false: 404}[slices.Contains([]string{"/names", "/nodes", "/zones", "/events"}, path)]
		if response, text := a.Do(t, "GET", path, html, ""); response.StatusCode != status || !strings.Contains(text, "<html") || response.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %s, %s", path, response.Status, text)
		}
		want := unknown
		if web.IsPage(path) {
			_, want = a.Do(t, "GET", "/", nil, "")
		}
		if response, text := a.Do(t, "GET", path, nil, ""); response.StatusCode != 404 || text != want || response.Header.Get("X-Error-Code") != "not_found" {
			t.Errorf("%s without text/html: %s, %s", path, response.Status, text)
		}
		for _, method := range []string{"POST", "DELETE"} {
			if response, text := a.Do(t, method, path, html, ""); response.StatusCode != 404 || text != unknown || response.Header.Get("Allow") != "" {
				t.Errorf("%s %s: %s, %s", method, path, response.Status, text)
			}
		}
	}
	if response, text := a.Do(t, "GET", "/api/v1/ddns/nothing", html, ""); response.StatusCode != 404 || text != unknown {
		t.Errorf("a path of the API: %s, %s", response.Status, text)
	}
	if _, page := a.Do(t, "GET", "/metrics", nil, ""); !strings.Contains(page, `meshddns_http_requests_total{route="GET /{$}",code="200"}`) || !strings.Contains(page, `meshddns_http_requests_total{route="GET /names/{id}",code="404"} 2`) {
		t.Error("the metrics have no page")
	}
}

// testPageFinds has usages by name, prefix and network id, with their values, and what is amiss.
func (suite Suite) testPageFinds(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"hidden-secret","domain":"example.com","txt_record_name":"@","enabled":true,"sync_mode":"auto","txt_endpoints":["tcp://{ipv4}:1"]}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/a", `{"name":"a","config":{"domain":"a.example.com"}}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/b", `{"name":"b","config":{"domain":"b.example.com"}}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/c", `{"name":"c","config":{"domain":"elsewhere.example.net"}}`)
	a.Reserve(t, "a", "Office", 71)
	a.Reserve(t, "b", "office", 72)
	a.Reserve(t, "b", "lab", 71)
	a.Reserve(t, "c", "stray", 73)
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	ask := func(query string) string {
		response, text := a.Do(t, "GET", "/"+query, http.Header{"Accept": {"text/html"}, "Accept-Language": {"en"}}, "")
		if response.StatusCode != 200 {
			t.Fatalf("%s: %s, %s", query, response.Status, text)
		}
		if strings.Contains(text, "hidden-secret") {
			t.Error("the page has a secret")
		}
		return text
	}
	names := []string{"_mesh.office.a.example.com", "_mesh.office.b.example.com", "_mesh.lab.b.example.com", "_mesh.stray.elsewhere.example.net"}
	for query, want := range map[string][]string{
		"office": names[:2], "OFFICE": names[:2], "office.a.example.com": names[:1], "_mesh.Office.A.example.com.": names[:1],
		"71": {names[0], names[2]}, "72": names[1:2], "lab": names[2:3], "stray": names[3:], "offic": nil, "example.org": nil, "7": nil, "%22%3E%3Cb%3E": nil,
	} {
		text := ask("?q=" + query)
		for _, name := range names {
			if has := strings.Contains(text, ">"+name+"</a></b>"); has != strings.Contains(strings.Join(want, " "), name) {
				t.Errorf("%s: %s is there: %v", query, name, has)
			}
		}
		if want == nil && !strings.Contains(text, "Nothing is found") || strings.Contains(text, "\"><b>\"") {
			t.Errorf("%s: %s", query, text)
		}
	}
	if text := ask("?q=lab"); !strings.Contains(text, "n=71") || !strings.Contains(text, "tcp://203.0.113.7:1") {
		t.Errorf("no value: %s", text)
	}
	for _, want := range []string{"Not all is well: names without a provider: 1.", names[3], "Give the service a provider", "203.0.113.7", "elsewhere.example.net", "SQLite 3.", "<svg"} {
		if text := ask(""); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// testPageOfAName has the records of a usage, and what to type in the clients of the formats that are published.
func (suite Suite) testPageOfAName(t *testing.T) {
	a := suite.Start(t, Options{})
	a.Must(t, "PUT", "/api/v1/ddns/config", `{"provider":"builtin","access_key_id":"x","access_key_secret":"x","domain":"example.com","txt_record_name":"@","enabled":true,"sync_mode":"manual"}`)
	a.Must(t, "PUT", "/api/v1/ddns/services/a", `{"name":"a","config":{"domain":"a.example.com","txt_endpoints":["tcp://{ipv4}:1"],"formats":["mesh1","a","srv:_nodes._tcp","easytier-srv"]}}`)
	id := a.Reserve(t, "a", "office", 71)
	html := http.Header{"Accept": {"text/html"}, "Accept-Language": {"en"}}
	_, before := a.Do(t, "GET", "/names/"+id, html, "")
	a.Must(t, "POST", "/api/v1/ddns/sync", "")
	_, text := a.Do(t, "GET", "/names/"+id, html, "")
	for _, want := range []string{"<b>office.a.example.com</b>", "A · a", "_nodes._tcp.office.a.example.com", "Endpoint = office.a.example.com:51820", "--peers srv://office.a.example.com",
		"provider=srv service=nodes proto=tcp domain=office.a.example.com", "dig +short _mesh.office.a.example.com TXT", "tcp://{ipv4}:1", "record published"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, "vnt-cli") || strings.Contains(before, "51820") {
		t.Errorf("clients of formats that are not published: %s", before)
	}
	_, history := a.Do(t, "GET", "/events?name=_mesh.office.a.example.com&kind=record.*", html, "")
	if !strings.Contains(history, "office.a.example.com A · Built-in DNS server") || strings.Contains(history, "prefix reserved") {
		t.Errorf("no record in the events: %s", history)
	}
}

// testPageOfAFault: a fault of the database is a page too, which has no path of this host.
func (suite Suite) testPageOfAFault(t *testing.T) {
	a := suite.Start(t, Options{})
	support.Must(t, os.Rename(a.Path, a.Path+".away"))
	t.Cleanup(func() { os.Rename(a.Path+".away", a.Path) })
	response, text := a.Do(t, "GET", "/", http.Header{"Accept": {"text/html"}, "Accept-Language": {"en"}}, "")
	if response.StatusCode != 500 || response.Header.Get("X-Error-Code") != "database_gone" || !strings.Contains(text, "<html lang=\"en\">") ||
		!strings.Contains(text, "was deleted, moved or replaced") || strings.Contains(text, a.Path) || response.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("%s, %v, %s", response.Status, response.Header, text)
	}
	if !strings.Contains(a.Logs.String(), "request failed") {
		t.Error("the log has no fault")
	}
}
