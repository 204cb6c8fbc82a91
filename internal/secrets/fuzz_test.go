package secrets

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// FuzzHide: masked secrets come back unchanged, and no part below the name of a secret is visible before.
func FuzzHide(f *testing.F) {
	for _, text := range []string{"", "{}", `{"secret":"a"}`, `{"a":[{"token":{"b":["c",null,""]}}]}`, `{"access_key_id":"a","KEY":1.50}`, `{"secret":"********"}`, `["key"]`, `{"key":""}`, "null", "{", `{"a":1}x`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hidden := MaskMembers(text)
		if MaskMembers(hidden) != hidden && hidden != Mask {
			t.Errorf("%q hides as %q, and that as %q", text, hidden, MaskMembers(hidden))
		}
		var tree any
		if json.Unmarshal([]byte(text), &tree) != nil {
			return
		}
		const secret = "s3cr3t-0123456789"
		quoted, _ := json.Marshal(map[string]any{"a": tree, "token": []any{tree, secret}})
		if strings.Contains(MaskMembers(string(quoted)), secret) {
			t.Errorf("%s hides as %s", quoted, MaskMembers(string(quoted)))
		}
		restored, used, err := RestoreMembers(hidden, text)
		if err != nil {
			return // the stored text is itself a mask
		}
		var again any
		if err := json.Unmarshal([]byte(restored), &again); err != nil || !reflect.DeepEqual(tree, again) {
			t.Errorf("%q hides as %q, and comes back as %q, %t", text, hidden, restored, used)
		}
	})
}
