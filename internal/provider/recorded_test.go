package provider

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/secrets"
)

// vector is a request that a vendor's own client signed at a known time.
type vector struct {
	Name, Scheme string
	Inputs       struct {
		AccessKeyID     string         `json:"access_key_id"`
		AccessKeySecret secrets.Secret `json:"access_key_secret"`
		Time            string         `json:"time_utc"`
		Nonce           string
		Method          string
		Host            string
		Path            string
		RawQuery        string      `json:"raw_query_on_the_wire"`
		Headers         [][2]string `json:"headers_on_the_wire"`
		Body            string
	}
	Expect map[string]string
}

// vectors reads a vendor's vectors, of one scheme.
func vectors(t *testing.T, vendor, scheme string) []vector {
	t.Helper()
	var file struct{ Vectors []vector }
	readJSON(t, "testdata/vectors/"+vendor+".json", &file)
	found := slices.DeleteFunc(file.Vectors, func(v vector) bool { return !strings.HasPrefix(v.Scheme, scheme) })
	if len(found) == 0 {
		t.Fatalf("%s has no vectors of %s", vendor, scheme)
	}
	return found
}

func readJSON(t *testing.T, file string, out any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(file, err)
	}
}

// request is the vector's request without its Authorization.
func (v vector) request(t *testing.T) (r *http.Request, body []byte) {
	t.Helper()
	r, err := http.NewRequest(v.Inputs.Method, "https://"+v.Inputs.Host+v.Inputs.Path+"?"+v.Inputs.RawQuery, strings.NewReader(v.Inputs.Body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range v.Inputs.Headers {
		if name := strings.ToLower(header[0]); name != "host" && name != "authorization" && name != "content-length" {
			r.Header.Add(header[0], header[1])
		}
	}
	return r, []byte(v.Inputs.Body)
}

func (v vector) key() Credentials {
	return Credentials{AccessKeyID: v.Inputs.AccessKeyID, AccessKeySecret: v.Inputs.AccessKeySecret}
}

// time is when it was signed.
func (v vector) time(t *testing.T) time.Time {
	t.Helper()
	for _, layout := range []string{basicTime, extendedTime} {
		if at, err := time.Parse(layout, v.Inputs.Time); err == nil {
			return at
		}
	}
	t.Fatalf("vector %s: time %q", v.Name, v.Inputs.Time)
	return time.Time{}
}

// signed are the names of the headers that the vendor's client signed.
func (v vector) signed(t *testing.T) []string {
	t.Helper()
	_, after, ok := strings.Cut(v.Expect["authorization"], "SignedHeaders=")
	if !ok {
		t.Fatalf("vector %s: %q", v.Name, v.Expect["authorization"])
	}
	list, _, _ := strings.Cut(after, ",")
	return strings.Split(list, ";")
}

// check compares a signature of ours with the vendor's, and logs a line of the table.
func (v vector) check(t *testing.T, vendor, got, want string) {
	t.Helper()
	if got != want || want == "" {
		t.Errorf("%-12s vector   %-32s\n%s, want\n%s", vendor, v.Name, got, want)
		return
	}
	t.Logf("%-12s vector   %-32s byte-equal", vendor, v.Name)
}

// exchange is a request as a vendor's own client sent it, and an answer.
type exchange struct {
	Op      string
	Request struct {
		Method, Target string
		Headers        [][2]string
		Body           string
	}
	Response struct {
		Status  int
		Headers [][2]string
		Body    string
	}
}

// exchanges reads the exchanges of a file; of one part where it has several.
func exchanges(t *testing.T, vendor, part string) []exchange {
	t.Helper()
	var file map[string]json.RawMessage
	readJSON(t, "testdata/exchanges/"+vendor+".json", &file)
	if part != "" {
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(file[part], &inner); err != nil {
			t.Fatal(err)
		}
		file = inner
	}
	var all []exchange
	if err := json.Unmarshal(file["exchanges"], &all); err != nil || len(all) == 0 {
		t.Fatalf("%s has %d exchanges: %v", vendor, len(all), err)
	}
	return all
}

// sent is a request as a server got it.
type sent struct {
	method, path string
	query        url.Values
	header       http.Header
	body         string
}

// replay starts a server that answers as in the exchange. got returns the request.
func (e exchange) replay(t *testing.T) (address string, got func() sent) {
	t.Helper()
	var last sent
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		last = sent{r.Method, r.URL.EscapedPath(), r.URL.Query(), r.Header, string(body)}
		for _, header := range e.Response.Headers {
			if !slices.Contains([]string{"Connection", "Content-Length", "Date"}, header[0]) {
				w.Header().Set(header[0], header[1])
			}
		}
		w.WriteHeader(e.Response.Status)
		io.WriteString(w, e.Response.Body)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() sent { return last }
}

// check compares a request with that of the vendor's client: method, path, parameters, the body as JSON
// (null is absent) or as text, and the named headers. It logs a line of the table.
func (e exchange) check(t *testing.T, vendor string, got sent, without []string, headers ...string) {
	t.Helper()
	target, err := url.ParseRequestURI(e.Request.Target)
	if err != nil {
		t.Fatal(err)
	}
	want := sent{method: e.Request.Method, path: target.EscapedPath(), query: target.Query(), body: e.Request.Body}
	for _, name := range without {
		want.query.Del(name)
	}
	if got.method != want.method || got.path != want.path || !maps.EqualFunc(got.query, want.query, slices.Equal) {
		t.Errorf("%s, %s: %s %s %v\nwant %s %s %v", vendor, e.Op, got.method, got.path, got.query, want.method, want.path, want.query)
	}
	if !sameBody(got.body, want.body, without) {
		t.Errorf("%s, %s: body\n%s, want\n%s", vendor, e.Op, got.body, want.body)
	}
	for _, name := range headers {
		header := ""
		if at := slices.IndexFunc(e.Request.Headers, func(h [2]string) bool { return strings.EqualFold(h[0], name) }); at >= 0 {
			header = e.Request.Headers[at][1]
		}
		if got.header.Get(name) != header {
			t.Errorf("%s, %s: header %s: %q, want that of %v", vendor, e.Op, name, got.header.Get(name), e.Request.Headers)
		}
	}
	if !t.Failed() {
		note := ""
		if len(without) > 0 {
			note = " (but for " + strings.Join(without, ", ") + ")"
		}
		t.Logf("%-12s exchange %-32s equal%s", vendor, e.Op, note)
	}
}

// unused logs the line of an exchange that our client has no use for.
func (e exchange) unused(t *testing.T, vendor, reason string) {
	t.Logf("%-12s exchange %-32s not sent: %s", vendor, e.Op, reason)
}

func sameBody(got, want string, without []string) bool {
	var g, w any
	if json.Unmarshal([]byte(got), &g) != nil || json.Unmarshal([]byte(want), &w) != nil {
		return got == want
	}
	return reflect.DeepEqual(pruned(g, without), pruned(w, without))
}

// pruned leaves out null members and those named.
func pruned(value any, without []string) any {
	switch value := value.(type) {
	case map[string]any:
		maps.DeleteFunc(value, func(name string, v any) bool { return v == nil || slices.Contains(without, name) })
		for name, v := range value {
			value[name] = pruned(v, without)
		}
	case []any:
		for i, v := range value {
			value[i] = pruned(v, without)
		}
	}
	return value
}
