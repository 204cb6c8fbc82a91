package secrets

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
)

// Secret is a text that no log, message or answer shows: every way of
// printing it gives "***".
type Secret string

func (s Secret) Format(f fmt.State, _ rune)   { io.WriteString(f, Stars) }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(Stars) }
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(Stars) }

// JSON is JSON with a secret in it: it is read as it is, and shown as ***.
type JSON []byte

func (s JSON) Format(f fmt.State, _ rune)   { io.WriteString(f, Stars) }
func (s JSON) LogValue() slog.Value         { return slog.StringValue(Stars) }
func (s JSON) MarshalJSON() ([]byte, error) { return json.Marshal(Stars) }

// UnmarshalJSON keeps the text.
func (s *JSON) UnmarshalJSON(text []byte) error {
	*s = slices.Clone(text)
	return nil
}

// Scrub hides the secret in a text, in whatever writing.
func (s Secret) Scrub(text string) string { return Scrub(text, string(s)) }

// Line makes one line of words of others: without the secret, and of bounded length.
func (s Secret) Line(text string) string { return ScrubLine(text, MaxLine, string(s)) }
