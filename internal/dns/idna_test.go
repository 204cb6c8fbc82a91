package dns

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// samples are from RFC 3492, section 7.1.
var samples = []struct{ name, text, encoded string }{
	{"A Arabic", "ليهمابتكلموشعربي؟", "egbpdaj6bu4bxfgehfvwxn"},
	{"B Chinese, simplified", "他们为什么不说中文", "ihqwcrb4cv8a8dqg056pqjye"},
	{"C Chinese, traditional", "他們爲什麽不說中文", "ihqwctvzc91f659drss3x8bo0yb"},
	{"D Czech", "Pro\u010dprost\u011bnemluv\u00ed\u010desky", "Proprostnemluvesky-uyb24dma41a"},
	{"E Hebrew", "למההםפשוטלאמדבריםעברית", "4dbcagdahymbxekheh6e0a7fei0b"},
	{"F Hindi", "यहलोगहिन्दीक्योंनहींबोलसकतेहैं", "i1baa7eci9glrd9b2ae1bj0hfcgg6iyaf8o0a1dig0cd"},
	{"G Japanese", "なぜみんな日本語を話してくれないのか", "n8jok5ay5dzabd5bym9f0cm5685rrjetr6pdxa"},
	{"H Korean", "세계의모든사람들이한국어를이해한다면얼마나좋을까", "989aomsvi5e83db1d2a355cv1e0vak1dwrv93d5xbh15a0dt30a5jpsd879ccm6fea98c"},
	{"I Russian", "почемужеонинеговорятпорусски", "b1abfaaepdrnnbgefbaDotcwatmq2g4l"},
	{"J Spanish", "Porqu\u00e9nopuedensimplementehablarenEspa\u00f1ol", "PorqunopuedensimplementehablarenEspaol-fmd56a"},
	{"K Vietnamese", "T\u1ea1isaoh\u1ecdkh\u00f4ngth\u1ec3ch\u1ec9n\u00f3iti\u1ebfngVi\u1ec7t", "TisaohkhngthchnitingVit-kjcr8268qyxafd2f1b9g"},
	{"L", "3年B組金八先生", "3B-ww4c5e180e575a65lsy2b"},
	{"M", "安室奈美恵-with-SUPER-MONKEYS", "-with-SUPER-MONKEYS-pc58ag80a8qai00g7n9n"},
	{"N", "Hello-Another-Way-それぞれの場所", "Hello-Another-Way--fc4qua05auwb3674vfr0b"},
	{"O", "ひとつ屋根の下2", "2-u9tlzr9756bt3uc0v"},
	{"P", "MajiでKoiする5秒前", "MajiKoi5-783gue6qz075azm5e"},
	{"Q", "パフィーdeルンバ", "de-jg4avhby1noc0d"},
	{"R", "そのスピードで", "d9juau41awczczp"},
	{"S ASCII", "-> $1.00 <-", "-> $1.00 <--"},
}

func TestPunycode(t *testing.T) {
	for _, s := range samples {
		want := s.encoded
		if strings.HasPrefix(s.name, "I ") {
			want = strings.ToLower(want) // its capital digit is a note for decoders
		}
		if got, err := encode([]rune(s.text)); got != want || err != nil {
			t.Errorf("%s: encoded %q, %v, want %q", s.name, got, err, want)
		}
		if got, err := decode(s.encoded); string(got) != s.text || err != nil {
			t.Errorf("%s: decoded %q, %v, want %q", s.name, string(got), err, s.text)
		}
	}
}

func TestPunycodeRefused(t *testing.T) {
	for text, want := range map[string]error{
		"a-é":                          errDigits,
		"é-a":                          errDigits,
		"-a":                           errDigits, // a delimiter counts only behind something
		"a-b!":                         errDigits,
		"a-9":                          errDigits, // breaks off
		"99999999":                     errOverflow,
		"a-" + strings.Repeat("9", 20): errOverflow,
		"0m2b":                         nil,
	} {
		if _, err := decode(text); err != want {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
	for _, points := range [][]rune{
		append([]rune{unicode.MaxRune}, slices.Repeat([]rune{'a'}, 1928)...), // (n-0x80)*1929 is over 1<<31
		append(slices.Repeat([]rune{'a'}, 1999), 0x1062cd),                   // (n-0x80)*2000 is below, and 1999 more is not
	} {
		if got, err := encode(points); err != errOverflow {
			t.Errorf("%d points: %.20q, %v", len(points), got, err)
		}
	}
	surrogate, err := encode([]rune{0xd800})
	if _, again := decode(surrogate); err != nil || again != errOverflow {
		t.Errorf("a surrogate: %v, %v", err, again)
	}
	if got, err := decode("ls8h"); string(got) != "💩" || err != nil {
		t.Errorf("%q, %v", string(got), err)
	}
}

func TestToASCII(t *testing.T) {
	for name, want := range map[string]string{
		"":                        "",
		".":                       ".",
		"example.com":             "example.com",
		"Example.COM.":            "Example.COM.",
		"_mesh.*.-a-.a b..c":      "_mesh.*.-a-.a b..c",
		"ab--c.example":           "ab--c.example",
		"bücher.example":          "xn--bcher-kva.example",
		"BÜCHER.Example":          "xn--bcher-kva.Example",
		"_mesh.bücher.example.":   "_mesh.xn--bcher-kva.example.",
		"例子.测试":                   "xn--fsqu00a.xn--0zwm56d",
		"例子。测试":                   "xn--fsqu00a.xn--0zwm56d",
		"a\uff0eb\uff61c":         "a.b.c",
		"faß.example":             "xn--fa-hia.example",
		"FAẞ.example":             "xn--fa-hia.example",
		"ελληνικά":                "xn--hxargifdar",
		"ᏣᎳᎩ.example":             "xn--f9dt7l.example",
		"россия.рф":               "xn--h1alffa9f.xn--p1ai",
		"中文.example":              "xn--fiq228c.example",
		"हिन्दी":                  "xn--j2bd4cyah0f",
		"٣ب":                      "xn--ngb1j",
		"x-ü-y":                   "xn--x--y-1ra",
		"XN--BCHER-KVA.example":   "XN--BCHER-KVA.example",
		"xn--fiq228c.xn--ls8h.la": "xn--fiq228c.xn--ls8h.la",
		"xn--99999999.xn--.xn.x":  "xn--99999999.xn--.xn.x",
	} {
		if got, err := ToASCII(name); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestRefused: each error has the label and a word of the reason.
func TestRefused(t *testing.T) {
	long := strings.Repeat("ü", 59)
	for label, want := range map[string]string{
		"b\xfccher":          "UTF-8",
		"ü b":                "U+0020",
		"_bücher":            "U+005F",
		"ü☃":                 "U+2603",
		"💩":                  "U+1F4A9",
		"ü\x00":              "U+0000",
		"ü\u0085":            "U+0085",
		"ü\u200d":            "U+200D",
		"ü\u200cb":           "U+200C",
		"ü\u00ad":            "U+00AD",
		"ü²":                 "U+00B2",
		"Ⅷ":                  "U+2167",
		"·ü":                 "U+00B7",
		"ü\ufe0f":            "invisible",
		"ü\u3164":            "invisible",
		"u\u0308ber":         "NFC",
		"\u0308ber":          "NFC",
		"か\u3099":            "NFC",
		"\u1112\u1161\u11ab": "NFC",
		"\u093fa":            "begins with a mark",
		"-ü":                 "hyphen",
		"ü-":                 "hyphen",
		"bü--a":              "places 3 and 4",
		"xn--ü":              "places 3 and 4",
		"ｅxample":            "usual letter",
		"ｶﾅ":                 "usual letter",
		"\u212a":             "usual letter",
		"ﬁx":                 "usual letter",
		"İstanbul":           "U+0130",
		"\uab70":             "U+AB70",
		long:                 "63 octets",
		strings.Repeat("a", 20000) + "\U0003134a":                      "63 octets", // without a try to encode it
		"abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvüé": "63 octets",
		"xn--a-é": "places 3 and 4",
	} {
		quoted := strings.TrimSuffix(strconv.Quote(label), `"`)
		if runes := []rune(label); len(runes) > maxQuoted {
			quoted = strconv.Quote(string(runes[:maxQuoted]))
		}
		got, err := ToASCII("www." + label + ".example")
		if err == nil {
			t.Errorf("%.80q: %q, want an error", label, got)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), quoted) {
			t.Errorf("%.80q: %.200v, want %q", label, err, want)
		}
	}
}

// lowered returns the labels to which an accepted name must decode.
func lowered(name string) []string {
	labels := strings.Split(dots.Replace(name), ".")
	for i, label := range labels {
		if !isASCII(label) {
			labels[i] = strings.Map(lower, label)
		}
	}
	return labels
}

func FuzzToASCII(f *testing.F) {
	for _, s := range samples {
		f.Add(s.text)
		f.Add(acePrefix + s.encoded)
	}
	for _, name := range []string{"bücher.example", "例子。测试", "İ", "\u212a", "a\xff", "xn--99999999", "ü--.-", "u\u0308"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		ascii, err := ToASCII(name)
		if err != nil {
			return
		}
		if !isASCII(ascii) || !utf8.ValidString(ascii) {
			t.Fatalf("%q: %q is not ASCII", name, ascii)
		}
		if again, err := ToASCII(ascii); again != ascii || err != nil {
			t.Fatalf("%q: %q becomes %q, %v", name, ascii, again, err)
		}
		for i, want := range lowered(name) {
			got := strings.Split(ascii, ".")[i]
			if !isASCII(want) {
				points, err := decode(strings.TrimPrefix(got, acePrefix))
				if err != nil || len(got) > maxLabel {
					t.Fatalf("%q: label %q: %v", name, got, err)
				}
				got = string(points)
			}
			if got != want {
				t.Fatalf("%q: %q decodes to %q", name, ascii, got)
			}
		}
	})
}

// errDigits is an error of decode, which only the tests need.
var errDigits = errors.New("it breaks off, or has a character that is no digit")

// decode undoes encode (RFC 3492, section 6.2). Digits may be capital.
func decode(text string) ([]rune, error) {
	var out []rune
	if at := strings.LastIndexByte(text, delimiter); at > 0 {
		if !isASCII(text[:at]) {
			return nil, errDigits
		}
		out, text = []rune(text[:at]), text[at+1:]
	}
	n, i, bias := initialN, 0, initialBias
	for text != "" {
		delta, rest, err := readNumber(text, bias)
		if err != nil {
			return nil, err
		}
		if delta > maxInt-i {
			return nil, errOverflow
		}
		text = rest
		i += delta
		count := len(out) + 1
		bias = adapt(delta, count, i == delta)
		n, i = n+i/count, i%count
		if !utf8.ValidRune(rune(n)) { // a sum too large for a rune wraps to less than 0
			return nil, errOverflow
		}
		out = append(out[:i], append([]rune{rune(n)}, out[i:]...)...)
		i++
	}
	return out, nil
}

// readNumber reads a number of variable length.
func readNumber(text string, bias int) (value int, rest string, err error) {
	weight := 1
	for k := base; ; k += base {
		if text == "" {
			return 0, "", errDigits
		}
		digit := strings.IndexByte(digits, text[0])
		if 'A' <= text[0] && text[0] <= 'Z' {
			digit = int(text[0] - 'A')
		}
		switch {
		case digit < 0:
			return 0, "", errDigits
		case digit > (maxInt-value)/weight:
			return 0, "", errOverflow
		}
		value, text = value+digit*weight, text[1:]
		t := threshold(k, bias)
		if digit < t {
			return value, text, nil
		}
		if weight > maxInt/(base-t) {
			return 0, "", errOverflow
		}
		weight *= base - t
	}
}
