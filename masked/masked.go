// Package masked hides the secrets of a JSON object for display, and puts
// them back when the object returns with the mask in their place. A secret is
// every string, at any depth, whose member name contains "secret", "token" or
// "password".
package masked

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

// Hide gives the text with its secrets masked. A text without any stays as it
// is; one that is not JSON is masked as a whole.
func Hide(text string) string {
	hidden, err := rewrite(text, func(_ []string, secret string) (string, error) {
		if secret == "" {
			return "", nil
		}
		return Mask, nil
	})
	if err != nil {
		return Mask
	}
	return hidden
}

// Restore gives the text with the secrets of stored in the place of masks,
// and reports whether there were any.
func Restore(text, stored string) (restored string, used bool, err error) {
	var old any
	if json.Unmarshal([]byte(stored), &old) != nil {
		old = nil // nothing can be kept of it
	}
	restored, err = rewrite(text, func(path []string, secret string) (string, error) {
		if secret != Mask {
			return secret, nil
		}
		kept, _ := at(old, path).(string)
		if kept == "" {
			return "", ErrNoSecret
		}
		used = true
		return kept, nil
	})
	return restored, used, err
}

// replacer gives what goes in the place of the secret at a path.
type replacer func(path []string, secret string) (string, error)

// rewrite replaces the secrets of a text. Numbers keep all their digits.
func rewrite(text string, replace replacer) (string, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return "", err
	}
	if !json.Valid([]byte(text)) {
		return "", errors.New("text behind the JSON value")
	}
	replaced, changed, err := replace.in(tree, nil)
	if err != nil || !changed {
		return text, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(replaced)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// in replaces the secrets of a tree in place.
func (replace replacer) in(tree any, path []string) (replaced any, changed bool, err error) {
	for _, name := range names(tree) {
		here := append(slices.Clone(path), name)
		value, text := at(tree, []string{name}), ""
		var differs bool
		if secret, ok := value.(string); ok && isSecret(name) {
			text, err = replace(here, secret)
			value, differs = text, text != secret
		} else {
			value, differs, err = replace.in(value, here)
		}
		if err != nil {
			return nil, false, err
		}
		set(tree, name, value)
		changed = changed || differs
	}
	return tree, changed, nil
}

func isSecret(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "secret") || strings.Contains(name, "token") || strings.Contains(name, "password")
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
