package fuzz

import (
	"strings"
	"unicode"
)

// odd are values that belong nowhere, or are at the edge of where they do.
func (g *generator) odd() tree {
	return raw(pick(g,
		"0", "-0", "-1", "1.5", "1.0", "1e2", "1e30", "-1e400", "18446744073709551615", "18446744073709551616", "9223372036854775808", "00", "+1", "0x1", "NaN",
		"true", "false", "null", "nul", `""`, `" "`, "[]", "{}", "[null]", `["a",1]`, `{"a":{"a":1}}`,
		`"\ud800"`, `"\udc00\ud800"`, `"\u0000"`, `"\x"`, "\"\xff\xfe\"", "\"\xed\xa0\x80\"", "\"\n\"", `"`, "'a'", `"\ufeff"`,
		strings.Repeat("[", 50)+strings.Repeat("]", 50), strings.Repeat(`{"a":`, 900)+"1"+strings.Repeat("}", 900), strings.Repeat("[", 20000),
		quoted(strings.Repeat("x", 300)), quoted(strings.Repeat("长", 8000)), quoted(strings.Repeat("\x01", 9000)),
	))
}

// slots are the places of a tree in which something else can be put.
func slots(t tree, all *[]*tree, objects *[]*members) {
	switch t := t.(type) {
	case *members:
		*objects = append(*objects, t)
		for i := range t.all {
			*all = append(*all, &t.all[i].value)
			slots(t.all[i].value, all, objects)
		}
	case *list:
		for i := range t.items {
			*all = append(*all, &t.items[i])
			slots(t.items[i], all, objects)
		}
	}
}

// mutated changes a body, one to three times.
func (g *generator) mutated(t tree) string {
	for range 1 + g.IntN(3) {
		var values []*tree
		var objects []*members
		slots(t, &values, &objects)
		if len(values) == 0 {
			t = g.odd()
			break
		}
		o := pick(g, objects...)
		switch at := g.IntN(max(1, len(o.all))); {
		case g.chance(50) || len(o.all) == 0:
			*pick(g, values...) = g.odd()
		case g.chance(30):
			o.all = append(o.all[:at], o.all[at+1:]...)
		case g.chance(50):
			again := o.all[at]
			if g.chance(50) {
				again.value = g.odd()
			}
			o.all = append(o.all, again)
		default:
			o.all[at].name = strings.Map(func(r rune) rune {
				if g.chance(30) {
					return unicode.ToUpper(r)
				}
				return r
			}, o.all[at].name)
		}
	}
	return text(t)
}

// broken changes the text of a body.
func (g *generator) broken(body string) string {
	cut := g.IntN(len(body) + 1)
	switch g.IntN(10) {
	case 0:
		return body[:cut]
	case 1:
		return body + pick(g, "x", "{}", ",", "\x00", "\n\n ", "]")
	case 2:
		return pick(g, "", " ", "\n", "null", "[]", "\"\"", "1", "true", "\ufeff{}", "{}", "{\"a\"}", "\xff")
	case 3:
		return "\ufeff" + body
	case 4:
		return body[:cut] + string([]byte{byte(g.Uint32())}) + body[cut:]
	case 5:
		return body[:cut] + pick(g, "\xff", "\\", "\"", "{", "}", "\x00", "//", "\u2028") + body[cut:]
	case 6:
		return "[" + body + "]"
	case 7:
		return body + strings.Repeat(" ", 64<<10) // over the limit
	case 8:
		return strings.Repeat(" ", g.IntN(3000)) + body
	}
	return strings.ReplaceAll(body, pick(g, `"`, ":", ",", "{"), pick(g, "'", "=", ";", "["))
}
