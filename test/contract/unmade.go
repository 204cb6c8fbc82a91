package contract

import (
	"fmt"
	"slices"
	"testing"

	"meshddns/internal/provider"
)

// testUnmade makes changes whose answers cannot be read, and one that is never sent.
func testUnmade(t *testing.T, b Backend) {
	long := provider.Change{Zone: b.Zone, Name: b.name("long"), Type: provider.TXT, Add: values(string(make([]byte, 70_000))), TTL: ttl}
	if err := b.Client.Change(t.Context(), long); !provider.Unmade(err) {
		t.Errorf("%v does not say that nothing was done", err)
	}
	for n, unread := range b.Unread {
		change := provider.Change{Zone: b.Zone, Name: b.name(fmt.Sprintf("unread%d", n)), Type: provider.TXT, Add: values("one", "two"), TTL: ttl}
		end := unread()
		ctx, cancel := provider.WriteContext(t.Context())
		err := b.Client.Change(ctx, change)
		cancel()
		end()
		b.wantUnmade(t, []provider.Change{change}, []error{err})
	}
}

// testUnmadeAll is testUnmade for changes together, which may be sent again in parts.
func testUnmadeAll(t *testing.T, b Backend) {
	b.mustChangeAll(t, nil)
	for n, unread := range b.Unread {
		var changes []provider.Change
		for i := range 6 {
			changes = append(changes, provider.Change{Name: b.name(fmt.Sprintf("unread%d-%d", n, i)), Type: provider.TXT, Add: values("one")})
		}
		end := unread()
		errs := b.changeAll(t, changes)
		end()
		b.wantUnmade(t, changes, errs)
	}
}

// wantUnmade compares what failures say with what stands, one value at least, and takes
// that away.
func (b Backend) wantUnmade(t *testing.T, changes []provider.Change, errs []error) {
	t.Helper()
	made := 0
	for i, change := range changes {
		standing := b.Outside.Values(t, change.Name)
		if made += len(standing); provider.Unmade(errs[i]) && len(standing) > 0 {
			t.Errorf("%s has %q after %v", change.Name, standing, errs[i])
		}
		if errs[i] == nil && len(standing) != len(change.Add) {
			t.Errorf("%s has %q after no failure, want %q", change.Name, standing, change.Add)
		}
		for _, value := range slices.Clone(standing) {
			b.Outside.Remove(t, change.Name, value)
		}
	}
	if made == 0 {
		t.Errorf("nothing was made: %v", errs)
	}
}
