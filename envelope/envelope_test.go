package envelope

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A request is routed once: its handler sees pattern and values, and what has no
// handler is answered in JSON, whatever the mux would have said.
func TestRoute(t *testing.T) {
	var counted string
	a := Adapter{Log: slog.New(slog.DiscardHandler), Counted: func(route string, status int) { counted = fmt.Sprint(route, " ", status) }}
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
		if header.Get("Connection") != "" || header.Get("X-Content-Type-Options") != "" || header.Get("Location") != "" {
			t.Errorf("%s %s: what the mux said has stayed: %v", test.method, test.target, header)
		}
	}
}
