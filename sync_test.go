package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"meshddns/provider/servertest"
	"meshddns/sqlrow"
)

// A synchronisation that is not through in time says how far it is, and of how many names.
func TestSyncUnfinishedSaysOfHowMany(t *testing.T) {
	h := newSyncHost(t, servertest.Server{Name: "builtin"}) // whose engine does not run
	service := h.service("example.com")
	for n := range 4 {
		h.reserve(service, fmt.Sprint("name", n), sqlrow.NetworkID(n))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	routes := (&server{store: h.store, engine: h.engine, log: slog.New(slog.DiscardHandler)}).routes()
	for language, want := range map[string]string{"en": "0 of 5 names", "zh": "0 / 5"} {
		r := httptest.NewRequestWithContext(ctx, "POST", "/api/v1/ddns/sync", nil)
		r.Header.Set("Accept-Language", language)
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, r)
		if w.Code != http.StatusInternalServerError || w.Header().Get("X-Error-Code") != "sync_unfinished" || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want %q", w.Code, w.Body, want)
		}
	}
}
