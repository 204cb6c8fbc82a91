package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// numbers returns a reader of a list of numbers up to the last one.
func numbers(last int64) PartReader[int64] {
	return func(after int64, size int) (Part[int64], error) {
		var rows []int64
		for n := after + 1; n <= last && len(rows) < size; n++ {
			rows = append(rows, n)
		}
		return Rows(rows, nil, func(n int64) (int64, any, error) { return n, n, nil })
	}
}

// A list has all entries without a limit. With a limit the answer has the cursor of the next page, if there is one.
func TestList(t *testing.T) {
	for _, test := range []struct {
		last          int64
		query         string
		first, number int
		next          string
	}{
		{0, "", 0, 0, ""}, {ListPage - 1, "", 1, ListPage - 1, ""}, {ListPage, "", 1, ListPage, ""}, {9*ListPage + 1, "", 1, 9*ListPage + 1, ""},
		{0, "?limit=5", 0, 0, ""}, {5, "?limit=5", 1, 5, ""}, {6, "?limit=5", 1, 5, "5"}, {6, "?limit=5&cursor=5", 6, 1, ""},
		{6, "?limit=2&cursor=1&after=3", 4, 2, "5"}, {6, "?limit=2&cursor=3&after=1", 4, 2, "5"}, {6, "?after=4", 5, 2, ""},
		{2 * ListPage, "?limit=" + strconv.Itoa(2*ListPage), 1, 2 * ListPage, ""},
		{2*ListPage + 1, "?limit=" + strconv.Itoa(2*ListPage), 1, 2 * ListPage, strconv.Itoa(2 * ListPage)},
	} {
		w := httptest.NewRecorder()
		List(Adapter{}, func(*http.Request) (PartReader[int64], error) { return numbers(test.last), nil }).ServeHTTP(w, httptest.NewRequest("GET", "/"+test.query, nil))
		var answer struct {
			Data []int  `json:"data"`
			Next string `json:"next_cursor"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%+v: %v in %s", test, err, w.Body)
		}
		if len(answer.Data) != test.number || answer.Next != test.next || answer.Data == nil {
			t.Errorf("%+v: %d entries, then %q", test, len(answer.Data), answer.Next)
		}
		for i, n := range answer.Data {
			if n != test.first+i {
				t.Fatalf("%+v: entry %d is %d", test, i, n)
			}
		}
	}
}

// Each part is read after the one before is written, so that a client that stops reading holds one. After a part that cannot
// be read the answer ends.
func TestPartByPart(t *testing.T) {
	fault := errors.New("no part")
	var out bytes.Buffer
	var sizes []int
	read := func(after int64, size int) (Part[int64], error) {
		if written := int64(bytes.Count(out.Bytes(), []byte(","))) + 1; size > 1 && after > 0 && written != after {
			t.Errorf("%d entries are written when what follows %d is read", written, after)
		}
		if sizes = append(sizes, size); after == 3*ListPage {
			return Part[int64]{}, fault
		}
		return numbers(1000)(after, size)
	}
	write := func(piece []byte) bool { out.Write(piece); return true }
	if err := writeList(0, 0, read, write); err != fault || json.Valid(out.Bytes()) || !slices.Equal(sizes, []int{ListPage, ListPage, ListPage, ListPage}) {
		t.Errorf("%v after parts of %v", err, sizes)
	}
	out.Reset()
	if err := writeList(3*ListPage, 0, read, write); err != fault {
		t.Errorf("the next page cannot be read: %v", err)
	}
	if err := writeList(0, 0, read, func([]byte) bool { return false }); err != nil {
		t.Errorf("a client that has gone: %v", err)
	}
}

// The query of a route has its own members only, unless it takes any. A flag of the wait for a replica is of changes.
func TestOnly(t *testing.T) {
	a := Adapter{Log: slog.New(slog.DiscardHandler)}
	texts := func(*http.Request) (PartReader[string], error) {
		return func(after string, size int) (Part[string], error) {
			rows := slices.DeleteFunc([]string{`"`, "a", "b"}, func(id string) bool { return id <= after })
			return Rows(rows[:min(len(rows), size)], nil, func(id string) (string, any, error) { return id, id, nil })
		}, nil
	}
	mux := http.NewServeMux()
	mux.Handle("/texts", List(a, texts, "q"))
	mux.Handle("/any", List(a, texts, AnyMember))
	mux.Handle("/reply", a.Handle(func(*http.Request) (Reply, error) { return Reply{}, nil }, "q"))
	mux.Handle("/none", a.Only(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("{}\n")) }))
	for target, want := range map[string]string{
		"/texts?q=1": `200 {"data":["\"","a","b"]}`, "/texts?limit=1": `200 {"data":["\""],"next_cursor":"\""}`, "/texts?limit=1&cursor=a": `200 {"data":["b"]}`,
		"/texts?cursor=%22": `200 {"data":["a","b"]}`, "/texts?after=1": "400", "/texts?p=1": "400", "/texts?durable=1": "400",
		"/any?_=1": `200 {"data":["\"","a","b"]}`, "/any?limit=0": "400",
		"/reply?q=1": "200 {}", "/reply?q=1&p=1": "400", "/none?": "200 {}", "/none?p": "400", "/none?%zz": "400",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(method, target, nil))
			if got := fmt.Sprint(w.Code, " ", strings.ReplaceAll(w.Body.String(), "\n,", ",")); got != want+"\n" && fmt.Sprint(w.Code) != want {
				t.Errorf("%s %s: %s, want %s", method, target, got, want)
			}
		}
	}
}
