package check

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/events"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/metrics"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// world is a database with a usage, a Watch with a clock of its own, and listeners on loopback.
type world struct {
	*Watch
	t    *testing.T
	db   *sqlite.Database
	at   time.Time
	said bytes.Buffer
	lock sync.Mutex // of the clock
}

const name = "_mesh.a.example.com"

func newWorld(t *testing.T, check string, endpoints ...string) *world {
	t.Helper()
	tables, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), sqlite.Schema{
		Tables: string(tables), First: func(context.Context, *sql.Tx) error { return nil },
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	w := &world{t: t, db: db, at: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
	now := func() time.Time { w.lock.Lock(); defer w.lock.Unlock(); return w.at }
	log := events.New(db.Reader, db.Tx, now)
	table := &Table{DB: db, Events: log, Now: now, Ledger: ledger.New(db.Reader, db.Tx, now, "0123456789ab", log)}
	w.exec(`INSERT INTO appliance (id, owner) VALUES (1, '0123456789ab')`)
	err = db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		account, err := ledger.UseAccount(ctx, tx, reconcile.Account{Provider: "desec"})
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, account, created_at, updated_at)
			VALUES ('s', '', ?, 'example.com', 'example.com', 'com.example', 'desec', '[]', ?, '', '')`, `{"check":`+check+`}`, account)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.usage(1, name, endpoints...)
	control := &Control{gateways: func() []netip.Addr { return nil }}
	w.Watch = New(table, control, func() mesh.Addresses { return mesh.Addresses{} }, slog.New(slog.NewTextHandler(&w.said, nil)))
	return w
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	err := w.db.Tx(w.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
	if err != nil {
		w.t.Fatalf("%v in %s", err, statement)
	}
}

func (w *world) usage(seq int64, name string, endpoints ...string) {
	w.t.Helper()
	w.exec(`INSERT INTO usages (seq, id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		VALUES (?1, 'u' || ?1, 's', '', 'auto', 'p' || ?1, 'TXT', '', 1, ?2, ?3, '')`, seq, sqlite.TextList(endpoints), name)
	w.exec(`INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) VALUES (?1, ?1, 7, 'u' || ?1, 's', 'active')`, seq)
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
	all, err := sqlite.Collect(w.t.Context(), w.db.Reader, sqlite.Text, `SELECT endpoint FROM dead_endpoints ORDER BY endpoint`)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
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
	w.WriteMetrics(metrics.NewPage(&out))
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
