package check

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/test/tables"
)

// world is a database with a usage, a Watch with a clock of its own, and listeners on loopback.
type world struct {
	*Watch
	t    *testing.T
	db   *tables.Database
	at   time.Time
	said bytes.Buffer
	lock sync.Mutex // of the clock
}

const name = "_mesh.a.example.com"

func newWorld(t *testing.T, check string, endpoints ...string) *world {
	t.Helper()
	w := &world{t: t, at: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
	w.db = tables.Open(t, filepath.Join(t.TempDir(), "x.db"), slog.New(slog.DiscardHandler))
	w.db.Fill("desec", `{"check":`+check+`}`)
	now := func() time.Time { w.lock.Lock(); defer w.lock.Unlock(); return w.at }
	log := events.New(w.db.Reader, w.db.Tx, now, func(int64) {})
	book := ledger.New(ledger.Config{
		Reader: w.db.Reader, Tx: w.db.Tx, Zones: builtin.NewTable(w.db.Database, "", func() bool { return true }, now), Events: log,
		Addresses: func() reconcile.Addresses { return reconcile.Addresses{} }, Now: now,
	}, tables.Owner)
	table := &Table{DB: w.db.Database, Events: log, Now: now, Ledger: book}
	w.db.Usage(1, name, endpoints...)
	control := &Control{Gateways: func() []netip.Addr { return nil }}
	w.Watch = New(table, control, func() mesh.Addresses { return mesh.Addresses{} }, slog.New(slog.NewTextHandler(&w.said, nil)))
	return w
}

// step lets a second pass, and begins the probes that are due.
func (w *world) step() {
	w.t.Helper()
	w.lock.Lock()
	w.at = w.at.Add(time.Second)
	w.lock.Unlock()
	w.must(w.load(w.t.Context()))
	w.begin(w.t.Context())
}

// endpoints returns the states that the API shows.
func (w *world) endpoints() []mesh.CheckedEndpoint {
	w.t.Helper()
	all, err := w.Endpoints(w.t.Context(), 1, msg.English)
	w.must(err)
	return all
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pass lets time pass. Each second the probes that are due end, and what they have shown is stored.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for range d / time.Second {
		w.step()
		w.probes.Wait()
		w.must(w.apply(w.t.Context()))
	}
}

// dead returns the dead endpoints.
func (w *world) dead() []string {
	w.t.Helper()
	return w.db.Texts(`SELECT endpoint FROM dead_endpoints ORDER BY endpoint`)
}

// changes returns how often checks have made a name due.
func (w *world) count(query string) (count int) {
	w.t.Helper()
	if err := w.db.Reader.QueryRowContext(w.t.Context(), query).Scan(&count); err != nil {
		w.t.Fatal(err)
	}
	return count
}

func (w *world) wantDead(want ...string) {
	w.t.Helper()
	if got := w.dead(); !slices.Equal(got, want) {
		w.t.Fatalf("dead: %v, want %v; the log says %s", got, want, &w.said)
	}
}

func (w *world) figures() string {
	var out bytes.Buffer
	w.WriteMetrics(daemon.NewPage(&out))
	return out.String()
}

// peer is a listener that can die and live again at its address.
type peer struct {
	t       *testing.T
	address string
	l       net.Listener
}

func newPeer(t *testing.T) *peer {
	p := &peer{t: t, address: "127.0.0.1:0"}
	p.live()
	t.Cleanup(p.die)
	return p
}

func (p *peer) endpoint() string { return "tcp://" + p.address }

func (p *peer) live() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.l, p.address = l, l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
}

func (p *peer) die() { p.l.Close() }
