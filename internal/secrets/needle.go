package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// needle is a form of a secret that is searched for.
type needle struct {
	text string // folded, unless exact
	form writing
	run  string // signs of which more around it belong to it
}

// writing says how a needle is compared.
type writing int

const (
	anyCase     writing = iota
	base64Any           // the two alphabets are one, and so are the cases
	base64Short         // the two alphabets are one: without case it would be found by chance
)

// haystack is a text, and what it is for each writing.
type haystack struct {
	text string
	as   [3]string
}

func newHaystack(text string) haystack {
	folded := fold(text)
	return haystack{text, [3]string{anyCase: folded, base64Any: base64Signs(folded), base64Short: base64Signs(text)}}
}

// shortCore is the length below which a needle in base64 has to have the same cases.
const shortCore = 8

const (
	alphabet64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_="
	digits16   = "0123456789abcdefABCDEF"
)

// needlesOf gives the forms of a secret. In base64 it has three, by where in a group
// of three octets it begins, of which only the middle does not depend on what stands
// before and behind.
func needlesOf(secret string) []needle {
	all := []needle{{text: fold(secret)}}
	if latin, ok := latin1(secret); ok {
		all = append(all, needle{text: fold(latin)})
	}
	all = append(all, needle{text: fold(hex.EncodeToString([]byte(secret))), run: digits16})
	for before := range 3 {
		octets := append(make([]byte, before), secret...)
		core := base64.RawStdEncoding.EncodeToString(octets)[(8*before+5)/6 : 8*len(octets)/6]
		n := needle{text: base64Signs(fold(core)), form: base64Any, run: alphabet64}
		if len(core) < shortCore {
			n.text, n.form = core, base64Short
		}
		all = append(all, n)
	}
	return all
}

// latin1 gives a text in ISO 8859-1, if that differs from UTF-8 and can be.
func latin1(text string) (string, bool) {
	octets := []byte{}
	for _, r := range text {
		if r > unicode.MaxLatin1 {
			return "", false
		}
		octets = append(octets, byte(r))
	}
	return string(octets), len(octets) < len(text)
}

// base64Signs writes the signs of the URL's alphabet as those of the other.
func base64Signs(text string) string { return strings.NewReplacer("-", "+", "_", "/").Replace(text) }

// in gives where the needle is in a text, with what belongs to it.
func (n needle) in(h haystack) (spans []span) {
	text := h.as[n.form]
	for at := 0; ; {
		next := strings.Index(text[at:], n.text)
		if next < 0 {
			return spans
		}
		s := span{at + next, at + next + len(n.text)}
		for s.start > 0 && strings.IndexByte(n.run, text[s.start-1]) >= 0 {
			s.start--
		}
		for s.end < len(text) && strings.IndexByte(n.run, text[s.end]) >= 0 {
			s.end++
		}
		spans = append(spans, s)
		at = s.end
	}
}

// fold gives a text without case, in as many octets: a character whose other case has
// another length stays as it is.
func fold(text string) string {
	var out strings.Builder
	out.Grow(len(text))
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if low := unicode.ToLower(unicode.ToUpper(r)); r != utf8.RuneError && utf8.RuneLen(low) == size {
			out.WriteRune(low)
		} else {
			out.WriteString(text[i : i+size])
		}
		i += size
	}
	return out.String()
}
