package promises

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
	"meshddns/test/support"
)

// members are those of a request's body.
type members map[string]any

// refused is the error of an answer with a code.
func refused(code msg.ID) error { return sqlite.Refusal(code) }

// ask sends a request as a client does, and reads the data of the answer into data, unless that is nil.
// The error is the code of a refusal.
func (h *host) ask(ctx context.Context, method, path string, body, data any) (status int, err error) {
	var content []byte
	if body != nil {
		if content, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	request := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(content))
	request.Header.Set("Accept-Language", "en")
	answer := httptest.NewRecorder()
	h.Routes.ServeHTTP(answer, request)
	if code := answer.Header().Get("X-Error-Code"); code != "" {
		return answer.Code, sqlite.Refusal(code)
	}
	if data == nil {
		return answer.Code, nil
	}
	return answer.Code, json.Unmarshal(answer.Body.Bytes(), &struct{ Data any }{data})
}

// api is the path of all resources.
const api = "/api/v1/ddns/"

func (h *host) putConfiguration(c members) error {
	_, err := h.ask(context.Background(), "PUT", api+"config", c, nil)
	return err
}

// configure stores a configuration.
func (h *host) configure(c members) {
	h.t.Helper()
	h.configured = maps.Clone(c)
	support.Must(h.t, h.putConfiguration(c))
}

// change changes members of the configuration.
func (h *host) change(some members) {
	h.t.Helper()
	c := maps.Clone(h.configured)
	maps.Copy(c, some)
	h.configure(c)
}

// mode sets the mode of synchronisation.
func (h *host) mode(mode string) {
	h.t.Helper()
	h.change(members{"sync_mode": mode})
}

// forget deletes the configuration, as a client that waits. gone reports whether all its values have gone.
func (h *host) forget() (gone bool, err error) {
	status, err := h.ask(context.Background(), "DELETE", api+"config", nil, nil)
	return status == http.StatusOK, err
}

func (h *host) putService(id, config string) error {
	_, err := h.ask(context.Background(), "PUT", api+"services/"+id, members{"name": "service", "config": json.RawMessage(config)}, nil)
	return err
}

func (h *host) deleteService(id string) error {
	_, err := h.ask(context.Background(), "DELETE", api+"services/"+id, nil, nil)
	return err
}

// usage is a prefix that is reserved for a network, and how far its record is.
type usage struct {
	ID        string
	ServiceID string         `json:"provider_id"`
	Prefix    string         `json:"record_prefix"`
	Network   mesh.NetworkID `json:"network_id"`
	Name      string         `json:"full_domain"` // as DNS has it
	Status    string         // not in lists
	Publish   struct {
		State        reconcile.PlaceState
		Value, Error string
	}
}

// tryReserve reserves a prefix: the automatic one of the network, where it is that.
func (h *host) tryReserve(service, prefix string, network uint64) (u usage, err error) {
	body := members{"service_id": service, "prefix_mode": mesh.CustomMode, "custom_prefix": prefix, "network_id": network}
	if prefix == automatic(network) {
		body["prefix_mode"] = mesh.AutomaticMode
	}
	_, err = h.ask(context.Background(), "POST", api+"usages", body, &u)
	u.Name = dns.Parse(u.Name)
	return u, err
}

func (h *host) reserve(service, prefix string, network uint64) usage {
	h.t.Helper()
	u, err := h.tryReserve(service, prefix, network)
	support.Must(h.t, err)
	return u
}

func (h *host) usage(id string) (u usage, err error) {
	_, err = h.ask(context.Background(), "GET", api+"usages/"+id, nil, &u)
	u.Name = dns.Parse(u.Name)
	return u, err
}

// usages lists those whose record is in a state, "" for all.
func (h *host) usages(state reconcile.PlaceState) (all []usage) {
	h.t.Helper()
	if _, err := h.ask(context.Background(), "GET", api+"usages/available?state="+string(state), nil, &all); err != nil {
		h.t.Fatal(err)
	}
	for i, u := range all {
		all[i].Name = dns.Parse(u.Name)
	}
	return all
}

// patch changes members of a usage.
func (h *host) patch(id string, some members) error {
	_, err := h.ask(context.Background(), "PATCH", api+"usages/"+id, some, nil)
	return err
}

// publish sets what a usage publishes.
func (h *host) publish(u usage, endpoints ...string) {
	h.t.Helper()
	support.Must(h.t, h.patch(u.ID, members{"txt_endpoints": endpoints}))
}

// publishing is how far a usage's record is, as answers show it: its state, its
// value, and the code of why it is not as it should be.
func (h *host) publishing(u usage) string {
	h.t.Helper()
	u, err := h.usage(u.ID)
	if err != nil {
		return err.Error()
	}
	code := u.Publish.Error
	for _, known := range []msg.ID{msg.Temporary, msg.Permission, msg.Credentials, msg.NetworkConflict} {
		if strings.HasPrefix(code, known.In(msg.English)) {
			code = string(known)
		}
	}
	return dnsWords(string(u.Publish.State), u.Publish.Value, code)
}

// tryRelease releases a usage, and waits for the engine.
func (h *host) tryRelease(ctx context.Context, u usage) (freed bool, err error) {
	h.start()
	status, err := h.ask(ctx, "DELETE", api+"usages/"+u.ID, nil, nil)
	return status == http.StatusOK, err
}

func (h *host) release(u usage, want bool) {
	h.t.Helper()
	if freed, err := h.tryRelease(context.Background(), u); freed != want || err != nil {
		h.t.Errorf("release of %s: freed %t, %v; want %t", u.Prefix, freed, err, want)
	}
}

// free releases a usage, and waits for a second at most. With force the prefix is free at once.
func (h *host) free(id string, force bool) (freed bool, err error) {
	path := api + "usages/" + id + "?wait=1"
	if force {
		path += "&force=1"
	}
	status, err := h.ask(context.Background(), "DELETE", path, nil, nil)
	return status == http.StatusOK, err
}

// force frees a usage's prefix at once.
func (h *host) force(u usage) {
	h.t.Helper()
	if freed, err := h.free(u.ID, true); err != nil || !freed {
		h.t.Errorf("release of %s by force: freed %t, %v", u.Prefix, freed, err)
	}
}

// totals are the figures of GET /metrics.
func (h *host) totals() map[string]uint64 {
	h.t.Helper()
	totals, err := h.Ledger.Totals(context.Background())
	support.Must(h.t, err)
	return totals
}

// item is a step of the test of a connection.
type item struct {
	Name, Code  string
	OK, Skipped bool
	Message     string
}

// test tests a connection; write is whether it writes.
func (h *host) test(ctx context.Context, c members, write bool) []item {
	c = maps.Clone(c)
	c["write_test"] = write
	var answer struct{ Results []item }
	if _, err := h.ask(ctx, "POST", api+"test", c, &answer); err != nil {
		h.t.Error(err)
	}
	return answer.Results
}

func itemsText(items []item) string {
	var words []string
	for _, item := range items {
		word := item.Code
		switch {
		case item.Skipped:
			word = "skipped"
		case item.OK:
			word = "ok"
		}
		words = append(words, item.Name+":"+word)
	}
	return strings.Join(words, " ")
}

// copy gives the octets of a backup.
func (h *host) copy() []byte {
	h.t.Helper()
	answer := httptest.NewRecorder()
	h.Routes.ServeHTTP(answer, httptest.NewRequest("GET", api+"backup", nil))
	if answer.Code != http.StatusOK {
		h.t.Fatal(answer.Body)
	}
	return answer.Body.Bytes()
}
