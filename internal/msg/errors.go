package msg

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// Text is a text in both languages, in its stored form: one line in English and, if the Chinese differs,
// a second line in Chinese.
type Text string

// newText joins two texts, with spaces in place of line breaks.
func newText(english, chinese string) Text {
	english, chinese = strings.ReplaceAll(english, "\n", " "), strings.ReplaceAll(chinese, "\n", " ")
	if chinese == english {
		return Text(english)
	}
	return Text(english + "\n" + chinese)
}

// In returns the text in a language.
func (t Text) In(language Language) string {
	english, chinese, both := strings.Cut(string(t), "\n")
	if both && language == Chinese {
		return chinese
	}
	return english
}

// String returns the English text.
func (t Text) String() string { return t.In(English) }

// LogValue returns the English text, because the log has one language.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.In(English)) }

// Map returns the text with f applied to each language.
func (t Text) Map(f func(string) string) Text { return newText(f(t.In(English)), f(t.In(Chinese))) }

// Say returns words in both languages. Words that errorTexts lacks, such as a name or a vendor's message,
// are the same in both.
func Say(english string) Text {
	return newText(english, cmp.Or(errorTexts[ID(english)][Chinese], english))
}

// Textf returns the text of Errorf.
func Textf(english string, args ...any) Text { return TextOf(Errorf(english, args...)) }

// Errorf is fmt.Errorf for an error in both languages. The English format is the key of the Chinese one
// in errorTexts; a format without words needs none. An argument that is a Text or an error appears in the
// language of the text; all others are the same in both.
func Errorf(english string, args ...any) error {
	in := func(language Language, format string) string {
		said := slices.Clone(args)
		for i, arg := range args {
			if err, ok := arg.(error); ok {
				arg = TextOf(err)
			}
			if text, ok := arg.(Text); ok {
				said[i] = text.In(language)
			}
		}
		return fmt.Sprintf(strings.ReplaceAll(format, "%w", "%s"), said...)
	}
	text := newText(in(English, english), in(Chinese, cmp.Or(errorTexts[ID(english)][Chinese], english)))
	return &failure{fmt.Errorf(english, args...), text}
}

// told is an error with a text in both languages.
type told interface {
	error
	Message() Text
}

// failure is the error that Errorf makes.
type failure struct {
	error // in English, with the words of Go's own packages; it wraps the arguments of %w
	text  Text
}

func (f *failure) Unwrap() error { return f.error }
func (f *failure) Message() Text { return f.text }

// TextOf returns the text of an error. For an error that Errorf did not make, such as one of Go's own
// packages, only the common words are those of a person.
func TextOf(err error) Text {
	if e, ok := err.(told); ok {
		return e.Message()
	}
	english, chinese := err.Error(), err.Error()
	var inner told
	if errors.As(err, &inner) {
		chinese = strings.ReplaceAll(english, inner.Error(), inner.Message().In(Chinese))
	}
	english, chinese = goLookup(english, English), goLookup(chinese, Chinese)
	for _, part := range goParts {
		english, chinese = strings.ReplaceAll(english, part[0], part[2]), strings.ReplaceAll(chinese, part[0], part[1])
	}
	return newText(english, chinese)
}

// goLookup says "lookup NAME on SERVER" of an error of package net, whose words goParts cannot move.
func goLookup(text string, language Language) string {
	before, rest, _ := strings.Cut(text, "lookup ")
	name, rest, found := strings.Cut(rest, " on ")
	if !found || strings.ContainsRune(name, ' ') {
		return text
	}
	server, after, more := strings.Cut(rest, ": ")
	if more {
		after = ": " + after
	}
	return before + [2]string{"解析 " + name + "（" + server + "）", "look up " + name + " at " + server}[language] + after
}

//go:embed go.txt
var goLines string

// goParts are parts of the errors of Go's own packages, each with what a person says: {Go, Chinese, English}. The names of
// system calls go first.
var goParts = rows(goLines)

//go:embed errors.txt
var errorLines string

// errorTexts has the English formats of Errorf and Textf, and the words of Say.
var errorTexts = Table(errorLines)
