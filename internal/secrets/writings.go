package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// span is a part of a text, in octets.
type span struct{ start, end int }

// encoding is a form of a secret in a text: plain, hex or base64. The text may escape its characters.
type encoding struct {
	characters []rune
	anyCase    bool
	run        string // characters that belong to the encoded text around it
}

const (
	hexRun    = "0123456789abcdefABCDEF"
	base64Run = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=%\\" // with escapes of + / =
)

// encodings returns the encodings of a secret. Base64 has three, because a secret can begin at each octet
// of a group of three. They are only the middle part, which does not depend on the neighbours of the
// secret.
func encodings(secret string) []encoding {
	all := []encoding{
		{characters: []rune(secret), anyCase: true},
		{characters: []rune(hex.EncodeToString([]byte(secret))), anyCase: true, run: hexRun},
	}
	for before := range 3 {
		octets := append(make([]byte, before), secret...)
		middle := base64.RawStdEncoding.EncodeToString(octets)[(8*before+5)/6 : 8*len(octets)/6]
		all = append(all, encoding{characters: []rune(middle), run: base64Run})
	}
	return all
}

// at returns the length in octets of the encoding at the beginning of a text, 0 if there is none.
func (e encoding) at(text string, read reader) (length int) {
	for _, want := range e.characters {
		if length == len(text) {
			return 0
		}
		got, size := read(text[length:])
		if !e.same(got, want) {
			return 0
		}
		length += size
	}
	return length
}

// same compares characters. The two alphabets of base64 differ in two characters.
func (e encoding) same(got, want rune) bool {
	if e.anyCase {
		return got == want || unicode.ToLower(unicode.ToUpper(got)) == unicode.ToLower(unicode.ToUpper(want))
	}
	return got == want || got == '-' && want == '+' || got == '_' && want == '/'
}

// around extends a part of a text by the characters that belong to the encoded text.
func (e encoding) around(s span, text string) span {
	for s.start > 0 && strings.IndexByte(e.run, text[s.start-1]) >= 0 {
		s.start--
	}
	for s.end < len(text) && strings.IndexByte(e.run, text[s.end]) >= 0 {
		s.end++
	}
	return s
}

// found returns the positions of secrets in a text, in order. The spans neither overlap nor touch.
func found(text string, secrets []string) (spans []span) {
	for _, secret := range secrets {
		if len(secret) < Shortest {
			continue
		}
		for _, e := range encodings(secret) {
			for _, read := range readers {
				spans = append(spans, e.find(text, read)...)
			}
		}
	}
	sort.SliceStable(spans, func(i, j int) bool { return spans[i].start < spans[j].start })
	var joined []span
	for _, s := range spans {
		if last := len(joined) - 1; last >= 0 && s.start <= joined[last].end {
			joined[last].end = max(joined[last].end, s.end)
		} else {
			joined = append(joined, s)
		}
	}
	return joined
}

// find returns the positions of an encoding in a text with one kind of escapes.
func (e encoding) find(text string, read reader) (spans []span) {
	for start := 0; start < len(text); start++ {
		if length := e.at(text[start:], read); length > 0 {
			s := e.around(span{start, start + length}, text)
			spans = append(spans, s)
			start = s.end - 1
		}
	}
	return spans
}

// reader reads the first character of a text, which may be escaped, and its length in octets.
type reader func(text string) (r rune, size int)

// readers are the kinds of escapes: none, URL, form, JSON and Go, HTML and XML.
var readers = []reader{utf8.DecodeRuneInString, readPercent, readForm, readBackslash, readReference}

// readPercent reads a character in a URL (RFC 3986, section 2.1).
func readPercent(text string) (rune, int) {
	var octets []byte
	for i := 0; i+3 <= len(text) && text[i] == '%' && !utf8.FullRune(octets); i += 3 {
		octet, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
		if err != nil {
			break
		}
		octets = append(octets, byte(octet))
	}
	if len(octets) == 0 || !utf8.FullRune(octets) {
		return utf8.DecodeRuneInString(text)
	}
	r, size := utf8.DecodeRune(octets)
	return r, 3 * size
}

// readForm is readPercent for application/x-www-form-urlencoded, where "+" is a space.
func readForm(text string) (rune, int) {
	if text[0] == '+' {
		return ' ', 1
	}
	return readPercent(text)
}

// surrogatePair is the length of a character that JSON escapes as two halves.
const surrogatePair = len(`\ud83d\udd11`)

// readBackslash reads a character in a string of JSON, Go or C.
func readBackslash(text string) (rune, int) {
	if text[0] != '\\' || len(text) == 1 {
		return utf8.DecodeRuneInString(text)
	}
	if r, _, rest, err := strconv.UnquoteChar(text, '"'); err == nil {
		return r, len(text) - len(rest)
	}
	var pair string
	if text[1] == 'u' && len(text) >= surrogatePair && json.Unmarshal([]byte(`"`+text[:surrogatePair]+`"`), &pair) == nil {
		if r, size := utf8.DecodeRuneInString(pair); size == len(pair) {
			return r, surrogatePair
		}
	}
	r, size := utf8.DecodeRuneInString(text[1:]) // such as \/
	return r, 1 + size
}

// longestReference is the greatest length of the name or the digits of a character reference.
const longestReference = 20

// readReference reads a character as XML has it, and HTML mostly: by number, or by one of the
// five names of XML.
func readReference(text string) (rune, int) {
	if text[0] == '&' {
		end := 1 + strings.IndexByte(text[:min(len(text), longestReference)], ';')
		var character string
		err := xml.Unmarshal([]byte("<c>"+text[:end]+"</c>"), &character)
		if r, size := utf8.DecodeRuneInString(character); err == nil && size > 0 && size == len(character) {
			return r, end
		}
	}
	return utf8.DecodeRuneInString(text)
}
