// Package secrets keeps secrets out of everything that the program shows.
//
// Secret and JSON are texts that print as "***". Use them for every secret in memory.
//
// MaskMembers masks the secrets of a JSON config that a client reads: the values of members
// with names such as access_key_secret. RestoreMembers puts the stored secrets back when the
// client sends the masks back.
//
// Scrub and ScrubLine hide known secrets in a text that another program wrote, such as a
// provider's error message, which may repeat them in many writings.
package secrets

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"meshddns/internal/msg"
)

// Secret is a text that no log, message or answer shows: it prints as "***", and is Mask in JSON.
type Secret string

func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, Scrubbed) }
func (s Secret) LogValue() slog.Value       { return slog.StringValue(Scrubbed) }

// MarshalJSON masks the secret. "" stays, because clients tell by it that there is none.
func (s Secret) MarshalJSON() ([]byte, error) {
	if s == "" {
		return json.Marshal("")
	}
	return json.Marshal(Mask)
}

// ScrubLine calls the function ScrubLine for this secret and a whole line.
func (s Secret) ScrubLine(text string) string { return ScrubLine(text, MaxLine, string(s)) }

// Masked is a secret that clients read and write: in JSON it is Mask, and "" where there is none. It prints as "***".
type Masked string

func (s Masked) Format(f fmt.State, _ rune) { io.WriteString(f, Scrubbed) }
func (s Masked) LogValue() slog.Value       { return slog.StringValue(Scrubbed) }

// MarshalText returns the mask.
func (s Masked) MarshalText() ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	return []byte(Mask), nil
}

// JSON is a JSON text with a secret in it. It decodes to the raw text, and prints as "***".
type JSON []byte

func (s JSON) Format(f fmt.State, _ rune)   { io.WriteString(f, Scrubbed) }
func (s JSON) LogValue() slog.Value         { return slog.StringValue(Scrubbed) }
func (s JSON) MarshalJSON() ([]byte, error) { return json.Marshal(Scrubbed) }

// UnmarshalJSON keeps the text unchanged.
func (s *JSON) UnmarshalJSON(text []byte) error {
	*s = slices.Clone(text)
	return nil
}

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
