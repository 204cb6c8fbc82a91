package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"meshddns/answers"
)

// TestLeftoversAreStreamed lists more leftovers than are kept at a time: all of them, in
// pages too, and with an answer that is cut when the database goes on the way.
func TestLeftoversAreStreamed(t *testing.T) {
	const count = 10*leftoverPage + 1
	a := newAppliance(t)
	db := a.open(t)
	defer db.Close()
	if _, err := db.Exec(`
		INSERT INTO accounts (id, provider, endpoint, access_key_id, access_key_secret, key_hash) VALUES (1, 'vendor', '', 'key', '', '');
		INSERT INTO places (name, account, zone, zone_id, state, standing, doubt, look_at, disturbed, code, detail, key_of, attempts, at, since)
		WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		SELECT printf('n%06d', i), 1, 'z', '', 'leftover', hex(zeroblob(8192)), '', 0, 0, '', '', '', 0, '', '' FROM n`, count); err != nil {
		t.Fatal(err)
	}
	page := func(query string) (names []string, next string) {
		var body struct {
			Data []answers.Leftover
			Next string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(a.must(t, "GET", "/api/v1/ddns/leftovers"+query, "")), &body); err != nil {
			t.Fatal(err)
		}
		for _, l := range body.Data {
			names = append(names, l.Name)
		}
		return names, body.Next
	}
	whole, next := page("")
	if len(whole) != count || next != "" {
		t.Fatalf("%d leftovers, and the cursor %q", len(whole), next)
	}
	var paged []string
	for cursor, more := "", true; more; more = cursor != "" {
		var names []string
		names, cursor = page("?limit=77&cursor=" + cursor)
		paged = append(paged, names...)
		if more := len(paged) < count; more != (cursor != "") || more && len(names) != 77 {
			t.Fatalf("a page of %d behind %d, and the cursor %q", len(names), len(paged)-len(names), cursor)
		}
	}
	if fmt.Sprint(paged) != fmt.Sprint(whole) {
		t.Error("the pages are not the whole")
	}
	response, err := a.http.Get(a.url + "/api/v1/ddns/leftovers")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := db.Exec(`ALTER TABLE places RENAME TO away`); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(a.logs.String(), "answer broken off") {
		t.Errorf("the answer ends with %v: it was read as a whole before it was sent", err)
	}
}
