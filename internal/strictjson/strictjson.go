// Package strictjson reads JSON. Decode reads a request body by the rules of RFC 7493 (I-JSON): one
// JSON object in valid UTF-8, no duplicate member name, nothing after it. Unlike in encoding/json,
// member names must match a struct's json tags exactly, letter case included. Parse reads any JSON and
// returns the position of each value, for callers that change a part of a text or point to a mistake
// in it.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"meshddns/internal/msg"
)

// The mistakes in a body, by their texts.
const (
	Empty     = msg.BodyEmpty     // no body
	NotUTF8   = msg.BodyNotUTF8   // invalid UTF-8, or half of a surrogate pair
	Marked    = msg.BodyMarked    // a byte order mark at the begin
	Syntax    = msg.BodySyntax    // not JSON, or text after the value
	NotObject = msg.BodyNotObject // JSON, but null, a string, an array, ...
	Duplicate = msg.BodyDuplicate // a duplicate member name
	WrongType = msg.BodyWrongType // a member of another type, or out of range
)

// ByteOrderMark is at the begin of files that some editors of Windows save. JSON has none (RFC 8259, section 8.1).
const ByteOrderMark = "\ufeff"

// Error is the error of Decode and Object. Field is the wrong member with Duplicate and WrongType, Want the
// expected type with WrongType. Line and Column are the place of Syntax, from 1, the column in characters.
type Error struct {
	Fault        msg.ID
	Field        string
	Want         msg.ID
	Line, Column int
}

func (e *Error) Error() string { return Phrase(e).In(msg.English) }

// Phrase returns the reason why Decode or Object refused a text.
func Phrase(err error) msg.Phrase {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return msg.Phrase{ID: msg.BodyUnread}
	case e.Fault == Syntax:
		return msg.Phrase{ID: e.Fault, Args: []any{e.Line, e.Column}}
	case e.Fault == Duplicate:
		return msg.Phrase{ID: e.Fault, Args: []any{e.Field}}
	case e.Fault == WrongType:
		return msg.Phrase{ID: e.Fault, Args: []any{e.Field, msg.Phrase{ID: e.Want}}}
	}
	return msg.Phrase{ID: e.Fault}
}

// Decode reads body into the struct that v points to. It ignores members without a field; a null
// member counts as absent.
func Decode(body []byte, v any) error {
	_, err := DecodeMembers(body, v, false)
	return err
}

// DecodeMembers is Decode, and returns the names of all members, also of unknown ones. With noNull it refuses a null member.
func DecodeMembers(body []byte, v any, noNull bool) (names []string, err error) {
	members, err := Object(body)
	if err != nil {
		return nil, err
	}
	err = EachField(v, func(name string, field any) error {
		at := slices.IndexFunc(members, func(m Member) bool { return m.Name.Text == name })
		null := at >= 0 && members[at].Value.Kind == KindNull
		if at < 0 || null && !noNull {
			return nil
		}
		if decode(body, members[at].Value, field) != nil || null && reflect.ValueOf(field).Elem().IsZero() {
			return &Error{Fault: WrongType, Field: name, Want: wanted(reflect.TypeOf(field).Elem())}
		}
		return nil
	})
	return namesOf(members), err
}

func namesOf(members []Member) (names []string) {
	for _, m := range members {
		names = append(names, m.Name.Text)
	}
	return names
}

// EachField calls do with each field of a struct that Decode reads: those with a name in JSON, also of embedded
// structs. v points to the struct, field to the field. A field with the tag given:"never" is only written.
func EachField(v any, do func(name string, field any) error) error {
	return eachField(reflect.ValueOf(v).Elem(), func(name string, written bool, field reflect.Value) error {
		if written {
			return nil
		}
		return do(name, field.Addr().Interface())
	})
}

func eachField(v reflect.Value, do func(name string, written bool, field reflect.Value) error) error {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		var err error
		switch {
		case name == "-":
		case name != "":
			err = do(name, field.Tag.Get("given") == "never", v.Field(i))
		case field.Anonymous:
			err = eachField(v.Field(i), do)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Fields returns the names in JSON of all fields of a struct, those of embedded structs too.
func Fields(v any) (names []string) {
	eachField(reflect.ValueOf(v), func(name string, _ bool, _ reflect.Value) error {
		names = append(names, name)
		return nil
	})
	return names
}

// decode decodes a value in a body that Object has checked.
func decode(body []byte, value Value, v any) error {
	if text, ok := v.(*string); ok && value.Kind == KindString {
		*text = value.Text
		return nil
	}
	return json.Unmarshal(body[value.Begin:value.End], v)
}

// Names returns the names of the members of an object, none if the body is no object.
func Names(body []byte) []string {
	members, _ := Object(body)
	return namesOf(members)
}

// Object checks a body by the rules of the package and returns its members.
func Object(body []byte) ([]Member, error) {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return nil, &Error{Fault: Empty}
	case !utf8.Valid(body):
		return nil, &Error{Fault: NotUTF8}
	case bytes.HasPrefix(body, []byte(ByteOrderMark)):
		return nil, &Error{Fault: Marked}
	}
	s := scanner{text: string(body), levels: 1}
	v, valid := s.whole()
	switch {
	case !valid:
		read := s.text[:min(s.at, len(s.text))]
		line := read[strings.LastIndexByte(read, '\n')+1:]
		return nil, &Error{Fault: Syntax, Line: strings.Count(read, "\n") + 1, Column: utf8.RuneCountInString(line) + 1}
	case s.lone > 0:
		return nil, &Error{Fault: NotUTF8}
	case s.twice != nil:
		return nil, &Error{Fault: Duplicate, Field: *s.twice}
	case v.Kind != KindObject:
		return nil, &Error{Fault: NotObject}
	}
	return v.Members, nil
}

// wanted returns the text about a type.
func wanted(t reflect.Type) msg.ID {
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Bool:
		return msg.TypeBool
	case reflect.Int64:
		return msg.TypeInt64
	case reflect.Uint64:
		return msg.TypeUint64
	case reflect.Slice:
		return msg.TypeStrings
	}
	return msg.TypeString
}
