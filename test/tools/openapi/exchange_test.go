package openapi

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// exchange is a request of a script in testdata and the answer to it.
type exchange struct {
	method, path  string
	query         url.Values
	request, body any // JSON; nil where there is none, or the request's is none
	status, code  string
}

var (
	headerLine  = regexp.MustCompile(`^[A-Z][A-Za-z-]*: `)
	requestLine = regexp.MustCompile(`^(GET|HEAD|PUT|POST|PATCH|DELETE|OPTIONS|TRACE|BREW) (\S+)$`)
	answerLine  = regexp.MustCompile(`^(\d{3})( [a-z_]+)?( (?:Allow|Location|Idempotent-Replay): [^{]+)?(?s: (\{.*))?$`)
	number      = regexp.MustCompile(`<id-(\d+)>`)
)

// placeholders are what a script has for that which differs from run to run.
var placeholders = strings.NewReplacer("<time>", "2026-01-02T03:04:05.678Z", "<ms>", "0", "<owner>", "0123456789ab", "<dns>", "127.0.0.1:53")

// exchanges reads a script: test/api says what may stand in one.
func exchanges(text string) (all []exchange, err error) {
	text = number.ReplaceAllStringFunc(placeholders.Replace(text), func(id string) string {
		n, _ := strconv.Atoi(number.FindStringSubmatch(id)[1])
		return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	})
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		given, answer, _ := strings.Cut(strings.Trim(block, "\n"), "\n-> ")
		lines := strings.Split(given, "\n")
		for len(lines) > 0 && strings.HasPrefix(lines[0], "#") {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			continue
		}
		if verb, _, _ := strings.Cut(lines[0], " "); verb == "sql" || verb == "dns" || verb == "until" || verb == "rest" {
			continue
		}
		e, err := readExchange(lines, answer)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", lines[0], err)
		}
		all = append(all, e)
	}
	return all, nil
}

func readExchange(lines []string, answer string) (e exchange, err error) {
	match := requestLine.FindStringSubmatch(lines[0])
	if match == nil {
		return e, fmt.Errorf("not a request")
	}
	e.method = match[1]
	path, query, _ := strings.Cut(match[2], "?")
	e.path = path
	e.query, _ = url.ParseQuery(query) // a broken one is refused, or it is a fault of checkRequest
	lines = lines[1:]
	for len(lines) > 0 && headerLine.MatchString(lines[0]) {
		lines = lines[1:]
	}
	if value, err := jsonschema.UnmarshalJSON(strings.NewReader(strings.Join(lines, "\n"))); err == nil {
		e.request = value
	}
	parts := answerLine.FindStringSubmatch(answer)
	if parts == nil {
		return e, fmt.Errorf("not an answer: %q", answer)
	}
	e.status, e.code = parts[1], strings.TrimSpace(parts[2])
	if parts[4] != "" {
		e.body, err = jsonschema.UnmarshalJSON(strings.NewReader(parts[4]))
	}
	return e, err
}

// check holds an exchange to the document: the path, the status, the reason and the
// body; of a request that was granted the query and the body too. It names the
// operation and the status that the exchange is of, "" where there is none.
func (d *Document) check(e exchange) (of string, err error) {
	method := e.method
	if method == "HEAD" {
		method = "GET"
	}
	answers, _ := d.child(node{object: d.root}, "x-any-path")
	if o, ok := d.route(method, e.path); ok {
		of = method + " " + o.path + " " + e.status
		answers, _ = d.child(o.node, "responses")
		if e.status < "300" {
			if err := d.checkRequest(o, e); err != nil {
				return of, err
			}
		}
	}
	answer, ok := d.child(answers, e.status)
	if !ok {
		return of, fmt.Errorf("status %s is not in the document", e.status)
	}
	return of, d.checkAnswer(answer, e)
}

func (d *Document) checkAnswer(answer node, e exchange) error {
	code, ok := d.child(answer, "headers", "X-Error-Code", "schema")
	if ok != (e.code != "") {
		return fmt.Errorf("X-Error-Code %q", e.code)
	}
	if ok {
		if err := d.validate(code, e.code); err != nil {
			return fmt.Errorf("X-Error-Code: %w", err)
		}
	}
	if e.method == "HEAD" {
		return nil
	}
	schema, ok := d.schemaOf(answer)
	if !ok {
		return fmt.Errorf("%s has no schema for JSON", answer.at)
	}
	if e.body == nil {
		return fmt.Errorf("no body")
	}
	return d.validate(schema, e.body)
}

// schemaOf is that of the JSON in a request body or an answer. It is not followed behind
// a $ref, which may have other keywords beside it.
func (d *Document) schemaOf(n node) (node, bool) {
	media, ok := d.child(n, "content", "application/json")
	if !ok {
		return node{}, false
	}
	schema, ok := media.object["schema"].(object)
	return node{media.at + "/schema", schema}, ok
}

func (d *Document) checkRequest(o operation, e exchange) error {
	known := d.parameters(o, "query")
	for name, values := range e.query {
		parameter, ok := known[name]
		if !ok {
			continue // it is ignored
		}
		if err := d.validate(node{at: parameter.at + "/schema"}, values[0]); err != nil {
			return fmt.Errorf("query %s: %w", name, err)
		}
	}
	for name, parameter := range known {
		if parameter.object["required"] == true && !e.query.Has(name) {
			return fmt.Errorf("query %s is required and was not needed", name)
		}
	}
	body, ok := d.child(o.node, "requestBody")
	if !ok {
		return nil
	}
	schema, _ := d.schemaOf(body)
	if err := d.validate(schema, e.request); err != nil {
		return fmt.Errorf("the request was granted: %w", err)
	}
	return nil
}

// route finds the operation of a path: a literal segment wins over a template, as in
// net/http.
func (d *Document) route(method, path string) (found operation, ok bool) {
	for _, o := range d.operations() {
		if o.method != method {
			continue
		}
		if o.path == path {
			return o, true
		}
		wanted, given := strings.Split(o.path, "/"), strings.Split(path, "/")
		if len(wanted) == len(given) && slices.EqualFunc(wanted, given, fits) {
			found, ok = o, true
		}
	}
	return found, ok
}

// fits reports whether a segment of a path is the one of a template. Dots alone make a path
// unclean, which is none.
func fits(wanted, given string) bool {
	return wanted == given || strings.HasPrefix(wanted, "{") && strings.Trim(given, ".") != ""
}
