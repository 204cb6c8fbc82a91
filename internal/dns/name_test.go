package dns

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func parseName(t testing.TB, text string) Name {
	t.Helper()
	name, err := ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestParseName(t *testing.T) {
	for _, test := range []struct{ text, wire, back string }{
		{".", "\x00", "."},
		{"a", "\x01a\x00", "a."},
		{"_mesh.Office.example.com", "\x05_mesh\x06Office\x07example\x03com\x00", "_mesh.Office.example.com."},
		{`a\.b.c.`, "\x03a.b\x01c\x00", `a\.b.c.`},
		{`a\.`, "\x02a.\x00", `a\..`},
		{`\097\000\255`, "\x03a\x00\xff\x00", `a\000\255.`},
		{`a\"\\b c`, "\x06a\"\\b c\x00", `a\"\\b\032c.`},
		{`\@\;`, "\x02@;\x00", "@;."},
		{"é", "\x02\xc3\xa9\x00", `\195\169.`},
	} {
		name, err := ParseName(test.text)
		if err != nil || string(name) != test.wire || name.String() != test.back {
			t.Errorf("ParseName(%q) = %q, %v, String %q; want %q, %q", test.text, name, err, name.String(), test.wire, test.back)
		}
	}
}

func TestParseNameRefuses(t *testing.T) {
	label := strings.Repeat("a", 63)
	longest := label + "." + label + "." + label + "." + label[:61]
	if name := parseName(t, longest); len(name) != maxName {
		t.Errorf("the longest name has %d octets", len(name))
	}
	for _, text := range []string{
		"", "..", ".a", "a..b", "a..", label + "a", longest + "a", longest[:len(longest)-1] + ".a.b",
		`\`, `a\`, `a\1`, `a\12`, `a\256`, `a\1x2`, `a\999.b`,
	} {
		if name, err := ParseName(text); !errors.Is(err, ErrName) {
			t.Errorf("ParseName(%q) = %q, %v", text, name, err)
		}
	}
}

func TestNameRelations(t *testing.T) {
	name := parseName(t, "_Mesh.Office.Example.com")
	for zone, want := range map[string]bool{
		"example.COM": true, ".": true, "_mesh.office.example.com": true, "com": true,
		"ample.com": false, "a._mesh.office.example.com": false, "net": false,
	} {
		if got := name.Within(parseName(t, zone)); got != want {
			t.Errorf("Within(%s) = %t", zone, got)
		}
	}
	if name.Within("") || Root.Within("") || !Root.Within(Root) {
		t.Error("something lies within the empty string, or the root not within itself")
	}
	if got := slices.Collect(name.Labels()); !slices.Equal(got, []string{"_Mesh", "Office", "Example", "com"}) {
		t.Errorf("Labels = %q", got)
	}
	if got := name.Parent().String(); got != "Office.Example.com." {
		t.Errorf("Parent = %s", got)
	}
	if Root.Parent() != Root || Name("").Parent() != "" {
		t.Error("the root is its own parent")
	}
}

func TestFoldTouchesOnlyASCIILetters(t *testing.T) {
	// A label of 65 octets would have the length octet "A"; the longest is 63.
	name := Name("\x05AZ@[\xc1\x00")
	if got := name.Fold(); got != "\x05az@[\xc1\x00" {
		t.Errorf("Fold = %q", got)
	}
}

func TestChild(t *testing.T) {
	if child, ok := parseName(t, "example").Child("ns"); !ok || child.String() != "ns.example." {
		t.Errorf("Child = %q, %t", child, ok)
	}
	label := strings.Repeat("a", 63)
	long := parseName(t, label+"."+label+"."+label+"."+label[:58]) // 252 octets
	if _, ok := long.Child("ns"); !ok {
		t.Error("255 octets are a name")
	}
	for _, refused := range []string{"", "abc", label + "a"} {
		if child, ok := long.Child(refused); ok {
			t.Errorf("Child(%q) = %q", refused, child)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, text := range []string{".", "a.b.", `a\.b`, `\255\000`, "", "a..b", "_mesh.Office.example.com"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := ParseName(text)
		if err != nil {
			return
		}
		if len(name) > maxName {
			t.Fatalf("%q has %d octets", name, len(name))
		}
		if again, err := ParseName(name.String()); err != nil || again != name {
			t.Fatalf("%q reads back as %q, %v", name, again, err)
		}
		if r := (reader{data: []byte(name)}); r.name() != name || r.at != len(name) {
			t.Fatalf("%q is not its own wire form", name)
		}
		if !name.Fold().Within(name) || !name.Within(name.Parent()) {
			t.Fatalf("%q is not within itself or its parent", name)
		}
	})
}
