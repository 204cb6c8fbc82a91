package lease

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// urlsOf serves lists of names at an address of loopback. The header Caller has the caller's address.
func urlsOf(t *testing.T, lists map[string][]string) string {
	t.Helper()
	nodes := NewNodes(ListenerConfig{Log: slog.New(slog.DiscardHandler), Listed: func(_ context.Context, name string) ([]string, bool, error) {
		if name == "broken.example" {
			return nil, false, errors.New("a fault of the store")
		}
		list, found := lists[dns.Parse(name)]
		return list, found, nil
	}})
	nodes.listRate = connlimit.NewRate(0, 1) // no limit
	mux := http.NewServeMux()
	mux.HandleFunc("GET /d/{name}", nodes.list)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { nodes.adapter.Route(mux, w, called(r)) }))
	t.Cleanup(server.Close)
	return server.URL
}

// ask sends a request with headers "Name: value", and does not follow a redirect.
func ask(t *testing.T, method, address string, headers ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

var lists = map[string][]string{
	"_mesh.berlin.example.com": {"tcp://192.0.2.1:11010", "wss://h.example:443", "udp://[2001:db8::1]:11010"},
	"_mesh.empty.example.com":  {},
}

func TestURLs(t *testing.T) {
	base := urlsOf(t, lists) + "/d/"
	answer, body := ask(t, "GET", base+"_Mesh.Berlin.Example.COM.")
	if want := "tcp://192.0.2.1:11010\nwss://h.example:443\nudp://[2001:db8::1]:11010\n"; answer.StatusCode != 200 || body != want {
		t.Errorf("%d %q, want %q", answer.StatusCode, body, want)
	}
	for name, want := range map[string]string{"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "max-age=60", "Content-Length": "68"} {
		if got := answer.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	head, body := ask(t, "HEAD", base+"_mesh.berlin.example.com")
	if head.StatusCode != 200 || body != "" || head.Header.Get("ETag") != answer.Header.Get("ETag") || head.Header.Get("Content-Length") != "68" {
		t.Errorf("HEAD: %d %q %v", head.StatusCode, body, head.Header)
	}
	if answer, body := ask(t, "GET", base+"_mesh.empty.example.com"); answer.StatusCode != 200 || body != "" {
		t.Errorf("of no endpoints: %d %q", answer.StatusCode, body)
	}
}

// TestURLsETag: a client that has the list is told so, until the list is another one.
func TestURLsETag(t *testing.T) {
	changing := maps.Clone(lists)
	at := urlsOf(t, changing) + "/d/_mesh.berlin.example.com"
	first, _ := ask(t, "GET", at)
	tag := first.Header.Get("ETag")
	if !strings.HasPrefix(tag, `"`) || len(tag) != 34 {
		t.Fatalf("ETag %q is not strong", tag)
	}
	for _, has := range []string{tag, `"x", ` + tag, "W/" + tag, "*"} {
		answer, body := ask(t, "GET", at, "If-None-Match: "+has)
		if answer.StatusCode != http.StatusNotModified || body != "" || answer.Header.Get("ETag") != tag || answer.Header.Get("Cache-Control") != "max-age=60" {
			t.Errorf("If-None-Match: %s: %d %q %v", has, answer.StatusCode, body, answer.Header)
		}
	}
	changing["_mesh.berlin.example.com"] = []string{"tcp://192.0.2.2:11010"}
	if answer, body := ask(t, "GET", at, "If-None-Match: "+tag); answer.StatusCode != 200 || body != "tcp://192.0.2.2:11010\n" || answer.Header.Get("ETag") == tag {
		t.Errorf("after a change: %d %q", answer.StatusCode, body)
	}
}

// TestURLsOne: a redirect leads to each endpoint that fits the caller best, and to no other.
func TestURLsOne(t *testing.T) {
	base := urlsOf(t, map[string][]string{
		"all.example":   {"tcp://192.0.2.1:1", "udp://192.0.2.2:1", "wss://h.example:443", "udp://[2001:db8::1]:1", "tcp://[2001:db8::2]:1"},
		"v6.example":    {"tcp://[2001:db8::1]:1", "tcp://[2001:db8::2]:1"},
		"names.example": {"tcp://[2001:db8::1]:1", "http://h.example:80", "txt://g.example:1"},
	}) + "/d/"
	for _, test := range []struct{ name, caller, want string }{
		{"all.example", "198.51.100.1", "tcp://192.0.2.1:1 udp://192.0.2.2:1"},
		{"all.example", "::ffff:198.51.100.1", "tcp://192.0.2.1:1 udp://192.0.2.2:1"},
		{"all.example", "2001:db8::9", "tcp://[2001:db8::2]:1 udp://[2001:db8::1]:1"},
		{"all.example", "", "wss://h.example:443"},
		{"v6.example", "198.51.100.1", "tcp://[2001:db8::1]:1 tcp://[2001:db8::2]:1"},
		{"names.example", "198.51.100.1", "http://h.example:80 txt://g.example:1"},
	} {
		seen := map[string]bool{}
		for range 60 { // the chance that one of two is not drawn is 2^-59
			answer, body := ask(t, "GET", base+test.name+"?one=1", "Caller: "+test.caller)
			if answer.StatusCode != http.StatusFound || body != "" || answer.Header.Get("Cache-Control") != "no-store" {
				t.Fatalf("%d %q %v", answer.StatusCode, body, answer.Header)
			}
			seen[answer.Header.Get("Location")] = true
		}
		if got := strings.Join(slices.Sorted(maps.Keys(seen)), " "); got != test.want {
			t.Errorf("%s for %q: %s, want %s", test.name, test.caller, got, test.want)
		}
	}
}

// TestURLsRefuses: each refusal is JSON in the form of the house.
func TestURLsRefuses(t *testing.T) {
	base := urlsOf(t, lists)
	for _, test := range []struct {
		method, path string
		status       int
		code         msg.ID
	}{
		{"GET", "/d/_mesh.paris.example.com", 404, msg.UnknownName},
		{"GET", "/d/_mesh.empty.example.com?one=1", 404, msg.UnknownName},
		{"GET", "/d/", 404, msg.NotFound},
		{"GET", "/d/_mesh.berlin.example.com/x", 404, msg.NotFound},
		{"GET", "/d/_mesh.berlin.example.com?one=yes", 400, msg.QueryInvalid},
		{"GET", "/d/_mesh.berlin.example.com?one", 400, msg.QueryInvalid},
		{"GET", "/d/broken.example", 500, msg.InternalError},
		{"POST", "/d/_mesh.berlin.example.com", 405, msg.MethodNotAllowed},
	} {
		answer, body := ask(t, test.method, base+test.path)
		var failure map[string]string
		err := json.Unmarshal([]byte(body), &failure)
		if err != nil || failure["error"] == "" || len(failure) != 1 || answer.StatusCode != test.status || answer.Header.Get("X-Error-Code") != string(test.code) {
			t.Errorf("%s %s: %d %s %s", test.method, test.path, answer.StatusCode, answer.Header.Get("X-Error-Code"), body)
		}
		if test.status == 405 && answer.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow: %s", answer.Header.Get("Allow"))
		}
	}
}

// called returns a request with the client's address of the header Caller.
func called(r *http.Request) *http.Request {
	caller, _ := netip.ParseAddr(r.Header.Get("Caller"))
	return r.WithContext(context.WithValue(r.Context(), clientKey{}, caller))
}

// lookup asks for a list in the bubble of a test, and returns its status in the end.
func (s *Nodes) lookup(ctx context.Context, caller string) <-chan int {
	status := make(chan int, 1)
	go func() {
		r := httptest.NewRequestWithContext(ctx, "GET", "/d/a.example", nil)
		r.Header.Set("Caller", caller)
		w := httptest.NewRecorder()
		s.list(w, called(r))
		status <- w.Code
	}()
	return status
}

// limited returns a server whose lookups wait until held is closed.
func limited(held <-chan struct{}) *Nodes {
	return NewNodes(ListenerConfig{Log: slog.New(slog.DiscardHandler), Listed: func(context.Context, string) ([]string, bool, error) {
		<-held
		return []string{"tcp://192.0.2.1:1"}, true, nil
	}})
}

// TestListRate: a client has a burst of listRate lists, then listRate a second, and takes none from others.
func TestListRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		close(free)
		u := limited(free)
		for n := range listRate {
			if status := <-u.lookup(t.Context(), "192.0.2.7"); status != 200 {
				t.Fatalf("list %d: %d", n, status)
			}
		}
		for _, test := range []struct {
			caller string
			after  time.Duration
			status int
		}{
			{"192.0.2.7", 0, 429}, {"192.0.2.8", 0, 200}, {"192.0.2.7", time.Second / listRate, 200}, {"192.0.2.7", 0, 429},
		} {
			<-time.After(test.after)
			if status := <-u.lookup(t.Context(), test.caller); status != test.status {
				t.Errorf("%+v: %d", test, status)
			}
		}
	})
}

// TestListPlaces: maxLookups lookups run at a time. A further one waits for lookupTime at most.
func TestListPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		u := limited(held)
		var running []<-chan int
		for range maxLookups {
			running = append(running, u.lookup(t.Context(), "192.0.2.7"))
		}
		synctest.Wait()
		began := time.Now()
		if status := <-u.lookup(t.Context(), "192.0.2.8"); status != 503 || time.Since(began) != lookupTime {
			t.Errorf("a lookup without a place: %d after %v", status, time.Since(began))
		}
		waiting := u.lookup(t.Context(), "192.0.2.8")
		synctest.Wait()
		close(held)
		for _, status := range append(running, waiting) {
			if got := <-status; got != 200 {
				t.Errorf("a lookup with a place: %d", got)
			}
		}
	})
}
