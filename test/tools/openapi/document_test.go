// Package openapi holds docs/openapi.json to OpenAPI 3.1, and the exchanges in
// testdata to docs/openapi.json. Schemas are JSON Schema 2020-12, all of it:
// github.com/santhosh-tekuri/jsonschema. The format of the document itself is
// the OpenAPI Initiative's own schema, oas-3.1.json, as it stands.
package openapi

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed oas-3.1.json
var format []byte

const (
	formatURL   = "https://spec.openapis.org/oas/3.1/schema/2022-10-07"
	documentURL = "file:///openapi.json"
)

// object is a JSON object.
type object = map[string]any

// Document is an OpenAPI document.
type Document struct {
	root     object
	compiler *jsonschema.Compiler
}

// Parse reads a document and holds it to the format.
func Parse(text []byte) (*Document, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	root, ok := value.(object)
	if !ok {
		return nil, fmt.Errorf("the document is no object")
	}
	d := &Document{root: root, compiler: jsonschema.NewCompiler()}
	d.compiler.AssertFormat()
	rules, err := jsonschema.UnmarshalJSON(bytes.NewReader(format))
	if err != nil {
		return nil, err
	}
	if err := d.compiler.AddResource(formatURL, rules); err != nil {
		return nil, err
	}
	if err := d.compiler.AddResource(documentURL, value); err != nil {
		return nil, err
	}
	schema, err := d.compiler.Compile(formatURL)
	if err != nil {
		return nil, err
	}
	return d, schema.Validate(value)
}

// node is an object of the document, and where it stands (RFC 6901).
type node struct {
	at     string
	object object
}

// child gives a member that is an object, behind a $ref what that refers to; ok is false
// where there is none.
func (d *Document) child(n node, names ...string) (node, bool) {
	for _, name := range names {
		value, ok := n.object[name].(object)
		if !ok {
			return node{}, false
		}
		n = node{n.at + "/" + escape.Replace(name), value}
		if ref, ok := value["$ref"].(string); ok && len(value) == 1 {
			if n, ok = d.behind(ref); !ok {
				return node{}, false
			}
		}
	}
	return n, true
}

// behind gives what a $ref refers to.
func (d *Document) behind(ref string) (node, bool) {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return node{}, false
	}
	var names []string
	for name := range strings.SplitSeq(path, "/") {
		names = append(names, unescape.Replace(name))
	}
	return d.child(node{object: d.root}, names...)
}

var (
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// validate holds a value to the schema at a node.
func (d *Document) validate(at node, value any) error {
	schema, err := d.compiler.Compile(documentURL + (&url.URL{Fragment: at.at}).String())
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// operation is a method of a path.
type operation struct {
	path, method string
	item         node // of the path
	node
}

var methods = []string{"get", "put", "post", "delete", "patch", "options"}

func (d *Document) operations() (all []operation) {
	paths, _ := d.child(node{object: d.root}, "paths")
	for _, path := range slices.Sorted(maps.Keys(paths.object)) {
		item, _ := d.child(paths, path)
		for _, method := range methods {
			if n, ok := d.child(item, method); ok {
				all = append(all, operation{path: path, method: strings.ToUpper(method), item: item, node: n})
			}
		}
	}
	return all
}

// parameters gives those of a place ("query", "path") by name.
func (d *Document) parameters(o operation, in string) map[string]node {
	found := map[string]node{}
	for _, n := range []node{o.item, o.node} {
		list, _ := n.object["parameters"].([]any)
		for i, entry := range list {
			parameter := node{fmt.Sprintf("%s/parameters/%d", n.at, i), entry.(object)}
			if ref, ok := parameter.object["$ref"].(string); ok {
				parameter, _ = d.behind(ref)
			}
			if name, _ := parameter.object["name"].(string); parameter.object["in"] == in {
				found[name] = parameter
			}
		}
	}
	return found
}

// Lint gives what the format allows and a reader misses: names and words for every
// operation and parameter, references and components that lead nowhere, examples that
// their schema refuses.
func (d *Document) Lint() (faults []string) {
	report := func(at, format string, args ...any) { faults = append(faults, at+": "+fmt.Sprintf(format, args...)) }
	names := map[string]bool{}
	for _, o := range d.operations() {
		id, _ := o.object["operationId"].(string)
		if id == "" || names[id] {
			report(o.at, "operationId %q", id)
		}
		names[id] = true
		if summary, _ := o.object["summary"].(string); summary == "" {
			report(o.at, "no summary")
		}
		if tags, _ := o.object["tags"].([]any); len(tags) != 1 || !d.hasTag(tags[0]) {
			report(o.at, "want one of the document's tags, got %v", tags)
		}
		d.lintParameters(o, report)
		body, ok := d.child(o.node, "requestBody", "content", "application/json")
		if schema, _ := d.child(o.node, "requestBody", "content", "application/json", "schema"); ok {
			if err := d.validate(schema, body.object["example"]); err != nil {
				report(body.at, "the example: %v", err)
			}
		}
	}
	d.lintReferences(report)
	slices.Sort(faults)
	return faults
}

func (d *Document) hasTag(name any) bool {
	tags, _ := d.root["tags"].([]any)
	return slices.ContainsFunc(tags, func(tag any) bool { return tag.(object)["name"] == name })
}

var templated = regexp.MustCompile(`\{([^}]+)\}`)

func (d *Document) lintParameters(o operation, report func(at, format string, args ...any)) {
	declared := d.parameters(o, "path")
	var inPath []string
	for _, match := range templated.FindAllStringSubmatch(o.path, -1) {
		inPath = append(inPath, match[1])
	}
	if got := slices.Sorted(maps.Keys(declared)); !slices.Equal(got, inPath) {
		report(o.at, "parameters %q in the path, %q declared", inPath, got)
	}
	for _, in := range []string{"path", "query", "header"} {
		for name, parameter := range d.parameters(o, in) {
			if text, _ := parameter.object["description"].(string); text == "" {
				report(parameter.at, "parameter %q without a description", name)
			}
		}
	}
}

// lintReferences looks for $refs without a target, and targets without a $ref.
func (d *Document) lintReferences(report func(at, format string, args ...any)) {
	used := map[string]bool{}
	walk(d.root, "", func(at string, o object) {
		ref, ok := o["$ref"].(string)
		if !ok {
			return
		}
		used[ref] = true
		if _, ok := d.behind(ref); !ok {
			report(at, "$ref %q leads nowhere", ref)
		}
	})
	components, _ := d.child(node{object: d.root}, "components")
	for kind := range components.object {
		if kind == "securitySchemes" {
			continue // they are named by security, not by $ref
		}
		group, _ := d.child(components, kind)
		for name := range group.object {
			if ref := "#/components/" + kind + "/" + name; !used[ref] {
				report(ref, "nothing refers to it")
			}
		}
	}
}

// walk shows every object of a value, and where it stands.
func walk(value any, at string, see func(at string, o object)) {
	switch v := value.(type) {
	case object:
		see(at, v)
		for name, member := range v {
			walk(member, at+"/"+escape.Replace(name), see)
		}
	case []any:
		for i, element := range v {
			walk(element, fmt.Sprintf("%s/%d", at, i), see)
		}
	}
}
