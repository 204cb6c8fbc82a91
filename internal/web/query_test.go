package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"meshddns/internal/msg"
)

// A query is read as it is written, or refused: a page is within its bounds, a cursor and a
// limit have one writing each, and a flag has one of four words.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{"", "limit=1&cursor=0", "limit=1000", "limit=1001", "limit=%2B1", "limit=01", "cursor=-1", "cursor=9223372036854775808",
		"dry_run=1", "dry_run=&sweep=true", "dry_run=1&dry_run=1", "dry_run=%31", "a;b", "%zz", "limit=1&limit=x", "cursor=%00"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := &http.Request{URL: &url.URL{RawQuery: text}}
		query, err := ParseQuery(r)
		set, flagErr := Flags(r, "dry_run")
		if err != nil {
			if flagErr == nil {
				t.Fatalf("%q is broken, and its flags are read", text)
			}
			return
		}
		if again, err := ParseQuery(&http.Request{URL: &url.URL{RawQuery: query.Encode()}}); err != nil || again.Encode() != query.Encode() {
			t.Errorf("%q: read again %v, %v", text, again, err)
		}
		limit, after, err := PageQuery[int64](query)
		if err == nil && (limit < 0 || limit > MaxPage || after < 0 ||
			query.Get("limit") != "" && strconv.Itoa(limit) != query.Get("limit") || query.Get("cursor") != "" && strconv.FormatInt(after, 10) != query.Get("cursor")) {
			t.Errorf("%q: limit %d, cursor %d", text, limit, after)
		}
		if _, ok := errors.AsType[*Failure](err); err != nil && !ok {
			t.Errorf("%q: %v is no refusal", text, err)
		}
		given := query["dry_run"]
		yes := len(given) == 1 && (given[0] == "1" || given[0] == "true")
		no := len(given) == 0 || len(given) == 1 && (given[0] == "0" || given[0] == "false")
		if (flagErr == nil) != (yes || no) || set["dry_run"] && !yes {
			t.Errorf("%q: %v, %v", text, set, flagErr)
		}
	})
}

// TestPageLimit: a page has 1 to 1000 entries.
func TestPageLimit(t *testing.T) {
	for limit, ok := range map[string]bool{"0": false, "1": true, "1000": true, "1001": false} {
		if got, _, err := PageQuery[int64](url.Values{"limit": {limit}}); (err == nil) != ok || ok && strconv.Itoa(got) != limit {
			t.Errorf("limit %s: %d, %v", limit, got, err)
		}
	}
}

func TestWarnMembers(t *testing.T) {
	var known struct {
		Provider   string `json:"provider"`
		ID         string `json:"access_key_id"`
		Secret     string `json:"access_key_secret"`
		Endpoint   string `json:"endpoint"`
		RecordName string `json:"txt_record_name"`
		Endpoints  string `json:"txt_endpoints"`
		Enabled    bool   `json:"enabled"`
	}
	for given, want := range map[string]string{
		"":                                     "",
		"provider domain enabled":              "",
		"access_key":                           "access_key access_key_id",
		"access_key access_key_id":             "access_key access_key_secret",
		"accessKeySecret ACCESS_KEY_ID":        "accessKeySecret access_key_secret, ACCESS_KEY_ID access_key_id",
		"txtEndpoints":                         "txtEndpoints txt_endpoints",
		"txt-record-name":                      "txt-record-name txt_record_name",
		"Domain domian":                        "Domain domain, domian domain",
		"Domain domain":                        "",
		"secret":                               "secret access_key_secret",
		"endpoints":                            "endpoints endpoint",
		"syncmode enable":                      "syncmode sync_mode, enable enabled",
		"region note id name comment key mode": "",
		"updated_at effective":                 "",
	} {
		var got []string
		for _, w := range WarnMembers(strings.Fields(given), known, "domain", "sync_mode") {
			if w.ID != msg.WarnMember {
				t.Errorf("%v", w)
			}
			got = append(got, w.Args[0].(string)+" "+w.Args[1].(string))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
}
