package provider

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/secrets"
	"meshddns/test/cloudtest"
)

func TestPorkbunErrors(t *testing.T) {
	failure := func(status int, code, message string) cloudtest.Answer {
		return cloudtest.JSON(status, map[string]any{"status": "ERROR", "code": code, "message": message})
	}
	const words = "words of the vendor"
	testRefusals(t, "porkbun", []refusal{
		{failure(http.StatusBadRequest, "INVALID_API_KEYS_001", words), BadCredentials},
		{failure(http.StatusBadRequest, "MISSING_SECRETAPIKEY", words), BadCredentials},
		{failure(http.StatusBadRequest, "", "Invalid API key. (002) "+words), BadCredentials},
		{failure(http.StatusForbidden, "IP_NOT_ALLOWED", words), Permission},
		{failure(http.StatusForbidden, "DOMAIN_NOT_ALLOWED", words), ZoneNotFound},
		{failure(http.StatusBadRequest, "", "Invalid domain. "+words), ZoneNotFound},
		{failure(http.StatusBadRequest, "", "Domain is not opted in to API access. "+words), ZoneNotFound},
		{failure(http.StatusBadRequest, "INVALID_RECORD_ID", words), gone},
		{failure(http.StatusBadRequest, "DUPLICATE_RECORD", words), exists},
		{failure(http.StatusTooManyRequests, "RATE_LIMIT_EXCEEDED", words), Throttled},
		{failure(http.StatusTooManyRequests, "", words), Throttled},
		{failure(http.StatusServiceUnavailable, "", words), Temporary},
		{failure(http.StatusBadRequest, "", "Create error: We were unable to create the DNS record. "+words), Temporary},
		{failure(http.StatusForbidden, "NEVER_HEARD_OF", words), Permission},
		{failure(http.StatusBadRequest, "NEVER_HEARD_OF", words), Invalid},
		{failure(http.StatusOK, "", words), Invalid},
	}, words)
	testRefusals(t, "porkbun", []refusal{{cloudtest.Answer{Status: http.StatusAccepted}, Throttled}})
}

// newPorkbun makes a client of a stand-in that has not seen its keys yet.
func newPorkbun(t *testing.T, c *cloudtest.Cloud, secret string) *porkbun {
	t.Helper()
	client, err := NewPorkbun(Credentials{AccessKeyID: c.AccessKeyID, AccessKeySecret: secrets.Secret(secret), Endpoint: c.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client.vendor.(*porkbun)
}

// TestPorkbunKeys distinguishes wrong keys from a domain outside the account, and tests good keys once.
func TestPorkbunKeys(t *testing.T) {
	c := cloudtest.Porkbun(t)
	for _, name := range []string{"nowhere.example", cloudtest.Zone} {
		if _, found, err := newPorkbun(t, c, "sk1_wrong").zone(t.Context(), name); found || KindOf(err) != BadCredentials {
			t.Error("wrong keys:", found, err)
		}
	}
	v := newPorkbun(t, c, c.AccessKeySecret)
	c.Asked()
	for range 2 {
		if _, found, err := v.zone(t.Context(), "nowhere.example"); found || err != nil {
			t.Error("domain of others:", found, err)
		}
	}
	if asked := c.Asked(); len(asked) != 3 || !strings.HasSuffix(asked[1].Path, "/ping") {
		t.Errorf("%d calls: %+v", len(asked), asked)
	}
	c.Fail(cloudtest.Throttle)
	if _, found, err := v.zone(t.Context(), "nowhere.example"); found || KindOf(err) != Throttled {
		t.Error("throttled:", found, err)
	}
	c.Fail(cloudtest.Instead(cloudtest.JSON(http.StatusBadRequest, map[string]string{"status": "ERROR", "message": "Invalid API key. (001)"})))
	if _, _, err := v.zone(t.Context(), cloudtest.Zone); KindOf(err) != BadCredentials || v.known.Load() {
		t.Error("keys that are taken away:", err)
	}
}

// TestPorkbunZoneAbove does not take a domain for the zone of one below it.
func TestPorkbunZoneAbove(t *testing.T) {
	c := cloudtest.Porkbun(t)
	v := newPorkbun(t, c, c.AccessKeySecret)
	for name, want := range map[string]bool{"sub.example.com": false, "example.com": true, "ple.com": false} {
		c.Fail(cloudtest.Instead(cloudtest.JSON(http.StatusOK, map[string]any{"status": "SUCCESS", "records": []any{map[string]string{"name": "www.example.com"}}})))
		if _, found, err := v.zone(t.Context(), name); found != want || err != nil {
			t.Errorf("%s: %t, %v", name, found, err)
		}
	}
}

func TestPorkbunKeysStayHidden(t *testing.T) {
	c := cloudtest.Porkbun(t)
	c.Fail(cloudtest.Instead(cloudtest.JSON(http.StatusBadRequest, map[string]string{
		"status": "ERROR", "code": c.AccessKeySecret, "message": strings.Repeat("x", secrets.MaxPart-10) + c.AccessKeyID + c.AccessKeySecret,
	})))
	_, err := newPorkbun(t, c, c.AccessKeySecret).list(t.Context(), zone{id: cloudtest.Zone, name: cloudtest.Zone}, setKey{cloudtest.Zone, TXT})
	for _, part := range []string{c.AccessKeyID[:6], c.AccessKeySecret[:6]} {
		if err == nil || strings.Contains(err.Error(), part) {
			t.Errorf("%v shows %s", err, part)
		}
	}
}

// TestPorkbunList reads ids and TTLs as numbers and as texts.
func TestPorkbunList(t *testing.T) {
	c := cloudtest.Porkbun(t)
	c.Fail(cloudtest.Instead(cloudtest.JSON(http.StatusOK, map[string]any{"status": "success", "records": []any{
		map[string]any{"id": 7, "name": "A.Example.com.", "type": "TXT", "content": "a", "ttl": 900},
		map[string]any{"id": "8", "name": "a.example.com", "type": "TXT", "content": `"b"`, "ttl": ""},
	}})))
	set, err := newPorkbun(t, c, c.AccessKeySecret).list(t.Context(), zone{id: "example.com", name: "example.com"}, setKey{"a.example.com", TXT})
	if err != nil || len(set.records) != 2 || set.records[0].id != "7" || set.records[0].ttl != 900 || set.records[1].ttl != 0 || set.records[1].value.Text() != `"b"` {
		t.Errorf("%+v, %v", set, err)
	}
}

// TestPorkbunInterval: calls to the vendor have an interval, calls to other servers do not.
func TestPorkbunInterval(t *testing.T) {
	for endpoint, want := range map[string]time.Duration{
		"": porkbunInterval, "https://api-ipv4.porkbun.com": porkbunInterval, "http://127.0.0.1:1": 0, "https://api.notporkbun.com": 0,
	} {
		client, err := NewPorkbun(Credentials{AccessKeyID: "pk1_", AccessKeySecret: "sk1_", Endpoint: endpoint})
		if err != nil {
			t.Fatal(err)
		}
		if got := client.vendor.(*porkbun).turns.interval; got != want {
			t.Errorf("%q: %s, want %s", endpoint, got, want)
		}
	}
}

func TestPorkbunTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, begin := newTurns(time.Second), time.Now()
		for want := range 3 * time.Second / time.Second {
			if !turns.wait(t.Context()) || time.Since(begin) != want*time.Second {
				t.Errorf("turn %d after %s", want, time.Since(begin))
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		done := make(chan bool)
		for range 2 { // one waits for the time, one for its turn
			go func() { done <- turns.wait(short) }()
		}
		first, second := <-done, <-done
		if first || second || time.Since(begin) != 2*time.Second+time.Second/2 {
			t.Error("a context that ends: a turn, or too late", time.Since(begin))
		}
		if !turns.wait(t.Context()) || time.Since(begin) != 3*time.Second {
			t.Error("who went has taken a turn:", time.Since(begin))
		}
		free := newTurns(0)
		for range 50 { // a select of two takes either
			if free.wait(short) {
				t.Error("an ended context has a turn")
			}
		}
	})
}

// TestPorkbunWords has a slash in a code and in words.
func TestPorkbunWords(t *testing.T) {
	c := cloudtest.Porkbun(t)
	v := newPorkbun(t, c, c.AccessKeySecret)
	for words, kind := range map[string]Kind{
		"Invalid API key. See https://porkbun.com/account/api":                            BadCredentials,
		"Domain is not opted in to API access (see https://porkbun.com/account/domains).": ZoneNotFound,
		"Edit error: We were unable to edit the DNS record. Contact support / try again.": Temporary,
	} {
		c.Fail(cloudtest.Instead(cloudtest.JSON(http.StatusBadRequest, map[string]string{"status": "ERROR", "message": words})))
		if err := v.do(t.Context(), call{name: "x", path: "/ping"}, nil, &struct{}{}); KindOf(err) != kind {
			t.Errorf("%v, want %s", err, kind)
		}
	}
	c.Fail(cloudtest.Instead(cloudtest.JSON(http.StatusBadRequest, map[string]string{"status": "ERROR", "code": "E/7", "message": "Invalid API key."})))
	if err := v.do(t.Context(), call{name: "x", path: "/ping"}, nil, &struct{}{}); KindOf(err) != BadCredentials {
		t.Errorf("code: %v", err)
	}
}

// TestPorkbunOneTurn has all clients wait for each other.
func TestPorkbunOneTurn(t *testing.T) {
	key := Credentials{AccessKeyID: "pk1_", AccessKeySecret: "sk1_"}
	a, _ := NewPorkbun(key)
	b, _ := NewPorkbun(key)
	if a.vendor.(*porkbun).turns != b.vendor.(*porkbun).turns {
		t.Error("two clients of one key do not wait for each other")
	}
}
