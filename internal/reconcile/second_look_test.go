package reconcile

import (
	"context"
	"testing"
	"time"

	"meshddns/internal/provider"
)

// TestSecondLookAsksAnew: a second look takes a new client if the old one has not found a zone and is older than the look is due,
// because a client keeps what it has not found. Any other batch takes the client that there is.
func TestSecondLookAsksAnew(t *testing.T) {
	opened := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, test := range map[string]struct {
		zoneless bool
		look     time.Duration // from the opening of the client; 0: none
		anew     bool
	}{
		"due": {true, 20 * time.Second, true}, "due now": {true, 30 * time.Second, true}, "not due": {true, 31 * time.Second, false},
		"before the client": {true, -time.Second, false}, "no look": {true, 0, false}, "found": {false, 20 * time.Second, false},
	} {
		now := opened
		e := &Engine{ctx: context.Background(), conns: map[int64]*connection{}, config: Config{
			Now:  func() time.Time { return now },
			Open: func(Account) (provider.DNS, error) { return nil, nil },
		}}
		account := Account{ID: 1}
		first := e.connection(account)
		first.zoneless.Store(test.zoneless)
		record := Record{Account: account}
		if test.look != 0 {
			record.Place.LookAt = opened.Add(test.look)
		}
		now = opened.Add(30 * time.Second)
		_, conn := e.nextBatch(&zoneLane{queue: []*job{{task: &task{}, record: record}}})
		if anew := conn != first; anew != test.anew {
			t.Errorf("%s: a new client %t", name, anew)
		}
	}
}
