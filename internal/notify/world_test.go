package notify

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
	"meshddns/test/support"
)

// delivery is a request that a receiver got.
type delivery struct {
	method string
	uri    string
	header http.Header
	body   string
}

// reply is what a receiver does with a request.
type reply struct {
	drop   bool // close the connection without an answer
	status int  // 200 when it is 0
	header map[string]string
	body   string
}

// receiverServer is a receiver on loopback. It answers as answer says, which gets the number of the
// request from 0.
type receiverServer struct {
	*httptest.Server
	mu     sync.Mutex
	got    []delivery
	answer func(n int, d delivery) reply
}

func newReceiver(t *testing.T, answer func(n int, d delivery) reply) *receiverServer {
	s := &receiverServer{answer: answer}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *receiverServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	d := delivery{method: r.Method, uri: r.RequestURI, header: r.Header.Clone(), body: string(body)}
	s.got = append(s.got, d)
	answer := s.answer(len(s.got)-1, d)
	s.mu.Unlock()
	if answer.drop {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			c.Close()
		}
		return
	}
	for name, value := range answer.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(cmp.Or(answer.status, http.StatusOK))
	io.WriteString(w, answer.body)
}

// take returns what the receiver got since the last call.
func (s *receiverServer) take() []delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.got = nil }()
	return s.got
}

// world is a database with a log of events and a sender. In a bubble of synctest its clock is the
// bubble's.
type world struct {
	*Sender
	t    *testing.T
	path string
	db   *sqlite.Database
	logs *support.Log
	ill  bool // not all is well
	stop func()
}

// inBubble runs a test in a bubble, with a world that works. The receiver is outside, because a
// server that waits for connections would keep the bubble's clock from advancing.
func inBubble(t *testing.T, answer func(n int, d delivery) reply, test func(w *world, s *receiverServer)) {
	t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	s := newReceiver(t, answer)
	path := filepath.Join(t.TempDir(), "x.db")
	synctest.Test(t, func(t *testing.T) {
		w := open(t, path, string(schema))
		test(w, s)
		w.stop()
		if err := w.db.Close(); err != nil {
			t.Error(err)
		}
	})
}

func open(t *testing.T, path, schema string) *world {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, sqlite.Schema{
		Tables: schema, First: func(context.Context, *sql.Tx) error { return nil }, Oldest: 1,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, path: path, db: db, logs: &support.Log{}, stop: func() {}}
	w.Sender = &Sender{
		Targets: NewTable(db, time.Now), History: events.New(db.Reader, db.Tx, time.Now, func(int64) {}),
		Well: func(context.Context) bool { return !w.ill }, Log: slog.New(slog.NewTextHandler(w.logs, nil)),
	}
	db.Subscribe(w.History.Committed)
	db.Subscribe(w.Targets.Committed)
	return w
}

// run starts the sender until stop is called.
func (w *world) run() {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		w.stop = func() {}
	}
}

// pass lets a time pass, with all that happens in it.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// put stores a target with the members of a body that are not zero.
func (w *world) put(b Target) {
	w.t.Helper()
	if b.ID == "" {
		b.ID = "t"
	}
	target, err := b.Check(msg.English)
	if err == nil {
		_, err = w.Targets.Save(w.t.Context(), target)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// target returns the stored target.
func (w *world) target() Target {
	w.t.Helper()
	t, err := w.Targets.One(w.t.Context(), "t")
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// note stores an event of a kind.
func (w *world) note(kind events.Kind) {
	w.t.Helper()
	e := events.Event{Kind: kind, Name: "_mesh.a.example.com", Detail: events.Detail{Fault: mesh.Fault{Code: "network", Detail: "refused"}}}
	if err := w.History.Note(w.t.Context(), e); err != nil {
		w.t.Fatal(err)
	}
}

// notes stores so many events of a kind in one transaction.
func (w *world) notes(kind events.Kind, count int) {
	w.t.Helper()
	err := w.db.Tx(w.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for range count {
			if err := w.History.Add(ctx, tx, events.Event{Kind: kind, Name: "_mesh.a.example.com"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// fine answers 200 to all.
func fine(int, delivery) reply { return reply{} }

// at is a URL of the receiver.
func (s *receiverServer) at(path string) URL { return URL(s.URL + path) }

// span returns the seqs of a delivery.
func (d delivery) span(t *testing.T) (first, last int64) {
	t.Helper()
	if _, err := fmt.Sscanf(d.header.Get("X-Meshddns-Delivery"), "%d-%d", &first, &last); err != nil {
		t.Fatal(err)
	}
	return first, last
}

// faultIn returns why a target is not OK, as answers say it.
func faultIn(t Target, language msg.Language) string {
	return shown(t, nil, language).(shownTarget).Error
}
