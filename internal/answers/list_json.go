package answers

import (
	"strings"
	"unicode/utf8"
)

// short are the escapes of a letter; other control characters are written in hex.
var short = [256]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

const hex = "0123456789abcdef"

// appendString writes a text as encoding/json does without escaping HTML: what is
// not UTF-8 becomes U+FFFD, and the two line ends of Unicode are escaped.
func appendString(to []byte, text string) []byte {
	to = append(to, '"')
	begin := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size, escaped := escape(text[i:])
		if escaped != "" {
			to = append(append(to, text[begin:i]...), escaped...)
			begin = i + size
		}
		i += size
	}
	return append(append(to, text[begin:]...), '"')
}

// escape gives what stands for the first character of a text, "" for itself.
func escape(text string) (size int, escaped string) {
	c := text[0]
	switch {
	case short[c] != 0:
		return 1, string([]byte{'\\', short[c]})
	case c < ' ':
		return 1, string([]byte{'\\', 'u', '0', '0', hex[c>>4], hex[c&0xf]})
	}
	r, size := utf8.DecodeRuneInString(text)
	switch {
	case r == utf8.RuneError && size == 1:
		return 1, `\ufffd`
	case r == '\u2028' || r == '\u2029':
		return size, `\u202` + string(hex[r&0xf])
	}
	return size, ""
}

// asStandard is JSON of SQLite as encoding/json writes it, which replaces what is not
// UTF-8 and escapes two line ends more.
func asStandard(text string) string {
	if utf8.ValidString(text) && !strings.Contains(text, "\u2028") && !strings.Contains(text, "\u2029") {
		return text
	}
	var out strings.Builder
	begin := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		size, escaped := escape(text[i:])
		if escaped != "" {
			out.WriteString(text[begin:i])
			out.WriteString(escaped)
			begin = i + size
		}
		i += size
	}
	out.WriteString(text[begin:])
	return out.String()
}
