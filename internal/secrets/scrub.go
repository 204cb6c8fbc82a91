package secrets

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Scrubbed stands for a secret in a text that another program wrote.
const Scrubbed = "***"

// Shortest is the length in octets from which Scrub hides a secret. The built-in server
// accepts any secret, and many names have a "-".
const Shortest = 4

// Bounds of a text that another program wrote, in octets.
const (
	MaxLine = 1000
	MaxPart = 500 // of one part of it, such as a message
)

// Scrub gives a text with Scrubbed in the place of secrets. It finds a secret in any letter
// case, in hex and in base64, also as a part of a longer encoded text, each as it is or
// escaped once, as in a URL, a form, JSON, Go, HTML or XML.
func Scrub(text string, secrets ...string) string {
	return without(found(text, secrets), text, len(text))
}

// withoutSignatures gives a text with Scrubbed in the place of each "signature=...", in any
// letter case. A signature in a request that a vendor repeats is no secret, and of no use.
func withoutSignatures(text string) string {
	const member, ends = "signature=", "&,;\"' \t\n\f\r"
	var parts []span
	for at := 0; at+len(member) <= len(text); at++ {
		if !strings.EqualFold(text[at:at+len(member)], member) {
			continue
		}
		end := len(text)
		if size := strings.IndexAny(text[at:], ends); size >= 0 {
			end = at + size
		}
		parts = append(parts, span{at, end})
		at = end
	}
	return without(parts, text, len(text))
}

// ScrubLine gives a text as one line of at most limit octets, without the secrets,
// signatures, and characters that cannot be printed.
func ScrubLine(text string, limit int, secrets ...string) string {
	text = withoutSignatures(Scrub(head(text, limit, secrets), secrets...))
	line := Scrub(Printable(text), secrets...) // again: Printable may have joined its parts
	if len(line) > limit {
		line = strings.ToValidUTF8(line[:limit], "") + "..."
	}
	return line
}

// longestWriting is how many octets of an escaped or encoded secret stand for one of its own.
const longestWriting = 20

// head gives the beginning of a long text, because a search through megabytes takes long. It
// is enough for a line. A secret that begins in it is replaced as a whole.
func head(text string, limit int, secrets []string) string {
	room, longest := 8*limit, 0
	for _, secret := range secrets {
		longest = max(longest, len(secret))
	}
	margin := longestWriting * longest
	if len(text) <= room+margin {
		return text
	}
	return without(found(text[:room+margin], secrets), text, room)
}

// without puts Scrubbed in the place of parts of a text, and leaves out what begins after
// an end.
func without(parts []span, text string, end int) string {
	var out strings.Builder
	at := 0
	for _, s := range parts {
		if s.start >= end {
			break
		}
		out.WriteString(text[at:s.start] + Scrubbed)
		at = s.end
	}
	out.WriteString(text[at:max(at, end)])
	return out.String()
}

// Printable gives a text as one line. All white space becomes one space. A character that
// cannot be printed becomes a question mark: controls, escapes of terminals, marks that
// change the direction of writing, and octets that are not UTF-8.
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
