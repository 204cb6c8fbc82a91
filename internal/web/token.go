package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"meshddns/internal/rights"
)

const (
	minToken  = 16 // bytes
	maxTokens = 64

	maxTokenFile = 1 << 20 // octets that are read; what is longer has been cut off, too
)

// Token is a bearer token of the token file, with its caller. It holds only the hash of its text, so it can be
// compared but not printed.
type Token struct {
	caller rights.Caller

	// sum is a function because fmt cannot print the contents of a function. In an unexported field of another type fmt does not
	// call Format, and follows pointers when the verb is wrong for them.
	sum func() [sha256.Size]byte
}

func newToken(text string, caller rights.Caller) Token {
	sum := sha256.Sum256([]byte(text))
	return Token{caller, func() [sha256.Size]byte { return sum }}
}

func (Token) Format(s fmt.State, _ rune)   { _, _ = io.WriteString(s, "***") }
func (Token) String() string               { return "***" }
func (Token) LogValue() slog.Value         { return slog.StringValue("***") }
func (Token) MarshalJSON() ([]byte, error) { return []byte(`"***"`), nil }

// findToken returns the place of the token with this text, or -1. It compares with all of them, in constant time.
func findToken(tokens []Token, text string) int {
	shown := sha256.Sum256([]byte(text))
	found := -1
	for i, t := range tokens {
		sum := t.sum()
		same := subtle.ConstantTimeCompare(sum[:], shown[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	return found
}

// Tokens has the tokens of a token file. Reload may run while requests are checked.
type Tokens struct {
	path    string
	current atomic.Pointer[[]Token]
}

// OpenTokens reads a token file: 1 to 64 lines "<token>" or "<role> <name> <token>", with tokens of at least 16 printable
// ASCII characters without white space, each with its newline. It skips blank lines, lines that begin with "#", and white space around a line.
//
// Errors name file and line, never the contents.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	if err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Reload reads the file again. On an error it keeps the current tokens. Otherwise the next request
// is checked against the new ones.
func (t *Tokens) Reload() error {
	tokens, err := readTokens(t.path)
	if err != nil {
		return err
	}
	t.current.Store(&tokens)
	return nil
}

func (t *Tokens) list() []Token { return *t.current.Load() }

func readTokens(path string) ([]Token, error) {
	f, err := OpenPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	defer f.Close()
	tokens, err := parseTokens(f)
	if err != nil {
		return nil, fmt.Errorf("token file %s: %w", path, err)
	}
	return tokens, nil
}

// OpenPrivate opens a regular file that only its owner can change, and only its owner and this process can read. It checks the
// open file, because a path can be replaced. It opens without blocking, because a FIFO would wait for its writer.
func OpenPrivate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file", path)
	case info.Mode().Perm()&0o037 != 0 || info.Mode().Perm()&0o040 != 0 && !onlyOurs(f, int(info.Sys().(*syscall.Stat_t).Gid)):
		err = fmt.Errorf("%s has mode %04o: only its owner, and a group or a user of its ACL that this program runs as, may read it (0600)", path, info.Mode().Perm())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// onlyOurs reports whether the group's permission of a file of a group lets no one read it but this process's user and groups.
// With an ACL (acl(5)), such as systemd's for a credential, that permission is the ACL's mask. The form of an ACL is that of
// linux/posix_acl_xattr.h: a version, then entries of a tag, permissions and an id.
func onlyOurs(f *os.File, group int) bool {
	const aclUser, aclOwnGroup, aclGroup, aclRead = 0x02, 0x04, 0x08, 4
	acl := make([]byte, 64<<10)
	n, err := syscall.Getxattr(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), "system.posix_acl_access", acl)
	if err == syscall.ENODATA || err == syscall.ENOTSUP {
		return inGroup(group)
	}
	for at := 4; at < n; at += 8 {
		tag, id := binary.LittleEndian.Uint16(acl[at:]), int(binary.LittleEndian.Uint32(acl[at+4:]))
		foreign := tag == aclUser && id != os.Geteuid() || tag == aclOwnGroup && !inGroup(group) || tag == aclGroup && !inGroup(id)
		if foreign && acl[at+2]&aclRead != 0 {
			return false
		}
	}
	return err == nil
}

// inGroup reports whether this process is in a group.
func inGroup(id int) bool {
	groups, err := os.Getgroups()
	return err == nil && slices.Contains(append(groups, os.Getegid()), id)
}

func parseTokens(r io.Reader) ([]Token, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxTokenFile))
	if err != nil {
		return nil, err
	}
	if len(content) > 0 && !bytes.HasSuffix(content, []byte("\n")) { // it must not have a shorter token, or one without its role
		return nil, errors.New("the last line has no newline, as if the file were cut off: end it with one")
	}
	var tokens []Token
	n, unnamed := 0, 1
	for line := range strings.Lines(string(content)) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		token, err := parseToken(words, unnamed, tokens)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if tokens = append(tokens, token); token.caller.Role == "" {
			unnamed++
		}
	}
	if len(tokens) == 0 {
		return nil, errors.New("no token in it")
	}
	return tokens, nil
}

// parseToken reads the words of a line. A token without a name has a number.
func parseToken(words []string, number int, earlier []Token) (Token, error) {
	caller, err := rights.Caller{Token: fmt.Sprintf("token %d", number)}, error(nil)
	if len(words) == 3 {
		caller, err = rights.Named(words[0], words[1])
	}
	text := words[len(words)-1]
	otherRole := func(t Token) bool { return t.caller.Token == caller.Token && t.caller.Role != caller.Role }
	switch {
	case strings.HasPrefix(words[0], "\ufeff"):
		return Token{}, errors.New("it begins with a byte order mark (BOM): save the file as UTF-8 without one")
	case len(words) != 1 && len(words) != 3:
		return Token{}, errors.New("a line is a token without white space, or a role, a name and a token")
	case len(earlier) == maxTokens:
		return Token{}, fmt.Errorf("more than %d tokens", maxTokens)
	case err == nil && slices.ContainsFunc(earlier, otherRole):
		return Token{}, errors.New("the same name with another role")
	case err == nil && findToken(earlier, text) >= 0:
		return Token{}, errors.New("the same token twice")
	}
	return newToken(text, caller), cmp.Or(err, CheckToken(text))
}

// CheckToken returns an error for a token that is malformed.
func CheckToken(text string) error {
	switch {
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }):
		return errors.New("a token is printable ASCII without white space")
	case len(text) < minToken:
		return fmt.Errorf("a token has %d bytes or more", minToken)
	}
	return nil
}
