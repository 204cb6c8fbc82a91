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

func oursOnly(name string, _ TXT) bool { return strings.HasPrefix(name, "_mesh.") }

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

// TestWanted keeps the wanted part of a name: all values or single ones.
func TestWanted(t *testing.T) {
	sets := newZoneSets(func(name string, v TXT) bool { return name == "all" || v.Text() == "ours" })
	for _, text := range []string{"theirs", "ours", "other"} {
		for _, name := range []string{"all", "some"} {
			sets.add(name, record{value: TXT{text}})
		}
		sets.add("none", record{value: TXT{"theirs"}})
	}
	sets.alias("none", "elsewhere")
	sets.alias("all", "elsewhere")
	if n := len(sets.sets); n != 2 || len(sets.sets["all"].records) != 3 || sets.sets["all"].alias == "" || len(sets.sets["some"].records) != 2 {
		t.Errorf("%+v", sets.sets)
	}
	for n := 0; sets.kept <= maxKept; n++ {
		sets.add("all", record{value: TXT{strings.Repeat("x", 1<<20)}})
		if n > maxKept>>20 {
			t.Fatal("what is kept is not bounded")
		}
	}
	sets.add("all", record{value: TXT{"more"}})
	if records := sets.sets["all"].records; records[len(records)-1].value.Text() == "more" {
		t.Error("more is kept than may be")
	}
}

// A list has more time once it is longer than any other answer.
func TestLongListHasTime(t *testing.T) {
	for octets, want := range map[int]int{100: 0, maxAnswer - 100: 0, maxAnswer + 100: 1, 2 * maxAnswer: 1} {
		element := `"` + strings.Repeat("x", 97) + `",`
		text := `{"names":[` + strings.Repeat(element, octets/len(element)) + `""]}`
		got := 0
		names := &list{member: "names", take: func(d *json.Decoder) error { _, err := d.Token(); return err }}
		_, err := (&api{}).stream(t.Context(), call{list: names}, &http.Response{Body: io.NopCloser(strings.NewReader(text))}, func() { got++ })
		if got != want || err != nil {
			t.Errorf("%d octets: asked %d times for more, want %d; %v", len(text), got, want, err)
		}
	}
}
