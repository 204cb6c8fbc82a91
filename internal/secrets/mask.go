// Package masked hides the secrets of a JSON object for display, and puts
// them back when the object returns with the mask in their place. A secret is
// every entry, at any depth and of any type, whose name contains one of a few
// words, with all below it.
package secrets

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Mask stands for a secret.
const Mask = "********"

// ErrNoSecret is the error for a mask where no secret is stored.
var ErrNoSecret = errors.New("no secret is stored behind the mask")

// words are in the names of secrets, in any letter case.
var words = []string{"secret", "token", "pass", "jwt", "pwd", "credential", "private", "auth", "key"}

// keyID names what is no secret, though it is called a key.
const keyID = "access_key_id"

func isSecret(name string) bool {
	name = strings.ToLower(name)
	return name != keyID && slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}

// MaskMembers gives the text with its secrets masked. A text without any stays as it
// is; one that is not JSON is masked as a whole.
func MaskMembers(text string) string {
	hidden, err := rewrite(text, func(_ []string, value any) (any, bool, error) {
		if isEmpty(value) {
			return value, true, nil
		}
		return Mask, true, nil
	})
	if err != nil {
		return Mask
	}
	return hidden
}

// isEmpty reports whether a value hides nothing.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return value == nil || value == ""
}

// RestoreMembers gives the text with the secrets of stored in the place of masks,
// and reports whether there were any. Below the name of a secret a mask may
// also stand for a part of it.
func RestoreMembers(text, stored string) (restored string, used bool, err error) {
	old, err := parse(stored)
	if err != nil {
		old = nil // nothing can be kept of it
	}
	restored, err = rewrite(text, func(path []string, value any) (any, bool, error) {
		if value != Mask {
			return value, false, nil
		}
		kept := at(old, path)
		if isEmpty(kept) || kept == Mask {
			return nil, false, ErrNoSecret
		}
		used = true
		return kept, true, nil
	})
	return restored, used, err
}

// replacer gives what goes in the place of a secret, or of a part of one, at a path.
// Unless it is whole, its parts are asked for too.
type replacer func(path []string, value any) (replaced any, whole bool, err error)

// parse reads a text. Numbers keep all their digits.
func parse(text string) (tree any, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	if !json.Valid([]byte(text)) {
		return nil, errors.New("text behind the JSON value")
	}
	return tree, nil
}

// rewrite replaces the secrets of a text, which stays as it is without any.
func rewrite(text string, replace replacer) (string, error) {
	tree, err := parse(text)
	if err != nil {
		return "", err
	}
	changed, err := replace.in(tree, nil, false)
	if err != nil || !changed {
		return text, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(tree)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// in replaces the secrets of a tree in place. All that is inside one is secret.
func (replace replacer) in(tree any, path []string, inside bool) (changed bool, err error) {
	_, isObject := tree.(map[string]any)
	for _, name := range names(tree) {
		here, value := append(slices.Clone(path), name), at(tree, []string{name})
		secret, whole := inside || isObject && isSecret(name), false
		if secret {
			replaced := value
			if replaced, whole, err = replace(here, value); err != nil {
				return false, err
			}
			if whole && !(isEmpty(value) && isEmpty(replaced)) {
				set(tree, name, replaced)
				changed = true
			}
		}
		if !whole {
			below, err := replace.in(value, here, secret)
			if err != nil {
				return false, err
			}
			changed = changed || below
		}
	}
	return changed, nil
}

// names are the member names of an object, or the indices of an array.
func names(tree any) []string {
	switch tree := tree.(type) {
	case map[string]any:
		return slices.Sorted(maps.Keys(tree))
	case []any:
		all := make([]string, len(tree))
		for i := range tree {
			all[i] = strconv.Itoa(i)
		}
		return all
	}
	return nil
}

func at(tree any, path []string) any {
	for _, name := range path {
		switch branch := tree.(type) {
		case map[string]any:
			tree = branch[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(branch) {
				return nil
			}
			tree = branch[i]
		default:
			return nil
		}
	}
	return tree
}

func set(tree any, name string, value any) {
	switch tree := tree.(type) {
	case map[string]any:
		tree[name] = value
	case []any:
		i, _ := strconv.Atoi(name)
		tree[i] = value
	}
}
