package web

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"meshddns/internal/rights"
)

func writeTokens(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // WriteFile obeys the umask
		t.Fatal(err)
	}
	return path
}

// manyTokens returns a token file of n lines.
func manyTokens(n int) (lines string) {
	for i := range n {
		lines += fmt.Sprintf("read wall 0123456789abcdef-%d\n", i)
	}
	return lines
}

func TestReadTokens(t *testing.T) {
	for _, tt := range []struct {
		name    string
		content string
		want    int    // tokens
		err     string // or the end of the error
	}{
		{"one", firstToken + "\n", 1, ""},
		{"cut off", firstToken, 0, "line has no newline, as if the file were cut off: end it with one"},
		{"a role that is cut off", firstToken + "\nservice:a-service-with-a-long-id", 0, "line has no newline, as if the file were cut off: end it with one"},
		{"a comment that is cut off", firstToken + "\n#", 0, "line has no newline, as if the file were cut off: end it with one"},
		{"two", firstToken + "\n" + secondToken + "\n", 2, ""},
		{"blank lines and CRLF", "\n" + firstToken + "\r\n \t\n\r\n" + secondToken + "\r\n\n", 2, ""},
		{"16 bytes", "0123456789abcdef\n", 1, ""},
		{"empty", "", 0, "no token in it"},
		{"blank", "\n  \n", 0, "no token in it"},
		{"15 bytes", firstToken + "\n0123456789abcde\n", 0, "line 2: a token has 16 bytes or more"},
		{"64", manyTokens(64), 64, ""},
		{"65", manyTokens(65), 0, "line 65: more than 64 tokens"},
		{"the same twice", firstToken + "\n" + firstToken + "\n", 0, "line 2: the same token twice"},
		{"the same twice, once with a name", "read secret-name " + firstToken + "\n" + firstToken + "\n", 0, "line 2: the same token twice"},
		{"comments", "# secret\n \t#secret\n#\n" + firstToken + "\n", 1, ""},
		{"a comment only", "#" + firstToken + "\n", 0, "no token in it"},
		{"roles", "admin ops " + firstToken + "\n\tread\twall  " + secondToken + "\r\nservice:secret:1 front-9 0123456789abcdef\n", 3, ""},
		{"rotation", "read wall " + firstToken + "\nread wall " + secondToken + "\n", 2, ""},
		{"one name, two roles", "read secret-name " + firstToken + "\nadmin secret-name " + secondToken + "\n", 0, "line 2: the same name with another role"},
		{"one name, two services", "service:a secret-name " + firstToken + "\nservice:b secret-name " + secondToken + "\n", 0, "line 2: the same name with another role"},
		{"no such role", "secret wall " + firstToken + "\n", 0, "line 1: a role is admin, read or service:<id>"},
		{"a role in capitals", "Admin secret " + firstToken + "\n", 0, "line 1: a role is admin, read or service:<id>"},
		{"no service", "service: secret " + firstToken + "\n", 0, "line 1: a role is admin, read or service:<id>"},
		{"name of 32", "read " + strings.Repeat("a", 32) + " " + firstToken + "\n", 1, ""},
		{"name of 33", "read " + strings.Repeat("a", 33) + " " + firstToken + "\n", 0, "line 1: a name is 1 to 32 characters of a-z, 0-9 and -"},
		{"name in capitals", "read Secret " + firstToken + "\n", 0, "line 1: a name is 1 to 32 characters of a-z, 0-9 and -"},
		{"short token with a name", "read wall 0123456789abcde\n", 0, "line 1: a token has 16 bytes or more"},
		{"two words", "secret " + firstToken + "\n", 0, "line 1: a line is a token without white space, or a role, a name and a token"},
		{"four words", "read wall secret secret-secret-secret\n", 0, "line 1: a line is a token without white space, or a role, a name and a token"},
		{"control character", "secret\x00secret-secret\n", 0, "line 1: a token is printable ASCII without white space"},
		{"not ASCII", "secrét-secret-secret\n", 0, "line 1: a token is printable ASCII without white space"},
		{"byte order mark", "\ufeffread wall " + firstToken + "\n", 0, "line 1: it begins with a byte order mark (BOM): save the file as UTF-8 without one"},
		{"endless line", strings.Repeat("secret", 20000), 0, "the last line has no newline, as if the file were cut off: end it with one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeTokens(t, tt.content, 0o600)
			tokens, err := readTokens(path)
			if len(tokens) != tt.want || (err == nil) != (tt.err == "") {
				t.Fatalf("got %d tokens, %v", len(tokens), err)
			}
			if err == nil {
				return
			}
			if !strings.HasPrefix(err.Error(), "token file "+path) || !strings.HasSuffix(err.Error(), tt.err) {
				t.Errorf("got %q, want the file and %q", err, tt.err)
			}
			if said := strings.ReplaceAll(err.Error(), path, ""); strings.Contains(said, "secret") || strings.Contains(said, "0123") {
				t.Errorf("%q shows the content", err)
			}
		})
	}
}

// acl is the ACL of a file (linux/posix_acl_xattr.h) with entries of a tag, permissions and an id; 1 is its owner, 4 its group, 16 the mask, 32 others.
func acl(entries ...[3]uint32) (text []byte) {
	text = binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range entries {
		text = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(text, uint16(e[0])), uint16(e[1]))
		text = binary.LittleEndian.AppendUint32(text, e[2])
	}
	return text
}

// TestReaders: a file of secrets may be readable by its owner, and by a group that the process is in or an ACL for its user,
// and for nobody else.
func TestReaders(t *testing.T) {
	const other = 4242
	own, user := uint32(os.Getegid()), uint32(os.Geteuid())
	for _, test := range []struct {
		mode  os.FileMode
		group uint32
		acl   [][3]uint32 // of other users and groups
		ok    bool
	}{
		{0o600, other, nil, true}, {0o400, other, nil, true}, {0o640, own, nil, true}, {0o440, own, nil, true},
		{0o640, other, nil, false}, {0o440, other, nil, false},
		{0o604, own, nil, false}, {0o644, own, nil, false}, {0o620, own, nil, false}, {0o660, own, nil, false}, {0o450, own, nil, false}, {0o602, own, nil, false},
		{0o440, other, [][3]uint32{{2, 4, user}}, true}, // as systemd guards a credential
		{0o640, other, [][3]uint32{{8, 4, own}}, true}, {0o640, other, [][3]uint32{{2, 4, user}, {8, 4, own}}, true}, {0o600, other, [][3]uint32{{2, 4, other}}, true},
		{0o640, other, [][3]uint32{{2, 4, other}}, false}, {0o640, other, [][3]uint32{{2, 4, user}, {2, 4, other}}, false}, {0o640, other, [][3]uint32{{8, 4, other}}, false},
		{0o640, other, [][3]uint32{{2, 0, other}, {8, 2, other}}, true}, {0o660, other, [][3]uint32{{2, 6, user}}, false},
		{0o640, own, [][3]uint32{{4, 4, 0}, {2, 4, user}}, true}, {0o640, other, [][3]uint32{{4, 4, 0}, {2, 4, user}}, false},
	} {
		path := writeTokens(t, firstToken+"\n", 0o600)
		if os.Geteuid() != 0 && test.group != own {
			continue // only root can give a file away
		}
		err := errors.Join(os.Chown(path, -1, int(test.group)), os.Chmod(path, test.mode))
		if len(test.acl) > 0 {
			mode, no := uint32(test.mode), uint32(math.MaxUint32)
			entries := append([][3]uint32{{1, mode >> 6, no}}, test.acl...)
			if test.acl[0][0] != 4 {
				entries = append(entries, [3]uint32{4, 0, no})
			}
			entries = append(entries, [3]uint32{16, mode >> 3 & 7, no}, [3]uint32{32, 0, no})
			slices.SortStableFunc(entries, func(a, b [3]uint32) int { return cmp.Compare(a[0], b[0]) })
			err = errors.Join(err, syscall.Setxattr(path, "system.posix_acl_access", acl(entries...), 0))
		}
		if info, fault := os.Stat(path); err != nil || fault != nil || info.Mode() != test.mode {
			t.Fatalf("%+v: %v, %v", test, err, info)
		}
		if _, err := readTokens(path); (err == nil) != test.ok || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%s has mode %04o", path, test.mode)) {
			t.Errorf("%04o of group %d, ACL %v: %v", test.mode, test.group, test.acl, err)
		}
	}
}

// Reload replaces all tokens at once while requests run, and keeps them on an error.
func TestReload(t *testing.T) {
	path := writeTokens(t, firstToken+"\n", 0o600)
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	addr := serveTCP(t, GuardConfig{Tokens: tokens})
	var requests sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		requests.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := guardAttempt(t, addr, "127.0.0.1", secondToken); !strings.HasPrefix(got, "200 token ") && got != "401 unauthorized" && !strings.HasPrefix(got, "429 ") {
					t.Error(got)
				}
			}
		})
	}
	for _, step := range []struct{ content, old, new string }{
		{firstToken + "\n" + secondToken + "\n", "200 token 1", "200 token 2"},
		{"", "200 token 1", "200 token 2"},
		{"short\n", "200 token 1", "200 token 2"},
		{secondToken + "\n", "401 unauthorized", "200 token 1"},
	} {
		if err := os.WriteFile(path, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := tokens.Reload(); (err != nil) != (len(step.content) < minToken) {
			t.Errorf("%q: %v", step.content, err)
		}
		if step.new == "200 token 1" {
			close(stop)
			requests.Wait()
		}
		for token, want := range map[string]string{firstToken: step.old, secondToken: step.new} {
			if got := guardAttempt(t, addr, "127.0.0.2", token); got != want {
				t.Errorf("%q: %q answered %q, want %q", step.content, token, got, want)
			}
		}
	}
}

func TestReadTokensNotAFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir: "is not a regular file", fifo: "is not a regular file", "/dev/null": "is not a regular file",
		filepath.Join(dir, "none"): "no such file or directory",
	} {
		if _, err := readTokens(path); err == nil || !strings.Contains(err.Error(), path) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestTokenIsHidden: no way to print a token, alone or inside a value, shows its text or its hash.
func TestTokenIsHidden(t *testing.T) {
	tokens := tokensOf("service:a front " + firstToken + "\n")
	token := tokens.list()[0]
	inside := struct {
		GuardConfig GuardConfig
		exported    any
		hidden      Token
	}{GuardConfig{Tokens: tokens}, token, token}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(verb, token); got != "***" {
			t.Errorf("%s: %s", verb, got)
		}
		fmt.Fprintf(&out, verb+"\n", inside)
		fmt.Fprintf(&out, verb+"\n", &token)
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("start", "token", token, "config", inside.GuardConfig.Tokens, "inside", fmt.Sprint(inside))
	}
	if err := json.NewEncoder(&out).Encode(map[string]any{"token": token, "tokens": inside.GuardConfig.Tokens}); err != nil {
		t.Fatal(err)
	}
	out.WriteString(token.String())
	sum := token.sum()
	for _, secret := range []string{firstToken, string(sum[:]), fmt.Sprintf("%x", sum), fmt.Sprintf("%d %d %d", sum[0], sum[1], sum[2])} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q is in\n%s", secret, out.String())
		}
	}
}

// TestCallers: a token has the caller of its line. A number counts the tokens without a name, from the top.
func TestCallers(t *testing.T) {
	tokens := tokensOf("admin ops admin-0123456789abcdef\n" + firstToken + "\nread wall old-wall-0123456789\n# none\n" + secondToken + "\nread wall new-wall-0123456789\nservice:a:b front front-0123456789\n").list()
	for text, want := range map[string]rights.Caller{
		"admin-0123456789abcdef": {Token: `token "ops"`, Role: "admin"},
		firstToken:               {Token: "token 1"},
		secondToken:              {Token: "token 2"},
		"old-wall-0123456789":    {Token: `token "wall"`, Role: "read"},
		"new-wall-0123456789":    {Token: `token "wall"`, Role: "read"},
		"front-0123456789":       {Token: `token "front"`, Role: "service:a:b", Service: "a:b"},
	} {
		if at := findToken(tokens, text); at < 0 || tokens[at].caller != want {
			t.Errorf("%s is token %d of %d, want %+v", text, at, len(tokens), want)
		}
	}
}
