// Package fuzz sends what docs/openapi.json allows, and what it does not, to the built
// program over HTTP, and holds every answer to the document. It is a module of its own:
// the program itself has two requirements and no more.
package fuzz

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// object is a JSON object.
type object = map[string]any

// Document is an OpenAPI document, its schemas compiled (JSON Schema 2020-12).
type Document struct {
	root       object
	compiler   *jsonschema.Compiler
	operations []*operation
	anywhere   map[string]*response // of what has no operation, by status
}

// operation is a method of a path.
type operation struct {
	method, path string
	parameters   []parameter
	shape        any                // of the body, nil for none
	body         *jsonschema.Schema // the same, compiled
	answers      map[string]*response
}

func (o *operation) String() string { return o.method + " " + o.path }

type parameter struct {
	name, in string
	required bool
	flag     bool // has a few values, and may be given once
	shape    any
	schema   *jsonschema.Schema
}

// response is what an answer with a status has to be.
type response struct {
	headers map[string]header
	media   map[string]*jsonschema.Schema
}

type header struct {
	required bool
	schema   *jsonschema.Schema
}

const documentURL = "file:///openapi.json"

// Parse reads a document.
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
	if err := d.compiler.AddResource(documentURL, root); err != nil {
		return nil, err
	}
	if d.anywhere, err = d.responses(root["x-any-path"], "/x-any-path"); err != nil {
		return nil, err
	}
	// The guards come before the path.
	for status, name := range map[string]string{"401": "Unauthorized", "403": "Forbidden", "429": "TooManyAttempts"} {
		guard, err := d.responses(object{status: object{"$ref": "#/components/responses/" + name}}, "")
		if err != nil {
			return nil, err
		}
		maps.Copy(d.anywhere, guard)
	}
	paths, _ := root["paths"].(object)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item, _ := paths[path].(object)
		for _, method := range []string{"get", "put", "post", "delete", "patch", "options"} {
			if _, ok := item[method]; !ok {
				continue
			}
			if err := d.add(path, method, item); err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
		}
	}
	if len(d.operations) == 0 || len(d.anywhere) == 0 {
		return nil, fmt.Errorf("the document has no paths, or no x-any-path")
	}
	return d, nil
}

func (d *Document) add(path, method string, item object) (err error) {
	o := &operation{method: strings.ToUpper(method), path: path}
	at := "/paths/" + escape(path)
	raw, _ := item[method].(object)
	if err := d.addParameters(o, item["parameters"], at); err != nil {
		return err
	}
	at += "/" + method
	if err := d.addParameters(o, raw["parameters"], at); err != nil {
		return err
	}
	if body, ok := raw["requestBody"].(object); ok {
		const media = "application/json"
		o.shape = member(body, "content", media, "schema")
		if o.body, err = d.compile(at + "/requestBody/content/" + escape(media) + "/schema"); err != nil {
			return err
		}
	}
	if o.answers, err = d.responses(raw["responses"], at+"/responses"); err != nil {
		return err
	}
	d.operations = append(d.operations, o)
	return nil
}

func (d *Document) addParameters(o *operation, list any, at string) error {
	entries, _ := list.([]any)
	for i, entry := range entries {
		p, where := d.behind(entry, fmt.Sprintf("%s/parameters/%d", at, i))
		schema, err := d.compile(where + "/schema")
		if err != nil {
			return err
		}
		name, _ := p["name"].(string)
		in, _ := p["in"].(string)
		o.parameters = append(o.parameters, parameter{
			name: name, in: in, required: p["required"] == true, flag: member(p, "schema", "enum") != nil,
			shape: p["schema"], schema: schema,
		})
	}
	return nil
}

func (d *Document) responses(value any, at string) (map[string]*response, error) {
	all := map[string]*response{}
	list, _ := value.(object)
	for status, entry := range list {
		raw, where := d.behind(entry, at+"/"+status)
		r := &response{headers: map[string]header{}, media: map[string]*jsonschema.Schema{}}
		headers, _ := raw["headers"].(object)
		for name := range headers {
			h, place := d.behind(headers[name], where+"/headers/"+escape(name))
			schema, err := d.compile(place + "/schema")
			if err != nil {
				return nil, err
			}
			r.headers[name] = header{required: h["required"] == true, schema: schema}
		}
		content, _ := raw["content"].(object)
		for media := range content {
			schema, err := d.compile(where + "/content/" + escape(media) + "/schema")
			if err != nil {
				return nil, err
			}
			r.media[media] = schema
		}
		all[status] = r
	}
	return all, nil
}

func (d *Document) compile(at string) (*jsonschema.Schema, error) {
	return d.compiler.Compile(documentURL + (&url.URL{Fragment: at}).String())
}

// behind gives an object, or what its $ref refers to, and where that stands.
func (d *Document) behind(value any, at string) (object, string) {
	o, _ := value.(object)
	ref, ok := o["$ref"].(string)
	if !ok {
		return o, at
	}
	at = strings.TrimPrefix(ref, "#")
	var found any = d.root
	for name := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		found = member(found, strings.NewReplacer("~1", "/", "~0", "~").Replace(name))
	}
	return d.behind(found, at)
}

// member gives what lies at a path in a JSON value, nil where there is nothing.
func member(value any, names ...string) any {
	for _, name := range names {
		o, _ := value.(object)
		value = o[name]
	}
	return value
}

func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// route finds the operation of a method and an escaped path as net/http does: a literal
// segment wins over a template, HEAD is answered as GET.
func (d *Document) route(method, escaped string) (found *operation) {
	if method == "HEAD" {
		method = "GET"
	}
	given := strings.Split(escaped, "/")
	for _, o := range d.operations {
		wanted := strings.Split(o.path, "/")
		if o.method != method || len(wanted) != len(given) {
			continue
		}
		literal, fits := true, true
		for i := range wanted {
			segment, err := url.PathUnescape(given[i])
			template := strings.HasPrefix(wanted[i], "{")
			fits = fits && err == nil && (segment == wanted[i] || template && segment != "")
			literal = literal && !template
		}
		if fits && (literal || found == nil) {
			found = o
		}
	}
	return found
}
