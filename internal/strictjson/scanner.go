package strictjson

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// scanner reads a text once, by the grammar of RFC 8259. Each method reads the token or value that it
// is named after, and reports whether it is there.
type scanner struct {
	text   string
	at     int
	levels int      // levels of nesting that keep members and items
	names  []string // names of the members of all open objects
	lone   int      // number of escapes for half of a surrogate pair
	twice  *string  // the first duplicate name
}

// maxDepth is the limit of encoding/json, which decodes the values later.
const maxDepth = 10000

// next returns the next octet, 0 at the end: no token begins with 0.
func (s *scanner) next() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for c := s.next(); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = s.next() {
		s.at++
	}
}

// token reads an octet and the white space after it.
func (s *scanner) token(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	s.space()
	return true
}

func (s *scanner) word(word string) bool {
	if !strings.HasPrefix(s.text[s.at:], word) {
		return false
	}
	s.at += len(word)
	return true
}

// whole reads the only value of the text.
func (s *scanner) whole() (v Value, ok bool) {
	s.space()
	v, ok = s.value(0)
	s.space()
	return v, ok && s.at == len(s.text)
}

// value reads a value at a depth of nesting.
func (s *scanner) value(depth int) (v Value, ok bool) {
	v.Begin = s.at
	switch s.next() {
	case '{':
		v.Kind, ok = KindObject, depth < maxDepth && s.object(&v, depth)
	case '[':
		v.Kind, ok = KindArray, depth < maxDepth && s.array(&v, depth)
	case '"':
		return s.string()
	case 't', 'f':
		v.Kind, ok = KindBoolean, s.word("true") || s.word("false")
	case 'n':
		v.Kind, ok = KindNull, s.word("null")
	default:
		v.Kind, ok = KindNumber, s.number()
	}
	if v.End = s.at; v.Kind == KindBoolean || v.Kind == KindNumber {
		v.Text = s.text[v.Begin:v.End]
	}
	return v, ok
}

func (s *scanner) array(v *Value, depth int) bool {
	s.token('[')
	for s.next() != ']' {
		item, ok := s.value(depth + 1)
		if !ok {
			return false
		}
		if depth < s.levels {
			v.Items = append(v.Items, item)
		}
		if s.space(); s.next() != ']' && (!s.token(',') || s.next() == ']') {
			return false
		}
	}
	s.at++
	return true
}

func (s *scanner) object(v *Value, depth int) bool {
	s.token('{')
	names := names{from: len(s.names)}
	for s.next() != '}' {
		name, ok := s.string()
		if !ok {
			return false
		}
		if names.add(s, name.Text) && s.twice == nil {
			s.twice = &name.Text
		}
		if s.space(); !s.token(':') {
			return false
		}
		value, ok := s.value(depth + 1)
		if !ok {
			return false
		}
		if depth < s.levels {
			v.Members = append(v.Members, Member{name, value})
		}
		if s.space(); s.next() != '}' && (!s.token(',') || s.next() == '}') {
			return false
		}
	}
	s.names = s.names[:names.from]
	s.at++
	return true
}

// names is the names of one object, on the scanner's stack from an index on. If there are more than
// few, they are in a set too.
type names struct {
	from int
	set  map[string]bool
}

const few = 16 // up to here a linear search is faster

// add adds a name and reports whether it was there before.
func (n *names) add(s *scanner, name string) (there bool) {
	mine := s.names[n.from:]
	if len(mine) < few {
		there = slices.Contains(mine, name)
	} else {
		if n.set == nil {
			n.set = map[string]bool{}
			for _, name := range mine {
				n.set[name] = true
			}
		}
		there, n.set[name] = n.set[name], true
	}
	s.names = append(s.names, name)
	return there
}

func (s *scanner) string() (v Value, ok bool) {
	v = Value{Kind: KindString, Begin: s.at}
	if s.next() != '"' {
		return v, false
	}
	escaped, lone := false, s.lone
	for s.at++; s.next() != '"'; s.at++ {
		switch c := s.next(); {
		case c < ' ':
			return v, false
		case c == '\\':
			if escaped = true; !s.escape() {
				return v, false
			}
		}
	}
	s.at++
	v.End, v.Lone = s.at, s.lone > lone
	if !escaped {
		v.Text = s.text[v.Begin+1 : v.End-1]
		return v, true
	}
	return v, json.Unmarshal([]byte(s.text[v.Begin:v.End]), &v.Text) == nil
}

// escape reads an escape except its last octet. It counts halves of surrogate pairs, which encoding/json
// would replace by another character.
func (s *scanner) escape() bool {
	s.at++
	if s.next() != 'u' {
		return strings.IndexByte(`"\/bfnrt`, s.next()) >= 0
	}
	first, ok := s.hex(s.at + 1)
	s.at += 4
	switch {
	case first >= 0xDC00 && first <= 0xDFFF:
		s.lone++
	case first >= 0xD800 && first <= 0xDBFF:
		second, there := s.hex(s.at + 3)
		if !there || s.text[s.at+1:s.at+3] != `\u` || second < 0xDC00 || second > 0xDFFF {
			s.lone++
			break
		}
		s.at += 6
	}
	return ok
}

// hex reads the four hexadecimal digits at an index.
func (s *scanner) hex(at int) (n uint64, ok bool) {
	if at+4 > len(s.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(s.text[at:at+4], 16, 64)
	return n, err == nil
}

func (s *scanner) digits() bool {
	begin := s.at
	for c := s.next(); c >= '0' && c <= '9'; c = s.next() {
		s.at++
	}
	return s.at > begin
}

func (s *scanner) number() bool {
	s.word("-")
	if !s.word("0") && !s.digits() {
		return false
	}
	if s.word(".") && !s.digits() {
		return false
	}
	if s.word("e") || s.word("E") {
		if !s.word("+") {
			s.word("-")
		}
		return s.digits()
	}
	return true
}
