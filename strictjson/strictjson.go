// Package strictjson decodes a request body the way RFC 7493 (I-JSON) asks:
// one JSON object in valid UTF-8, no member name twice, nothing behind it.
// Member names match a struct's json tags exactly, letter case included,
// which encoding/json does not do by itself.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

// Fault says what is wrong with a body.
type Fault string

const (
	Empty     Fault = "empty"      // no body
	NotUTF8   Fault = "not_utf8"   // invalid UTF-8, or half of a surrogate pair
	Syntax    Fault = "syntax"     // not JSON, or something behind the value
	NotObject Fault = "not_object" // JSON, but null, a string, an array, ...
	Duplicate Fault = "duplicate"  // one member name twice
	WrongType Fault = "wrong_type" // a member of another type, or out of its range
)

// Error is the error of Decode. Field is the member it is about, if any, and
// Want the type that WrongType misses.
type Error struct {
	Fault Fault
	Field string
	Want  string
}

func (e *Error) Error() string {
	text := string(e.Fault)
	if e.Field != "" {
		text += fmt.Sprintf(" at %q", e.Field)
	}
	if e.Want != "" {
		text += ", want " + e.Want
	}
	return text
}

// Decode reads body into the struct that v points to. Members without a
// field are ignored; a member that is null counts as absent.
func Decode(body []byte, v any) error {
	members, err := Object(body)
	if err != nil {
		return err
	}
	fields := reflect.ValueOf(v).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Tag.Get("json")
		raw, ok := members[name]
		if !ok || string(raw) == "null" {
			continue
		}
		field := fields.Field(i)
		if err := json.Unmarshal(raw, field.Addr().Interface()); err != nil {
			return &Error{WrongType, name, wanted(field.Type())}
		}
	}
	return nil
}

// Object checks body by the rules of the package and gives its members.
func Object(body []byte) (map[string]json.RawMessage, error) {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return nil, &Error{Fault: Empty}
	case !utf8.Valid(body):
		return nil, &Error{Fault: NotUTF8}
	case !json.Valid(body):
		return nil, &Error{Fault: Syntax}
	case hasLoneSurrogate(body):
		return nil, &Error{Fault: NotUTF8}
	}
	if name, ok := duplicate(body); ok {
		return nil, &Error{Fault: Duplicate, Field: name}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, &Error{Fault: NotObject}
	}
	return members, nil
}

// duplicate finds a member name that stands twice in one object, at any
// depth. The body is valid JSON.
func duplicate(body []byte) (name string, found bool) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	type scope struct {
		names map[string]bool // nil in an array
		key   bool            // the next string is a member name
	}
	var open []scope
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) || err != nil {
			return "", false
		}
		top := len(open) - 1
		if name, ok := token.(string); ok && top >= 0 && open[top].key {
			if open[top].names[name] {
				return name, true
			}
			open[top].names[name], open[top].key = true, false
			continue
		}
		switch token {
		case json.Delim('{'):
			open = append(open, scope{names: map[string]bool{}, key: true})
			continue
		case json.Delim('['):
			open = append(open, scope{})
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:top]
		}
		if top = len(open) - 1; top >= 0 {
			open[top].key = open[top].names != nil
		}
	}
}

// hasLoneSurrogate reports whether a \u escape gives half of a surrogate
// pair: no Unicode text has it, and encoding/json would store another
// character in its place. The body is valid JSON.
func hasLoneSurrogate(body []byte) bool {
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		i++
		if body[i] != 'u' {
			continue
		}
		first := hex4(body[i+1:])
		i += 4
		switch {
		case first >= 0xDC00 && first <= 0xDFFF:
			return true
		case first >= 0xD800 && first <= 0xDBFF:
			rest := body[i+1:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
				return true
			}
			if second := hex4(rest[2:]); second < 0xDC00 || second > 0xDFFF {
				return true
			}
			i += 6
		}
	}
	return false
}

func hex4(digits []byte) (n int) {
	fmt.Sscanf(string(digits[:4]), "%04x", &n)
	return n
}

// Types that WrongType can miss.
const (
	Bool    = "bool"
	Int64   = "int64"
	Uint64  = "uint64"
	Strings = "strings" // an array of them
	String  = "string"
)

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Bool:
		return Bool
	case reflect.Int64:
		return Int64
	case reflect.Uint64:
		return Uint64
	case reflect.Slice:
		return Strings
	}
	return String
}
