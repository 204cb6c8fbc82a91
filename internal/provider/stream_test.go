package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// longLists are the answers that have a whole zone: the text before the records, a record, and the text
// after them.
var longLists = []struct {
	name, before, after string
	open                func(Credentials) (*Client, error)
	record              func(name, text string) string
}{
	{
		name: "webhook", open: NewWebhook, before: `{"zone":"example.com","names":[`, after: `]}`,
		record: func(name, text string) string { return fmt.Sprintf(`{"name":%q,"ttl":60,"values":[%q]}`, name, text) },
	},
	{
		name: "powerdns", open: NewPowerDNS, before: `{"id":"example.com.","rrsets":[`, after: `],"serial":7}`,
		record: func(name, text string) string {
			return fmt.Sprintf(`{"name":%q,"type":"TXT","ttl":60,"records":[{"content":%q,"disabled":false}]}`, name+".", `"`+text+`"`)
		},
	},
}

// longList serves a zone with so many records of others and one of ours. body replaces the text after
// the records.
func longList(t *testing.T, at int, records int, body string) *Client {
	l := longLists[at]
	var text strings.Builder
	text.WriteString(l.before)
	for n := range records {
		text.WriteString(l.record(fmt.Sprintf("host-%d.example.com", n), strings.Repeat("theirs ", 24)) + ",")
	}
	text.WriteString(l.record("_mesh.a.example.com", "ours") + body)
	whole := text.String()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("name") {
			fmt.Fprint(w, `{"zone":"example.com","values":[]}`)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/zones") {
			fmt.Fprint(w, `[{"id":"example.com.","name":"example.com.","kind":"Native"}]`)
			return
		}
		io.WriteString(w, whole)
	}))
	t.Cleanup(server.Close)
	client, err := l.open(Credentials{AccessKeyID: "id", AccessKeySecret: "secret", Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func oursOnly(name string, _ Value) bool { return strings.HasPrefix(name, "_mesh.") }

// TestLongLists reads zones whose lists are many times longer than other answers may be, and keeps only
// the wanted records.
func TestLongLists(t *testing.T) {
	for at, l := range longLists {
		t.Run(l.name, func(t *testing.T) {
			const records = 25_000
			client := longList(t, at, records, l.after)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			all, err := client.ReadAll(t.Context(), "example.com", oursOnly)
			if len(all) != 1 || len(all["_mesh.a.example.com"].Values) != 1 || err != nil {
				t.Fatalf("%d names, %v", len(all), err)
			}
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 12<<20 {
				t.Errorf("the heap has grown by %d KiB", grown>>10)
			}
			if cost := client.cost(zone{name: "example.com"}); cost < records/listPage {
				t.Errorf("a list of %d records costs no more than %d calls", records, cost)
			}
			if all, err := client.ReadAll(t.Context(), "example.com", nil); len(all) != records+1 || err != nil {
				t.Errorf("all: %d names, %v", len(all), err)
			}
		})
	}
}

// TestBrokenLists has long lists that break off: no record of them is used.
func TestBrokenLists(t *testing.T) {
	for at, l := range longLists {
		for body, want := range map[string]Kind{
			"": BadAnswer, "]": BadAnswer, l.after + "{}": BadAnswer, "]]": BadAnswer, `],"names":7,"rrsets":7}`: BadAnswer,
			`,7` + l.after: BadAnswer, "," + strings.Repeat(" ", maxAnswer) + l.after: Invalid,
			`],"more":"` + strings.Repeat("x", maxAnswer) + `"}`: Invalid,
		} {
			all, err := longList(t, at, 10, body).ReadAll(t.Context(), "example.com", nil)
			if all != nil || KindOf(err) != want || errors.Is(err, ErrNotListed) != (want == Invalid) {
				t.Errorf("%s, %.20q: %d names, %v, want %s", l.name, body, len(all), err, want)
			}
		}
	}
}

// TestLongestStream reads 256 MiB, and not an octet more.
func TestLongestStream(t *testing.T) {
	for _, octets := range []int64{256 << 20, 256<<20 + 1} {
		endless := readerFunc(func(p []byte) (int, error) { return len(p), nil })
		b := &bounded{from: io.LimitReader(endless, octets), long: func() {}}
		b.used = func() int64 { return b.octets }
		read, err := io.Copy(io.Discard, b)
		if long := octets > 256<<20; errors.Is(err, errTooLong) != long || !long && (err != nil || read != octets) {
			t.Errorf("%d of %d octets: %v", read, octets, err)
		}
	}
}

// TestWanted keeps the wanted part of a name: all values or single ones.
func TestWanted(t *testing.T) {
	sets := newZoneSets(func(name string, v Value) bool { return name == "all" || v.Text() == "ours" }, TXT)
	for _, text := range []string{"theirs", "ours", "other"} {
		for _, name := range []string{"all", "some"} {
			sets.add(setKey{name, TXT}, record{value: Value{text}})
		}
		sets.add(setKey{"none", TXT}, record{value: Value{"theirs"}})
	}
	sets.alias("none", "elsewhere")
	sets.alias("all", "elsewhere")
	if n := len(sets.sets); n != 2 || len(sets.sets[setKey{"all", TXT}].records) != 3 || sets.of(setKey{"all", TXT}).alias == "" || sets.of(setKey{"none", TXT}).alias != "" || len(sets.sets[setKey{"some", TXT}].records) != 2 {
		t.Errorf("%+v", sets.sets)
	}
	for n := 0; sets.kept <= maxKept; n++ {
		sets.add(setKey{"all", TXT}, record{value: Value{strings.Repeat("x", 1<<20)}})
		if n > maxKept>>20 {
			t.Fatal("what is kept is not bounded")
		}
	}
	sets.add(setKey{"all", TXT}, record{value: Value{"more"}})
	if records := sets.sets[setKey{"all", TXT}].records; records[len(records)-1].value.Text() == "more" {
		t.Error("more is kept than may be")
	}
}

// paced is a transport whose answers pause for a time before their end.
type paced struct {
	text, end string
	pause     time.Duration
}

func (p paced) RoundTrip(r *http.Request) (*http.Response, error) {
	waiting := readerFunc(func([]byte) (int, error) {
		select {
		case <-time.After(p.pause):
			return 0, io.EOF
		case <-r.Context().Done():
			return 0, r.Context().Err()
		}
	})
	body := io.MultiReader(strings.NewReader(p.text), waiting, strings.NewReader(p.end))
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestLongListHasTime: a list has more time than other answers once it is longer than they may be.
func TestLongListHasTime(t *testing.T) {
	standard := httpClient.Transport
	defer func() { httpClient.Transport = standard }()
	names := &list{"names", func(d *json.Decoder) error { _, err := d.Token(); return err }}
	const long = maxAnswer + 100
	for _, test := range []struct {
		what   string
		list   *list
		octets int
		pause  time.Duration
		want   Kind
	}{
		{"a short list", names, 100, callTime - time.Second, ""},
		{"a short list that is slow", names, 100, callTime + time.Second, Network},
		{"no list", nil, 100, callTime + time.Second, Network},
		{"a long list", names, long, listTime - time.Second, ""},
		{"a long list that is slow", names, long, listTime + time.Second, BadAnswer},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, err := newAPI("https://192.0.2.1", Credentials{}, false)
			if err != nil {
				t.Fatal(err)
			}
			element := `"` + strings.Repeat("x", 97) + `",`
			httpClient.Transport = paced{`{"names":[` + strings.Repeat(element, 1+test.octets/len(element)), `""]}`, test.pause}
			_, err = a.send(t.Context(), call{name: "list", method: http.MethodGet, list: test.list}, func(*http.Request, []byte) {})
			if KindOf(err) != test.want || errors.Is(err, errTooLong) != (test.want == BadAnswer) {
				t.Errorf("%s: %v, want kind %q", test.what, err, test.want)
			}
		})
	}
}
