package provider

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/msg"
)

// checkTXT reports whether a TXT record can have the value: one or more character-strings of at most
// 255 octets each.
func checkTXT(v Value) error {
	if len(v) == 0 || slices.ContainsFunc(v, func(s string) bool { return len(s) > maxString }) {
		return msg.Errorf("not character-strings of at most %d octets", maxString)
	}
	return nil
}

// cutTXT splits a text into strings of 255 octets, the last one shorter.
func cutTXT(text string) Value {
	if text == "" {
		return Value{""}
	}
	var v Value
	for part := range slices.Chunk([]byte(text), maxString) {
		v = append(v, string(part))
	}
	return v
}

// quoteTXT returns a value as quoted character-strings separated by spaces (RFC 1035, section 5.1). odd
// is the format of octets that are not printable ASCII, such as `\%03d`; "" leaves them unchanged.
func quoteTXT(v Value, odd string) string {
	var quoted []string
	for _, s := range v {
		var text strings.Builder
		for _, octet := range []byte(s) {
			switch {
			case octet == '"' || octet == '\\':
				text.Write([]byte{'\\', octet})
			case odd != "" && (octet < ' ' || octet > '~'):
				fmt.Fprintf(&text, odd, octet)
			default:
				text.WriteByte(octet)
			}
		}
		quoted = append(quoted, `"`+text.String()+`"`)
	}
	return strings.Join(quoted, " ")
}

var errQuoting = msg.Errorf("not quoted character-strings")

// unquoteTXT parses quoted character-strings. Three digits after a backslash are an octet in the given
// base: 10 in zone files, 8 at Route 53.
func unquoteTXT(text string, base int) (Value, error) {
	var v Value
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimLeft(text, " \t") {
		if text[0] != '"' {
			return nil, errQuoting
		}
		var s strings.Builder
		for text = text[1:]; text != "" && text[0] != '"'; {
			octet, length, err := octetAt(text, base)
			if err != nil {
				return nil, err
			}
			s.WriteByte(octet)
			text = text[length:]
		}
		if text == "" {
			return nil, errQuoting
		}
		text = text[1:]
		v = append(v, s.String())
	}
	if len(v) == 0 {
		return nil, errQuoting
	}
	return v, nil
}

// octetAt returns the first octet of a text, which may be escaped.
func octetAt(text string, base int) (octet byte, length int, err error) {
	if text[0] != '\\' {
		return text[0], 1, nil
	}
	if len(text) >= 4 && '0' <= text[1] && text[1] <= '9' {
		n, err := strconv.ParseUint(text[1:4], base, 8)
		if err != nil {
			return 0, 0, errQuoting
		}
		return byte(n), 4, nil
	}
	if len(text) < 2 {
		return 0, 0, errQuoting
	}
	return text[1], 2, nil
}

// looseTXT parses a value that a vendor stores as it was written, quoted or not. It splits strings that
// are too long, as resolvers get them.
func looseTXT(text string) Value {
	quoted, err := unquoteTXT(text, 10)
	if err != nil {
		return cutTXT(text)
	}
	return recut(quoted)
}

// recut splits the strings of a value that are too long, as servers do.
func recut(v Value) (cut Value) {
	for _, s := range v {
		cut = append(cut, cutTXT(s)...)
	}
	return cut
}

// printableASCII returns an error for a text with other octets, which vendors may change.
func printableASCII(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return msg.Errorf("the provider is not known to keep what is not printable ASCII")
	}
	return nil
}

// plainText returns the reason why a vendor that stores values without quotes would not keep this one.
// A value must have 1 to limit octets of printable ASCII without the characters in damaged, and no
// space at either end.
func plainText(v Value, limit int, damaged string) error {
	text := v.Text()
	switch {
	case text == "":
		return msg.Errorf("the provider takes no empty value")
	case len(text) > limit:
		return msg.Errorf("the provider takes at most %d octets", limit)
	case strings.TrimSpace(text) != text:
		return msg.Errorf("the provider strips spaces at the ends")
	case strings.ContainsAny(text, damaged):
		return msg.Errorf("the provider does not keep the characters %s as they are", damaged)
	case !v.Equal(cutTXT(text)):
		return msg.Errorf("the provider does not keep the cut into character-strings")
	}
	return printableASCII(text)
}
