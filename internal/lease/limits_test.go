package lease

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/sqlite"
)

// fill gives the usage formats and leases, each with as many endpoints as fit into a value of its own, and returns the token
// of the last one.
func (w *world) fill(leases int, formats ...string) (token Token) {
	w.t.Helper()
	w.db.Exec(`INSERT INTO usage_options (usage, formats, checking, peer_id) VALUES (1, ?, '', '')`, sqlite.TextList(formats))
	w.db.Exec(`INSERT INTO names (name, version, due, lane, pass) VALUES (?, 1, NULL, '', 0)`, name)
	err := w.db.Tx(w.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for i := range leases {
			token = newToken()
			l := Lease{ID: fmt.Sprint("full", i), Usage: 1, hash: token.hash(), Rules: Rules{Slot: fmt.Sprint("s", i), TTL: time.Hour}}
			if err := save(ctx, tx, &l); err != nil {
				return err
			}
			var endpoints []string
			for e := range 9 {
				endpoints = append(endpoints, fmt.Sprintf("tcp://192.%d.%d.%d:1", e, i, e))
			}
			if _, err := tx.ExecContext(ctx, `UPDATE leases SET endpoints = ? WHERE id = ?`, sqlite.TextList(endpoints), l.ID); err != nil {
				return err
			}
		}
		return nil
	})
	w.must(err)
	return token
}

// TestRefusals: of 4096 leases the last refusal is kept, and one more makes the others forgotten. A deleted lease has none.
func TestRefusals(t *testing.T) {
	c := clocks{refused: map[int64]*refusal{}}
	for seq := range int64(maxRefusals) {
		c.refuse(seq, &refusal{})
		c.refuse(seq, &refusal{Reason: "b"})
	}
	if c.refuse(maxRefusals-1, nil); len(c.refused) != maxRefusals-1 || c.lastRefusal(0).Reason != "b" {
		t.Errorf("%d refusals", len(c.refused))
	}
	if c.forget(1); c.lastRefusal(1) != nil {
		t.Error("a deleted lease has a refusal")
	}
	for seq := range int64(3) {
		c.refuse(maxRefusals+seq, &refusal{})
	}
	if len(c.refused) != 1 || c.lastRefusal(maxRefusals+2) == nil {
		t.Errorf("%d refusals beyond the limit", len(c.refused))
	}
}

// mostFormats returns as many formats as a usage may have.
func mostFormats() []string {
	all := []string{mesh.Mesh1, mesh.Address, mesh.HostPort, mesh.IP4P, mesh.EasyTierSRV}
	for i := range mesh.MaxFormats - len(all) {
		all = append(all, fmt.Sprintf("%s_s%d._tcp", mesh.SRV, i))
	}
	return all
}

// changing returns a function that changes a lease in a transaction, and the time that this took in it.
func (w *world) changing(token Token) func() time.Duration {
	l, err := w.Find(w.t.Context(), token)
	w.must(err)
	port := 0
	return func() (took time.Duration) {
		port++
		w.must(w.db.Tx(w.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			began := time.Now()
			defer func() { took = time.Since(began) }()
			_, _, err := w.change(ctx, tx, l.Seq, []string{fmt.Sprint("tcp://192.0.2.7:", 1+port%60000)}, Keep{}, w.at, node)
			return err
		}))
		return took
	}
}

// TestRenewAtTheLimits: in its transaction a renewal does not work out the records in other formats, and reads each of the
// other leases once.
func TestRenewAtTheLimits(t *testing.T) {
	work := func(leases int, formats ...string) float64 {
		w := newWorld(t)
		change := w.changing(w.fill(leases, formats...))
		return testing.AllocsPerRun(3, func() { change() })
	}
	one, all := work(MaxLeases, mesh.Mesh1), work(MaxLeases, mostFormats()...)
	if all > 1.1*one {
		t.Errorf("%.0f allocations in %d formats, %.0f in one", all, mesh.MaxFormats, one)
	}
	if few := work(1, mostFormats()...); all-few > 40*MaxLeases {
		t.Errorf("%.0f allocations beside %d leases, %.0f beside none", all, MaxLeases-1, few)
	}
}

// BenchmarkRenew tells the time of a renewal in the only transaction that writes, at the limits of leases and formats.
func BenchmarkRenew(b *testing.B) {
	for _, leases := range []int{1, 64, MaxLeases} {
		b.Run(fmt.Sprint("leases=", leases), func(b *testing.B) {
			w := newWorld(b)
			change := w.changing(w.fill(leases, mostFormats()...))
			var took time.Duration
			for b.Loop() {
				took += change()
			}
			b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "ms-in-transaction")
		})
	}
}
