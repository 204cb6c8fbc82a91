package strictjson

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// scanner goes through a text once, by the grammar of RFC 8259. Its methods read
// what they are named for, and report whether it is there.
type scanner struct {
	body    []byte
	text    string // the same
	at      int
	members []Member // of the outermost value, when it is an object
	names   []string // of the members so far of all objects that are open
	lone    bool     // an escape gives half of a surrogate pair
	twice   *string  // the first name that stands twice in its object
}

// maxDepth is that of encoding/json, which decodes the values later.
const maxDepth = 10000

// next is the octet to come, 0 at the end: no token has that one.
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

// token reads an octet and the space behind it.
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

// value reads a value inside of so many others.
func (s *scanner) value(depth int) bool {
	switch s.next() {
	case '{':
		return depth < maxDepth && s.object(depth)
	case '[':
		return depth < maxDepth && s.array(depth)
	case '"':
		_, ok := s.string()
		return ok
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.number()
}

func (s *scanner) array(depth int) bool {
	s.token('[')
	for s.next() != ']' {
		if !s.value(depth + 1) {
			return false
		}
		if s.space(); s.next() != ']' && (!s.token(',') || s.next() == ']') {
			return false
		}
	}
	s.at++
	return true
}

func (s *scanner) object(depth int) bool {
	s.token('{')
	names := names{from: len(s.names)}
	for s.next() != '}' {
		name, ok := s.string()
		if !ok {
			return false
		}
		if names.add(s, name) && s.twice == nil {
			s.twice = &name
		}
		if s.space(); !s.token(':') {
			return false
		}
		begin := s.at
		if !s.value(depth + 1) {
			return false
		}
		if depth == 0 {
			s.members = append(s.members, Member{Name: name, Value: s.body[begin:s.at]})
		}
		if s.space(); s.next() != '}' && (!s.token(',') || s.next() == '}') {
			return false
		}
	}
	s.names = s.names[:names.from]
	s.at++
	return true
}

// names are those of one object, on the scanner's stack from an index on. Where
// they are more than few they are in a set as well.
type names struct {
	from int
	set  map[string]bool
}

const (
	few   = 16 // so many are found faster one by one
	usual = 8  // so many there are room for at first
)

// add reports whether the name was there.
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

// string reads a string and gives what it says.
func (s *scanner) string() (text string, ok bool) {
	begin, escaped := s.at, false
	if s.next() != '"' {
		return "", false
	}
	for s.at++; s.next() != '"'; s.at++ {
		switch c := s.next(); {
		case c < ' ':
			return "", false
		case c == '\\':
			if escaped = true; !s.escape() {
				return "", false
			}
		}
	}
	s.at++
	if !escaped {
		return s.text[begin+1 : s.at-1], true
	}
	return text, json.Unmarshal([]byte(s.text[begin:s.at]), &text) == nil
}

// escape reads an escape but for its last octet. encoding/json would put another
// character in the place of half of a surrogate pair, which no Unicode text has.
func (s *scanner) escape() bool {
	s.at++
	if s.next() != 'u' {
		return strings.IndexByte(`"\/bfnrt`, s.next()) >= 0
	}
	first, ok := s.hex(s.at + 1)
	s.at += 4
	switch {
	case first >= 0xDC00 && first <= 0xDFFF:
		s.lone = true
	case first >= 0xD800 && first <= 0xDBFF:
		second, there := s.hex(s.at + 3)
		if !there || s.text[s.at+1:s.at+3] != `\u` || second < 0xDC00 || second > 0xDFFF {
			s.lone = true
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
