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
