package provider_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"meshddns/internal/provider"
	"meshddns/internal/secrets"
	"meshddns/test/contract"
)

// bridge is a bridge as an operator would write it, with a map in place of the calls to a DNS provider.
type bridge struct {
	zone, user, password string

	mu     sync.Mutex
	values map[string][]string
}

func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if user, password, _ := r.BasicAuth(); user != b.user || password != b.password {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var change struct {
		Name              string
		Seen, Add, Remove []string
	}
	change.Name = r.URL.Query().Get("name")
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
	}
	there := b.values[change.Name]
	switch {
	case change.Name != b.zone && !strings.HasSuffix(change.Name, "."+b.zone):
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		json.NewEncoder(w).Encode(map[string]any{"zone": b.zone, "ttl": 60, "values": append([]string{}, there...)})
	case !slices.Equal(slices.Sorted(slices.Values(there)), slices.Sorted(slices.Values(change.Seen))):
		w.WriteHeader(http.StatusConflict)
	default:
		there = slices.DeleteFunc(slices.Concat(there, change.Add), func(v string) bool { return slices.Contains(change.Remove, v) })
		slices.Sort(there)
		b.values[change.Name] = slices.Compact(there)
	}
}

// Values, Add and Remove are those of another user of the zone.
func (b *bridge) Values(_ testing.TB, name string) (values [][]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.values[name] {
		var value []string
		for part := range slices.Chunk([]byte(text), 255) {
			value = append(value, string(part))
		}
		values = append(values, value)
	}
	return values
}

func (b *bridge) Add(_ testing.TB, name string, value []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[name] = append(b.values[name], strings.Join(value, ""))
}

func (b *bridge) Remove(_ testing.TB, name string, value []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[name] = slices.DeleteFunc(b.values[name], func(v string) bool { return v == strings.Join(value, "") })
}

// TestWebhookBridge runs the contract test of all clients with a bridge that implements only the
// required protocol.
func TestWebhookBridge(t *testing.T) {
	b := &bridge{zone: "example.com", user: "meshddns", password: "open sesame", values: map[string][]string{}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	client, err := provider.NewWebhook(provider.Credentials{AccessKeyID: b.user, AccessKeySecret: secrets.Secret(b.password), Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	contract.Test(t, contract.Backend{Client: client, Outside: b, Zone: b.zone, Foreign: plainValues()})
}
