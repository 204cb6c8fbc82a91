package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"meshddns/envelope"
)

// fuzzed are the calls with a body, in the order of their numbers in the inputs of FuzzBodies.
// The connection test is there without its network: its own time ends it at once.
var fuzzed = []string{
	"PUT /api/v1/ddns/config", "POST /api/v1/ddns/test", "POST /api/v1/ddns/adopt?dry_run=1", "POST /api/v1/ddns/usages",
	"PATCH /api/v1/ddns/usages/", "POST /api/v1/ddns/services", "PUT /api/v1/ddns/services/fuzzed",
}

// Whatever a body is, the real routes on a real database give an answer in the contract's form:
// no fault of the program, what is granted is JSON that encoding/json reads too, what is stored
// comes back, and no secret with it.
func FuzzBodies(f *testing.F) {
	for i, body := range []string{
		`{"provider":"nobody","access_key_id":"id","access_key_secret":"s3cr3t-0123456789","domain":"example.com","txt_record_name":"@","retry_interval":-9223372036854775808,"enabled":false,"txt_endpoints":["tcp://{ipv4}:1"]}`,
		`{"provider":"nobody","domain":"a..b","write_test":true}`,
		`{"owner":"0123456789ab"}`,
		`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"Office_1","network_id":18446744073709551615,"network_name":"\u529e"}`,
		`{"txt_endpoints":["wss://[{ipv6}]:443"],"description":null}`,
		`{"name":"x","config":"{\"domain\":\"b.example\",\"api_token\":\"s3cr3t-0123456789\"}"}`,
		`{"name":"x","config":{"domain":"例子.example","access_key_secret":"********","a":{"b":[1e400]}}}`,
	} {
		for at := range fuzzed {
			if at == i || at%3 == i%3 {
				f.Add(uint8(at), body)
			}
		}
	}
	for _, body := range []string{"", "null", "[]", "{", "\xff", `{"a":1,"a":2}`, `{"name":"\ud800"}`, strings.Repeat("[", 20_000), strings.Repeat(" ", envelope.MaxBody+1)} {
		f.Add(uint8(5), body)
	}
	a := newAppliance(f, stopClock)
	routes := a.routes()
	must := func(method, path, body string) string {
		w := exchangeOf(routes, method, path, body)
		if w.Code != http.StatusOK {
			f.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	must("PUT", "/api/v1/ddns/services/svc", `{"name":"x","config":{"domain":"example.com"}}`)
	var made struct{ Data struct{ ID string } }
	if err := json.Unmarshal([]byte(must("POST", "/api/v1/ddns/usages", `{"service_id":"svc","prefix_mode":"auto","network_id":1}`)), &made); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, call uint8, body string) {
		method, path, _ := strings.Cut(fuzzed[int(call)%len(fuzzed)], " ")
		if strings.HasSuffix(path, "/usages/") {
			path += made.Data.ID
		}
		w := exchangeOf(routes, method, path, body)
		checkForm(t, w, body)
		var answer struct {
			Data struct{ ID, Config string }
		}
		if w.Code == http.StatusOK && json.Unmarshal(w.Body.Bytes(), &answer) != nil {
			answer.Data.ID = ""
		}
		switch {
		case answer.Data.ID == "":
		case strings.HasSuffix(path, "/usages"):
			if w := exchangeOf(routes, "DELETE", path+"/"+answer.Data.ID+"?force=1", ""); w.Code != http.StatusOK {
				t.Errorf("release what was reserved: %d %s", w.Code, w.Body)
			}
		default:
			stored := exchangeOf(routes, "GET", "/api/v1/ddns/services/"+answer.Data.ID, "")
			leaked := strings.Contains(stored.Body.String(), bodySecret) && !strings.Contains(withoutSecrets(body), bodySecret)
			if stored.Code != http.StatusOK || leaked {
				t.Errorf("stored %q, and read %d %s", body, stored.Code, stored.Body)
			}
			if w := exchangeOf(routes, "DELETE", "/api/v1/ddns/services/"+answer.Data.ID, ""); w.Code != http.StatusOK && answer.Data.ID != "svc" {
				t.Errorf("delete %s: %d %s", answer.Data.ID, w.Code, w.Body)
			}
		}
	})
}

// bodySecret stands in the inputs where a secret does.
const bodySecret = "s3cr3t-0123456789"

// withoutSecrets is a body without the members that are secrets, as the first inputs write them.
func withoutSecrets(body string) string {
	return strings.NewReplacer(`"access_key_secret":"`+bodySecret+`"`, "", `\"api_token\":\"`+bodySecret+`\"`, "").Replace(body)
}

// exchangeOf asks the routes, for a second at most: a provider is not waited for.
func exchangeOf(routes http.Handler, method, path, body string) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w := httptest.NewRecorder()
	routes.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return w
}

// checkForm holds an answer to the form of all answers.
func checkForm(t *testing.T, w *httptest.ResponseRecorder, body string) {
	t.Helper()
	var members map[string]json.RawMessage
	err := json.Unmarshal(w.Body.Bytes(), &members)
	code := w.Header().Get("X-Error-Code")
	wanted := []int{http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge}
	switch failed := w.Code >= 400; {
	case err != nil || !utf8.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != envelope.MediaType:
		t.Errorf("%d %q %q: %v", w.Code, w.Header(), w.Body, err)
	case !slices.Contains(wanted, w.Code):
		t.Errorf("%q: status %d %s %s", body, w.Code, code, w.Body)
	case failed != (code != "") || failed != (len(members) == 1 && len(members["error"]) > len(`""`)):
		t.Errorf("status %d, code %q, %s", w.Code, code, w.Body)
	case !failed && !json.Valid([]byte(body)):
		t.Errorf("granted: %q", body)
	case len(body) > envelope.MaxBody && w.Code != http.StatusRequestEntityTooLarge:
		t.Errorf("%d octets: status %d", len(body), w.Code)
	}
	if failed := string(members["error"]); strings.Contains(failed, bodySecret) {
		t.Errorf("the secret is in %s", failed)
	}
}
