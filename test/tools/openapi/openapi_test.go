package openapi

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func document(t *testing.T) *Document {
	t.Helper()
	text, err := os.ReadFile("../../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDocument(t *testing.T) {
	for _, fault := range document(t).Lint() {
		t.Error(fault)
	}
}

// Every kind of fault that is looked for is found.
func TestLintFinds(t *testing.T) {
	text, err := os.ReadFile("../../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ old, new, want string }{
		{`"openapi": "3.1.1"`, `"openapi": "3.0.3"`, "does not match pattern"},
		{`"in": "query"`, `"in": "body"`, "value must be one of 'query'"},
		{`"operationId": "putConfiguration"`, `"operationId": "getConfiguration"`, `operationId "getConfiguration"`},
		{`"summary": "Stores the configuration"`, `"summary": ""`, "no summary"},
		{`"tags": ["usages"]`, `"tags": ["users"]`, "want one of the document's tags"},
		{`"/api/v1/ddns/usages/{id}"`, `"/api/v1/ddns/usages/{usage}"`, `["usage"] in the path`},
		{`"description": "Of the service."`, `"description": ""`, "without a description"},
		{`"owner": "5f0c2a91d3be"`, `"owner": "nobody"`, "the example"},
		{`"#/components/schemas/Leftover"`, `"#/components/schemas/Rest"`, "leads nowhere"},
		{`"#/components/schemas/Leftover"`, `"#/components/schemas/Usage"`, "nothing refers to it"},
	} {
		changed := strings.Replace(string(text), test.old, test.new, 1)
		if changed == string(text) {
			t.Errorf("%s is not in the document", test.old)
		}
		var found []string
		if d, err := Parse([]byte(changed)); err != nil {
			found = []string{err.Error()}
		} else {
			found = d.Lint()
		}
		if !slices.ContainsFunc(found, func(fault string) bool { return strings.Contains(fault, test.want) }) {
			t.Errorf("%s instead of %s: %q, want %q", test.new, test.old, found, test.want)
		}
	}
}

// scripts gives the exchanges in testdata, and where each stands.
func scripts(t *testing.T) map[string][]exchange {
	t.Helper()
	files, err := filepath.Glob("../../../testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	all := map[string][]exchange{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if all[filepath.Base(file)], err = exchanges(string(text)); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return all
}

// Every exchange in testdata is one that the document tells of, and of every operation that
// answers JSON there is one that it has granted.
func TestExchanges(t *testing.T) {
	d, seen, n := document(t), map[string]bool{}, 0
	for file, all := range scripts(t) {
		for _, e := range all {
			of, err := d.check(e)
			if err != nil {
				t.Errorf("%s: %s %s -> %s: %v", file, e.method, e.path, e.status, err)
			}
			seen[of] = true
			n++
		}
	}
	delete(seen, "")
	t.Logf("%d exchanges, %d operations with their statuses", n, len(seen))
	for _, o := range d.operations() {
		answer, _ := d.child(o.node, "responses", "200")
		if _, ok := d.schemaOf(answer); ok && !seen[o.method+" "+o.path+" 200"] && !elsewhere[o.path] {
			t.Errorf("no exchange of %s %s with status 200", o.method, o.path)
		}
	}
}

// elsewhere are the paths whose answers have tests of their own: the document itself.
var elsewhere = map[string]bool{"/api/v1/ddns/openapi.json": true, "/api/v1/ddns/state": true}

// An answer that has a member too many, lacks one or has one of another type is refused,
// wherever in it that is.
func TestWrongAnswersAreRefused(t *testing.T) {
	d, n := document(t), 0
	for file, all := range scripts(t) {
		for _, e := range all {
			if e.body == nil {
				continue
			}
			for what, wrong := range mutants(e.body) {
				e.body = wrong
				if _, err := d.check(e); err == nil {
					text, _ := json.Marshal(wrong)
					t.Errorf("%s: %s %s -> %s with %s is taken: %s", file, e.method, e.path, e.status, what, text)
				}
				n++
			}
		}
	}
	t.Logf("%d wrong answers", n)
	for _, e := range []exchange{
		{method: "GET", path: "/healthz", status: "201", body: object{"message": "x"}},
		{method: "GET", path: "/healthz", status: "503", code: "internal_error", body: object{"error": "x"}},
		{method: "GET", path: "/healthz", status: "503", body: object{"error": "x"}},
		{method: "GET", path: "/healthz", status: "404", code: "not_found", body: object{"error": "x"}},
		{method: "GET", path: "/nothing", status: "200", body: object{"message": "x"}},
	} {
		if _, err := d.check(e); err == nil {
			t.Errorf("%v is taken", e)
		}
	}
}

// mutants gives the wrong answers that are one change away.
func mutants(body any) map[string]any {
	found := map[string]any{}
	walk(body, "", func(at string, o object) {
		if strings.HasSuffix(at, "/config") || strings.HasSuffix(at, "/check") {
			return // of a service, which may have any entries; a check, of which requests may lack any
		}
		o["surplus"] = true
		found["a member more at "+at] = clone(body)
		delete(o, "surplus")
		for _, name := range slices.Sorted(maps.Keys(o)) {
			value := o[name]
			if value == nil {
				continue
			}
			o[name] = []any{[]any{}}
			found["another type of "+at+"/"+name] = clone(body)
			if o[name] = value; !optional[name] && !warns(value) && !optionalOfEvent(at, o, name) && !optionalOfPrefix(o, name) {
				delete(o, name)
				found["no "+at+"/"+name] = clone(body)
				o[name] = value
			}
		}
	})
	return found
}

// optional are the members that an answer may lack.
var optional = map[string]bool{
	"next_cursor": true, "updated_at": true, "network_id": true, "provider": true, "next_at": true, "warnings": true,
	"configuration": true, "publish": true, "secret": true, "retry_interval": true, "max_retries": true,
	"formats": true, "endpoints": true, "check": true, "peer_id": true, "slot": true, "paused": true, "leases": true,
}

// optionalOfEvent reports whether a member is one that an event may lack.
func optionalOfEvent(at string, o object, name string) bool {
	_, event := o["seq"]
	return strings.HasSuffix(at, "/detail") || event && slices.Contains([]string{"name", "usage_id", "service_id", "by"}, name)
}

// optionalOfPrefix reports whether a member is what the answer about a prefix may lack: what is wrong with its form.
func optionalOfPrefix(o object, name string) bool {
	data, _ := o["data"].(object)
	return name == "message" && data["occupied"] != nil
}

// warns reports whether a member has only warnings, or only what a query parameter asks for: it may be
// absent.
func warns(value any) bool {
	o, ok := value.(object)
	for name := range o {
		ok = ok && (name == "warnings" || name == "publish" || o[name] == "released")
	}
	return ok && len(o) > 0
}

func clone(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var copied any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&copied); err != nil {
		panic(err)
	}
	return copied
}
