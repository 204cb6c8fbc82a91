package msg

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

func TestPreferred(t *testing.T) {
	for header, want := range map[string]Language{
		"":                             Chinese,
		"en":                           English,
		"EN-us":                        English,
		"zh-CN,en;q=0.8":               Chinese,
		"en-GB,zh;q=0.9":               English,
		"zh;q=0.4, en;q=0.5":           English,
		"fr":                           Chinese,
		"fr, en;q=0.1":                 English,
		"en;q=0":                       Chinese,
		"en;q=x":                       Chinese,
		"english":                      Chinese,
		"*":                            Chinese,
		"en;q=0.5,zh-Hans;q=0.5,zh-TW": Chinese,
	} {
		if got := Preferred(header); got != want {
			t.Errorf("Preferred(%q) = %v, want %v", header, got, want)
		}
	}
}

// TestTable: each line of the texts counts, and each id of the source has one.
func TestTable(t *testing.T) {
	for lines, table := range map[string]map[ID][2]string{textLines: texts, errorLines: errorTexts, providerLines: providerTexts} {
		if all := regexp.MustCompile(`(?m)^[^#\n].*$`).FindAllString(lines, -1); len(all) != len(table) {
			t.Errorf("%d lines and %d texts: one is broken, or is given twice", len(all), len(table))
		}
	}
	source, err := os.ReadFile("texts.go")
	if err != nil {
		t.Fatal(err)
	}
	ids := regexp.MustCompile(`(?m)^\t\w+ +ID = "(.*)"$`).FindAllSubmatch(source, -1)
	for _, id := range ids {
		if _, ok := texts[ID(id[1])]; !ok {
			t.Errorf("%s has no text", id[1])
		}
	}
	if len(ids) < 200 {
		t.Errorf("%d ids", len(ids))
	}
}

// TestTextsAgree: both languages have the same arguments in the same order.
func TestTextsAgree(t *testing.T) {
	verbs := regexp.MustCompile(`%[a-z]`)
	for id, text := range texts {
		chinese, english := verbs.FindAllString(text[Chinese], -1), verbs.FindAllString(text[English], -1)
		if text[Chinese] == "" || text[English] == "" || !slices.Equal(chinese, english) {
			t.Errorf("%s: %q and %q do not match", id, text[Chinese], text[English])
		}
	}
}

// english matches two English words in a row: not names of the program or terms of vendors, which have
// "_", "-", digits, or several capitals.
var english = regexp.MustCompile(`(^|[^\w.:/-])([A-Z]?[a-z]['a-z]*)[,;:]? ([a-z]['a-z]*)($|[^\w./-])`)

// quoted matches a value within a text.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// hasEnglish reports whether a Chinese text has English words outside values.
func hasEnglish(text string) bool { return english.MatchString(quoted.ReplaceAllString(text, `""`)) }

func TestHasEnglish(t *testing.T) {
	for text, want := range map[string]bool{
		"txt_endpoints 中的地址无效：not an endpoint": true, "没有 no such zone": true, "Zone，is": false, "错误：it is": true, "参数 a b": true,
		"字段 \"not a value\" 无效": false, "应为 true 或 false": false, "upsert-only 模式": false, "access_key_id、endpoint": false,
		"HTTP API、AccessKey Secret、IPv4": false, "只能包含字母、数字和 . _ ~ -": false,
	} {
		if hasEnglish(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}

// TestChineseIsChinese: no Chinese text has English words, with any arguments.
func TestChineseIsChinese(t *testing.T) {
	for id, text := range texts {
		if hasEnglish(filled(text[Chinese])) || !regexp.MustCompile(`\p{Han}`).MatchString(text[Chinese]) && id != TypeBool && id != Because {
			t.Errorf("%s: %q", id, text[Chinese])
		}
		if regexp.MustCompile(`\p{Han}`).MatchString(text[English]) {
			t.Errorf("%s: %q", id, text[English])
		}
	}
	for id, text := range providerTexts {
		if text[Chinese] != text[English] && hasEnglish(text[Chinese]) { // the same in both is the vendor's own term
			t.Errorf("%s: %q", id, text[Chinese])
		}
	}
}

// filled replaces each verb by a text.
func filled(text string) string {
	text = regexp.MustCompile(`%q`).ReplaceAllString(text, `"x y"`)
	text = regexp.MustCompile(`%\+?[.0-9]*[df]`).ReplaceAllString(text, "7")
	text = regexp.MustCompile(`%U`).ReplaceAllString(text, "U+0041")
	text = regexp.MustCompile(`:? ?%w:? ?`).ReplaceAllString(text, "")
	return regexp.MustCompile(`%s`).ReplaceAllString(text, "x.example")
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"one\r\n two\t\u0085\u2028\u00a0 three ":                 "one two three",
		"\x1b[31mred\x1b[0m \x00\x07\x7f":                        "?[31mred?[0m ???",
		"a\u009bb \u202eevil\u202c \u2066x\u2069 \u200f\ufeff":   "a?b ?evil? ?x? ??",
		"\xff\xfe \xe4\xb8 x":                                    "?? ?? x",
		"\u57df\u540d\u4e0d\u5b58\u5728\uff0c\u8bf7\u68c0\u67e5": "\u57df\u540d\u4e0d\u5b58\u5728\uff0c\u8bf7\u68c0\u67e5",
		"caf\u00e9 \U0001f511":                                   "caf\u00e9 \U0001f511",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
