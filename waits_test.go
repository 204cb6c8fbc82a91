package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/hostaddr"
	"meshddns/internal/mesh"
)

// waiting is a store without a server, in a bubble of synctest.
type waiting struct {
	*store
	t     *testing.T
	ready chan struct{} // closed: the addresses are known
}

// ask makes a request with the engine of a configured program, which works from a time on.
func (w *waiting) ask(from time.Duration, method, path, body string) (answer string, took time.Duration) {
	configuration := mesh.Configuration{Provider: "builtin", Domain: "example.com", TXTRecordName: "_txt", Enabled: true, SyncMode: "auto"}
	if err := w.PutConfiguration(w.t.Context(), configuration, false); err != nil {
		w.t.Fatal(err)
	}
	book := hostaddr.NewBook(hostaddr.Sources{}, mesh.Addresses{}, w.SaveAddresses, noLog)
	config := engineConfig(w.store, clients{ledger: w.ledger, zones: w.zones, dnsAddress: "192.0.2.1:53"}, book, time.Hour, noLog)
	config.Ready = w.ready
	engine := w.newEngine(config)
	ctx, cancel := context.WithCancel(w.t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		select {
		case <-time.After(from):
			engine.Run(ctx)
		case <-ctx.Done():
		}
	})
	defer working.Wait()
	defer cancel()
	begun, recorder := time.Now(), httptest.NewRecorder()
	server := newServer(operations{store: w.store, engine: engine}, "", noLog)
	server.routes().ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return fmt.Sprint(recorder.Code, " ", recorder.Header().Get("X-Error-Code"), recorder.Body), time.Since(begun)
}

// TestWaits has each request that waits wait as long as the pages say: first nothing works for it, then the engine
// begins shortly before that time ends.
func TestWaits(t *testing.T) {
	const usages = "/api/v1/ddns/usages"
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{store: filledStore(t), t: t, ready: make(chan struct{})}
		close(w.ready)
		reserve := func(prefix string) string {
			return fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":1}`, prefix)
		}
		answer, _ := w.ask(0, "POST", usages+"?wait=30", reserve("old"))
		_, id, _ := strings.Cut(answer, `"id":"`)
		old := usages + "/" + id[:36]
		for _, test := range []struct {
			method, path string
			body         string
			limit        time.Duration
			late, done   string
		}{
			{"POST", usages + "?wait=1", reserve("%d-1"), time.Second, "pending", "published"},
			{"POST", usages + "?wait=30", reserve("%d-30"), 30 * time.Second, "pending", "published"},
			{"POST", "/api/v1/ddns/sync", "", time.Minute, "sync_unfinished", "200"},
			{"DELETE", old, "", 30 * time.Second, "202", "200"},
			{"DELETE", "/api/v1/ddns/config", "", 30 * time.Second, "202", "200"},
		} {
			if answer, took := w.ask(time.Hour, test.method, test.path, strings.Replace(test.body, "%d", "late", 1)); took != test.limit || !strings.Contains(answer, test.late) {
				t.Errorf("%s %s: after %v %s, want %s after %v", test.method, test.path, took, answer, test.late, test.limit)
			}
			if answer, took := w.ask(test.limit-100*time.Millisecond, test.method, test.path, strings.Replace(test.body, "%d", "done", 1)); took >= test.limit || !strings.Contains(answer, test.done) {
				t.Errorf("%s %s: after %v %s, want %s before %v", test.method, test.path, took, answer, test.done, test.limit)
			}
		}
	})
}
