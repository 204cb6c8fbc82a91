package provision

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"meshddns/internal/strictjson"
)

// node is a JSON value and where it stands.
type node struct {
	line       int
	begin, end int    // in the file
	kind       string // of kinds
	text       string // of a string or a number
	members    []member
	items      []*node
}

// member is a member of an object.
type member struct {
	name  string
	value *node
}

// Kinds of values, as they are called in a mistake.
const (
	isObject  = "an object"
	isArray   = "an array"
	isString  = "a string"
	isNumber  = "a number"
	isBoolean = "true or false"
	isNull    = "null"
)

// member gives what a member of an object is, nil without it. One that is null counts
// as absent.
func (n *node) member(name string) *node {
	for _, m := range n.members {
		if m.name == name && m.value.kind != isNull {
			return m.value
		}
	}
	return nil
}

// strings are the values of an array of strings.
func (n *node) strings() (all []string, ok bool) {
	for _, item := range n.items {
		if item.kind != isString {
			return nil, false
		}
		all = append(all, item.text)
	}
	return all, n.kind == isArray
}

// reader makes nodes of a text, one after the other, so that a large text need not be
// in memory as nodes all at once.
type reader struct {
	body    []byte
	tokens  *json.Decoder
	base    int // line of the first octet
	line    int // of the octet at counted, from 0
	counted int
	end     int // of the last token
	fault   func(line int, path path, reason string)
	lone    bool // somewhere is half of a surrogate pair
}

// newReader checks that the body is one JSON value in UTF-8.
func newReader(body []byte, fault func(line int, path path, reason string)) (*reader, bool) {
	r := &reader{body: body, base: 1, fault: fault}
	if len(bytes.TrimSpace(body)) == 0 {
		fault(1, nil, "nothing is in it, want a JSON object")
		return nil, false
	}
	for at := 0; at < len(body); {
		c, size := utf8.DecodeRune(body[at:])
		if c == utf8.RuneError && size == 1 {
			fault(r.lineOf(at), nil, "not valid UTF-8")
			return nil, false
		}
		at += size
	}
	if !json.Valid(body) {
		var value json.RawMessage
		err, at := json.Unmarshal(body, &value), len(body)
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = min(at, int(e.Offset))
		}
		fault(r.lineOf(max(at-1, 0)), nil, fmt.Sprint("not JSON: ", err))
		return nil, false
	}
	_, err := strictjson.Object(body)
	e, _ := errors.AsType[*strictjson.Error](err)
	r.lone = e != nil && e.Fault == strictjson.NotUTF8
	r.begin()
	return r, true
}

// begin reads from the first octet.
func (r *reader) begin() {
	r.tokens = json.NewDecoder(bytes.NewReader(r.body))
	r.tokens.UseNumber()
	r.line, r.counted, r.end = 0, 0, 0
}

// lineOf gives the line of an octet, which is none before those asked for earlier.
func (r *reader) lineOf(at int) int {
	r.line += bytes.Count(r.body[r.counted:at], []byte("\n"))
	r.counted = at
	return r.base + r.line
}

// token gives the next token and where it begins: none is on two lines. The text has
// been seen to be JSON.
func (r *reader) token() (token json.Token, n *node) {
	before := r.end
	token, err := r.tokens.Token()
	if err != nil && !errors.Is(err, io.EOF) {
		panic(err) // it was valid before
	}
	r.end = int(r.tokens.InputOffset())
	begin := before + len(r.body[before:r.end]) - len(bytes.TrimLeft(r.body[before:r.end], " \t\r\n,:"))
	return token, &node{line: r.lineOf(begin), begin: begin, end: r.end}
}

// value gives the next value.
func (r *reader) value(at path) *node {
	token, n := r.token()
	switch token := token.(type) {
	case json.Delim:
		return r.inside(token, n, at)
	case string:
		n.kind, n.text = isString, token
		r.whole(n, at)
	case json.Number:
		n.kind, n.text = isNumber, token.String()
	case bool:
		n.kind, n.text = isBoolean, strconv.FormatBool(token)
	default:
		n.kind = isNull
	}
	return n
}

// inside reads an object or an array that is open.
func (r *reader) inside(open json.Delim, n *node, at path) *node {
	if n.kind = isObject; open == '[' {
		n.kind = isArray
		for r.tokens.More() {
			n.items = append(n.items, r.value(at.item(len(n.items))))
		}
	} else {
		r.members(at, func(name string, value path) {
			n.members = append(n.members, member{name, r.value(value)})
		})
	}
	_, last := r.token()
	n.end = last.end
	return n
}

// array gives the items of an array one by one; another value is a mistake.
func (r *reader) array(at path, each func(n *node, at path)) {
	if r.peek() != '[' {
		if n := r.value(at); n.kind != isNull {
			r.fault(n.line, at, "is "+n.kind+", want "+isArray)
		}
		return
	}
	r.token()
	for i := 0; r.tokens.More(); i++ {
		here := at.item(i)
		each(r.value(here), here)
	}
	r.token()
}

// peek is the first octet of the next value.
func (r *reader) peek() byte {
	return bytes.TrimLeft(r.body[r.end:], " \t\r\n,:")[0]
}

// members reads the members of an object that is open, all but the closing brace. None
// may be there twice.
func (r *reader) members(at path, each func(name string, value path)) {
	seen := map[string]bool{}
	for r.tokens.More() {
		token, n := r.token()
		name, _ := token.(string)
		here := at.member(name)
		r.whole(n, here)
		if seen[name] {
			r.fault(n.line, here, "stands here once more")
		}
		seen[name] = true
		each(name, here)
	}
}

// whole looks for half of a surrogate pair, in whose place another character is read.
func (r *reader) whole(n *node, at path) {
	if !r.lone {
		return
	}
	_, err := strictjson.Object(fmt.Appendf(nil, `{"x":%s}`, r.body[n.begin:n.end]))
	if e, ok := errors.AsType[*strictjson.Error](err); ok && e.Fault == strictjson.NotUTF8 {
		r.fault(n.line, at, `not valid UTF-8: half of a surrogate pair (\ud800 to \udfff)`)
	}
}

// path leads to a member of a document: names, and indices in brackets.
type path []string

func (p path) member(name string) path { return append(p[:len(p):len(p)], name) }

func (p path) item(i int) path { return append(p[:len(p):len(p)], "["+strconv.Itoa(i)+"]") }

// String writes the path as in services[2].config.domain.
func (p path) String() string {
	var text strings.Builder
	for i, step := range p {
		if i > 0 && !strings.HasPrefix(step, "[") {
			text.WriteByte('.')
		}
		text.WriteString(step)
	}
	return text.String()
}
