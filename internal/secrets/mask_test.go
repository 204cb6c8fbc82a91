package secrets

import (
	"errors"
	"testing"
)

func TestMaskMembers(t *testing.T) {
	for text, want := range map[string]string{
		`{"domain": "a.b"}`: `{"domain": "a.b"}`,
		`{"n":9007199254740993,"access_key_secret":"k<&>"}`:      `{"access_key_secret":"********","n":9007199254740993}`,
		`{"API_Token":"t","passwords":"p","secret":"" }`:         `{"API_Token":"********","passwords":"********","secret":""}`,
		`{"a":[{"token":"x"}],"secret":{"inner":"one as well"}}`: `{"a":[{"token":"********"}],"secret":"********"}`,
		`{"secret":5}`: `{"secret":"********"}`,
		`{"passphrase":"p","PASS":"p","smtp_pass":["p"],"JWT":"j","id_jwt":{"a":"j"}}`:           `{"JWT":"********","PASS":"********","id_jwt":"********","passphrase":"********","smtp_pass":"********"}`,
		`{"pin":{"PWD":0},"Private":false,"x_passw":[1,["a"]],"Authorization":{"a":{"b":null}}}`: `{"Authorization":"********","Private":"********","pin":{"PWD":"********"},"x_passw":"********"}`,
		`{"credentials":[{"user":"u"}],"keys":["a"],"apiKey":"a","access_key_id":"shown"}`:       `{"access_key_id":"shown","apiKey":"********","credentials":"********","keys":"********"}`,
		`{"ACCESS_KEY_ID":"shown","access_key_id_2":"a","accessKeyId":"b"}`:                      `{"ACCESS_KEY_ID":"shown","accessKeyId":"********","access_key_id_2":"********"}`,
		`{"access_key_id":{"token":"x"},"sec":"r","list":["token"],"\u0074oken":"x"}`:            `{"access_key_id":{"token":"********"},"list":["token"],"sec":"r","token":"********"}`,
		`{"secret": "", "token": null, "keys": [], "auth": {}}`:                                  `{"secret": "", "token": null, "keys": [], "auth": {}}`,
		`{"a":1} {"secret":"x"}`: Mask,
		`secret, and not JSON`:   Mask,
		``:                       Mask,
	} {
		if got := MaskMembers(text); got != want {
			t.Errorf("MaskMembers(%s) = %s, want %s", text, got, want)
		}
		if hidden := MaskMembers(text); MaskMembers(hidden) != hidden {
			t.Errorf("MaskMembers(%s) = %s", hidden, MaskMembers(hidden))
		}
	}
}

func TestRestore(t *testing.T) {
	const stored = `{"keys":{"a":[18446744073709551616,"x"]},"list":[{"token":"t0"},{"token":1.50}],"n":1,"secret":"s"}`
	for name, test := range map[string]struct {
		text, want string
		used       bool
		err        error
	}{
		"round trip":        {MaskMembers(stored), stored, true, nil},
		"a new secret":      {`{"secret":"new"}`, `{"secret":"new"}`, false, nil},
		"another type":      {`{"secret":{"a":1}}`, `{"secret":{"a":1}}`, false, nil},
		"a part of one":     {`{"keys":{"a":["********","y"],"b":2}}`, `{"keys":{"a":[18446744073709551616,"y"],"b":2}}`, true, nil},
		"an unknown part":   {`{"keys":{"b":"********"}}`, "", false, ErrNoSecret},
		"a part of nothing": {`{"secret":["********"]}`, "", false, ErrNoSecret},
		"other place":       {`{"other":{"secret":"********"}}`, "", false, ErrNoSecret},
		"list too short":    {`{"list":[0,0,{"token":"********"}]}`, "", false, ErrNoSecret},
		"no secret name":    {`{"domain":"********"}`, `{"domain":"********"}`, false, nil},
		"none is stored":    {`{"auth":"********"}`, "", false, ErrNoSecret},
		"two, one unknown":  {`{"secret":"********","pwd":"********"}`, "", true, ErrNoSecret},
	} {
		t.Run(name, func(t *testing.T) {
			got, used, err := RestoreMembers(test.text, stored)
			if !errors.Is(err, test.err) || err == nil && (used != test.used || got != test.want) {
				t.Errorf("Restore = %s, %v, %v; want %s, %v, %v", got, used, err, test.want, test.used, test.err)
			}
		})
	}
	if _, _, err := RestoreMembers(`{"secret":"********"}`, `not JSON`); !errors.Is(err, ErrNoSecret) {
		t.Errorf("Restore from a broken text: %v, want ErrNoSecret", err)
	}
}

// TestMaskElsewhere has masks at places where the stored text has no value.
func TestMaskElsewhere(t *testing.T) {
	const stored = `{"keys":["a"],"token":{"[0]":"b","x":["c"]}}`
	for _, text := range []string{
		`{"keys":{"[-1]":"********"}}`, `{"keys":{"[1]":"********"}}`, `{"keys":{"x":"********"}}`, `{"token":{"[0]":{"y":"********"}}}`,
		`{"token":{"x":[0,"********"]}}`, `{"token":["********","********"],"keys":"x","auth":"********"}`,
	} {
		if got, _, err := RestoreMembers(text, stored); !errors.Is(err, ErrNoSecret) {
			t.Errorf("%s becomes %s, %v", text, got, err)
		}
	}
}
