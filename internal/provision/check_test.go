package provision

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"meshddns/internal/secrets"
)

var update = flag.Bool("update", false, "write the golden files anew")

// refusal is the error of rules. Its text is the member that it is about.
type refusal string

func (r refusal) Error() string { return "is refused" }

// rules are the checks of the API's operations: they refuse members with the text "refuse", and masked
// secrets in a body with the text "masked".
type rules struct{}

func (rules) Check(_ string, body []byte) error {
	switch text := string(body); {
	case strings.Contains(text, `"refuse all"`), text == `"refuse"`:
		return refusal("")
	case strings.Contains(text, `"masked"`):
		return refusal(secrets.Mask)
	}
	if found := refusedMember.FindSubmatch(body); found != nil {
		return refusal(found[1])
	}
	return nil
}

var refusedMember = regexp.MustCompile(`"(\w+)":\s*"refuse"`)

func (rules) Blame(err error) (member, reason string, ok bool) {
	r, ok := errors.AsType[refusal](err)
	return string(r), err.Error(), ok
}

var manyLetters = regexp.MustCompile(`<\d+ x>`)

// written writes the files of a block of a golden file into a new folder, and the credentials beside
// them.
func written(t *testing.T, block string) (dir string, credentials CredentialFolder) {
	t.Helper()
	dir, folder := t.TempDir(), t.TempDir()
	for name, value := range map[string]string{
		"key": "sesame-sesame\n", "empty": "\n", "latin1": "caf\xe9", "large": strings.Repeat("x", maxCredential+1), "folder/x": "",
	} {
		writeFile(t, filepath.Join(folder, name), value)
	}
	parts := strings.Split("\n"+strings.TrimRight(block, "\n"), "\nfile ")
	for _, part := range parts[1:] {
		name, body, _ := strings.Cut(part, "\n")
		body = manyLetters.ReplaceAllStringFunc(body, func(many string) string {
			n, _ := strconv.Atoi(strings.Trim(many, "< x>"))
			return strings.Repeat("x", n)
		})
		if quoted, ok := strings.CutPrefix(body, "bytes "); ok {
			var err error
			if body, err = strconv.Unquote(quoted); err != nil {
				t.Fatal(err)
			}
		}
		writeFile(t, filepath.Join(dir, name), body)
	}
	if strings.Contains(parts[0], "\nno credentials") {
		folder = ""
	}
	return dir, CredentialFolder{Folder: folder}
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestMistakes compares the mistakes in the files of testdata/mistakes.txt with those in it; "go test
// -update" rewrites it. "no credentials" means no folder of credentials.
func TestMistakes(t *testing.T) {
	const golden = "testdata/mistakes.txt"
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(strings.TrimSpace(string(text)), "\n\n# ")
	for i, block := range blocks {
		given, want, _ := strings.Cut(block, "\n-> ")
		dir, credentials := written(t, given)
		got := "ok"
		if err := Read(dir, credentials).Check(rules{}); err != nil {
			got = strings.ReplaceAll(err.Error(), dir+"/", "")
		}
		if got = strings.ReplaceAll(got, "\n", "\n   "); got != strings.TrimRight(want, "\n") && !*update {
			t.Errorf("# %s\n-> %s\nwant\n-> %s", given, got, want)
		}
		if strings.Contains(got, "sesame") {
			t.Errorf("a secret is in\n%s", got)
		}
		blocks[i] = strings.TrimRight(given, "\n") + "\n-> " + got
	}
	if *update {
		writeFile(t, golden, strings.Join(blocks, "\n\n# ")+"\n")
	}
}

// broken fails as a database does, which is no mistake in a file.
type broken struct{ rules }

func (broken) Check(string, []byte) error { return errors.New("broken") }

func TestCheckThatFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	writeFile(t, file, `{"services": [`+"\n"+`{"id": "a", "name": "A", "config": {}}]}`)
	err := Read(file, CredentialFolder{}).Check(broken{})
	if _, isMistake := errors.AsType[Mistakes](err); isMistake || err == nil || err.Error() != file+":2: services[0]: broken" {
		t.Errorf("%v", err)
	}
}

// seen keeps the bodies that it checks.
type seen struct {
	rules
	bodies []string
}

func (s *seen) Check(_ string, body []byte) error {
	s.bodies = append(s.bodies, string(body))
	return nil
}

// TestCredentials has secrets in the file and in credentials. The operations get a credential in place of
// its name; the rest of the body stays as in the file.
func TestCredentials(t *testing.T) {
	const key = `"sesame \"<&>"`
	folder, file := t.TempDir(), filepath.Join(t.TempDir(), "a.json")
	writeFile(t, filepath.Join(folder, "key"), "sesame \"<&>\n")
	const configuration = `{"provider": "x",  "access_key_secret": {"credential": "key"}, "retry_interval": 10}`
	const service = `{"id": "a", "name": "{\"credential\": \"key\"}", "config": {"access_key_secret": "plain", "n": 1.50, "list": [{"a_token": {"credential":"key"}}, {"x": {"keys": [{"credential":"key"}]}}]}}`
	writeFile(t, file, `{"configuration": `+configuration+`, "services": [`+service+`]}`)
	all := &seen{}
	document := Read(file, CredentialFolder{Folder: folder})
	if err := document.Check(all); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, body := range []string{configuration, service} {
		body = strings.ReplaceAll(strings.ReplaceAll(body, `{"credential": "key"}`, key), `{"credential":"key"}`, key)
		want = append(want, body)
	}
	for i := range want {
		got, wanted := unescaped(t, all.bodies[i]), unescaped(t, want[i])
		if got != wanted {
			t.Errorf("%s\nwant\n%s", got, wanted)
		}
	}
	if !strings.Contains(all.bodies[1], `"n": 1.50, `) || document.Unread != 0 {
		t.Errorf("%d credentials are unread, and the rest is %s", document.Unread, all.bodies[1])
	}
}

// TestCredentialText: white space around a credential is not part of it, as in a token file, and a byte order mark is
// named.
func TestCredentialText(t *testing.T) {
	folder := CredentialFolder{Folder: t.TempDir()}
	for content, want := range map[string]string{
		"a key": "a key", "a key\n": "a key", "a key\r\n": "a key", " \ta key \r\n\r\n": "a key", "\r\n": "is empty",
		"\ufeffa key": "byte order mark (BOM)", "a\xff": "not valid UTF-8",
	} {
		writeFile(t, filepath.Join(folder.Folder, "key"), content)
		secret, err := folder.read("key")
		if got := string(secret); got != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %q, %v", content, got, err)
		}
	}
	file := filepath.Join(t.TempDir(), "a.json")
	writeFile(t, file, "\ufeff{}")
	if err := Read(file, folder).Check(rules{}); err == nil || !strings.HasSuffix(err.Error(), marked) {
		t.Errorf("a file: %v", err)
	}
}

// unescaped returns JSON as encoding/json writes it.
func unescaped(t *testing.T, text string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out, _ := json.Marshal(value)
	return string(out)
}

// TestOptionalCredentials counts the credentials that a check without a folder does not read.
func TestOptionalCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	writeFile(t, file, `{"configuration": {"access_key_secret": {"credential": "a"}},
		"services": [{"id": "a", "name": "A", "config": {"token": {"credential": "b"}}}]}`)
	document := Read(file, CredentialFolder{Optional: true})
	if err := document.Check(rules{}); err != nil || document.Unread != 2 {
		t.Errorf("%v, %d are unread", err, document.Unread)
	}
}

// TestSizes has files that are too large alone and together; the others are read.
func TestSizes(t *testing.T) {
	dir := t.TempDir()
	space := strings.Repeat(" ", maxFile-2)
	for name, text := range map[string]string{"0.json": space + "   {}", "1.json": space + "{}", "2.json": space + "{}", "3.json": space + "{}", "4.json": space + "{}", "5.json": `{"owner":1}`} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	err := Read(dir, CredentialFolder{}).Check(rules{})
	want := "0.json: is larger than 16384 KiB\n3.json: the files have more than 64 MiB together\n4.json: the files have more than 64 MiB together\n5.json: the files have more than 64 MiB together"
	if got := strings.ReplaceAll(err.Error(), dir+"/", ""); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if err := Read(filepath.Join(dir, "none"), CredentialFolder{}).Check(rules{}); err == nil || !strings.HasSuffix(err.Error(), "/none: no such file or directory") {
		t.Errorf("%v", err)
	}
}

// TestCredentialSize: a credential has at most 64 KiB.
func TestCredentialSize(t *testing.T) {
	folder := t.TempDir()
	for size, ok := range map[int]bool{64 << 10: true, 64<<10 + 1: false} {
		writeFile(t, filepath.Join(folder, "key"), strings.Repeat("x", size))
		if secret, err := (CredentialFolder{Folder: folder}).read("key"); (err == nil) != ok || ok && len(secret) != size {
			t.Errorf("%d octets: %v", size, err)
		}
	}
}
