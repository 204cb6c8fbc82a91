// Package msg has every text that an answer shows to a person, in Chinese and in English. The ID of a
// text is also its machine-readable code.
package msg

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ID identifies a text.
type ID string

// Language is a language of the texts.
type Language int

// The languages of the texts.
const (
	Chinese Language = iota
	English
)

// In returns the text in a language; args replace its verbs.
func (id ID) In(language Language, args ...any) string {
	text, ok := texts[id]
	if !ok {
		return string(id)
	}
	return fmt.Sprintf(text[language], args...)
}

// Phrase is a text with its arguments, which may be texts themselves.
type Phrase struct {
	ID   ID
	Args []any
}

// In returns the phrase in a language.
func (p Phrase) In(language Language) string {
	words := slices.Clone(p.Args)
	for i, word := range words {
		if text, ok := word.(interface{ In(Language) string }); ok {
			words[i] = text.In(language)
		}
	}
	return p.ID.In(language, words...)
}

// Texts returns phrases in a language.
func Texts(all []Phrase, language Language) (texts []string) {
	for _, p := range all {
		texts = append(texts, p.In(language))
	}
	return texts
}

// Refusal is the error of an operation that refuses a request. The text is the reason.
type Refusal struct{ Phrase }

func (r *Refusal) Error() string { return r.In(English) }

// Refuse returns a Refusal.
func Refuse(id ID, args ...any) error { return &Refusal{Phrase{id, args}} }

// RefuseIf returns a Refusal if something is wrong, else nil. errors.Join of several has all that is wrong, and a client
// gets the first one.
func RefuseIf(wrong bool, id ID, args ...any) error {
	if !wrong {
		return nil
	}
	return Refuse(id, args...)
}

// Inside is an error about a part of a body, such as leases.[2].
type Inside struct {
	At string
	error
}

func (e Inside) Unwrap() error { return e.error }

// Faults returns the errors that are joined in an error, each inside a part of the body; "" is the whole.
func Faults(at string, err error) (all []error) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			all = append(all, Faults(at, err)...)
		}
		return all
	}
	if at != "" {
		err = Inside{at, err}
	}
	return []error{err}
}

// Preferred returns the language for an Accept-Language header (RFC 9110, section 12.5.4): English if it
// ranks English above Chinese, else Chinese.
func Preferred(acceptLanguage string) Language {
	english, chinese := 0.0, 0.0
	for entry := range strings.SplitSeq(acceptLanguage, ",") {
		tag, parameter, _ := strings.Cut(entry, ";")
		primary, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
		weight := quality(parameter)
		switch primary {
		case "en":
			english = max(english, weight)
		case "zh":
			chinese = max(chinese, weight)
		}
	}
	if english > chinese {
		return English
	}
	return Chinese
}

// quality parses "q=0.8". Without it the weight is 1.
func quality(parameter string) float64 {
	text, ok := strings.CutPrefix(strings.TrimSpace(parameter), "q=")
	if !ok {
		return 1
	}
	weight, err := strconv.ParseFloat(text, 64)
	if err != nil || weight < 0 || weight > 1 {
		return 0
	}
	return weight
}

// Printable returns a text as one line. It turns white space into single spaces, and characters that
// cannot be printed into question marks: controls, terminal escapes, marks that change the direction of
// writing, and octets that are not UTF-8.
func Printable(text string) string {
	return strings.Join(strings.FieldsFunc(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text), func(r rune) bool { return r == ' ' }), " ")
}
