package provider

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPaged reads lists that end as they should, and others.
func TestPaged(t *testing.T) {
	total := func(n int) *int { return &n }
	type page struct {
		items []int
		total *int
	}
	for _, test := range []struct {
		name  string
		pages []page
		want  []int
		kind  Kind
	}{
		{"one page", []page{{[]int{1, 2}, total(2)}}, []int{1, 2}, ""},
		{"none", []page{{nil, total(0)}}, nil, ""},
		{"an empty list without its length", []page{{[]int{}, nil}}, nil, ""},
		{"pages until one is empty", []page{{[]int{1}, nil}, {[]int{2}, nil}, {nil, nil}}, []int{1, 2}, ""},
		{"a list that shrinks meanwhile", []page{{[]int{1, 2}, total(3)}, {nil, total(2)}}, []int{1, 2}, ""},
		{"pages before the last tell that more follow", []page{{[]int{1}, total(-1)}, {nil, total(-1)}, {[]int{2}, total(2)}}, []int{1, 2}, ""},
		{"neither list nor length", []page{{nil, nil}}, nil, BadAnswer},
		{"a list that ends early", []page{{[]int{1, 2}, total(3)}, {nil, total(3)}}, nil, BadAnswer},
	} {
		given := []int{}
		got, err := paged(func(at, before int) ([]int, *int, error) {
			given = append(given, before)
			return test.pages[at-1].items, test.pages[at-1].total, nil
		})
		if !slices.Equal(got, test.want) || KindOf(err) != test.kind || given[0] != 0 {
			t.Errorf("%s: %v, %v, want %v", test.name, got, err, test.want)
		}
	}
	if _, err := paged(func(int, int) ([]int, *int, error) { return []int{1}, nil, nil }); KindOf(err) != BadAnswer {
		t.Errorf("a list without an end: %v", err)
	}
}

// TestOtherOctets has octets that are not UTF-8 in the value of another, at
// vendors that change all values together.
func TestOtherOctets(t *testing.T) {
	const theirs = "caf\xe9"
	for name, test := range map[string]struct {
		open       func(Credentials) (*Client, error)
		zone, list string
		done       string
	}{
		"godaddy": {NewGoDaddy, `[{"type":"NS","name":"@","data":"ns1.example.net"}]`, `[{"type":"TXT","name":"a","data":"` + theirs + `","ttl":600}]`, ``},
		"huawei": {NewHuaweiCloud, `{"zones":[{"id":"z","name":"example.com."}],"metadata":{"total_count":1}}`,
			`{"recordsets":[{"id":"s","name":"a.example.com.","type":"TXT","status":"ACTIVE","ttl":300,"records":["\"` + theirs + `\""]}],"metadata":{"total_count":1}}`, `{}`},
	} {
		written := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPut:
				body, _ := io.ReadAll(r.Body)
				written = string(body)
				io.WriteString(w, test.done)
			case strings.HasSuffix(r.URL.Path, "/NS/@") || strings.HasSuffix(r.URL.Path, "/zones"):
				io.WriteString(w, test.zone)
			default:
				io.WriteString(w, test.list)
			}
		}))
		client, err := test.open(Credentials{AccessKeyID: "id", AccessKeySecret: "secret", Endpoint: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		seen, err := client.Read(t.Context(), "example.com", "a.example.com", TXT)
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			client.Change(ctx, Change{Zone: "example.com", Name: "a.example.com", Type: TXT, Seen: seen, Add: []Value{{"ours"}}, TTL: 600})
			cancel()
		}
		server.Close()
		if written != "" && !strings.Contains(written, theirs) {
			t.Errorf("%s: their value %q goes back as %s", name, theirs, written)
		}
	}
}

// TestWholePages reads lists that others change meanwhile.
func TestWholePages(t *testing.T) {
	total := func(n int) *int { return &n }
	for name, pages := range map[string][]struct {
		items []string
		total int
	}{
		"longer":        {{[]string{"a", "b"}, 3}, {[]string{"c"}, 4}},
		"shorter":       {{[]string{"a", "b"}, 3}, {nil, 2}},
		"an item again": {{[]string{"a", "b"}, 3}, {[]string{"b"}, 3}},
	} {
		err := wholePages(func(s string) string { return s }, func(page, _ int) ([]string, *int, error) {
			return pages[page-1].items, total(pages[page-1].total), nil
		}, func(string) {})
		if KindOf(err) != Changed {
			t.Errorf("%s: %v, want %s", name, err, Changed)
		}
	}
}

// TestZonesPaged reads a list of zones in which a page comes twice: the length is right, and some zones
// are missing.
func TestZonesPaged(t *testing.T) {
	total := 4
	_, err := zonesPaged(func(int, int) ([]string, *int, error) { return []string{"a", "b"}, &total, nil })
	if KindOf(err) != Changed {
		t.Errorf("%v, want %s", err, Changed)
	}
}

// silent is a vendor that gives no answer.
type silent struct {
	vendor
	calls int
}

func (s *silent) zones(context.Context) ([]zone, error) {
	s.calls++
	<-time.After(callTime)
	return nil, &Error{Kind: Network, Detail: "no answer"}
}

// TestSearchFailsOnce: a caller that waits for a failing search for zones gets its failure, and does not
// search again; a later caller does.
func TestSearchFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &silent{}
		c := clientOf(v, nil)
		for round := range 2 {
			began := time.Now()
			for range 8 {
				go func() {
					if _, err := c.Zone(t.Context(), "a.example.com"); KindOf(err) != Network || time.Since(began) != callTime {
						t.Errorf("%v after %v", err, time.Since(began))
					}
				}()
			}
			<-time.After(2 * callTime)
			synctest.Wait()
			if v.calls != round+1 {
				t.Errorf("%d searches, want %d", v.calls, round+1)
			}
		}
	})
}
