package notify

import (
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
	for more, want := range map[int][]msg.ID{0: {"", "", ""}, 1: {msg.NotificationURL, msg.NotificationSecret, msg.NotificationEvents}} {
		for i, b := range []Body{
			{URL: secrets.Secret(address + strings.Repeat("x", 2048-len(address)+more))},
			{URL: address, Secret: secrets.Secret(strings.Repeat("x", 1024+more))},
			{URL: address, Events: slices.Repeat([]string{"record.*"}, 64+more)},
		} {
			b.ID, b.Kind = "t", Generic
			_, err := b.Check(msg.English)
			if refusal, _ := errors.AsType[*msg.Refusal](err); (err != nil) != (want[i] != "") || err != nil && refusal.ID != want[i] {
				t.Errorf("%d more: %v, want %q", more, err, want[i])
			}
		}
	}
}
