package strictjson

import (
	"math"
	"strconv"
	"strings"
)

// Kind is the kind of a JSON value, as messages call it.
type Kind string

// The kinds of JSON values (RFC 8259, section 3).
const (
	KindObject  Kind = "an object"
	KindArray   Kind = "an array"
	KindString  Kind = "a string"
	KindNumber  Kind = "a number"
	KindBoolean Kind = "true or false"
	KindNull    Kind = "null"
)

// Value is a JSON value and its position in the text.
type Value struct {
	Kind       Kind
	Begin, End int    // octets of the text
	Text       string // a decoded string, or a number or boolean as written
	Lone       bool   // the string has half of a surrogate pair, which is no Unicode character
	Members    []Member
	Items      []Value
}

// Member is a member of an object. Name is a string.
type Member struct{ Name, Value Value }

// Parse returns the value of a text by RFC 8259; ok is false if the text is no JSON. Unlike Object it
// accepts every kind of value, duplicate names, and strings that are not UTF-8. It keeps the members
// and items of the given levels of nesting; Expand returns more of them.
func Parse(text string, levels int) (v Value, ok bool) {
	s := scanner{text: text, levels: levels}
	return s.whole()
}

// AllLevels makes Parse keep everything.
const AllLevels = maxDepth

// Expand returns the value with other levels. text is the one that Parse read.
func (v Value) Expand(text string, levels int) Value {
	s := scanner{text: text[:v.End], at: v.Begin, levels: levels}
	expanded, _ := s.value(0)
	return expanded
}

// Member returns the value of a member, nil if the object lacks it. Of duplicate members the last one
// counts.
func (v *Value) Member(name string) *Value {
	for i := len(v.Members) - 1; i >= 0; i-- {
		if v.Members[i].Name.Text == name {
			return &v.Members[i].Value
		}
	}
	return nil
}

// At returns the value at a path, nil if there is none.
func (v *Value) At(path Path) *Value {
	for _, step := range path {
		if v.Kind == KindArray {
			i, err := strconv.Atoi(strings.Trim(step, "[]"))
			if err != nil || i < 0 || i >= len(v.Items) {
				return nil
			}
			v = &v.Items[i]
		} else if v = v.Member(step); v == nil {
			return nil
		}
	}
	return v
}

// Path is the position of a value within another: names of members, and indices in brackets.
type Path []string

// Member returns the path of a member.
func (p Path) Member(name string) Path { return append(p[:len(p):len(p)], name) }

// Item returns the path of an item.
func (p Path) Item(i int) Path { return append(p[:len(p):len(p)], "["+strconv.Itoa(i)+"]") }

// String returns the path in the form services[2].config.domain.
func (p Path) String() string {
	return strings.ReplaceAll(strings.Join(p, "."), ".[", "[")
}

// Edit replaces a value by a text.
type Edit struct {
	Value Value
	Text  string
}

// Edited returns the text of the value with edits inside it. The edits are in the order of the text
// and do not overlap.
func (v Value) Edited(text string, edits []Edit) string {
	var out strings.Builder
	at := v.Begin
	for _, e := range edits {
		out.WriteString(text[at:e.Value.Begin] + e.Text)
		at = e.Value.End
	}
	out.WriteString(text[at:v.End])
	return out.String()
}

// Equal reports whether two texts are the same JSON. White space, the order of members and the form of
// a number do not count.
func Equal(a, b []byte) bool {
	x, okX := Parse(string(a), AllLevels)
	y, okY := Parse(string(b), AllLevels)
	return okX && okY && x.equals(y)
}

func (v Value) equals(w Value) bool {
	if v.Kind == KindNumber && w.Kind == KindNumber {
		return number(v.Text) == number(w.Text)
	}
	if v.Kind != w.Kind || v.Text != w.Text || len(v.Items) != len(w.Items) {
		return false
	}
	for i := range v.Items {
		if !v.Items[i].equals(w.Items[i]) {
			return false
		}
	}
	mine, others := v.byName(), w.byName()
	for name, value := range mine {
		if other, there := others[name]; !there || !value.equals(other) {
			return false
		}
	}
	return len(mine) == len(others)
}

// byName returns the members of an object by name.
func (v Value) byName() map[string]Value {
	all := map[string]Value{}
	for _, m := range v.Members {
		all[m.Name.Text] = m.Value
	}
	return all
}

// exact is the limit below which float64 represents every integer.
const exact = 1 << 53

// number returns the normal form of a number.
func number(text string) string {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(n) >= exact {
		return text
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}
