package secrets

import (
	"strings"

	"meshddns/internal/msg"
)

// Scrubbed replaces a secret in a text that another program wrote.
const Scrubbed = "***"

// Shortest is the least length in octets of a secret that Scrub hides. The built-in server accepts any
// secret, such as "-", and hiding that would damage many names.
const Shortest = 4

// Limits for a text that another program wrote, in octets.
const (
	MaxLine = 1000
	MaxPart = 500 // of a part of a line, such as a message
)

// Scrub returns a text with Scrubbed in place of secrets. It finds a secret in any letter case, plain, in
// hex and in base64, also as a part of a longer encoded text. Each form may be escaped once, as in a
// URL, a form, JSON, Go, HTML or XML.
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

// ScrubLine returns a text as one line of at most limit octets, without secrets, signatures and
// characters that cannot be printed.
func ScrubLine(text string, limit int, secrets ...string) string {
	text = withoutSignatures(Scrub(head(text, limit, secrets), secrets...))
	line := Scrub(msg.Printable(text), secrets...) // again: Printable may have joined its parts
	if len(line) > limit {
		line = strings.ToValidUTF8(line[:limit], "") + "..."
	}
	return line
}

// longestWriting is the greatest number of octets that encode one octet of a secret.
const longestWriting = 20

// head returns the beginning of a long text, enough for a line, because a search through megabytes takes
// long. It replaces a secret that begins in it as a whole.
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

// without replaces parts of a text by Scrubbed, and drops everything from an end on.
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
