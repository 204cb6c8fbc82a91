package secrets

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestMasked: a masked secret is a mask in JSON, and nothing where there is none. It prints as "***".
func TestMasked(t *testing.T) {
	for _, test := range []struct {
		secret Masked
		want   string
	}{{"", `{"A":""}`}, {"s3cret", `{"A":"********","B":"********"}`}} {
		got, err := json.Marshal(struct {
			A Masked
			B Masked `json:",omitempty"`
		}{test.secret, test.secret})
		if err != nil || string(got) != test.want {
			t.Errorf("%s, %v, want %s", got, err, test.want)
		}
		if said := fmt.Sprintf("%v %+v %q %s", test.secret, struct{ S Masked }{test.secret}, test.secret, test.secret.LogValue()); said != "*** {S:***} *** ***" {
			t.Error(said)
		}
	}
}
