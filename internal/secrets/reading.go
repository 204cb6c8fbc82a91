package secrets

import (
	"encoding/xml"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// reading is a text as it is read: each octet with the part of the text that it
// was written as.
type reading []octet

type octet struct {
	value byte
	span
}

// plain reads a text as it is.
func plain(text string) reading {
	r := make(reading, len(text))
	for i := range len(text) {
		r[i] = octet{text[i], span{i, i + 1}}
	}
	return r
}

func (r reading) text() string {
	var out strings.Builder
	out.Grow(len(r))
	for _, o := range r {
		out.WriteByte(o.value)
	}
	return out.String()
}

// escape reads the escape that a text begins with: what it stands for, and its
// length, 0 when there is none.
type escape func(text string) (meaning string, length int)

// escapes are the ways in which an octet or a character is written as several.
var escapes = []escape{percent, backslash, entity}

// undo reads what is escaped in one way.
func (r reading) undo(read escape) (below reading, changed bool) {
	text := r.text()
	for i := 0; i < len(text); {
		meaning, length := read(text[i:])
		if length == 0 {
			below = append(below, r[i])
			i++
			continue
		}
		changed = true
		whole := span{r[i].start, r[i+length-1].end}
		for j := range len(meaning) {
			below = append(below, octet{meaning[j], whole})
		}
		i += length
	}
	return below, changed
}

// percent is RFC 3986, section 2.1, and the %u of JavaScript's escape.
func percent(text string) (string, int) {
	if len(text) < 3 || text[0] != '%' {
		return "", 0
	}
	if value, ok := number(text, 2, 4); ok && text[1] == 'u' {
		return string(rune(value)), 6
	}
	return hexOctet(text[1:3], 3)
}

// form is percent, with "+" for a space, as in application/x-www-form-urlencoded.
func form(text string) (string, int) {
	if strings.HasPrefix(text, "+") {
		return " ", 1
	}
	return percent(text)
}

func hexOctet(digits string, length int) (string, int) {
	value, err := strconv.ParseUint(digits, 16, 8)
	if err != nil {
		return "", 0
	}
	return string([]byte{byte(value)}), length
}

// backslash is an escape of JSON, JavaScript, Go or C: one letter, octal, \x, \u, \U
// or \u{}; two halves of a character outside of the first plane are one.
func backslash(text string) (string, int) {
	if len(text) < 2 || text[0] != '\\' {
		return "", 0
	}
	if at := strings.IndexByte("abfnrtv", text[1]); at >= 0 {
		return "\a\b\f\n\r\t\v"[at : at+1], 2
	}
	switch c := text[1]; {
	case c == 'x' && len(text) >= 4:
		return hexOctet(text[2:4], 4)
	case c == 'u' || c == 'U':
		return unicodeEscape(text)
	case '0' <= c && c <= '7' && len(text) >= 4:
		if value, err := strconv.ParseUint(text[1:4], 8, 8); err == nil {
			return string([]byte{byte(value)}), 4
		}
	}
	if text[1] < utf8.RuneSelf && !('0' <= text[1] && text[1] <= '9') {
		return text[1:2], 2 // \/ \" \' \\ and all that needs none
	}
	return "", 0
}

func unicodeEscape(text string) (string, int) {
	digits, length := 4, 6
	start := 2
	if text[1] == 'U' {
		digits, length = 8, 10
	} else if end := strings.IndexByte(text, '}'); strings.HasPrefix(text, `\u{`) && end > 0 && end < 10 {
		start, digits, length = 3, end-3, end+1
	}
	value, ok := number(text, start, digits)
	if !ok {
		return "", 0
	}
	if low, ok := number(text, 8, 4); ok && utf16.IsSurrogate(rune(value)) && text[6:8] == `\u` {
		return string(utf16.DecodeRune(rune(value), rune(low))), 12
	}
	return string(rune(value)), length
}

func number(text string, start, digits int) (uint64, bool) {
	if len(text) < start+digits {
		return 0, false
	}
	value, err := strconv.ParseUint(text[start:start+digits], 16, 32)
	return value, err == nil
}

// entity is a character reference of HTML or XML: a number, or a name that a character of
// ASCII has in HTML 5 or any has in HTML 4.
func entity(text string) (string, int) {
	if text[0] != '&' {
		return "", 0
	}
	end := strings.IndexByte(text[:min(len(text), len("&DiacriticalGrave;"))], ';')
	if end < 0 {
		return "", 0
	}
	name := text[1:end]
	if digits, ok := strings.CutPrefix(name, "#"); ok {
		return numericEntity(digits, end+1)
	}
	meaning, ok := asciiEntities[name]
	if !ok {
		meaning, ok = xml.HTMLEntity[name]
	}
	if !ok {
		return "", 0
	}
	return meaning, end + 1
}

func numericEntity(digits string, length int) (string, int) {
	base := 10
	if strings.HasPrefix(digits, "x") || strings.HasPrefix(digits, "X") {
		digits, base = digits[1:], 16
	}
	value, err := strconv.ParseUint(digits, base, 31)
	if err != nil {
		return "", 0
	}
	return string(rune(value)), length
}

// asciiEntities are the names of ASCII's signs in HTML 5.
var asciiEntities = map[string]string{
	"Tab": "\t", "NewLine": "\n", "excl": "!", "quot": `"`, "QUOT": `"`, "num": "#", "dollar": "$", "percnt": "%",
	"amp": "&", "AMP": "&", "apos": "'", "lpar": "(", "rpar": ")", "ast": "*", "midast": "*", "plus": "+",
	"comma": ",", "period": ".", "sol": "/", "colon": ":", "semi": ";", "lt": "<", "LT": "<", "equals": "=",
	"gt": ">", "GT": ">", "quest": "?", "commat": "@", "lbrack": "[", "lsqb": "[", "bsol": `\`,
	"rbrack": "]", "rsqb": "]", "Hat": "^", "lowbar": "_", "UnderBar": "_", "grave": "`", "DiacriticalGrave": "`",
	"lbrace": "{", "lcub": "{", "vert": "|", "verbar": "|", "VerticalLine": "|", "rbrace": "}", "rcub": "}",
}
