package dnsname

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for given, want := range map[string]string{
		"Office.Example.COM.":  "office.example.com",
		"bücher.example":       "xn--bcher-kva.example",
		"a..b":                 "a..b",
		"":                     "",
		"ÀB.example.com":       "xn--b-rfa.example.com",
		"XN--BCHER-KVA.e":      "xn--bcher-kva.e",
		"under_score.-.Ex.com": "under_score.-.ex.com",
	} {
		if got := Parse(given); got != want {
			t.Errorf("Parse(%q) = %q, want %q", given, got, want)
		}
	}
}

func TestFoldLeavesOtherLetters(t *testing.T) {
	if got := Fold("ÀÉ-K.A"); got != "ÀÉ-k.a" {
		t.Errorf("got %q", got)
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		name, zone string
		want       bool
	}{
		{"a.example.com", "example.com", true},
		{"example.com", "example.com", true},
		{"badexample.com", "example.com", false},
		{"com", "example.com", false},
		{"a.b", "", false},
		{"", "", true},
	} {
		if got := Within(c.name, c.zone); got != c.want {
			t.Errorf("Within(%q, %q) = %v", c.name, c.zone, got)
		}
	}
}

func TestAncestors(t *testing.T) {
	got := slices.Collect(Ancestors("a.b.c"))
	if !slices.Equal(got, []string{"a.b.c", "b.c", "c"}) {
		t.Errorf("got %q", got)
	}
	for at := range Ancestors("a.b.c") {
		if at == "b.c" {
			break
		}
	}
	if got := slices.Collect(Ancestors("")); len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
}

func TestFault(t *testing.T) {
	long := strings.Repeat("a", MaxLabel)
	for name, good := range map[string]bool{
		"_mesh.office.example.com":      true,
		"a..b":                          false,
		"":                              false,
		"*.example.com":                 false,
		"a b":                           false,
		long + ".c":                     true,
		long + "a.c":                    false,
		strings.Repeat(long+".", 4):     false,
		strings.Repeat("a.", 126) + "a": true,
	} {
		if got := Fault(name); (got == "") != good {
			t.Errorf("Fault(%q) = %q", name, got)
		}
	}
}
