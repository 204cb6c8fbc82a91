package msg

import (
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

// Both languages take the same arguments, in the same order.
func TestTextsAgree(t *testing.T) {
	verbs := regexp.MustCompile(`%[a-z]`)
	for id, text := range texts {
		chinese, english := verbs.FindAllString(text[Chinese], -1), verbs.FindAllString(text[English], -1)
		if text[Chinese] == "" || text[English] == "" || !slices.Equal(chinese, english) {
			t.Errorf("%s: %q and %q do not match", id, text[Chinese], text[English])
		}
	}
}
