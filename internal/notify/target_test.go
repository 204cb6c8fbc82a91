package notify

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// TestLimitsOfTargets: a url of 2048 octets, a secret of 1024 and 64 patterns are accepted, and one more of each is refused.
func TestLimitsOfTargets(t *testing.T) {
	const address = "https://192.0.2.1/"
	for _, more := range []int{0, 1} {
		for code, b := range map[msg.ID]Target{
			msg.NotificationURL:    {URL: URL(address + strings.Repeat("x", 2048-len(address)+more))},
			msg.NotificationSecret: {URL: address, Secret: secrets.Masked(strings.Repeat("x", 1024+more))},
			msg.NotificationEvents: {URL: address, Events: slices.Repeat([]string{"record.*"}, 64+more)},
		} {
			b.ID, b.Kind = "t", Generic
			_, err := b.Check(msg.English)
			if refusal, refused := errors.AsType[*msg.Refusal](err); refused != (more > 0) || refused && refusal.ID != code {
				t.Errorf("%s, %d more: %v", code, more, err)
			}
		}
	}
}

// TestMembers: what a body leaves open has its default, and an answer masks the secrets. The answer, as a body, is no
// change.
func TestMembers(t *testing.T) {
	all, err := json.Marshal(important)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"id":"t","kind":"ntfy","url":"https://a.example/topic"}`:                       `{"id":"t","kind":"ntfy","url":"https://a.example/********","events":` + string(all) + `,"language":"zh","enabled":true}`,
		`{"id":"t","kind":"ntfy","url":"https://a.example","events":[],"enabled":false}`: `{"id":"t","kind":"ntfy","url":"https://a.example","events":[],"language":"zh","enabled":false}`,
		`{"id":"t","kind":"bark","url":"http://a/?x=1","secret":"abcd","language":"en"}`: `{"id":"t","kind":"bark","url":"http://a/********","secret":"********","events":` + string(all) + `,"language":"en","enabled":true}`,
		`{"id":"t","kind":"bark","url":"http://a/","language":"","enabled":null}`:        `{"id":"t","kind":"bark","url":"http://a/","events":` + string(all) + `,"language":"zh","enabled":true}`,
	} {
		inBubble(t, fine, func(w *world, _ *receiverServer) {
			if _, changed, err := w.Targets.Apply(w.t.Context(), []byte(body)); err != nil || !changed {
				t.Fatalf("%s: %v, %v", body, changed, err)
			}
			got, err := json.Marshal(w.target())
			if err != nil || string(got) != want {
				t.Errorf("%s: %s, %v, want %s", body, got, err, want)
			}
			if _, changed, err := w.Targets.Apply(w.t.Context(), got); err != nil || changed {
				t.Errorf("%s is a change: %v", got, err)
			}
		})
	}
}
