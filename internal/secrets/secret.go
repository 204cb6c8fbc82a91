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
