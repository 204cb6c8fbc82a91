package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Many clients share a commit, and SIGKILL comes in the middle of one: whatever was
// acknowledged is there, and every client was told of its own reservation.
func TestKillAmongManyClients(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	db := filepath.Join(t.TempDir(), "meshddns.db")
	acknowledged := map[string]string{} // prefix by id of a usage
	for round := range 4 {
		p := start(t, "-db", db)
		p.configure("manual", "tcp://203.0.113.7:1")
		var mu sync.Mutex
		var writers sync.WaitGroup
		var answers atomic.Int64
		for writer := range 64 {
			writers.Go(func() {
				for i := 0; ; i++ {
					network := writer*1000 + i
					prefix := fmt.Sprintf("r%d-%d", round, network)
					a, err := p.try("POST", usagesPath, fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":%d}`, prefix, network))
					if err != nil {
						return // killed
					}
					if a.status != 200 || !strings.Contains(a.body, fmt.Sprintf(`"record_prefix":%q`, prefix)) ||
						!strings.Contains(a.body, fmt.Sprintf(`"network_id":%d`, network)) {
						t.Errorf("%s was told %d %s", prefix, a.status, a.body)
						return
					}
					mu.Lock()
					acknowledged[a.field("id")] = prefix
					mu.Unlock()
					if answers.Add(1) == int64(300+50*round) {
						p.cmd.Process.Kill()
					}
				}
			})
		}
		writers.Wait()
		p.cmd.Wait()
	}
	checkDatabase(t, db, acknowledged)
	p := start(t, "-db", db)
	for id, prefix := range acknowledged {
		a := p.call(200, "GET", usagesPath+"/"+id, "")
		_, network, _ := strings.Cut(prefix, "-")
		if !strings.Contains(a.body, fmt.Sprintf(`"record_prefix":%q`, prefix)) || !strings.Contains(a.body, `"network_id":`+network+`,`) {
			t.Errorf("%s is stored as %s", prefix, a.body)
		}
	}
	t.Logf("%d reservations acknowledged before 4 kills, all there", len(acknowledged))
}
