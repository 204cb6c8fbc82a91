package lease

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/events"
	"meshddns/internal/ledger"
	"meshddns/internal/reconcile"
	"meshddns/internal/web"
	"meshddns/test/tables"
)

const (
	full   = "_mesh.a.example.com" // of usage u1
	remote = "198.51.100.9"        // the client that the trusted proxy tells of
)

// world is a database with two usages, and the routes of nodes at two addresses of loopback: one
// trusts loopback as a proxy, one trusts nothing.
type listenerWorld struct {
	t      *testing.T
	db     *tables.Database
	leases *Table
	behind string // URL of the routes that trust loopback
	plain  string // URL of the routes that do not
	log    buffer

	lock sync.Mutex
	at   time.Time
	made int // leases
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.String()
}

func newListenerWorld(t *testing.T) *listenerWorld {
	t.Helper()
	w := &listenerWorld{t: t, at: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	w.db = tables.Open(t, filepath.Join(t.TempDir(), "x.db"), log)
	w.db.Fill("builtin", `{"formats":["urls"]}`)
	w.db.Usage(1, full, "tcp://192.0.2.1:11010")
	w.db.Usage(2, "_mesh.b.example.com", "tcp://192.0.2.2:11010")
	history := events.New(w.db.Reader, w.db.Tx, w.now, func(int64) {})
	book := ledger.New(ledger.Config{
		Reader: w.db.Reader, Tx: w.db.Tx, Zones: builtin.NewTable(w.db.Database, "", func() bool { return true }, w.now), Events: history,
		Addresses: func() reconcile.Addresses { return reconcile.Addresses{} }, Now: w.now,
	}, tables.Owner)
	w.leases = NewTable(Config{
		Database: w.db.Database, Events: history, Now: w.now, Log: log, Ledger: book,
		NewID: func() (string, error) { w.made++; return "l" + strconv.Itoa(w.made), nil },
	})
	w.db.Subscribe(history.Committed)
	w.db.Subscribe(w.leases.Committed)
	w.must(w.leases.Load(t.Context()))
	doors := map[string]Door{"POST /door": func(_ *http.Request, l Lease) (web.Reply, error) { return web.Reply{Data: l.ID}, nil }}
	serve := func(proxies ...netip.Prefix) string {
		server := httptest.NewServer(NewNodes(ListenerConfig{Leases: w.leases, Proxies: proxies, Listed: book.Listed, Doors: doors, Log: log}).Handler())
		t.Cleanup(server.Close)
		return server.URL
	}
	w.behind, w.plain = serve(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("203.0.113.0/24")), serve()
	return w
}

func (w *listenerWorld) now() time.Time {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.at
}

// pass lets time pass; 5 seconds are enough for the next change.
func (w *listenerWorld) pass(d time.Duration) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.at = w.at.Add(d)
}

func (w *listenerWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// lease makes a lease of a usage, and returns its token.
func (w *listenerWorld) lease(usage string, rules Rules) string {
	w.t.Helper()
	rules.TTL = max(rules.TTL, time.Hour)
	_, token, _, err := w.leases.Create(w.t.Context(), Creation{Usage: usage, Rules: rules})
	w.must(err)
	return string(token)
}

// leased returns the endpoints of all leases by their slots.
func (w *listenerWorld) leased() string {
	w.t.Helper()
	return strings.Join(w.db.Texts(`SELECT slot || endpoints FROM leases ORDER BY slot`), " ")
}

// callers returns the kinds and callers of the events from one on.
func (w *listenerWorld) callers(from int) []string {
	w.t.Helper()
	return w.db.Texts(`SELECT kind || ' by ' || caller FROM events ORDER BY seq`)[from:]
}

// do sends a request with a body and headers "Name: value" ("" is none) to the routes behind a proxy, which tells
// of the client remote if the headers do not.
func (w *listenerWorld) do(method, path, body string, headers ...string) (*http.Response, string) {
	w.t.Helper()
	return w.send(method, w.behind+path, body, append([]string{"X-Forwarded-For: " + remote}, headers...)...)
}

func (w *listenerWorld) send(method, address, body string, headers ...string) (*http.Response, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, address, strings.NewReader(body))
	w.must(err)
	for _, header := range headers {
		if name, value, ok := strings.Cut(header, ": "); ok {
			request.Header.Set(name, value)
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	w.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	w.must(err)
	return answer, strings.TrimSuffix(string(text), "\n")
}

func bearer(token string) string { return "Authorization: Bearer " + token }
