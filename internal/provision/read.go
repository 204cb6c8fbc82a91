package provision

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"meshddns/internal/secrets"
)

// Bounds of what is read.
const (
	maxFile       = 16 << 20
	maxAll        = 64 << 20
	maxCredential = 64 << 10
)

// CredentialFolder is where secrets are that a document has by name.
type CredentialFolder struct {
	Folder   string // as $CREDENTIALS_DIRECTORY says; "" for none
	Optional bool   // without a folder none is looked at, and that is no mistake
}

// Read reads a file, or those files of a folder whose names end in .json, in the order
// of their names. What is wrong with them Check and Apply tell.
func Read(path string, credentials CredentialFolder) *Document {
	d := &Document{seen: map[string]Entry{}, credentials: credentials}
	names, err := files(path)
	if err != nil {
		d.mistakes = append(d.mistakes, Mistake{File: path, Reason: reason(err)})
	}
	size := 0
	for _, name := range names {
		body, err := readFile(name, maxFile)
		if size += len(body); err == nil && size > maxAll {
			err = fmt.Errorf("the files have more than %d MiB together", maxAll>>20)
		}
		if err != nil {
			d.mistakes = append(d.mistakes, Mistake{File: name, Reason: reason(err)})
			continue
		}
		d.add(name, body)
	}
	return d
}

// files gives the files that a path stands for.
func files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	var names []string
	for _, e := range entries { // in the order of their names
		if strings.HasSuffix(e.Name(), ".json") {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	return names, err
}

// reason is an error without the name of the file, which a mistake has.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return err.Error()
}

// readFile reads a regular file. Another kind, such as a pipe, would have to be waited for.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, errors.New("is no regular file"))
	}
	body, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = fmt.Errorf("is larger than %d KiB", limit>>10)
	}
	return body, err
}

// credential is a value that a file has by the name of a credential.
type credential struct {
	begin, end int // of the object in the file
	Value      secrets.Secret
}

// credentialsOf gives the credentials in an object, in the order of the file.
func (f *file) credentialsOf(n *node, at path) (all []credential) {
	n.secrets(at, false, func(n *node, at path) { all = append(all, f.credential(n, at)...) })
	n.strangers(at, func(n *node, at path) {
		f.fault(n.line, at, "a credential can only be a secret, such as access_key_secret")
	})
	return all
}

// strangers gives the credentials in an object whose names are not those of secrets.
func (n *node) strangers(at path, each func(n *node, at path)) {
	if len(n.members) == 1 && n.members[0].name == "credential" && n.members[0].value.kind == isString {
		each(n, at)
		return
	}
	for _, m := range n.members {
		if !secrets.IsSecretName(m.name) {
			m.value.strangers(at.member(m.name), each)
		}
	}
	for i, item := range n.items {
		item.strangers(at.item(i), each)
	}
}

// credential reads the secret that a value names, if it is one that does.
func (f *file) credential(n *node, at path) []credential {
	name := n.member("credential")
	if n.kind != isObject || name == nil && at[len(at)-1] != "access_key_secret" {
		return nil
	}
	if name == nil || name.kind != isString || len(n.members) != 1 {
		f.fault(n.line, at, "want "+secret)
		return nil
	}
	here := at.member("credential")
	if name.text == "" || strings.ContainsAny(name.text, "/\x00") || strings.Contains(name.text, "..") || name.text == "." {
		f.fault(name.line, here, "want the name of a file, without / and ..")
		return nil
	}
	value, err := f.credentials.read(name.text)
	if errors.Is(err, errNoFolder) && f.credentials.Optional {
		f.Unread++
		value, err = "unread", nil
	}
	if err != nil {
		f.fault(name.line, here, err.Error())
	}
	return []credential{{n.begin, n.end, value}}
}

var errNoFolder = errors.New("$CREDENTIALS_DIRECTORY is not set")

// read gives a credential without its final newline.
func (c CredentialFolder) read(name string) (secrets.Secret, error) {
	if c.Folder == "" {
		return "", fmt.Errorf("the credential %q: %w", name, errNoFolder)
	}
	value, err := readFile(filepath.Join(c.Folder, name), maxCredential)
	value = bytes.TrimSuffix(value, []byte("\n"))
	switch {
	case err != nil:
		return "", fmt.Errorf("the credential %q: %s", name, reason(err))
	case len(value) == 0:
		return "", fmt.Errorf("the credential %q is empty", name)
	case !utf8.Valid(value):
		return "", fmt.Errorf("the credential %q is not valid UTF-8", name)
	}
	return secrets.Secret(value), nil
}

// resolved is the text of a value with the credentials in place.
func (f *file) resolved(n *node, all []credential) secrets.JSON {
	if len(all) == 0 {
		return secrets.JSON(f.body[n.begin:n.end])
	}
	var out []byte
	at := n.begin
	for _, c := range all {
		value, err := json.Marshal(string(c.Value))
		if err != nil {
			panic(err) // every string is JSON
		}
		out = append(append(out, f.body[at:c.begin]...), value...)
		at = c.end
	}
	return append(out, f.body[at:n.end]...)
}
