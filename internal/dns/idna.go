// Conversion of internationalised names, such as "münchen.de", to DNS form (IDNA).

package dns

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"meshddns/internal/msg"
)

const (
	acePrefix = "xn--" // begins an A-label (RFC 5890, section 2.3.1)
	maxLabel  = 63     // octets, RFC 1035, section 2.3.4
)

// maxQuoted is the greatest number of code points of a label in an error.
const maxQuoted = 100

// dots are the other separators of labels: ideographic, fullwidth and halfwidth full stops.
var dots = strings.NewReplacer("\u3002", ".", "\uff0e", ".", "\uff61", ".")

// decomposed are parts of letters for which composed code points exist: combining accents, the voiced
// sound marks of kana, and conjoining jamo, which RFC 5892, section 2.9, also forbids.
var decomposed = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x0300, Hi: 0x036f, Stride: 1},
	{Lo: 0x1100, Hi: 0x11ff, Stride: 1},
	{Lo: 0x3099, Hi: 0x309a, Stride: 1},
	{Lo: 0xa960, Hi: 0xa97f, Stride: 1},
	{Lo: 0xd7b0, Hi: 0xd7ff, Stride: 1},
}}

// compatible are variants of letters: letterlike signs such as the Kelvin sign, ligatures, fullwidth and
// halfwidth letters.
var compatible = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x2100, Hi: 0x214f, Stride: 1},
	{Lo: 0xfb00, Hi: 0xfb06, Stride: 1},
	{Lo: 0xff00, Hi: 0xffef, Stride: 1},
}}

// ToASCII returns a name with A-labels in place of labels that are not ASCII. ASCII labels, also empty
// ones and A-labels, stay exactly as they are; the caller must check them. An error quotes the refused
// label.
func ToASCII(name string) (string, error) {
	labels := strings.Split(dots.Replace(name), ".")
	for i, label := range labels {
		ascii, err := toASCII(label)
		if err != nil {
			return "", msg.Errorf("label %.*q: %w", maxQuoted, label, err)
		}
		labels[i] = ascii
	}
	return strings.Join(labels, "."), nil
}

func toASCII(label string) (string, error) {
	if isASCII(label) {
		return label, nil
	}
	if err := checkULabel(label); err != nil {
		return "", err
	}
	encoded, err := encode([]rune(strings.Map(lower, label)))
	if err != nil {
		return "", err
	}
	if len(acePrefix)+len(encoded) > maxLabel {
		return "", errTooLong
	}
	return acePrefix + encoded, nil
}

// lower returns the form of a letter in labels: lower case, except for Cherokee, which uses capitals
// (RFC 5892, section 2.6, and Unicode's case folding).
func lower(r rune) rune {
	if unicode.Is(unicode.Cherokee, r) {
		return r
	}
	return unicode.ToLower(r)
}

var errTooLong = msg.Errorf("its form in ASCII is over %d octets", maxLabel)

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// checkULabel returns the reason why a label that is not ASCII is no valid label.
func checkULabel(label string) error {
	if !utf8.ValidString(label) {
		return msg.Errorf("it is not UTF-8")
	}
	runes := []rune(label)
	if len(acePrefix)+len(runes) > maxLabel {
		return errTooLong // every code point needs at least one octet
	}
	for _, r := range runes {
		if err := checkRune(r); err != nil {
			return err
		}
	}
	switch {
	case unicode.Is(unicode.M, runes[0]):
		return msg.Errorf("it begins with a mark, %U", runes[0])
	case runes[0] == '-' || runes[len(runes)-1] == '-':
		return msg.Errorf("it begins or ends with a hyphen")
	case len(runes) >= 4 && runes[2] == '-' && runes[3] == '-':
		return msg.Errorf("it has hyphens in places 3 and 4, which are kept for A-labels")
	}
	return nil
}

// checkRune returns the reason why a code point cannot be in a label. It refuses U+0130, because its
// lower case is another letter.
func checkRune(r rune) error {
	switch {
	case unicode.Is(decomposed, r):
		return msg.Errorf("%U is a part of a decomposed letter: write the letter composed, as one code point (form NFC)", r)
	case unicode.Is(compatible, r):
		return msg.Errorf("%U is a form of a letter for compatibility: write the usual letter", r)
	case unicode.Is(unicode.Cherokee, r) && unicode.IsLower(r):
		return msg.Errorf("%U is a small Cherokee letter: write the capital", r)
	case r == '\u0130':
		return msg.Errorf("%U, the capital I with a dot, has no small form of its own: write i", r)
	case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return msg.Errorf("%U is invisible", r)
	case r != '-' && !unicode.In(r, unicode.L, unicode.M, unicode.Nd):
		return msg.Errorf("%U is no letter, mark, digit or hyphen", r)
	}
	return nil
}

// The parameters of Punycode (RFC 3492, section 5).
const (
	base        = 36
	tMin        = 1
	tMax        = 26
	skew        = 38
	damp        = 700
	initialBias = 72
	initialN    = 0x80
	delimiter   = '-'
	digits      = "abcdefghijklmnopqrstuvwxyz0123456789"

	maxInt = 1<<31 - 1 // encode fails before a sum exceeds it
)

var errOverflow = msg.Errorf("a number in it is too large")

// adapt is the bias adaptation of RFC 3492, section 6.1.
func adapt(delta, points int, first bool) int {
	if first {
		delta /= damp
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for delta > (base-tMin)*tMax/2 {
		delta /= base - tMin
		k += base
	}
	return k + (base-tMin+1)*delta/(delta+skew)
}

// threshold returns the threshold of the digit at place k.
func threshold(k, bias int) int { return min(max(k-bias, tMin), tMax) }

// encode returns the Punycode of a label without its prefix (RFC 3492, section 6.3).
func encode(points []rune) (string, error) {
	var out []byte
	for _, r := range points {
		if r < initialN {
			out = append(out, byte(r))
		}
	}
	basic := len(out)
	if basic > 0 {
		out = append(out, delimiter)
	}
	n, delta, bias := rune(initialN), 0, initialBias
	for done := basic; done < len(points); {
		next := least(points, n)
		if int(next-n) > (maxInt-delta)/(done+1) {
			return "", errOverflow
		}
		delta += int(next-n) * (done + 1)
		n = next
		for _, r := range points {
			if r < n {
				if delta++; delta >= maxInt {
					return "", errOverflow
				}
			}
			if r == n {
				out = appendNumber(out, delta, bias)
				bias = adapt(delta, done+1, done == basic)
				delta = 0
				done++
			}
		}
		delta++
		n++
	}
	return string(out), nil
}

// least returns the least point that is not below n.
func least(points []rune, n rune) rune {
	found := rune(unicode.MaxRune)
	for _, r := range points {
		if r >= n {
			found = min(found, r)
		}
	}
	return found
}

// appendNumber appends a generalised variable-length integer (RFC 3492, section 3.3).
func appendNumber(out []byte, q, bias int) []byte {
	for k := base; ; k += base {
		t := threshold(k, bias)
		if q < t {
			return append(out, digits[q])
		}
		out = append(out, digits[t+(q-t)%(base-t)])
		q = (q - t) / (base - t)
	}
}
