package strictjson

import (
	"encoding/json"
	"fmt"
	"testing"
)

// outline returns the kinds, texts and positions of a value and everything in it.
func outline(v Value) (out string) {
	out = fmt.Sprintf("%d-%d %s %q", v.Begin, v.End, v.Kind, v.Text)
	if v.Lone {
		out += " lone"
	}
	for _, m := range v.Members {
		out += fmt.Sprintf(" {%s = %s}", outline(m.Name), outline(m.Value))
	}
	for _, item := range v.Items {
		out += " [" + outline(item) + "]"
	}
	return out
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		text   string
		levels int
		want   string
	}{
		{` 1.50 `, AllLevels, `1-5 a number "1.50"`},
		{`false`, AllLevels, `0-5 true or false "false"`},
		{`"a\n"`, AllLevels, `0-5 a string "a\n"`},
		{`["\ud800", "\ud83d\ude00"]`, AllLevels, `0-26 an array "" [1-9 a string "�" lone] [11-25 a string "😀"]`},
		{`{"a": [null], "a": {}}`, AllLevels, `0-22 an object "" {1-4 a string "a" = 6-12 an array "" [7-11 null ""]} {14-17 a string "a" = 19-21 an object ""}`},
		{`{"a": [{"b": 1}]}`, 1, `0-17 an object "" {1-4 a string "a" = 6-16 an array ""}`},
		{`{"a": [{"b": 1}]}`, 2, `0-17 an object "" {1-4 a string "a" = 6-16 an array "" [7-15 an object ""]}`},
	} {
		v, ok := Parse(test.text, test.levels)
		if got := outline(v); !ok || got != test.want {
			t.Errorf("%s, %d levels: %t\n%s\nwant\n%s", test.text, test.levels, ok, got, test.want)
		}
	}
	for _, text := range []string{"", "{", "[1,]", `{"a" 1}`, "1 2", "\"\n\"", `"\x"`, "01", "tru"} {
		if v, ok := Parse(text, AllLevels); ok {
			t.Errorf("%q is taken: %v", text, v)
		}
	}
}

func TestExpand(t *testing.T) {
	const text = `{"a": [{"b": "x"}, 2]}`
	outer, _ := Parse(text, 1)
	whole, _ := Parse(text, AllLevels)
	if got, want := outline(outer.Member("a").Expand(text, AllLevels)), outline(*whole.Member("a")); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestEqual(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{`{"a": 1, "b": [true, null]}`, "{\"b\":[true,null],\"a\":1.0}", true},
		{`1e2`, `100`, true},
		{`9007199254740993`, `9007199254740992`, false},
		{`18446744073709551616`, `18446744073709551616`, true},
		{`1`, `"1"`, false},
		{`"é"`, `"\u00e9"`, true},
		{`[1, 2]`, `[2, 1]`, false},
		{`[1]`, `[1, 1]`, false},
		{`{"a": null}`, `{}`, false},
		{`{}`, `{"a": null}`, false},
		{`{"a": null}`, `{"b": null}`, false},
		{`{}`, `[]`, false},
		{`{"a": 1, "a": 2}`, `{"a": 2}`, true},
		{`{`, `{`, false},
		{``, ``, false},
	} {
		if got := Equal([]byte(test.a), []byte(test.b)); got != test.want {
			t.Errorf("%s and %s: %t, want %t", test.a, test.b, got, test.want)
		}
	}
}

// FuzzParse compares Parse with encoding/json: both accept the same texts, and each value is at its
// position.
func FuzzParse(f *testing.F) {
	f.Add(`{"a":[{"b":"\ud83d\ude00"}],"c":null}`)
	f.Add(` [1.5e+3 , -0.1, true,false , null, "\"\\\/\b\f\n\r\t", [], {} ] `)
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := Parse(text, AllLevels)
		if ok != json.Valid([]byte(text)) {
			t.Fatalf("%q is taken: %t, encoding/json says otherwise", text, ok)
		}
		if !ok {
			return
		}
		var check func(v Value)
		check = func(v Value) {
			if !json.Valid([]byte(text[v.Begin:v.End])) {
				t.Errorf("%q has a value %q", text, text[v.Begin:v.End])
			}
			for _, m := range v.Members {
				check(m.Name)
				check(m.Value)
			}
			for _, item := range v.Items {
				check(item)
			}
		}
		check(v)
		if !Equal([]byte(text), []byte(text)) {
			t.Errorf("%q is not equal to itself", text)
		}
	})
}

func TestPaths(t *testing.T) {
	const text = `{"a": [{"b.c": 1}, {"b.c": 2}], "[0]": 3, "a b": {}}`
	v, _ := Parse(text, AllLevels)
	for path, want := range map[string]struct {
		path Path
		text string
	}{
		"a[1].b.c": {Path(nil).Member("a").Item(1).Member("b.c"), "2"},
		"[0]":      {Path(nil).Member("[0]"), "3"},
		"a[2]":     {Path(nil).Member("a").Item(2), ""},
		"a.b":      {Path(nil).Member("a").Member("b"), ""},
		"a[-1]":    {Path{"a", "[-1]"}, ""},
		"none.x":   {Path(nil).Member("none").Member("x"), ""},
		"":         {nil, text},
	} {
		got := ""
		if there := v.At(want.path); there != nil {
			got = text[there.Begin:there.End]
		}
		if got != want.text || want.path.String() != path {
			t.Errorf("%s is %q at %s, want %q", path, got, want.path, want.text)
		}
	}
	edits := []Edit{{*v.At(Path{"a", "[0]"}), "x"}, {*v.At(Path{"[0]"}), "y"}}
	if got, want := v.Edited(text, edits), `{"a": [x, {"b.c": 2}], "[0]": y, "a b": {}}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
