package fuzz

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// answer is what came back, whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// faults are the answers of 500 that are no fault of the program, by operation: there is
// nothing to synchronise, or a provider that is not there was asked.
var faults = map[string][]string{
	"POST /api/v1/ddns/sync": {"sync_not_configured", "sync_disabled", "sync_failed", "sync_unfinished"},
}

// Check says what is wrong with the answer to a request.
func (d *Document) check(r request, a answer) (wrong []string) {
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if r.wrong && isPlain(a) {
		return nil
	}
	u, err := url.ParseRequestURI(r.target)
	if err != nil || r.method == "CONNECT" {
		if !isPlain(a) && a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed && !r.keyless {
			report("status %d to a target that is none", a.status)
		}
		return wrong
	}
	o := d.route(r.method, u.EscapedPath())
	if strings.TrimSuffix(u.Path, "/") != strings.TrimSuffix(path.Clean(u.Path), "/") {
		o = nil // the path is not clean
	}
	code := a.header.Get("X-Error-Code")
	allowed := d.anywhere[fmt.Sprint(a.status)]
	if o != nil {
		if documented, ok := o.answers[fmt.Sprint(a.status)]; ok {
			allowed = documented
		} else if a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed {
			allowed = nil
		}
		if a.status >= 500 && !slices.Contains(faults[o.String()], code) {
			report("status %d %s", a.status, code)
		}
	} else if a.status < 400 || a.status >= 500 {
		report("status %d of a path or method that is not in the document", a.status)
	}
	if allowed == nil {
		report("status %d is not in the document for %v", a.status, o)
		return wrong
	}
	wrong = append(wrong, allowed.check(r, a)...)
	if o != nil && !r.wrong {
		wrong = append(wrong, o.checkRequest(r, u, a)...)
	}
	return wrong
}

// isPlain reports whether net/http itself has refused a request.
func isPlain(a answer) bool {
	return slices.Contains([]int{400, 417, 431, 501, 505}, a.status) && strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") ||
		a.status == 417 && len(a.body) == 0
}

// check holds headers and body to the document.
func (want *response) check(r request, a answer) (wrong []string) {
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for name, h := range want.headers {
		values := a.header.Values(name)
		if name == "WWW-Authenticate" && len(values) > 1 { // a list, which may stand in several lines (RFC 9110, section 5.3)
			values = []string{strings.Join(values, ", ")}
		}
		if len(values) == 0 && !h.required {
			continue
		}
		if len(values) != 1 {
			report("%d headers %s", len(values), name)
		} else if err := h.schema.Validate(any(values[0])); err != nil {
			report("%s: %v", name, err)
		}
	}
	if _, ok := want.headers["X-Error-Code"]; ok != (a.header.Values("X-Error-Code") != nil) {
		report("X-Error-Code %q", a.header.Get("X-Error-Code"))
	}
	kind := a.header.Get("Content-Type")
	media, parameters, _ := strings.Cut(kind, ";")
	schema, ok := want.media[media]
	switch {
	case !ok:
		report("Content-Type %q", kind)
		return wrong
	case media == "application/json" && strings.TrimSpace(parameters) != "charset=utf-8":
		report("Content-Type %q", kind)
	case r.method == http.MethodHead:
		if len(a.body) > 0 {
			report("a body of %d octets to HEAD", len(a.body))
		}
		return wrong
	case media != "application/json":
		if len(a.body) == 0 {
			report("no body")
		}
		return wrong
	}
	if !utf8.Valid(a.body) || !readable(a.body) {
		report("the body is not strict JSON")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(a.body))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		report("the body: %v", err)
	}
	if _, failed := member(value, "error").(string); failed != (a.status >= 400) {
		report("status %d, and a member error: %t", a.status, failed)
	}
	return wrong
}

// checkRequest compares what the program makes of a request with what the document says
// of it: what it has granted is valid, and what it does not understand is not.
func (o *operation) checkRequest(r request, u *url.URL, a answer) (wrong []string) {
	granted := a.status < 300
	if granted && r.stranger(o) {
		wrong = append(wrong, "granted to a stranger")
	}
	if fault := o.queryFault(u.RawQuery); granted && fault != "" {
		return append(wrong, "granted, and "+fault)
	} else if o.body == nil || fault != "" {
		return wrong
	}
	fault, unclear := o.bodyFault(r)
	if granted && fault != "" {
		wrong = append(wrong, "granted, and "+fault)
	}
	if a.header.Get("X-Error-Code") == "parameter_error" && fault == "" && !unclear {
		wrong = append(wrong, "a parameter error, and the request is as the document wants it")
	}
	return wrong
}

// stranger reports whether the guards have to refuse a request.
func (r request) stranger(o *operation) bool {
	has := func(line string) bool { return slices.Contains(r.headers, line) }
	switch {
	case o.method != "GET" && (has("Origin: https://evil.example") || has("Sec-Fetch-Site: cross-site")):
		return true
	case o.path == "/healthz", o.method == "OPTIONS": // which is the same
		return false
	}
	return has("Host: evil.example") || has("Host: 127.0.0.1.example") ||
		!has("Authorization: Bearer "+token) && !has("authorization:bearer "+token)
}

// queryFault says what the document has against a query.
func (o *operation) queryFault(text string) string {
	query, err := url.ParseQuery(text)
	if err != nil && o.method != "GET" && o.method != "OPTIONS" { // a call that changes something reads the whole query
		return "the query is broken"
	}
	for _, p := range o.parameters {
		if p.in != "query" {
			continue
		}
		values := query[p.name]
		switch {
		case err != nil:
			return "the query is broken"
		case len(values) == 0 && p.required:
			return p.name + " is missing"
		case len(values) == 0:
			continue
		case len(values) > 1 && p.flag:
			return p.name + " is given twice"
		case p.name == durable && (values[0] == "1" || values[0] == "true"):
			return "there is no replica"
		}
		if err := p.schema.Validate(any(values[0])); err != nil {
			return fmt.Sprintf("%s=%q", p.name, values[0])
		}
	}
	return ""
}

// likeInteger is a number that JSON Schema takes for an integer, and the program may not.
var likeInteger = regexp.MustCompile(`[0-9](\.0*)?([eE][+-]?[0-9]+)|[0-9]\.0|-0|[0-9]{19}`)

// bodyFault says what the document has against a body. Of some it cannot tell: there is a
// limit to depth, and the contract does not say which; to a schema 1e2 and 10^30 are integers.
func (o *operation) bodyFault(r request) (fault string, unclear bool) {
	body := []byte(r.content())
	unclear = bytes.Count(body, []byte("[")) > 50 || bytes.Count(body, []byte("{")) > 50 || likeInteger.Match(body)
	if !readable(body) {
		return "the body is not strict JSON", unclear
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err.Error(), unclear
	}
	if err := o.body.Validate(withoutNulls(value)); err != nil {
		return "the body: " + err.Error(), unclear
	}
	return "", unclear
}

// withoutNulls leaves out members that are null, which count as absent.
func withoutNulls(value any) any {
	o, ok := value.(object)
	if !ok {
		return value
	}
	for name, m := range o {
		if m == nil {
			delete(o, name)
		} else if name == "config" {
			o[name] = withoutNulls(m)
		}
	}
	return value
}

// content is the body without its chunks.
func (r request) content() string {
	if !slices.Contains(r.headers, "Transfer-Encoding: chunked") {
		return r.body
	}
	out, rest := "", r.body
	for {
		line, after, _ := strings.Cut(rest, "\r\n")
		n := 0
		if fmt.Sscanf(line, "%x", &n); n == 0 {
			return out
		}
		out, rest = out+after[:n], after[n+2:]
	}
}

// readable reports whether a text is one JSON value as RFC 7493 wants it: UTF-8, no name
// twice in an object, no half of a surrogate pair. It is written here anew, so that the
// program's own reader is not held against itself.
func readable(text []byte) bool {
	if !utf8.Valid(text) || !json.Valid(text) || loneSurrogate(string(text)) {
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var names []map[string]bool // of the objects around, nil for an array
	isName := false
	for {
		token, err := decoder.Token()
		if err != nil {
			return len(names) == 0
		}
		inObject := len(names) > 0 && names[len(names)-1] != nil
		switch token {
		case json.Delim('{'):
			names, isName = append(names, map[string]bool{}), true
			continue
		case json.Delim('['):
			names = append(names, nil)
			continue
		case json.Delim('}'), json.Delim(']'):
			names = names[:len(names)-1]
			isName = len(names) > 0 && names[len(names)-1] != nil
			continue
		}
		if name, ok := token.(string); ok && inObject && isName {
			if names[len(names)-1][name] {
				return false
			}
			names[len(names)-1][name], isName = true, false
			continue
		}
		isName = inObject
	}
}

// loneSurrogate looks for half of a pair among the escapes of valid JSON.
func loneSurrogate(text string) bool {
	high := false
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			if high {
				return true
			}
			continue
		}
		i++
		code := 0
		if text[i] == 'u' {
			fmt.Sscanf(text[i+1:i+5], "%x", &code)
			i += 4
		}
		isLow := 0xdc00 <= code && code < 0xe000
		if isLow != high {
			return true
		}
		high = 0xd800 <= code && code < 0xdc00
	}
	return high
}

// unquoted reads a JSON string.
func unquoted(text string) (s string) {
	json.Unmarshal([]byte(text), &s) // it was made here
	return s
}
