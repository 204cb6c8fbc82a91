package web

import (
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"meshddns/internal/msg"
)

// A request is routed once: its handler sees pattern and values, and what has no
// handler is answered in JSON, not with the mux's own text.
func TestRoute(t *testing.T) {
	var counted string
	a := Adapter{Log: slog.New(slog.DiscardHandler), Counted: func(route string, status int, _ string) { counted = fmt.Sprint(route, " ", status) }}
	mux := http.NewServeMux()
	mux.Handle("GET /things/{id}", a.Handle(func(r *http.Request) (Reply, error) {
		return Reply{Status: http.StatusAccepted, Data: r.Pattern + " " + r.PathValue("id")}, nil
	}))
	for _, test := range []struct{ method, target, status, allow, counted string }{
		{"GET", "/things/7", "202", "", "GET /things/{id} 202"},
		{"POST", "/things/7", "405", "GET, HEAD", " 405"},
		{"GET", "/things", "404", "", " 404"},
		{"GET", "/things/7/", "404", "", " 404"},
		{"GET", "//things/7", "404", "", " 404"},
		{"GET", "/x/../things/7", "404", "", " 404"},
		{"OPTIONS", "*", "404", "", " 404"},
	} {
		r := httptest.NewRequest(test.method, test.target, nil)
		r.Header.Set("Accept-Language", "en")
		w := httptest.NewRecorder()
		a.Route(mux, w, r)
		header, body := w.Result().Header, w.Body.String()
		if fmt.Sprint(w.Code) != test.status || header.Get("Allow") != test.allow || counted != test.counted || header.Get("Content-Type") != MediaType {
			t.Errorf("%s %s: %d, counted %q, %v", test.method, test.target, w.Code, counted, header)
		}
		if want := `{"data":"GET /things/{id} 7"}` + "\n"; test.status == "202" && body != want {
			t.Errorf("body %q, want %q", body, want)
		}
		if header.Get("Connection") != "" || header.Get("Cache-Control") != "no-store" || header.Get("Location") != "" {
			t.Errorf("%s %s: what the mux said has stayed: %v", test.method, test.target, header)
		}
	}
}

// Data that is JSON already is answered as any other, with a message and without.
func TestWrittenJSON(t *testing.T) {
	a := Adapter{Log: slog.New(slog.DiscardHandler)}
	type thing struct {
		Name string `json:"name"`
	}
	answer := func(reply Reply) string {
		w := httptest.NewRecorder()
		a.Handle(func(*http.Request) (Reply, error) { return reply, nil }).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return fmt.Sprint(w.Code, w.Result().Header, w.Body)
	}
	for _, reply := range []Reply{{}, {Status: http.StatusAccepted}, {Message: msg.ServiceSaved}} {
		reply.Data = json.RawMessage(`{"name":"a<b"}`)
		written := answer(reply)
		reply.Data = thing{"a<b"}
		if want := answer(reply); written != want {
			t.Errorf("%q, want %q", written, want)
		}
	}
}

// panicking is a handler whose routes panic, each at another point of a request.
func panicking(a *Adapter) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /decode", a.Handle(func(*http.Request) (Reply, error) { panic("injected") }))
	mux.Handle("GET /unencodable", a.Handle(func(*http.Request) (Reply, error) { return Reply{Data: func() {}}, nil }))
	mux.Handle("GET /list", a.Stream(func(*http.Request) iter.Seq2[any, error] { panic("injected") }))
	mux.HandleFunc("GET /plain", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "7")
		panic("injected")
	})
	mux.HandleFunc("GET /begun", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("begun"))
		panic("injected")
	})
	mux.HandleFunc("GET /aborted", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	routes := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.Route(mux, w, r) }))
	return a.Safe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/guard" {
			panic("injected")
		}
		routes.ServeHTTP(w, r)
	}))
}

// A panic is a failure like others, with one line in the log, wherever it comes from; an
// answer that has begun is cut.
func TestPanic(t *testing.T) {
	var log strings.Builder
	var counted string
	a := Adapter{
		Log:     slog.New(slog.NewTextHandler(&log, nil)),
		Counted: func(route string, status int, _ string) { counted = fmt.Sprint(route, " ", status) },
	}
	guarded := panicking(&a)
	for path, want := range map[string]struct {
		status string
		lines  int
	}{
		"/decode": {"500", 1}, "/unencodable": {"500", 1}, "/list": {"500", 1}, "/plain": {"500", 1}, "/guard": {"500", 1},
		"/begun": {"cut", 1}, "/aborted": {"cut", 0},
	} {
		log.Reset()
		counted = ""
		w, status := httptest.NewRecorder(), ""
		func() {
			defer func() {
				if value := recover(); value == http.ErrAbortHandler {
					status = "cut"
				} else if value != nil {
					t.Errorf("%s: %v gets out", path, value)
				}
			}()
			guarded.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			status = fmt.Sprint(w.Code)
		}()
		if lines := strings.Count(log.String(), "\n"); status != want.status || lines != want.lines || lines > 0 && !strings.Contains(log.String(), "envelope_test.go") {
			t.Errorf("%s: %s, want %s; log: %s", path, status, want.status, log.String())
		}
		if status != "500" {
			continue
		}
		var body map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || len(body) != 1 || body["error"] == "" || w.Header().Get("X-Error-Code") != "internal_error" {
			t.Errorf("%s: %q, %v", path, w.Body, w.Header())
		}
		if path != "/guard" && counted != "GET "+path+" 500" {
			t.Errorf("%s: counted as %q", path, counted)
		}
	}
}

// A body that is too large ends the connection, and net/http's own request keeps its body.
func TestTooLarge(t *testing.T) {
	a := Adapter{Log: slog.New(slog.DiscardHandler)}
	handler := a.Handle(func(r *http.Request) (Reply, error) { return Reply{}, Decode(r, &struct{}{}) })
	for _, length := range []int64{-1, MaxBody + 1} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat(" ", MaxBody+1)))
		r.ContentLength = length
		body := r.Body
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusRequestEntityTooLarge || w.Header().Get("Connection") != "close" || r.Body != body {
			t.Errorf("length %d: %d, %v, body kept %t", length, w.Code, w.Header(), r.Body == body)
		}
	}
}
