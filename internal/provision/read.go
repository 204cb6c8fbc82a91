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
	"meshddns/internal/strictjson"
)

// Limits of files, in octets.
const (
	maxFile       = 16 << 20
	maxAll        = 64 << 20
	maxCredential = 64 << 10
)

// CredentialFolder is the folder of the secrets that a document refers to.
type CredentialFolder struct {
	Folder   string // such as $CREDENTIALS_DIRECTORY; "" for none
	Optional bool   // without a folder, a credential is no mistake and counts as unread
}

// Read reads a file, or the files of a folder whose names end in .json, in the order of their names. It
// passes over names that begin with a dot, such as those that editors and copies from a Mac leave.
// Check and Apply return the mistakes in the files.
func Read(path string, credentials CredentialFolder) *Document {
	d := &Document{Entries: map[string][]Entry{}, seen: map[string]Entry{}, credentials: credentials}
	names, hidden, err := files(path)
	d.Hidden = hidden
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
		d.read(name, string(body))
	}
	return d
}

// files returns the files of a path, and those of a folder whose names begin with a dot.
func files(path string) (names, hidden []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil, nil
	}
	entries, err := os.ReadDir(path)
	for _, e := range entries { // sorted by name
		switch name := filepath.Join(path, e.Name()); {
		case !strings.HasSuffix(name, ".json"):
		case strings.HasPrefix(e.Name(), "."):
			hidden = append(hidden, name)
		default:
			names = append(names, name)
		}
	}
	return names, hidden, err
}

// reason returns an error without the name of the file, which a mistake has already.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return err.Error()
}

// readFile reads a regular file. It refuses others, such as a pipe, because a read could block.
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

// credentialsOf returns the edits that put the credentials of an object in their places, in the order of
// the file.
func (f *file) credentialsOf(v value, at path) (all []strictjson.Edit) {
	secrets.EachSecret(v, at, func(v value, at path) bool {
		edit, ok := f.credential(v, at)
		if ok {
			all = append(all, edit)
		}
		return !ok
	})
	f.misplaced(v, at)
	return all
}

// unreadURL stands for a URL in a credential that is not read.
const unreadURL = `"https://unread/"`

// otherCredentials returns the edits that put the credentials of an object of a form in their places. A URL can be a
// secret, too.
func (f *file) otherCredentials(form form, v value, at path) (all []strictjson.Edit) {
	for _, m := range v.Members {
		name := m.Name.Text
		if m.Value.Kind != strictjson.KindObject || form.members[name] != aSecret {
			continue
		}
		if member(m.Value, "credential") == nil {
			f.fault(m.Value, at.Member(name), "want "+aSecret)
			continue
		}
		unread := f.Unread
		edit, ok := f.credential(m.Value, at.Member(name))
		if f.Unread > unread && name == "url" {
			edit.Text = unreadURL
		}
		if ok {
			all = append(all, edit)
		}
	}
	return all
}

// misplaced finds the credentials in an object whose names are not those of secrets.
func (f *file) misplaced(v value, at path) {
	if name := member(v, "credential"); len(v.Members) == 1 && name != nil && name.Kind == strictjson.KindString {
		f.fault(v, at, "a credential can only be a secret, such as access_key_secret")
		return
	}
	for _, m := range v.Members {
		if !secrets.IsSecretName(m.Name.Text) {
			f.misplaced(m.Value, at.Member(m.Name.Text))
		}
	}
	for i, item := range v.Items {
		f.misplaced(item, at.Item(i))
	}
}

// credential reads the secret that a value refers to. ok is false without a valid reference.
func (f *file) credential(v value, at path) (e strictjson.Edit, ok bool) {
	name := member(v, "credential")
	if v.Kind != strictjson.KindObject || name == nil && at[len(at)-1] != "access_key_secret" {
		return e, false
	}
	if name == nil || name.Kind != strictjson.KindString || len(v.Members) != 1 {
		f.fault(v, at, "want "+aSecret)
		return e, false
	}
	here := at.Member("credential")
	if name.Text == "" || strings.ContainsAny(name.Text, "/\x00") || strings.Contains(name.Text, "..") || name.Text == "." {
		f.fault(*name, here, "want the name of a file, without / and ..")
		return e, false
	}
	secret, err := f.credentials.read(name.Text)
	if errors.Is(err, errNoFolder) && f.credentials.Optional {
		f.Unread++
		secret, err = secrets.Secret(fmt.Sprintf("unread%010d", f.Unread)), nil // fits where a secret is base64, and as a token
	}
	if err != nil {
		f.fault(*name, here, err.Error())
	}
	quoted, err := json.Marshal(string(secret))
	if err != nil {
		panic(err) // encoding a string cannot fail
	}
	return strictjson.Edit{Value: v, Text: string(quoted)}, true
}

var errNoFolder = errors.New("$CREDENTIALS_DIRECTORY is not set")

// read returns a credential without white space around it, as a token file is read.
func (c CredentialFolder) read(name string) (secrets.Secret, error) {
	if c.Folder == "" {
		return "", fmt.Errorf("the credential %q: %w", name, errNoFolder)
	}
	value, err := readFile(filepath.Join(c.Folder, name), maxCredential)
	value = bytes.TrimSpace(value)
	switch {
	case err != nil:
		return "", fmt.Errorf("the credential %q: %s", name, reason(err))
	case len(value) == 0:
		return "", fmt.Errorf("the credential %q is empty", name)
	case !utf8.Valid(value):
		return "", fmt.Errorf("the credential %q is not valid UTF-8", name)
	case bytes.HasPrefix(value, []byte(strictjson.ByteOrderMark)):
		return "", fmt.Errorf("the credential %q: %s", name, marked)
	}
	return secrets.Secret(value), nil
}
