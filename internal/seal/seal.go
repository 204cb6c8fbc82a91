// Package seal seals the secrets of a database, so that a copy of its file is of no use without the key.
//
// A sealed secret is the base64 of AES-256-GCM with a random nonce. It is bound to its table, row and column: one that
// was changed, or copied to another place, does not open. The empty text stays: it means that there is no secret.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
)

// Key seals and opens. The zero Key does neither: texts stay as they are.
type Key struct {
	ID   string // the first eight hex digits of its SHA-256
	aead cipher.AEAD
	mac  func() hash.Hash // a function, because package fmt cannot print what is in it
}

// Keys are the keys of a file: one that seals, the zero Key for none, and another one that opens, too.
type Keys struct{ First, Old Key }

// Read reads a file of one or two keys, one a line. Errors have nothing of the file.
func Read(r io.Reader) (k Keys, err error) {
	content, err := io.ReadAll(io.LimitReader(r, 1<<10))
	first, old, two := strings.Cut(strings.TrimSpace(string(content)), "\n")
	if first = strings.TrimSpace(first); err == nil && first != "none" {
		k.First, err = newKey(first)
	}
	if err == nil && two {
		if k.Old, err = newKey(strings.TrimSpace(old)); err == nil && k.Old.ID == k.First.ID {
			err = errors.New("the same key twice")
		}
	}
	return k, err
}

func newKey(line string) (k Key, err error) {
	secret, err := base64.StdEncoding.Strict().DecodeString(line)
	if err != nil || len(secret) != 32 || strings.Contains(line, "\n") {
		return k, errors.New("want one or two lines, each of 32 octets in base64, as openssl rand -base64 32 writes them; or none as the first")
	}
	block, err := aes.NewCipher(secret)
	if err == nil {
		k.aead, err = cipher.NewGCMWithRandomNonce(block)
	}
	derived := hmac.New(sha256.New, secret)
	io.WriteString(derived, "key_hash") // hashes have a key of their own
	own, sum := derived.Sum(nil), sha256.Sum256(secret)
	k.ID, k.mac = hex.EncodeToString(sum[:4]), func() hash.Hash { return hmac.New(sha256.New, own) }
	return k, err
}

// Find returns the key with an ID.
func (k Keys) Find(id string) (Key, error) {
	for _, key := range []Key{k.First, k.Old, {}} {
		if key.ID == id {
			return key, nil
		}
	}
	return Key{}, fmt.Errorf("its secrets are sealed with the key %s: want that key as a line of the file of -seal-key", id)
}

// Hash returns a hash that tells a secret from others, "" without a secret. A short secret can be guessed from the SHA-256 of
// the zero Key, but not from the HMAC of another one.
func (k Key) Hash(secret string) string {
	if secret == "" {
		return ""
	}
	h := sha256.New()
	if k.ID != "" {
		h = k.mac()
	}
	io.WriteString(h, secret)
	return hex.EncodeToString(h.Sum(nil))
}

// Seal returns a secret as it is stored in its place.
func (k Key) Seal(secret, table, row, column string) string {
	if k.ID == "" || secret == "" {
		return secret
	}
	return base64.StdEncoding.EncodeToString(k.aead.Seal(nil, nil, []byte(secret), []byte(table+"\x00"+row+"\x00"+column)))
}

// Opening is a sql.Scanner of a stored secret.
type Opening func(stored any) error

func (o Opening) Scan(stored any) error { return o(stored) }

// Open returns what opens a stored secret, and leaves it empty if it cannot. A column before it may be scanned into row.
func (k Key) Open(secret *string, table string, row *string, column string) Opening {
	return func(stored any) error {
		if *secret, _ = stored.(string); k.ID == "" || *secret == "" {
			return nil
		}
		sealed, err := base64.StdEncoding.DecodeString(*secret)
		if err == nil {
			sealed, err = k.aead.Open(nil, nil, sealed, []byte(table+"\x00"+*row+"\x00"+column))
		}
		if *secret = string(sealed); err != nil {
			id, _, _ := strings.Cut(*row, "\n")
			*secret, err = "", fmt.Errorf("table %s, row %q: the secret is damaged, or was not sealed there with the key %s: restore a backup", table, id, k.ID)
		}
		return err
	}
}
