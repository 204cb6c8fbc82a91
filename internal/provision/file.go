package provision

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"meshddns/internal/strictjson"
)

type (
	value = strictjson.Value
	path  = strictjson.Path
)

// file is a file that add reads into a document.
type file struct {
	*Document
	name string
	text string
	told int // number of mistakes at the last call of anew

	line, counted int // cache of lineAt: the line of an octet, from 0
}

// lineAt returns the line of an octet. It counts from the octet of the last call.
func (f *file) lineAt(octet int) int {
	if octet < f.counted {
		f.line -= strings.Count(f.text[octet:f.counted], "\n")
	} else {
		f.line += strings.Count(f.text[f.counted:octet], "\n")
	}
	f.counted = octet
	return f.line + 1
}

// fault adds a mistake in a value.
func (f *file) fault(v value, at path, reason string) {
	f.mistakes = append(f.mistakes, Mistake{File: f.name, Line: f.lineAt(v.Begin), Member: at.String(), Reason: reason})
}

// marked is the reason why a file with a byte order mark is refused.
const marked = "it begins with a byte order mark (BOM): save it as UTF-8 without one"

// parse returns the object of the file; another value is a mistake.
func (f *file) parse() (v value, ok bool) {
	fault := func(line int, reason string) {
		f.mistakes = append(f.mistakes, Mistake{File: f.name, Line: line, Reason: reason})
	}
	if strings.TrimSpace(f.text) == "" {
		fault(1, "nothing is in it, want a JSON object")
		return v, false
	}
	if strings.HasPrefix(f.text, strictjson.ByteOrderMark) {
		fault(1, marked)
		return v, false
	}
	number := 0
	for line := range strings.Lines(f.text) {
		if number++; !utf8.ValidString(line) {
			fault(number, "not valid UTF-8")
			return v, false
		}
	}
	if v, ok = strictjson.Parse(f.text, 1); !ok {
		_, err := strictjson.Object([]byte(f.text))
		e, _ := errors.AsType[*strictjson.Error](err)
		fault(e.Line, fmt.Sprint("not JSON at column ", e.Column))
		return v, false
	}
	if v.Kind != strictjson.KindObject {
		f.fault(v, nil, wrongKind(v, strictjson.KindObject))
	}
	return v, v.Kind == strictjson.KindObject
}

func wrongKind(v value, want strictjson.Kind) string {
	return fmt.Sprintf("is %s, want %s", v.Kind, want)
}

// whole returns a value with everything inside it, and adds a mistake for each duplicate name and each
// string that is not Unicode.
func (f *file) whole(v value, at path) value {
	v = v.Expand(f.text, strictjson.AllLevels)
	f.wellFormed(v, at)
	return v
}

func (f *file) wellFormed(v value, at path) {
	f.unicode(v, at)
	f.members(v, at, f.wellFormed)
	for i, item := range v.Items {
		f.wellFormed(item, at.Item(i))
	}
}

// members calls each with the members of an object, and adds mistakes in their names.
func (f *file) members(v value, at path, each func(v value, at path)) {
	seen := map[string]bool{}
	for _, m := range v.Members {
		name := strings.Clone(m.Name.Text) // a path outlives the text of the file
		here := at.Member(name)
		f.unicode(m.Name, here)
		if seen[name] {
			f.fault(m.Name, here, "stands here once more")
		}
		seen[name] = true
		each(m.Value, here)
	}
}

func (f *file) unicode(v value, at path) {
	if v.Lone {
		f.fault(v, at, `not valid UTF-8: half of a surrogate pair (\ud800 to \udfff)`)
	}
}

// list calls each with the items of an array; another value is a mistake.
func (f *file) list(v value, at path, each func(v value, at path)) {
	if v.Kind != strictjson.KindArray {
		f.fault(v, at, wrongKind(v, strictjson.KindArray))
	}
	if part := at[len(at)-1]; f.Entries[part] == nil {
		f.Entries[part] = []Entry{}
	}
	for i, item := range v.Expand(f.text, 1).Items { // one at a time, because all items may need too much memory
		here := at.Item(i)
		each(f.whole(item, here), here)
	}
}

// member returns the value of a member, nil without it. A null member counts as absent.
func member(v value, name string) *value {
	if m := v.Member(name); m != nil && m.Kind != strictjson.KindNull {
		return m
	}
	return nil
}
