// Package strictjson decodes a request body the way RFC 7493 (I-JSON) asks:
// one JSON object in valid UTF-8, no member name twice, nothing behind it.
// Member names match a struct's json tags exactly, letter case included,
// which encoding/json does not do by itself.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
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
		at := slices.IndexFunc(members, func(m Member) bool { return m.Name == name })
		if at < 0 || string(members[at].Value) == "null" {
			continue
		}
		field := fields.Field(i)
		if err := decode(members[at].Value, field.Addr().Interface()); err != nil {
			return &Error{WrongType, name, wanted(field.Type())}
		}
	}
	return nil
}

// decode decodes a value that Object has checked. Most are strings without an escape,
// which are what they say.
func decode(value json.RawMessage, v any) error {
	if text, ok := v.(*string); ok && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		*text = string(value[1 : len(value)-1])
		return nil
	}
	return json.Unmarshal(value, v)
}

// Member is a member of an object, its value as it stands there.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Names gives the names of the members of an object, none of what is none.
func Names(body []byte) (names []string) {
	members, _ := Object(body)
	for _, m := range members {
		names = append(names, m.Name)
	}
	return names
}

// Object checks body by the rules of the package and gives its members.
func Object(body []byte) ([]Member, error) {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return nil, &Error{Fault: Empty}
	case !utf8.Valid(body):
		return nil, &Error{Fault: NotUTF8}
	}
	s := scanner{body: body, text: string(body), members: make([]Member, 0, usual), names: make([]string, 0, usual)}
	s.space()
	isObject := s.next() == '{'
	valid := s.value(0)
	s.space()
	switch {
	case !valid || s.at < len(s.text):
		return nil, &Error{Fault: Syntax}
	case s.lone:
		return nil, &Error{Fault: NotUTF8}
	case s.twice != nil:
		return nil, &Error{Fault: Duplicate, Field: *s.twice}
	case !isObject:
		return nil, &Error{Fault: NotObject}
	}
	return s.members, nil
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
