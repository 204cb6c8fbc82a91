package provider

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"meshddns/test/cloudtest"
)

// TestGoDaddyRequests compares the requests with the vendor's documentation.
func TestGoDaddyRequests(t *testing.T) {
	const name = "_mesh.a." + cloudtest.Zone
	c := cloudtest.GoDaddy(t)
	client := openCloud(t, c, NewGoDaddy)
	for _, ch := range []Change{
		{Name: name, Type: TXT, Add: []Value{{"one"}}, TTL: 60},
		{Name: name, Type: TXT, Seen: RRset{Values: []Value{{"one"}}}, Add: []Value{{"a b+c%/"}}, TTL: 900},
		{Name: name, Type: TXT, Seen: RRset{Values: []Value{{"one"}, {"a b+c%/"}}}, Remove: []Value{{"one"}, {"a b+c%/"}}},
		{Name: cloudtest.Zone, Type: TXT, Add: []Value{{"apex"}}, TTL: 900},
	} {
		ch.Zone = cloudtest.Zone
		if err := client.Change(t.Context(), ch); err != nil {
			t.Fatal(err)
		}
	}
	const path = "/v1/domains/example.com/records/"
	var got []string
	for _, r := range c.Asked() {
		if want := "sso-key " + c.AccessKeyID + ":" + c.AccessKeySecret; r.Header.Get("Authorization") != want {
			t.Errorf("Authorization %q, want %q", r.Header.Get("Authorization"), want)
		}
		if r.Method != http.MethodGet || strings.Contains(r.Target, "/NS/") {
			got = append(got, r.Method+" "+r.Target+" "+string(r.Body))
		}
	}
	want := []string{
		"GET " + path + "NS/@ ",
		"PUT " + path + `TXT/_mesh.a [{"data":"one","ttl":600}]`,
		"PUT " + path + `TXT/_mesh.a [{"data":"one","ttl":600},{"data":"a b+c%/","ttl":600}]`,
		"DELETE " + path + "TXT/_mesh.a ",
		"PUT " + path + `TXT/@ [{"data":"apex","ttl":900}]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestGoDaddyZone(t *testing.T) {
	c := cloudtest.GoDaddy(t)
	client := openCloud(t, c, NewGoDaddy)
	if zone, err := client.Zone(t.Context(), "_mesh.a."+cloudtest.Zone); err != nil || zone != cloudtest.Zone {
		t.Errorf("%q, %v, want %q: 404 and 422 are no zones", zone, err, cloudtest.Zone)
	}
	authority, err := client.Authority(t.Context(), cloudtest.Zone)
	if want := []string{"ns01.domaincontrol.com", "ns02.domaincontrol.com"}; err != nil || !slices.Equal(authority.Names, want) {
		t.Errorf("%q, %v, want %q", authority.Names, err, want)
	}
	for _, answer := range []cloudtest.Answer{
		cloudtest.JSON(http.StatusOK, []any{}),
		cloudtest.JSON(http.StatusOK, []any{map[string]any{"name": "@", "type": "A", "data": "192.0.2.1"}}),
		cloudtest.JSON(http.StatusOK, []any{map[string]any{"name": "child", "type": "NS", "data": "ns.example.net"}}),
		cloudtest.JSON(http.StatusNotFound, map[string]any{"code": "NEVER_HEARD_OF"}),
	} {
		c.Fail(cloudtest.Instead(answer))
		clear(client.zones)
		if zone, found, err := client.find(t.Context(), cloudtest.ChildZone); err != nil || found {
			t.Errorf("HTTP %d %s: %v, %v, want no zone", answer.Status, answer.Body, zone, err)
		}
	}
	c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: "null"}))
	clear(client.zones)
	if _, _, err := client.find(t.Context(), cloudtest.ChildZone); err == nil || KindOf(err) != BadAnswer {
		t.Errorf("no list: %v, want %s", err, BadAnswer)
	}
	c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusNotFound, Body: "<html>"}))
	if _, _, err := client.find(t.Context(), cloudtest.ChildZone); err == nil || KindOf(err) != Invalid {
		t.Errorf("a page that is not the API's: %v, want %s", err, Invalid)
	}
}

func TestGoDaddyErrors(t *testing.T) {
	const words, id = "words of the vendor", "bq7TFLQGMjZ5"
	failure := func(status int, code string, fields ...map[string]any) cloudtest.Answer {
		a := cloudtest.JSON(status, map[string]any{"code": code, "message": words, "fields": fields})
		a.Header["X-Request-Id"] = id
		return a
	}
	testRefusals(t, "godaddy", []refusal{
		{failure(http.StatusUnauthorized, "UNABLE_TO_AUTHENTICATE"), BadCredentials},
		{failure(http.StatusBadRequest, "MALFORMED_CREDENTIALS"), BadCredentials},
		{failure(http.StatusForbidden, "ACCESS_DENIED"), Permission},
		{failure(http.StatusNotFound, "UNKNOWN_DOMAIN"), ZoneNotFound},
		{failure(http.StatusNotFound, "NOT_FOUND"), ZoneNotFound},
		{failure(http.StatusUnprocessableEntity, "UNKNOWN_DOMAIN"), ZoneNotFound},
		{failure(http.StatusUnprocessableEntity, "DUPLICATE_RECORD"), Conflict},
		{failure(http.StatusUnprocessableEntity, "INVALID_BODY", map[string]any{"code": "DUPLICATE_RECORD", "path": "records"}), Conflict},
		{failure(http.StatusUnprocessableEntity, "INVALID_BODY", map[string]any{"code": "MIN_VALUE", "path": "records[0].ttl"}), Invalid},
		{failure(http.StatusTooManyRequests, "TOO_MANY_REQUESTS"), Throttled},
		{failure(http.StatusTooManyRequests, "NEVER_HEARD_OF"), Throttled},
		{failure(http.StatusInternalServerError, "NEVER_HEARD_OF"), Temporary},
		{failure(http.StatusBadRequest, "NEVER_HEARD_OF"), Invalid},
	}, id, words)
}

// TestGoDaddyOffset reads a list whole whether its offset counts pages or
// records, also when others come first.
func TestGoDaddyOffset(t *testing.T) {
	const total, others, limit = 35, 10, 10
	for _, step := range []int{limit, 1} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			offset, err := strconv.Atoi(r.URL.Query().Get("offset"))
			first := 0
			if err == nil {
				first = min(total, offset*step)
				if step == limit {
					first = min(total, (offset-1)*step)
				}
			}
			records := []goDaddyRecord{}
			for n := first; n < min(total, first+limit); n++ {
				r := goDaddyRecord{Name: "A", Type: "TXT", Data: "value " + strconv.Itoa(n), TTL: 600}
				if n < others {
					r.Name = "other"
				}
				records = append(records, r)
			}
			if err := json.NewEncoder(w).Encode(records); err != nil {
				t.Error(err)
			}
		}))
		t.Cleanup(server.Close)
		a, err := newAPI(goDaddyEndpoint, Credentials{Endpoint: server.URL}, false)
		if err != nil {
			t.Fatal(err)
		}
		set, err := goDaddyOf(a).list(t.Context(), zone{id: "example.com", name: "example.com"}, setKey{"a.example.com", TXT})
		if err != nil || len(set.records) != total-others {
			t.Errorf("step %d: %d records, %v, want %d", step, len(set.records), err, total-others)
		}
	}
}

// TestGoDaddyOthers keeps values of others with their TTL, and ignores records in the list that were not
// asked for.
func TestGoDaddyOthers(t *testing.T) {
	c, client := openNamed(t, "godaddy")
	c.Asked()
	records := cloudtest.Instead(cloudtest.JSON(http.StatusOK, []goDaddyRecord{
		{Name: "a", Type: "TXT", Data: `"quoted" \`, TTL: 300}, {Name: "A", Type: "TXT", Data: "two", TTL: 3600}, {Name: "a", Type: "TXT", Data: "", TTL: 3600},
		{Name: "aa", Type: "TXT", Data: "look-alike"}, {Name: "a", Type: "CNAME", Data: "other type"},
	}))
	c.Fail(records, records)
	seen := RRset{Values: []Value{{`"quoted" \`}, {"two"}, {""}}}
	err := client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: "a." + cloudtest.Zone, Type: TXT, Seen: seen, Add: []Value{{"ours"}}, Remove: []Value{{"two"}}, TTL: 60})
	if err == nil || !strings.Contains(err.Error(), "records[0].ttl") {
		t.Errorf("%v, want the service's refusal of a TTL that we leave as it is", err)
	}
	want := `[{"data":"\"quoted\" \\","ttl":300},{"data":"","ttl":3600},{"data":"ours","ttl":600}]`
	if requests := c.Asked(); len(requests) != 3 || string(requests[2].Body) != want {
		t.Errorf("%d requests, the last %s, want %s", len(requests), requests[len(requests)-1].Body, want)
	}
}

// TestGoDaddyGone deletes a set that another user has removed.
func TestGoDaddyGone(t *testing.T) {
	client := openCloud(t, cloudtest.GoDaddy(t), NewGoDaddy)
	v := client.vendor.(*goDaddy)
	if err := v.replace(t.Context(), zone{id: cloudtest.Zone, name: cloudtest.Zone}, setKey{"gone." + cloudtest.Zone, TXT}, recordSet{}, recordSet{}); err != nil {
		t.Errorf("deleted what is gone: %v", err)
	}
}
