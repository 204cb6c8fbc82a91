package masked

import (
	"errors"
	"testing"
)

func TestHide(t *testing.T) {
	for text, want := range map[string]string{
		`{"domain": "a.b"}`: `{"domain": "a.b"}`,
		`{"n":9007199254740993,"access_key_secret":"k<&>"}`:    `{"access_key_secret":"********","n":9007199254740993}`,
		`{"API_Token":"t","passwords":"p","secret":"" }`:       `{"API_Token":"********","passwords":"********","secret":""}`,
		`{"a":[{"token":"x"}],"secret":{"inner":"not a one"}}`: `{"a":[{"token":"********"}],"secret":{"inner":"not a one"}}`,
		`{"secret":5}`:           `{"secret":5}`,
		`{"a":1} {"secret":"x"}`: Mask,
		`secret, and not JSON`:   Mask,
	} {
		if got := Hide(text); got != want {
			t.Errorf("Hide(%s) = %s, want %s", text, got, want)
		}
	}
}

func TestRestore(t *testing.T) {
	const stored = `{"secret":"s","list":[{"token":"t0"},{"token":"t1"}],"n":1}`
	for name, test := range map[string]struct {
		text, want string
		used       bool
		err        error
	}{
		"round trip":     {Hide(stored), `{"list":[{"token":"t0"},{"token":"t1"}],"n":1,"secret":"s"}`, true, nil},
		"a new secret":   {`{"secret":"new"}`, `{"secret":"new"}`, false, nil},
		"other place":    {`{"other":{"secret":"********"}}`, "", false, ErrNoSecret},
		"list too short": {`{"list":[0,0,{"token":"********"}]}`, "", false, ErrNoSecret},
		"no secret name": {`{"domain":"********"}`, `{"domain":"********"}`, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, used, err := Restore(test.text, stored)
			if !errors.Is(err, test.err) || used != test.used || err == nil && got != test.want {
				t.Errorf("Restore = %s, %v, %v; want %s, %v, %v", got, used, err, test.want, test.used, test.err)
			}
		})
	}
	if _, _, err := Restore(`{"secret":"********"}`, `not JSON`); !errors.Is(err, ErrNoSecret) {
		t.Errorf("Restore from a broken text: %v, want ErrNoSecret", err)
	}
}
