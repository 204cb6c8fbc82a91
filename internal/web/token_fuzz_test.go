package web

import (
	"fmt"
	"strings"
	"testing"
)

// A token file gives 1 to 64 tokens, each of which is the last word of a line, or an error of one line
// that says nothing of what is in the file.
func FuzzTokens(f *testing.F) {
	for _, text := range []string{"", "0123456789abcdef\n", " 0123456789abcdef\r\n\n0123456789ABCDEF\n", "0123456789abcdef", "short\n", "0123456789abcdef\n0123456789abcdef",
		"0123456789abcde\xff", "0123456789abc\x00def", strings.Repeat("x", 70_000), "\ufeff0123456789abcdef", "# x\nread wall 0123456789abcdef\nread wall 0123456789abcdeF\nservice:a b 0123456789abcDEF\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := parseTokens(strings.NewReader(text))
		if err != nil {
			said := err.Error()
			if tokens != nil || strings.Contains(said, "\n") || len(said) > 200 {
				t.Fatalf("%d tokens, %q", len(tokens), said)
			}
			for line := range strings.Lines(text) {
				if line = strings.TrimSpace(line); len(line) >= minToken && strings.Contains(said, line) {
					t.Fatalf("the error says what is in the file: %q", said)
				}
			}
			return
		}
		if len(tokens) < 1 || len(tokens) > maxTokens || !strings.HasSuffix(text, "\n") {
			t.Fatalf("%q: %d tokens", text, len(tokens))
		}
		found := map[int]bool{}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
				continue
			}
			words := append([]string{""}, strings.Fields(line)...)
			line = words[len(words)-1]
			n := findToken(tokens, line)
			if found[n] = true; (n >= 0) != (line != "") {
				t.Errorf("the line %q is token %d", line, n)
			}
			if said := fmt.Sprintf("%v %+v %#v %q", tokens, tokens, tokens, tokens); line != "" && !strings.Contains("***", line) && strings.Contains(said, line) {
				t.Errorf("the token %q is in %s", line, said)
			}
		}
		if delete(found, -1); len(found) != len(tokens) {
			t.Errorf("%q: %d lines are tokens, want %d", text, len(found), len(tokens))
		}
		if findToken(tokens, "") >= 0 || findToken(tokens, text+"x") >= 0 {
			t.Errorf("%q: what is no token is taken for one", text)
		}
	})
}
