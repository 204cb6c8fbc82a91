package lease

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/builtin"
	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/ledger"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/web"
	"meshddns/test/tables"
)

const name = "_mesh.a.example.com"

var node = netip.MustParseAddr("192.0.2.9")

// world is a database with a usage, a Table with a clock of its own, and the calls of the
// administrator.
type world struct {
	*Table
	t    testing.TB
	path string
	db   *tables.Database
	at   time.Time
	said bytes.Buffer
	mux  *http.ServeMux
	made int // ids
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "x.db"), at: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
	w.open()
	w.db.Fill("builtin", "{}")
	w.db.Usage(1, name, "tcp://192.0.2.1:11010", "udp://{ipv4}:11011")
	return w
}

// open makes the Table anew, as a program that begins does.
func (w *world) open() {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(&w.said, nil))
	w.db = tables.Open(w.t, w.path, log)
	now := func() time.Time { return w.at }
	history := events.New(w.db.Reader, w.db.Tx, now, func(int64) {})
	newest, err := history.Newest(w.t.Context())
	w.must(err)
	began := w.at
	w.Table = NewTable(Config{
		Database: w.db.Database, Events: history, Now: now, Log: log,
		Replays: answers.NewReplays(now, func() time.Duration { return w.at.Sub(began) }, newest),
		Ledger: ledger.New(ledger.Config{
			Reader: w.db.Reader, Tx: w.db.Tx, Zones: builtin.NewTable(w.db.Database, "", journaled, now), Events: history, Addresses: noAddresses, Now: now,
		}, tables.Owner),
		NewID: func() (string, error) { w.made++; return "l" + strconv.Itoa(w.made), nil },
	})
	w.db.Subscribe(history.Committed)
	w.db.Subscribe(w.Committed)
	w.must(w.Load(w.t.Context()))
	a := web.Adapter{Log: log, Counted: func(string, int, string) {}}
	w.mux = http.NewServeMux()
	w.mux.Handle("POST /usages/{id}/leases", a.Handle(w.Post, "replace"))
	w.mux.Handle("GET /usages/{id}/leases", a.Handle(w.List))
	w.mux.Handle("DELETE /usages/{id}/leases/{lease}", a.Handle(w.Remove))
}

func journaled() bool { return true }

func noAddresses() reconcile.Addresses { return reconcile.Addresses{} }

// restart ends the program and begins it again.
func (w *world) restart() {
	w.t.Helper()
	w.must(w.db.Close())
	w.open()
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// want compares the rows of a query of one column.
func (w *world) want(query string, want ...string) {
	w.t.Helper()
	if got := w.db.Texts(query); !slices.Equal(got, want) {
		w.t.Errorf("%s: %v, want %v", query, got, want)
	}
}

// told returns the kinds of the events so far.
func (w *world) told() string {
	w.t.Helper()
	return strings.Join(w.db.Texts(`SELECT kind FROM events ORDER BY seq`), " ")
}

// published counts how often the names were made due.
func (w *world) published() string {
	w.t.Helper()
	return w.db.Texts(`SELECT CAST(coalesce(sum(version), 0) AS TEXT) FROM names`)[0]
}

// leased returns the published endpoints.
func (w *world) leased() string {
	w.t.Helper()
	return strings.Join(w.db.Texts(`SELECT endpoints FROM leases WHERE endpoints <> '[]' ORDER BY seq`), " ")
}

// ask sends a request of the administrator, and returns the status, the error code and the body.
func (w *world) ask(method, path, body string) (status int, code msg.ID, answer string) {
	w.t.Helper()
	return w.askAgain(method, path, body, "")
}

// askAgain is ask with an Idempotency-Key, "" for none.
func (w *world) askAgain(method, path, body, key string) (status int, code msg.ID, answer string) {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	w.mux.ServeHTTP(recorder, request)
	return recorder.Code, msg.ID(recorder.Header().Get("X-Error-Code")), recorder.Body.String()
}

// lease makes a lease of usage u1, and returns its id and token.
func (w *world) lease(body string) (id string, token Token) {
	w.t.Helper()
	status, _, answer := w.ask("POST", "/usages/u1/leases", body)
	var made struct {
		Data struct {
			ID    string `json:"id"`
			Token Token  `json:"token"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(answer), &made); err != nil || status != 200 || made.Data.Token == "" {
		w.t.Fatalf("%s: %d %s", body, status, answer)
	}
	return made.Data.ID, made.Data.Token
}

// slots makes leases of 60 seconds for some slots, each with an endpoint.
func (w *world) slots(count int) (tokens []Token) {
	w.t.Helper()
	for i := range count {
		_, token := w.lease(`{"slot":"s` + strconv.Itoa(i) + `","ttl":60}`)
		tokens = append(tokens, token)
		w.renew(token, "tcp://192.0.2.7:"+strconv.Itoa(1000+i))
	}
	return tokens
}

// try renews the lease of a token.
func (w *world) try(token Token, endpoints ...string) (Renewal, error) {
	w.t.Helper()
	l, err := w.Find(w.t.Context(), token)
	if err != nil {
		return Renewal{}, err
	}
	return w.Renew(w.t.Context(), l, endpoints, Keep{}, node)
}

// renew is try without an error.
func (w *world) renew(token Token, endpoints ...string) Renewal {
	w.t.Helper()
	r, err := w.try(token, endpoints...)
	w.must(err)
	return r
}

// pass lets time pass, and then looks for leases whose time is over.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	w.at = w.at.Add(d)
	w.must(w.Expire(w.t.Context()))
}

func (w *world) figures() string {
	var out bytes.Buffer
	w.WriteMetrics(daemon.NewPage(&out), 0, 0)
	return out.String()
}
