package secrets

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"meshddns/internal/msg"
	"meshddns/internal/strictjson"
)

// Mask stands for a secret in the JSON that clients read and send back.
const Mask = "********"

// ErrNoSecret is the error for a mask without a stored secret.
var ErrNoSecret = msg.Refuse(msg.SecretNotStored)

var errNotJSON = errors.New("not JSON")

// words are parts of the names of secrets, in any letter case.
var words = []string{"secret", "token", "pass", "jwt", "pwd", "credential", "private", "auth", "key"}

// keyID is the name of a member with "key" in its name that is no secret.
const keyID = "access_key_id"

// IsSecretName reports whether the value of a member with this name is a secret.
func IsSecretName(name string) bool {
	name = strings.ToLower(name)
	return name != keyID && slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}

// EachSecret calls each with every secret in a JSON value, in the order of the text: the members with
// names of secrets. If each returns true, EachSecret also visits the members and items of that secret.
// at is the path of the value.
func EachSecret(v strictjson.Value, at strictjson.Path, each func(secret strictjson.Value, at strictjson.Path) (inside bool)) {
	eachSecret(v, at, false, each)
}

func eachSecret(v strictjson.Value, at strictjson.Path, inside bool, each func(strictjson.Value, strictjson.Path) bool) {
	visit := func(v strictjson.Value, at strictjson.Path, secret bool) {
		if !secret || each(v, at) {
			eachSecret(v, at, secret, each)
		}
	}
	for _, m := range v.Members {
		visit(m.Value, at.Member(m.Name.Text), inside || IsSecretName(m.Name.Text))
	}
	for i, item := range v.Items {
		visit(item, at.Item(i), inside)
	}
}

// MaskMembers returns a JSON text with Mask in place of its secrets. A text without secrets stays
// unchanged. For a text that is not JSON, MaskMembers returns the mask alone.
func MaskMembers(text string) string {
	v, ok := strictjson.Parse(text, strictjson.AllLevels)
	if !ok {
		return Mask
	}
	var edits []strictjson.Edit
	EachSecret(v, nil, func(secret strictjson.Value, _ strictjson.Path) bool {
		if !isEmpty(secret) {
			edits = append(edits, strictjson.Edit{Value: secret, Text: `"` + Mask + `"`})
		}
		return false
	})
	return edited(text, v, edits)
}

// RestoreMembers returns a JSON text with the secrets of stored in place of masks. used reports whether
// there were masks. A mask may also replace a part of a secret. The error is ErrNoSecret if stored has
// no secret at the place of a mask.
func RestoreMembers(text, stored string) (restored string, used bool, err error) {
	v, ok := strictjson.Parse(text, strictjson.AllLevels)
	if !ok {
		return "", false, errNotJSON
	}
	old, ok := strictjson.Parse(stored, strictjson.AllLevels)
	if !ok {
		old = strictjson.Value{}
	}
	var edits []strictjson.Edit
	EachSecret(v, nil, func(secret strictjson.Value, at strictjson.Path) bool {
		if !isMask(secret) {
			return true
		}
		kept := old.At(at)
		if kept == nil || isEmpty(*kept) || isMask(*kept) {
			err = ErrNoSecret
			return false
		}
		edits = append(edits, strictjson.Edit{Value: secret, Text: stored[kept.Begin:kept.End]})
		return false
	})
	if err != nil {
		return "", false, err
	}
	return edited(text, v, edits), len(edits) > 0, nil
}

func isMask(v strictjson.Value) bool { return v.Kind == strictjson.KindString && v.Text == Mask }

// isEmpty reports whether a value is null, "", [] or {}.
func isEmpty(v strictjson.Value) bool { return v.Text == "" && len(v.Members)+len(v.Items) == 0 }

// edited applies edits to a text. An edited text has no spaces and sorted names, the form that clients
// know.
func edited(text string, v strictjson.Value, edits []strictjson.Edit) string {
	if len(edits) == 0 {
		return text
	}
	text = v.Edited(text, edits)
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // keeps all digits
	var value any
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if decoder.Decode(&value) != nil || encoder.Encode(value) != nil {
		return text
	}
	return strings.TrimSuffix(out.String(), "\n")
}
