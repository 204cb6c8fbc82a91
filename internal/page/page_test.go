package page

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// world is a page on a database of its own, and a clock.
type world struct {
	*Page
	t  *testing.T
	db *sqlite.Database
	at time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	tables, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), sqlite.Schema{
		Tables: string(tables), First: func(context.Context, *sql.Tx) error { return nil }, Oldest: 1,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	w := &world{t: t, db: db, at: time.Date(2026, 3, 4, 12, 7, 0, 0, time.UTC)}
	now := func() time.Time { return w.at }
	w.Page = New(Source{
		Reader: db.Reader, Tx: db.Tx, Now: now, Events: events.New(db.Reader, db.Tx, now, func(int64) {}),
		Totals: func(context.Context) (map[string]uint64, error) {
			return map[string]uint64{"services": 1, "usages": 5, "published": 3, "failed": 2}, nil
		},
		Named:     func(context.Context, string, int) ([]mesh.Usage, error) { return nil, nil }, // all are released
		Prefixed:  func(context.Context, string, int) ([]string, error) { return nil, nil },
		OfNetwork: func(context.Context, mesh.NetworkID, int) ([]mesh.Usage, error) { return nil, nil },
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) happened(all ...events.Event) {
	w.t.Helper()
	w.must(w.db.Tx(w.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for _, e := range all {
			if err := w.Events.Add(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestSamples: one at once, the next when it is 15 minutes old, none is older than 25 hours, and a
// sample of the future is replaced.
func TestSamples(t *testing.T) {
	w := newWorld(t)
	begin := w.at
	until := func(want time.Duration) {
		t.Helper()
		if got, err := w.untilSample(t.Context()); err != nil || max(0, got) != want {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	until(0)
	for range 110 {
		w.must(w.takeSample(t.Context()))
		w.at = w.at.Add(sampleEvery)
	}
	until(0)
	w.at = w.at.Add(-5 * time.Minute)
	until(5 * time.Minute)
	all, err := w.samples(t.Context(), begin)
	w.must(err)
	newest := begin.Add(109 * sampleEvery)
	if first := all[0]; len(all) != 101 || !first.at.Equal(newest.Add(-sampleKept)) || !maps.Equal(first.counts, map[string]uint64{"published": 3, "failed": 2}) {
		t.Errorf("%d samples from %v", len(all), all[0])
	}
	w.at = begin
	until(0)
	w.must(w.takeSample(t.Context()))
	if all, err = w.samples(t.Context(), begin); err != nil || len(all) != 1 {
		t.Errorf("after the clock was set back: %d samples, %v", len(all), err)
	}
}

// TestRecord: the task writes the first sample by itself, and ends with its context.
func TestRecord(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan struct{})
	tx := w.Tx
	w.Tx = func(ctx context.Context, f sqlite.TxFunc) error { defer close(written); return tx(ctx, f) }
	ended := make(chan error)
	go func() { ended <- w.Record(ctx) }()
	<-written
	cancel()
	w.must(<-ended)
	if all, err := w.samples(t.Context(), time.Time{}); err != nil || len(all) != 1 {
		t.Errorf("%d samples, %v", len(all), err)
	}
}

// TestChart: the areas stand on each other, end where the program did not run, and the text says what
// the picture shows.
func TestChart(t *testing.T) {
	since := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	at := func(minutes int, published, failed uint64) sample {
		return sample{since.Add(time.Duration(minutes) * time.Minute), map[string]uint64{"published": published, "failed": failed}}
	}
	samples := []sample{at(-10, 1, 0), at(5, 3, 1), at(20, 4, 0), at(600, 2, 2), at(615, 2, 2)}
	marks := []events.Count{{Kind: events.RecordFailed, Begin: since.Add(15 * time.Minute), Number: 2}, {Kind: events.ZoneDown, Begin: since.Add(time.Hour), Number: 1}}
	c := newChart(samples, marks, since, msg.English)
	got := []string{c.Areas[0].Path, c.Areas[1].Path, c.Areas[2].Path, c.Marks[0].Path, c.Marks[1].Path, c.Marks[2].Path, c.Text}
	want := []string{
		"M0 200H5V150H0zM5 200H20V50H5zM20 200H35V0H20zM600 200H615V100H600z", "", "M5 50H20V0H5zM600 100H615V0H600z",
		"M15 0v200", "", "M60 0v200",
		"Now, and events in 24 hours: published 2, in progress 0, not well 2, record failed 2, record in conflict 0, zone down 1.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// TestAmiss: of many names the first ones are listed, the others are counted, and names that merely
// wait are neither.
func TestAmiss(t *testing.T) {
	w := newWorld(t)
	w.InState = func(_ context.Context, state reconcile.PlaceState, limit int) (all []mesh.Usage, err error) {
		for i := range limit {
			u := mesh.Usage{Name: fmt.Sprintf("%s-%d", state, i), Publish: mesh.Publishing{State: string(state)}}
			if state == reconcile.Failed || i == 0 {
				u.Publish.Fault.Code = "network"
			}
			all = append(all, u)
		}
		return all, nil
	}
	totals := map[string]uint64{"failed": 30_000, "conflict": maxAmiss, "none": maxAmiss, "pending": 90_000, "withdrawing": 100}
	list, err := w.amiss(t.Context(), mesh.Configuration{}, totals, msg.English)
	w.must(err)
	if want := 30_000 + maxAmiss + maxAmiss + 2 - maxAmiss; len(list.Rows) != maxAmiss || list.More != want {
		t.Errorf("%d rows and %d more, want %d", len(list.Rows), list.More, want)
	}
}

// TestHistoryOfReleased: the events of a name that nobody has any more are found by the full name.
func TestHistoryOfReleased(t *testing.T) {
	w := newWorld(t)
	const name = "_mesh.office.example.com"
	for i := range maxHistory + 7 {
		w.happened(events.Event{Kind: events.RecordChanged, Name: name, Detail: events.Detail{After: events.JSON(fmt.Sprintf("value %d", i))}})
	}
	w.happened(events.Event{Kind: events.UsageReleased, Name: "_mesh.other.example.com"})
	for _, query := range []string{name, strings.ToUpper(name) + ".", "office.example.com"} {
		f, err := w.search(t.Context(), query, msg.English)
		w.must(err)
		if len(f.Rows) != 1 || f.Rows[0].Name != name || len(f.Rows[0].History.Rows) != maxHistory || f.Rows[0].History.Rows[0].Detail != "value 56" {
			t.Errorf("%q: %+v", query, f.Rows)
		}
	}
	if f, err := w.search(t.Context(), "nothing", msg.English); err != nil || len(f.Rows) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestFound: twenty usages are shown, and the others counted.
func TestFound(t *testing.T) {
	w := newWorld(t)
	for _, all := range []int{20, 21} {
		w.Named = func(_ context.Context, name string, limit int) (found []mesh.Usage, err error) {
			for i := range min(all, limit) {
				found = append(found, mesh.Usage{Seq: int64(i + 1), Name: name})
			}
			return found, nil
		}
		f, err := w.search(t.Context(), "office.example.com", msg.English)
		w.must(err)
		if len(f.Rows) != 20 || f.More != all-20 {
			t.Errorf("of %d usages %d are shown, and %d more", all, len(f.Rows), f.More)
		}
	}
}

// TestJudgement has the first sentence in each state of the program.
func TestJudgement(t *testing.T) {
	for _, test := range []struct {
		c               condition
		level, sentence string
	}{
		{condition{}, "busy", "Nothing is configured yet: there is no configuration and no service."},
		{condition{configured: true}, "good", "All is well: 0 names are published."},
		{condition{configured: true, totals: map[string]uint64{"published": 4, "pending": 1, "withdrawing": 2}}, "busy", "Work is in progress: 3 names wait, 4 are published."},
		{condition{configured: true, totals: map[string]uint64{"failed": 4, "conflict": 1, "none": 2, "pending": 1}, down: 2, faults: 3}, "bad",
			"Not all is well: names failed: 4, names in conflict: 1, names without a provider: 2, zones down: 2, faults in the provision file: 3."},
		{condition{configured: true, hidden: true}, "bad", "Not all is well: no resolver finds the built-in zones (set -ipv4, -ipv6 or -dns-host)."},
		{condition{configured: true, off: true, totals: map[string]uint64{"failed": 4}}, "bad",
			"Not all is well: synchronisation is off (enabled is false in the configuration), names failed: 4."},
	} {
		o := overview{in: msg.English}
		if o.judge(test.c); o.Level != test.level || o.Sentence != test.sentence {
			t.Errorf("%+v: %s, %s", test.c, o.Level, o.Sentence)
		}
	}
}

// longest is a name as long as DNS allows, of characters that HTML escapes.
var longest = strings.Repeat(strings.Repeat("&", 62)+".", 4)

// TestPageIsSmall: the fullest page stays below its limit, and tells how much more there is.
func TestPageIsSmall(t *testing.T) {
	fault := mesh.Fault{Code: "credentials", Detail: msg.Text(strings.Repeat("界<", 500)), Key: "service " + longest}
	usage := mesh.Usage{Name: longest, Publish: mesh.Publishing{State: "failed", Fault: fault, Attempts: 1 << 40, At: "2026-03-04T05:06:07.000Z", Value: strings.Repeat("\"", 255)}}
	happened := events.Event{At: time.Now(), Kind: events.RecordFailed, Name: longest, By: "token 1", Detail: events.Detail{
		Before: events.JSON(strings.Repeat("<", 300)), After: events.JSON(strings.Repeat(">", 300)), Fault: fault, Provider: "rfc2136"}}
	for _, in := range []msg.Language{msg.Chinese, msg.English} {
		full := view{in: in, Overview: &overview{in: in, Chart: fullChart(in)}}
		for range maxAmiss {
			full.Overview.Amiss.add(newNameLine(usage, in))
		}
		for range maxZones {
			full.Overview.Zones.add(newZoneLine(reconcile.ZoneState{Zone: longest, Provider: "rfc2136", Since: time.Now(), Fault: reconcile.Fault(fault)}, true, in))
			full.Overview.Events.add(newEventLine(happened, in))
			full.Overview.Leftovers.add(leftoverLine{Name: longest, Reason: reasonOf(fault, in), Advice: advice(in, fault.Code)})
		}
		many := view{in: in, Query: strings.Repeat("\"", maxQuery), Found: &found{in: in}}
		for range maxFound {
			row := foundLine{nameLine: newNameLine(usage, in), Value: usage.Publish.Value, Network: mesh.AnyNetwork.String()}
			for range maxHistory {
				row.History.add(newEventLine(happened, in))
			}
			many.Found.Rows = append(many.Found.Rows, row)
		}
		for name, v := range map[string]view{"overview": full, "found": many} {
			if content := fitted(v); len(content) >= maxPage || !regexp.MustCompile(say(in, "more", 1)[:3]).Match(content) {
				t.Errorf("%s in %v: %d octets", name, in, len(content))
			}
		}
		common := view{in: in, Overview: &overview{in: in, Chart: fullChart(in)}}
		for i := range maxAmiss {
			u := usage
			u.Name, u.Publish.Fault.Detail, u.Publish.Fault.Key = fmt.Sprintf("_mesh.prefix-%d.office.example.com", i), "dial tcp 192.0.2.1:443: i/o timeout", ""
			common.Overview.Amiss.add(newNameLine(u, in))
		}
		if content := string(fitted(common)); strings.Count(content, "_mesh.prefix-") != maxAmiss {
			t.Errorf("%d of %d ordinary rows are shown, in %d octets", strings.Count(content, "_mesh.prefix-"), maxAmiss, len(content))
		}
	}
}

// fullChart has a sample each quarter of an hour, of all states, and a mark of each kind.
func fullChart(in msg.Language) *chart {
	since := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	var samples []sample
	var marks []events.Count
	for i := range 98 {
		at := since.Add(time.Duration(i-1) * sampleEvery)
		samples = append(samples, sample{at, map[string]uint64{"published": uint64(100000 + i%7*1000), "pending": uint64(30000 - i*10), "failed": uint64(9000 + i)}})
		for _, kind := range markKinds {
			marks = append(marks, events.Count{Kind: kind, Begin: at, Number: 1})
		}
	}
	return newChart(samples, marks, since, in)
}

// TestPolicyHasTheStyle: the hash in the policy is that of the style in the page.
func TestPolicyHasTheStyle(t *testing.T) {
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindSubmatch(render(view{}))
	sum := sha256.Sum256(style[1])
	if want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
		t.Errorf("%s lacks %s", policy, want)
	}
}

// TestLinksAreRelative: behind a proxy the page may have a path of its own.
func TestLinksAreRelative(t *testing.T) {
	links := regexp.MustCompile(`(?:href|action)="[^"]*"`).FindAllString(string(render(view{in: msg.English, Query: "berlin"})), -1)
	if !slices.Equal(links, []string{`href="./"`, `action="./"`}) {
		t.Errorf("%s", links)
	}
}

// TestTextsAreWhole: each text is there in both languages with the same verbs, each that the page names
// exists, and every state and fault has its own.
func TestTextsAreWhole(t *testing.T) {
	verbs := regexp.MustCompile(`%[a-z]`)
	check := func(id string, text [2]string) {
		if text[0] == "" || text[1] == "" || text[0] == text[1] || !slices.Equal(verbs.FindAllString(text[0], -1), verbs.FindAllString(text[1], -1)) {
			t.Errorf("%s: %q", id, text)
		}
	}
	for id, text := range texts {
		check(id, text)
	}
	for id, text := range advices {
		if check(string(id), text); id.In(msg.English) == string(id) {
			t.Errorf("%s is no fault", id)
		}
	}
	for _, state := range reconcile.UsageStates {
		check("state "+string(state), texts["state "+string(state)])
		if levels[string(state)] == "" {
			t.Errorf("%s has no level", state)
		}
	}
	used := map[string]bool{}
	for _, file := range []string{"page.html", "collect.go", "view.go", "chart.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`(?:Say |say\((?:o\.)?in, |say\(v\.in, |tell\()"([^"]+)"`).FindAllSubmatch(source, -1) {
			id := string(match[1])
			if used[id] = true; texts[id][0] == "" && !strings.HasSuffix(id, " ") {
				t.Errorf("%s: no text %q", file, id)
			}
		}
	}
	for id := range texts {
		if !used[id] && !strings.HasPrefix(id, "state ") && !strings.HasPrefix(id, "band ") {
			t.Errorf("nothing uses %q", id)
		}
	}
}

// TestEventLine: an event says what changed, why, and by whom.
func TestEventLine(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, test := range []struct {
		event events.Event
		want  eventLine
	}{
		{events.Event{Kind: events.RecordChanged, Name: "a.example", By: "token 2", Detail: events.Detail{Before: events.JSON("x"), After: events.JSON("y")}},
			eventLine{Text: "record changed", Name: "a.example", Detail: "x → y · by token 2"}},
		{events.Event{Kind: events.ServiceCreated, ServiceID: "office", Detail: events.Detail{After: events.JSON(map[string]int{"n": 1})}},
			eventLine{Text: "service created", Detail: "office · n: 1"}},
		{events.Event{Kind: events.ZoneDown, Name: "a.example", Detail: events.Detail{Provider: "alidns", Fault: mesh.Fault{Code: "network", Detail: "no route"}}},
			eventLine{Level: "bad", Text: "zone down", Name: "a.example", Detail: "alidns · the provider cannot be reached: no route"}},
		{events.Event{Kind: events.ProvisionApplied, Detail: events.Detail{Count: 3}}, eventLine{Text: "provisioning file applied", Detail: "entries: 3"}},
		{events.Event{Kind: "new.kind"}, eventLine{Text: "new.kind"}},
	} {
		test.event.At, test.want.At = at, "2026-03-04 05:06:07"
		if got := newEventLine(test.event, msg.English); got != test.want {
			t.Errorf("got %+v\nwant %+v", got, test.want)
		}
	}
}
