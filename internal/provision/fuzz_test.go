package provision

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// anything accepts every well-formed entry.
type anything struct{ bodies []string }

func (a *anything) Check(part string, body []byte) error {
	if part != Owner {
		a.bodies = append(a.bodies, string(body))
	}
	return nil
}

func (a *anything) Blame(error) (string, string, bool) { return "", "", false }

const hiddenCredential = "the-hidden-credential-0123456789"

// FuzzFile: a provisioning file is accepted, and each entry is a JSON object; or it has mistakes, each in
// one line, with the file's name, and without the credentials that it refers to.
func FuzzFile(f *testing.F) {
	folder := f.TempDir()
	for name, text := range map[string]string{"key": hiddenCredential, "line": hiddenCredential + "\n", "empty": "", "binary": "\xff\xfe"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d := &Document{Entries: map[string][]Entry{}, seen: map[string]Entry{}, credentials: CredentialFolder{Folder: folder}}
		d.read("a.json", string(body))
		all := &anything{}
		err := d.Check(all)
		mistakes, ok := errors.AsType[Mistakes](err)
		switch {
		case err == nil && !json.Valid(body):
			t.Fatalf("%q is taken", body)
		case err != nil && (!ok || len(mistakes) == 0):
			t.Fatalf("an error that is no mistake: %v", err)
		}
		for _, m := range mistakes {
			text := m.String()
			if !strings.HasPrefix(text, "a.json") || strings.ContainsAny(text, "\n\r\x1b\x00") || strings.Contains(text, hiddenCredential) && !strings.Contains(string(body), hiddenCredential) {
				t.Errorf("the mistake %q", text)
			}
			if lines := strings.Count(string(body), "\n") + 1; m.Line < 0 || m.Line > lines {
				t.Errorf("line %d of %d", m.Line, lines)
			}
		}
		for _, entry := range all.bodies {
			var o map[string]any
			if err := json.Unmarshal([]byte(entry), &o); err != nil || o == nil {
				t.Errorf("an entry is %q: %v", entry, err)
			}
		}
	})
}
