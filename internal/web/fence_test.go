package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/msg"
)

// fencedRoutes are routes in a term that a test ends.
type fencedRoutes struct {
	over    atomic.Bool
	durable func(context.Context) error
	log     strings.Builder
	counted string // the last request
	ended   context.Context
	end     context.CancelFunc
	mux     *http.ServeMux
	adapter Adapter
}

func fence(t *testing.T) *fencedRoutes {
	f := &fencedRoutes{mux: http.NewServeMux()}
	f.ended, f.end = context.WithCancel(t.Context())
	f.adapter = Adapter{
		Log:     slog.New(slog.NewTextHandler(&f.log, nil)),
		Counted: func(route string, status int, code string) { f.counted = fmt.Sprint(route, " ", status, " ", code) },
		Fence: Fence{Term: 7, Over: f.over.Load, Context: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			context.AfterFunc(f.ended, cancel)
			return ctx, cancel
		}, Durable: func(ctx context.Context) error { return f.durable(ctx) }},
	}
	f.mux.Handle("/json", f.adapter.Handle(func(r *http.Request) (Reply, error) { return Reply{Data: r.URL.Query().Get("a")}, nil }, AnyMember))
	f.mux.Handle("/flags", f.adapter.Handle(func(r *http.Request) (Reply, error) { return Reply{Data: r.URL.Query().Get("a")}, nil }, "a"))
	f.mux.Handle("/late", f.adapter.Handle(func(*http.Request) (Reply, error) { f.over.Store(true); return Reply{Data: "secret"}, nil }))
	f.mux.Handle("/wrong", f.adapter.Handle(func(*http.Request) (Reply, error) { return Reply{}, Fail("service_exists") }))
	f.mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		f.over.Store(true)
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Etag", "x")
		io.WriteString(w, "secret")
		io.WriteString(w, "secret")
	})
	f.mux.HandleFunc("/hints", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		f.over.Store(true)
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "secret")
	})
	f.mux.HandleFunc("/query", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.RawQuery) })
	f.mux.HandleFunc("/begun", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "begun,")
		f.over.Store(true)
		io.WriteString(w, "and whole")
	})
	f.mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("injected") })
	f.mux.HandleFunc("/panic-late", func(w http.ResponseWriter, _ *http.Request) {
		f.over.Store(true)
		io.WriteString(w, "secret")
		panic("injected")
	})
	return f
}

func (f *fencedRoutes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.adapter.Safe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.adapter.Route(f.mux, w, r) })).ServeHTTP(w, r)
}

// ask returns status, code and body of an answer. The status is the first, 103 for hints; 0 if the answer is cut.
func (f *fencedRoutes) ask(method, target string) string {
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if value := recover(); value != nil {
				w.Code = 0 // cut
			}
		}()
		f.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	}()
	return fmt.Sprint(w.Code, " ", w.Header().Get("X-Error-Code"), " ", w.Body)
}

// TestFenceDate: the Date of an answer is older than the last look at the clock, so it is within the term, also if the
// machine is paused before the answer is sent.
func TestFenceDate(t *testing.T) {
	f, w, dated := fence(t), httptest.NewRecorder(), ""
	f.adapter.Fence.Over = func() bool { dated = w.Header().Get("Date"); return false }
	f.ServeHTTP(w, httptest.NewRequest("POST", "/json", nil))
	if _, err := http.ParseTime(dated); err != nil || w.Code != 200 || w.Header().Get("Date") != dated {
		t.Errorf("Date at the last look %q, of the answer %q: %v", dated, w.Header().Get("Date"), err)
	}
}

// TestFence: an answer that begins after the end of the term is term_over, whatever was to be said; one that had begun stays.
func TestFence(t *testing.T) {
	for target, want := range map[string]struct{ before, counted string }{
		"GET /json?a=b": {"200  {\"data\":\"b\"", "/json 200 "},
		"POST /json":    {"200  {\"data\":\"\"", "/json 200 "},
		"POST /late":    {"503 term_over ", "/late 503 term_over"},
		"GET /late":     {"503 term_over ", "/late 503 term_over"},
		"HEAD /late":    {"503 term_over ", "/late 503 term_over"},
		"POST /wrong":   {"409 service_exists ", "/wrong 409 service_exists"},
		"GET /page":     {"503 term_over ", "/page 503 term_over"},
		"POST /hints":   {"103 term_over ", "/hints 503 term_over"},
		"GET /begun":    {"200  begun,and whole", "/begun 200 "},
		"GET /panic":    {"500 internal_error ", "/panic 500 internal_error"},
		"GET /none":     {"404 not_found ", " 404 not_found"},
		"GET /json/../": {"404 not_found ", " 404 not_found"},
	} {
		f := fence(t)
		method, path, _ := strings.Cut(target, " ")
		if got := f.ask(method, path); !strings.HasPrefix(got, want.before) || strings.Contains(got, "secret") || f.counted != want.counted {
			t.Errorf("%s: %s, counted %q; want %s, %q", target, got, f.counted, want.before, want.counted)
		}
		f.over.Store(true)
		f.counted = ""
		if got := f.ask(method, path); !strings.HasPrefix(got, "503 term_over ") || f.counted != " 503 term_over" {
			t.Errorf("%s after the end: %s, counted %q", target, got, f.counted)
		}
	}
}

// TestFenceHeader: nothing of the header of an answer that is not given is left, and the refusal is JSON of its length.
func TestFenceHeader(t *testing.T) {
	f := fence(t)
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest("GET", "/page", nil))
	h := w.Result().Header
	if h.Get("Etag") != "" || h.Get("Content-Type") != MediaType || h.Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
		t.Errorf("%v", h)
	}
}

// TestFencePanics: the log names the route, and the answer of a handler that panics after the end is cut.
func TestFencePanics(t *testing.T) {
	f := fence(t)
	if f.ask("GET", "/panic"); !strings.Contains(f.log.String(), "route=/panic ") {
		t.Errorf("log: %s", &f.log)
	}
	if got := f.ask("GET", "/panic-late"); !strings.HasPrefix(got, "0 term_over") || strings.Contains(got, "secret") {
		t.Errorf("%s", got)
	}
}

// TestFenceContext: the end of the term ends the context of a request.
func TestFenceContext(t *testing.T) {
	f := fence(t)
	f.mux.HandleFunc("/wait", func(_ http.ResponseWriter, r *http.Request) {
		f.end()
		<-r.Context().Done()
	})
	f.ask("GET", "/wait")
}

// TestDurable: what a change waits for, and what its answer becomes. Any change may have the flag.
func TestDurable(t *testing.T) {
	for _, c := range []struct {
		target  string
		durable func(f *fencedRoutes, ctx context.Context) error
		want    string
		asked   int
	}{
		{"POST /json?durable=1", nil, `200  {"data":""`, 1},
		{"PATCH /flags?durable=1&a=b", nil, `200  {"data":"b"`, 1},
		{"DELETE /flags?a=b&durable=1", nil, `200  {"data":"b"`, 1},
		{"DELETE /flags?c=b&durable=1", nil, `400 query_invalid`, 0},
		{"PUT /flags?durable=1", nil, `400 query_invalid`, 0},
		{"POST /json?durable=0", nil, `200  {"data":""`, 0},
		{"POST /json", nil, `200  {"data":""`, 0},
		{"PUT /query?durable=1", nil, `200  durable=1`, 0},
		{"GET /query?durable=1", nil, `200  durable=1`, 0},
		{"POST /json?durable=2", nil, `400 query_invalid`, 0},
		{"POST /json?durable=1&durable=1", nil, `400 `, 0},
		{"POST /json?durable=%zz", nil, `400 `, 0},
		{"POST /wrong?durable=1", nil, `409 service_exists`, 0},
		{"POST /late?durable=1", nil, `503 term_over`, 1},
		{"POST /json?durable=1", func(*fencedRoutes, context.Context) error { return errors.New("no Litestream") }, `504 not_replicated`, 1},
		{"POST /json?durable=1", func(f *fencedRoutes, _ context.Context) error { f.over.Store(true); return nil }, `503 term_over`, 1},
		{"POST /json?durable=1", func(f *fencedRoutes, _ context.Context) error { f.over.Store(true); return errors.New("x") }, `503 term_over`, 1},
		{"POST /json?durable=1", func(_ *fencedRoutes, ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, `504 not_replicated`, 1},
		{"POST /json?durable=1", func(f *fencedRoutes, ctx context.Context) error {
			f.over.Store(true)
			f.end()
			<-ctx.Done()
			return ctx.Err()
		}, `503 term_over`, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := fence(t)
			defer f.end()
			asked := 0
			f.durable = func(ctx context.Context) error {
				if asked++; c.durable != nil {
					return c.durable(f, ctx)
				}
				return nil
			}
			began := time.Now()
			method, path, _ := strings.Cut(c.target, " ")
			if got := f.ask(method, path); !strings.HasPrefix(got, c.want) || asked != c.asked || strings.Contains(got, "secret") {
				t.Errorf("%s: %s, asked %d times; want %s, %d", c.target, got, asked, c.want, c.asked)
			}
			if took := time.Since(began); took != 0 && took != durableTime {
				t.Errorf("%s took %v", c.target, took)
			}
		})
	}
	f := fence(t)
	f.adapter.Fence.Durable = nil
	f.mux.Handle("/alone", f.adapter.Handle(func(*http.Request) (Reply, error) { return Reply{}, nil }))
	if got := f.ask("POST", "/alone?durable=1"); !strings.HasPrefix(got, "400 ") {
		t.Errorf("without a replica: %s", got)
	}
}

// TestAuditTellsTheAnswer: the audit line of a change has the status and the code that the client gets, whenever the term ends.
func TestAuditTellsTheAnswer(t *testing.T) {
	for _, durable := range []error{nil, errors.New("no Litestream")} {
		for _, target := range []string{"/json", "/json?durable=1", "/late", "/late?durable=1", "/wrong", "/wrong?durable=1"} {
			seen := map[string]bool{}
			for looks := range 6 { // before the end
				f := fence(t)
				f.durable = func(context.Context) error { return durable }
				f.adapter.Fence.Over = func() bool { looks--; return looks < 0 || f.over.Load() }
				f.mux = http.NewServeMux()
				f.mux.Handle("/json", f.adapter.Handle(func(*http.Request) (Reply, error) { return Reply{}, nil }))
				f.mux.Handle("/late", f.adapter.Handle(func(*http.Request) (Reply, error) { f.over.Store(true); return Reply{}, nil }))
				f.mux.Handle("/wrong", f.adapter.Handle(func(*http.Request) (Reply, error) { return Reply{}, Fail("service_exists") }))
				status, code, _ := strings.Cut(f.ask("POST", target), " ")
				code, _, _ = strings.Cut(code, " ")
				seen[code] = true
				if got := f.log.String(); got != "" && !strings.Contains(got, fmt.Sprintf("status=%s code=%s", status, cmp.Or(code, `""`))) {
					t.Errorf("POST %s, replica %v: %s %s, audited: %s", target, durable, status, code, got)
				}
			}
			if !seen["term_over"] || len(seen) < 2 && !strings.HasPrefix(target, "/late") {
				t.Errorf("POST %s: only %v", target, seen)
			}
		}
	}
}

// TestDurableCrowded: a change that has no place to wait is refused, except if the replica has it already.
func TestDurableCrowded(t *testing.T) {
	crowded, end := context.WithCancelCause(t.Context())
	end(ErrCrowded)
	f := Fence{Durable: func(ctx context.Context) error { return ctx.Err() }}
	if err := f.wait(crowded); err == nil || FailureOf(err, nil).ID != msg.TooManyWaiting {
		t.Error(err)
	}
	f.Durable = func(context.Context) error { return nil }
	if err := f.wait(crowded); err != nil {
		t.Error(err)
	}
}
