package dns

import (
	"slices"
	"strings"
	"testing"

	"meshddns/internal/msg"
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

		"_Mesh.Office.BÜCHER.de":    "_mesh.office.xn--bcher-kva.de",
		"例子。测试":                     "xn--fsqu00a.xn--0zwm56d",
		"two words.bücher.example.": "two words.xn--bcher-kva.example", // NameFault refuses it
		"😀.example":                 "😀.example",
	} {
		if got := Parse(given); got != want {
			t.Errorf("Parse(%q) = %q, want %q", given, got, want)
		}
	}
}

func TestFold(t *testing.T) {
	for name, want := range map[string]string{
		"":                "",
		".":               "",
		"Example.COM.":    "example.com",
		"ÀÉ-K.A":          "ÀÉ-k.a", // DNS folds A-Z and nothing else
		"ÄRGER.\u212a":    "Ärger.\u212a",
		"[\\]^_`{|}@AZaz": "[\\]^_`{|}@azaz",
	} {
		if got := Fold(name); got != want {
			t.Errorf("Fold(%q) = %q, want %q", name, got, want)
		}
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
		{"a.b.example.com", "example.com", true},
		{"example.com.org", "example.com", false},
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
		"_mesh.office.example.com.":     false, // a folded name has no final dot
		".a":                            false,
		`a\.b`:                          false,
		"bücher.example":                false, // not as Parse gives it
		"xn--bcher-kva.example":         true,
	} {
		if got := NameFault(name); (got == "") != good {
			t.Errorf("Fault(%q) = %q", name, got)
		}
	}
}

// TestFaultSaysWhat: the reason names the fault.
func TestFaultSaysWhat(t *testing.T) {
	if got := NameFault(Parse("😀.example")); !strings.Contains(got.String(), "😀") || !strings.HasPrefix(got.In(msg.Chinese), "标签") {
		t.Errorf("the reason is %q", got)
	}
}

func TestFits(t *testing.T) {
	label := strings.Repeat("x", MaxLabel)
	long := label + "." + label + "." + label + "." + strings.Repeat("y", 61) // 253 octets
	for name, want := range map[string]bool{
		"": true, long: true, long + ".": true, long + "y": false, label + "x.example": false, "a..b": true,
	} {
		if got := Fits(name); got != want {
			t.Errorf("Fits(%q) = %v", name, got)
		}
	}
}
