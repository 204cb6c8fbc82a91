package secrets

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/msg"
	"unicode/utf16"
	"unicode/utf8"
)

// secrets are chosen so that each encoding changes at least one of them.
var secrets = []string{
	"s3cr3t-Key/with+all=signs&<more>",
	"caf\u00e9 au lait\u00e9 \u5bc6\u7801",
	`quo"te\back%41slash'\n`,
	"\U0001f511 emoji key",
	"LTAI5tKq/9ZbX+7==",
	"dG9wc2VjcmV0dG9wc2VjcmV0",
	"abcd",
}

// writings are the forms in which another program may repeat a text.
var writings = map[string]func(string) string{
	"plain":          func(s string) string { return s },
	"upper case":     strings.ToUpper,
	"lower case":     strings.ToLower,
	"percent":        url.PathEscape,
	"percent, all":   func(s string) string { return octets(s, "%%%02X") },
	"percent, lower": func(s string) string { return octets(s, "%%%02x") },
	"form":           url.QueryEscape,
	"form, lower":    func(s string) string { return strings.ToLower(url.QueryEscape(s)) },
	"JSON":           func(s string) string { return unquoted(asJSON(s)) },
	"JSON, ASCII":    units,
	"JSON, slashes":  func(s string) string { return strings.ReplaceAll(unquoted(asJSON(s)), "/", `\/`) },
	"URL in JSON":    func(s string) string { return asJSON(url.QueryEscape(s)) },
	"Go":             func(s string) string { return unquoted(strconv.Quote(s)) },
	"Go, ASCII":      func(s string) string { return unquoted(strconv.QuoteToASCII(s)) },
	"HTML":           html.EscapeString,
	"HTML, decimal":  func(s string) string { return runes(s, "&#%d;") },
	"HTML, hex":      func(s string) string { return runes(s, "&#x%X;") },
	"hex":            func(s string) string { return hex.EncodeToString([]byte(s)) },
	"hex, upper":     func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"base64":         func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64, raw":    func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
	"base64url":      func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
	"base64url, raw": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"Basic":          func(s string) string { return base64.StdEncoding.EncodeToString([]byte("key:" + s)) },
	"Basic, 1":       func(s string) string { return base64.StdEncoding.EncodeToString([]byte("k:" + s)) },
	"Basic, 2":       func(s string) string { return base64.URLEncoding.EncodeToString([]byte("ke:" + s + ":and more")) },
	"Basic in a URL": func(s string) string { return octets(base64.StdEncoding.EncodeToString([]byte("key:"+s)), "%%%02X") },
	"Basic in a JSON": func(s string) string {
		return asJSON(strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte("key:"+s)), "/", `\/`))
	},
}

func octets(s, format string) (out string) {
	for _, c := range []byte(s) {
		out += fmt.Sprintf(format, c)
	}
	return out
}

func runes(s, format string) (out string) {
	for _, r := range s {
		out += fmt.Sprintf(format, r)
	}
	return out
}

func units(s string) (out string) {
	for _, u := range utf16.Encode([]rune(s)) {
		out += fmt.Sprintf(`\u%04x`, u)
	}
	return out
}

func asJSON(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func unquoted(s string) string { return s[1 : len(s)-1] }

// TestScrubLine: no part of a secret is left, and the text around it stays.
func TestScrubLine(t *testing.T) {
	for name, write := range writings {
		for _, secret := range secrets {
			written := write(secret)
			text := "before <" + written + "> behind, \u00e9 50% & c"
			got := ScrubLine(text, MaxLine, "another one", secret)
			if left := strings.Trim(strings.TrimSuffix(strings.TrimPrefix(got, "before <"), "> behind, \u00e9 50% & c"), `"`); left != Scrubbed {
				t.Errorf("%s of %q: %q, of %q", name, secret, got, written)
			}
		}
	}
}

// TestScrubLeavesTheRest: a text without secrets stays unchanged.
func TestScrubLeavesTheRest(t *testing.T) {
	for _, text := range []string{
		"", "an answer", `C:\new\table %41 &amp; + \u0041 \`, "%", "%4", `\x4`, `\u12`, `\u{`, "&", "&#;", "&unknown;", "\xff\xfe", "AAAA/BBBB+CCCC==", "deadbeef",
		base32.StdEncoding.EncodeToString([]byte("nobody's secret")),
	} {
		if got := Scrub(text, secrets...); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := Scrub("a-b, abc", "-", "abc", ""); got != "a-b, abc" {
		t.Errorf("%q, want that three letters are no secret", got)
	}
}

// TestHideAmbiguous has a secret that looks escaped: it is found plain and escaped.
func TestHideAmbiguous(t *testing.T) {
	const secret = `p%2541\u0041&amp;+ +x`
	for name, write := range writings {
		if name == "lower case" || name == "upper case" {
			continue
		}
		if got := strings.Trim(Scrub(write(secret), secret), `"`); got != Scrubbed {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestLineIsBounded: a line has at most limit octets, also at a secret, and is made in time.
func TestLineIsBounded(t *testing.T) {
	const secret = "s3cr3t of a key"
	for _, write := range writings {
		long := write(secret)
		for _, text := range []string{
			strings.Repeat(long+"\n", 1<<20/len(long)), strings.Repeat("x", 8*MaxPart-len(long)/2) + " " + long + strings.Repeat(" y", 1<<19),
			strings.Repeat(`\u0025`, 1<<16), strings.Repeat("%25", 1<<16), strings.Repeat("&amp;", 1<<16), strings.Repeat("\xe5\xaf", 1<<16),
		} {
			begun := time.Now()
			got := ScrubLine(text, MaxPart, secret)
			if len(got) > MaxPart+3 || !utf8.ValidString(got) || strings.Contains(got, "3cr3t") {
				t.Errorf("%d octets: %.80q", len(got), got)
			}
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("%v for %.20q", took, text)
			}
		}
	}
}

// TestReaders reads escaped characters, and some that only look escaped.
func TestReaders(t *testing.T) {
	byPrefix := map[string]reader{"%": readPercent, `\`: readBackslash, "&": readReference}
	for escaped, want := range map[string]string{
		"%41": "A", "%C3%a9": "\u00e9", "%F0%9F%94%91": "\U0001f511", "%ff": "\ufffd",
		`\/`: "/", `\"`: `"`, `\'`: "'", `\\`: `\`, `\n`: "\n", `\u0041`: "A", `\x41`: "A", `\101`: "A", `\U0001f511`: "\U0001f511", `\ud83d\udd11`: "\U0001f511",
		"&amp;": "&", "&#65;": "A", "&#x41;": "A", "&#xe9;": "\u00e9", "&quot;": `"`,
	} {
		if r, size := byPrefix[escaped[:1]](escaped + "z"); string(r) != want || size != len(escaped) {
			t.Errorf("%s is %q of %d octets, want %q of %d", escaped, r, size, want, len(escaped))
		}
	}
	for _, text := range []string{"%", "%4", "%zz", "%c3", "%c3z", `\`, "&", "&;", "&amp", "&unknown;"} {
		if r, size := byPrefix[text[:1]](text); string(r) != text[:1] || size != 1 {
			t.Errorf("%s begins with %q of %d octets", text, r, size)
		}
	}
}

func TestSignature(t *testing.T) {
	for text, want := range map[string]string{
		"https://dns.example/?Action=X&Signature=abc%3D&X-Amz-Signature=00ff; next": "https://dns.example/?Action=X&***&X-Amz-***; next",
		"SIGNATURE=\u00e9:\u57df": "***", "signature= x, a signature": "*** x, a signature", `"signature=signature=a"`: `"***"`, "signature=a\nb": "*** b",
	} {
		if got := ScrubLine(text, MaxLine); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, write := range writings {
		f.Add(write("s3cr3t/k\u00e9y +"), "s3cr3t/k\u00e9y +")
	}
	f.Fuzz(func(t *testing.T, text, secret string) {
		got := ScrubLine(text, MaxPart, secret)
		if !utf8.ValidString(got) || len(got) > MaxPart+3 || msg.Printable(got) != got {
			t.Errorf("%q", got)
		}
		if len(secret) >= Shortest && msg.Printable(secret) == secret && !strings.Contains(Scrubbed, secret) && strings.Contains(Scrub(text, secret), secret) {
			t.Errorf("the secret is in %q", Scrub(text, secret))
		}
	})
}
