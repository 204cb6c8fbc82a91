package main

import (
	"encoding/base64"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"meshddns/msg"
)

func TestPrefixFault(t *testing.T) {
	for prefix, want := range map[string]msg.ID{
		"":                                msg.PrefixEmpty,
		"a":                               "",
		"A":                               "",
		"0":                               "",
		"-":                               "",
		"_":                               "",
		"office":                          "",
		"Office_1-b":                      "",
		"mesh":                            "",
		"_mes":                            "",
		"-_mesh":                          "",
		"__mesh":                          "",
		strings.Repeat("x", maxPrefix):    "",
		strings.Repeat("x", maxPrefix+1):  msg.PrefixTooLong,
		strings.Repeat(".", maxPrefix+1):  msg.PrefixTooLong,
		strings.Repeat("办", maxPrefix):    msg.PrefixCharacters,
		strings.Repeat("办", maxPrefix+1):  msg.PrefixTooLong,
		"_mesh" + strings.Repeat("x", 59): msg.PrefixTooLong,
		" ":                               msg.PrefixCharacters,
		"a b":                             msg.PrefixCharacters,
		"a.b":                             msg.PrefixCharacters,
		"a\n":                             msg.PrefixCharacters,
		"\x00":                            msg.PrefixCharacters,
		"é":                               msg.PrefixCharacters,
		"\u212a":                          msg.PrefixCharacters,
		"\xff":                            msg.PrefixCharacters,
		"*":                               msg.PrefixCharacters,
		"a=":                              msg.PrefixCharacters,
		"_mesh.":                          msg.PrefixCharacters,
		"_mesh":                           msg.PrefixReserved,
		"_mesh-NDI":                       msg.PrefixReserved,
		"_meshed":                         msg.PrefixReserved,
		"_MESH":                           msg.PrefixReserved,
		"_Mesh-":                          msg.PrefixReserved,
	} {
		if got := prefixFault(prefix); got != want {
			t.Errorf("prefixFault(%q) = %q, want %q", prefix, got, want)
		}
	}
}

// What is accepted satisfies the rules, written down a second time.
func FuzzPrefix(f *testing.F) {
	for _, seed := range []string{"", "office", "_mesh", "_MESH-x", strings.Repeat("x", 64), "a.b", "办公室", "\xff"} {
		f.Add(seed)
	}
	good := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,63}$`)
	reserved := regexp.MustCompile(`^(?i:_mesh)`)
	f.Fuzz(func(t *testing.T, prefix string) {
		if got, want := prefixFault(prefix) == "", good.MatchString(prefix) && !reserved.MatchString(prefix); got != want {
			t.Errorf("prefixFault(%q) accepts: %v, want %v", prefix, got, want)
		}
		if prefixFault(prefix) == "" && nameFault(dnsName(fullName(prefix, "example.com"))) != "" {
			t.Errorf("%q is accepted and cannot be published", prefix)
		}
	})
}

func TestAutomaticPrefix(t *testing.T) {
	for network, want := range map[networkID]string{
		0:              "_mesh-MA",
		42:             "_mesh-NDI",
		104:            "_mesh-MTA0",
		1<<53 + 1:      "_mesh-OTAwNzE5OTI1NDc0MDk5Mw",
		1 << 63:        "_mesh-OTIyMzM3MjAzNjg1NDc3NTgwOA",
		math.MaxUint64: "_mesh-MTg0NDY3NDQwNzM3MDk1NTE2MTU",
	} {
		if got := automaticPrefix(network); got != want {
			t.Errorf("automaticPrefix(%d) = %q, want %q", network, got, want)
		}
	}
}

// No two networks have one automatic prefix, letter case aside; each fits into
// a label, and none is a custom prefix.
func TestAutomaticPrefixIsDistinct(t *testing.T) {
	owners := map[string]networkID{}
	try := func(n networkID) {
		prefix := automaticPrefix(n)
		folded := foldName(prefix)
		if owner, ok := owners[folded]; ok && owner != n {
			t.Fatalf("%d and %d: %s", owner, n, prefix)
		}
		owners[folded] = n
		if len(prefix) > maxPrefix || prefixFault(prefix) != msg.PrefixReserved {
			t.Fatalf("automaticPrefix(%d) = %q", n, prefix)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n := networkID(random.Uint64() >> random.IntN(64))
		try(n)
		try(n ^ 1<<random.IntN(64))
	}
	for n := range networkID(20_000) {
		try(n)
		try(math.MaxUint64 - n)
	}
}

func FuzzAutomaticPrefix(f *testing.F) {
	f.Add(uint64(0), uint64(104))
	f.Add(uint64(1), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		p, q := automaticPrefix(networkID(a)), automaticPrefix(networkID(b))
		if a != b && strings.EqualFold(p, q) {
			t.Errorf("%d and %d: %s, %s", a, b, p, q)
		}
		digits, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(p, autoPrefix))
		if err != nil || string(digits) != strconv.FormatUint(a, 10) {
			t.Errorf("%d: %s is %q, %v", a, p, digits, err)
		}
	})
}

func TestNames(t *testing.T) {
	label := strings.Repeat("x", 63)
	long := label + "." + label + "." + label + "." + strings.Repeat("y", 61) // 253 octets
	for name, want := range map[string]struct{ fits, valid bool }{
		"_mesh.office.example.com":  {true, true},
		"_mesh.office.example.com.": {true, false}, // a folded name has no final dot
		long:                        {true, true},
		long + ".":                  {true, false},
		long + "y":                  {false, false},
		label + "x.example":         {false, false},
		"two words.example":         {true, false},
		"a..b":                      {true, false},
		".a":                        {true, false},
		"":                          {true, false},
		"bücher.example":            {true, false}, // not as dnsName gives it
		"xn--bcher-kva.example":     {true, true},
		`a\.b`:                      {true, false},
	} {
		if got := nameFits(name); got != want.fits {
			t.Errorf("nameFits(%q) = %v", name, got)
		}
		if got := nameFault(name); (got == "") != want.valid {
			t.Errorf("nameFault(%q) = %q", name, got)
		}
	}
}

func TestFoldName(t *testing.T) {
	for name, want := range map[string]string{
		"":                "",
		".":               "",
		"Example.COM":     "example.com",
		"Example.COM.":    "example.com",
		"ÄRGER.\u212a":    "Ärger.\u212a", // DNS folds A-Z and nothing else
		"[\\]^_`{|}@AZaz": "[\\]^_`{|}@azaz",
	} {
		if got := foldName(name); got != want {
			t.Errorf("foldName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestDNSName(t *testing.T) {
	for name, want := range map[string]string{
		"Example.COM.":              "example.com",
		"_Mesh.Office.BÜCHER.de":    "_mesh.office.xn--bcher-kva.de",
		"例子。测试":                     "xn--fsqu00a.xn--0zwm56d",
		"XN--BCHER-KVA.example":     "xn--bcher-kva.example",
		"two words.bücher.example.": "two words.xn--bcher-kva.example", // nameFault refuses it
		"😀.example":                 "😀.example",
	} {
		if got := dnsName(name); got != want {
			t.Errorf("dnsName(%q) = %q, want %q", name, got, want)
		}
	}
	if got := nameFault(dnsName("😀.example")); !strings.Contains(got, "😀") {
		t.Errorf("the reason is %q", got)
	}
}

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		name, zone string
		want       bool
	}{
		{"example.com", "example.com", true},
		{"a.example.com", "example.com", true},
		{"a.b.example.com", "example.com", true},
		{"notexample.com", "example.com", false},
		{"com", "example.com", false},
		{"example.com.org", "example.com", false},
	} {
		if got := within(test.name, test.zone); got != test.want {
			t.Errorf("within(%q, %q) = %v", test.name, test.zone, got)
		}
	}
}
