// Package scrub makes the words of others fit to be repeated: secrets in them are
// hidden, in whatever writing they came back, and what is no text is taken out.
package secrets

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Stars stands where a secret stood.
const Stars = "***"

// Shortest is the length in octets from which a text is taken for a secret: the
// built-in server takes any, and "-" is in many a name.
const Shortest = 4

// MaxLine is the most octets of others' words that are repeated.
const MaxLine = 1000

// MaxPart is the most octets that one part of them has, such as a message.
const MaxPart = 500

// depth is how many writings may lie over each other: JSON in a URL in JSON.
const depth = 3

// ScrubLine gives the words as one line of at most limit octets: without the secrets,
// signatures, and characters that are no text.
func ScrubLine(text string, limit int, secrets ...string) string {
	text = hideSignatures(Scrub(head(text, limit, secrets), secrets...))
	line := Scrub(Printable(text), secrets...) // again: what was in the way is gone
	if len(line) > limit {
		line = strings.ToValidUTF8(line[:limit], "") + "..."
	}
	return line
}

// hideSignatures puts the mask in the place of signatures in what a vendor repeats of a
// request: no secrets by themselves, and nobody's business.
func hideSignatures(text string) string {
	const name = "signature="
	var found []span
	folded := fold(text)
	for at := 0; ; {
		next := strings.Index(folded[at:], name)
		if next < 0 {
			return without(found, text, len(text))
		}
		s := span{at + next, len(text)}
		if length := strings.IndexAny(text[s.start:], "&,;\"' \t\n\f\r"); length >= 0 {
			s.end = s.start + length
		}
		found = append(found, s)
		at = s.end
	}
}

// head is as much of a long text as can be in its line: to search megabytes would
// help nobody. A secret at its end is left out with what may be a part of it.
func head(text string, limit int, secrets []string) string {
	room, longest := 8*limit, 0
	for _, secret := range secrets {
		longest = max(longest, len(secret))
	}
	margin := 20 * longest // of a secret in its longest writings
	if len(text) <= room+margin {
		return text
	}
	return without(found(text[:room+margin], secrets), text, room)
}

// without puts the mask in the place of parts of a text, and leaves out what begins
// behind an end.
func without(parts []span, text string, end int) string {
	var out strings.Builder
	at := 0
	for _, s := range parts {
		if s.start >= end {
			break
		}
		out.WriteString(text[at:s.start] + Stars)
		at = s.end
	}
	out.WriteString(text[at:max(at, end)])
	return out.String()
}

// Printable gives a text as one line: white space is one space, and what is no
// letter, mark, digit, sign or UTF-8 (controls, escapes of terminals, marks that
// turn the direction of writing) is a question mark.
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

// Scrub puts the mask in the place of secrets: as they are, in other cases, escaped for
// URLs, forms, JSON, Go and HTML, in hex and in base64, there also as a part of more.
func Scrub(text string, secrets ...string) string {
	return without(found(text, secrets), text, len(text))
}

// span is a part of a text, in octets.
type span struct{ start, end int }

// found gives where secrets are, in order, none within or beside another.
func found(text string, secrets []string) []span {
	var s searcher
	for _, secret := range secrets {
		if len(secret) >= Shortest {
			s.needles = append(s.needles, needlesOf(secret)...)
			s.spaced = s.spaced || strings.Contains(secret, " ")
		}
	}
	if len(s.needles) == 0 {
		return nil
	}
	spans := s.search(plain(text), depth)
	slices.SortFunc(spans, func(a, b span) int { return a.start - b.start })
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

// searcher looks for secrets.
type searcher struct {
	needles []needle
	spaced  bool // one has a space, which a form writes as "+"
}

// search looks into a reading of the text and into what lies below its escapes.
// Each way of escaping is undone by itself: a secret may hold what looks like another.
func (s searcher) search(r reading, depth int) (spans []span) {
	h := newHaystack(r.text())
	for _, n := range s.needles {
		for _, found := range n.in(h) {
			spans = append(spans, span{r[found.start].start, r[found.end-1].end})
		}
	}
	if depth == 0 {
		return spans
	}
	for _, undo := range escapes {
		if below, changed := r.undo(undo); changed {
			spans = append(spans, s.search(below, depth-1)...)
		}
	}
	if s.spaced && strings.Contains(h.text, "+") {
		below, _ := r.undo(form)
		spans = append(spans, s.search(below, depth-1)...)
	}
	return spans
}
