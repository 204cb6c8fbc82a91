package page

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	"meshddns/internal/web"
)

// world is a page on a database of its own, and a clock.
type world struct {
	*Page
	t  *testing.T
	db *sqlite.Database
	at time.Time

	config mesh.Configuration
}

// TestMain runs in a time zone of its own, which the pages have to name.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("here", 2*60*60)
	os.Exit(m.Run())
}

// get asks for a page in English.
func (w *world) get(target string) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.ask(target, "en")
}

func (w *world) ask(target, language string) *httptest.ResponseRecorder {
	w.t.Helper()
	request := httptest.NewRequest("GET", target, nil)
	request.Header = http.Header{"Accept": {"text/html"}, "Accept-Language": {language}}
	answer := httptest.NewRecorder()
	mux := http.NewServeMux()
	w.Routes(mux.Handle)
	mux.ServeHTTP(answer, request)
	return answer
}

// want asks for a page that has texts, in this order, and lacks others, which begin with "!".
func (w *world) want(target string, texts ...string) string {
	w.t.Helper()
	answer := w.get(target)
	page := html.UnescapeString(regexp.MustCompile(`(?s)<style>.*</style>`).ReplaceAllString(answer.Body.String(), ""))
	rest := page
	if answer.Code != http.StatusOK {
		w.t.Errorf("%s: %d", target, answer.Code)
	}
	for _, text := range texts {
		if unwanted, not := strings.CutPrefix(text, "!"); not {
			if strings.Contains(page, unwanted) {
				w.t.Errorf("%s has %q:\n%s", target, unwanted, page)
			}
			continue
		}
		_, behind, ok := strings.Cut(rest, text)
		if !ok {
			w.t.Errorf("%s lacks %q, or has it too early:\n%s", target, text, page)
			continue
		}
		rest = behind
	}
	return page
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
		Program: "1.0", SQLite: "3", Schema: 11,
		Totals: func(context.Context) (map[string]uint64, error) {
			return map[string]uint64{"services": 1, "usages": 5, "published": 3, "failed": 2}, nil
		},
	})
	w.Health = func(context.Context) error { return nil }
	w.Configuration = func(context.Context) (mesh.Configuration, error) { return w.config, nil }
	w.Names = func(_ context.Context, names []string) (state reconcile.State, err error) {
		for _, name := range names {
			state.Names = append(state.Names, reconcile.Name{Name: name})
		}
		return state, nil
	}
	w.Places = func(context.Context, string) ([]reconcile.StoredPlace, error) { return nil, nil }
	w.Usages = func(context.Context, mesh.Search, int64, int) ([]mesh.Usage, error) { return nil, nil }
	w.Usage = func(context.Context, string) (mesh.Usage, error) {
		return mesh.Usage{}, sqlite.Refusal(msg.UnknownUsage)
	}
	w.Amiss = func(context.Context, int) ([]mesh.AmissGroup, int, bool, error) { return nil, 0, false, nil }
	w.Endpoints = func(context.Context, int64, msg.Language) ([]mesh.CheckedEndpoint, error) { return nil, nil }
	w.Leases = func(context.Context, int64, string, int) ([]mesh.NodeLease, error) { return nil, nil }
	w.Held = func(context.Context, int) ([]mesh.NodeLease, int, error) { return nil, 0, nil }
	w.Secondaries = func(context.Context, int, msg.Language, func(string, string, mesh.SecondaryZone)) error { return nil }
	w.Leftovers = func(context.Context, int64, int) ([]reconcile.StoredPlace, error) { return nil, nil }
	w.Zones = func(context.Context, int) ([]mesh.ServiceZone, error) { return nil, nil }
	w.Targets = told()
	w.Zone = func(int64, string) (reconcile.ZoneState, bool) { return reconcile.ZoneState{}, false }
	w.DownZones = func() []reconcile.ZoneState { return nil }
	w.WritesLeft = func() map[string]uint64 { return nil }
	w.Addresses = func() reconcile.Addresses { return reconcile.Addresses{} }
	w.Hidden = func(context.Context) (bool, error) { return false, nil }
	w.Certificate = (*web.Certificate)(nil).Ends
	w.Faults = func() int64 { return 0 }
	w.Refuse = func(w http.ResponseWriter, _ *http.Request, _ error) { http.Error(w, "{}", http.StatusNotFound) }
	w.Fault = func(_ *http.Request, err error) *web.Failure { return web.FailureOf(err, nil) }
	return w
}

// told gives the targets of notifications in states.
func told(states ...string) func(context.Context, func(id, kind, state, since string, next time.Time, f mesh.Fault)) error {
	return func(_ context.Context, tell func(id, kind, state, since string, next time.Time, f mesh.Fault)) error {
		for _, state := range states {
			tell(strings.Repeat("t", 128), "ntfy", state, "2026-03-04T12:00:00Z", time.Date(2026, 3, 4, 12, 9, 0, 0, time.UTC), mesh.Fault{Code: "network"})
		}
		return nil
	}
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

// longest is a name as long as DNS allows, of characters that HTML escapes.
var longest = strings.Repeat(strings.Repeat("&", 62)+".", 4)

// TestPagesAreSmall: the fullest pages stay below their limit, and tell that there is more.
func TestPagesAreSmall(t *testing.T) {
	w := newWorld(t)
	w.fill(longest, strings.Repeat("界<", 500), strings.Repeat("<", 255))
	for _, target := range []string{"/", "/names", "/names?q=" + url.QueryEscape(longest), "/names/x", "/nodes", "/zones", "/events"} {
		for _, language := range []string{"zh", "en"} {
			answer := w.ask(target, language)
			if size := answer.Body.Len(); answer.Code != http.StatusOK || size >= maxPage || size < maxPage/5 || !strings.Contains(answer.Body.String(), `<p class="more">`) {
				t.Errorf("%s in %s: %d, %d octets", target, language, answer.Code, size)
			}
		}
	}
	w.fill("_mesh.prefix.office.example.com", "dial tcp 192.0.2.1:443: i/o timeout", "v=mesh1 n=42 o=0123456789ab tcp://203.0.113.7:11010")
	for target, want := range map[string]int{"/names": pageRows, "/nodes": pageRows + maxHeld, "/events": pageRows} {
		if got := strings.Count(w.get(target).Body.String(), "<li>"); got != want {
			t.Errorf("%s has %d ordinary rows, want %d", target, got, want)
		}
	}
}

// fill gives the world as much of everything as pages show, and one more. All have one name and one reason.
func (w *world) fill(name, reason, value string) {
	fault := mesh.Fault{Code: "credentials", Detail: msg.Text(reason), Key: "service x"}
	usage := mesh.Usage{ID: "x", Name: name, ServiceID: "x", Publish: mesh.Publishing{State: "failed", Fault: fault, Attempts: 1 << 40, At: "2026-03-04T05:06:07.000Z", Value: value}}
	usage.Network.Valid = true
	w.Usages = func(_ context.Context, _ mesh.Search, _ int64, limit int) ([]mesh.Usage, error) {
		return slices.Repeat([]mesh.Usage{usage}, limit), nil
	}
	w.Usage = func(context.Context, string) (mesh.Usage, error) { return usage, nil }
	group := mesh.AmissGroup{Zone: name, Provider: "rfc2136", Bad: true, Fault: fault, Count: 30, First: slices.Repeat([]mesh.Usage{usage}, 5)}
	w.Amiss = func(_ context.Context, limit int) ([]mesh.AmissGroup, int, bool, error) {
		return slices.Repeat([]mesh.AmissGroup{group}, limit), 10_000, true, nil
	}
	w.DownZones = func() (all []reconcile.ZoneState) {
		for i := range 1000 {
			all = append(all, reconcile.ZoneState{Provider: fmt.Sprint(i), Zone: name, Since: w.at, Fault: reconcile.Fault(fault)})
		}
		return all
	}
	lease := mesh.NodeLease{UsageID: "x", Name: name, Slot: strings.Repeat("s", 64), State: "held", Endpoints: slices.Repeat([]string{value}, 2), Renewed: w.at}
	w.Leases = func(_ context.Context, _ int64, _ string, limit int) ([]mesh.NodeLease, error) {
		return slices.Repeat([]mesh.NodeLease{lease}, limit), nil
	}
	w.Held = func(_ context.Context, limit int) ([]mesh.NodeLease, int, error) {
		return slices.Repeat([]mesh.NodeLease{lease}, limit), 1000, nil
	}
	w.Endpoints = func(context.Context, int64, msg.Language) ([]mesh.CheckedEndpoint, error) {
		return slices.Repeat([]mesh.CheckedEndpoint{{Endpoint: strings.Repeat("<", 255), Slot: "slot", Error: reason}}, 4096), nil
	}
	w.Secondaries = func(_ context.Context, limit int, _ msg.Language, tell func(string, string, mesh.SecondaryZone)) error {
		for i := range 64 {
			for range 1000 {
				tell(fmt.Sprint(i), "192.0.2.1:53", mesh.SecondaryZone{Zone: name, Lag: 61, Error: reason})
			}
		}
		return nil
	}
	w.Leftovers = func(_ context.Context, _ int64, limit int) ([]reconcile.StoredPlace, error) {
		return slices.Repeat([]reconcile.StoredPlace{{Place: reconcile.Place{Name: name, Fault: reconcile.Fault(fault)}}}, limit), nil
	}
	w.Targets = told(slices.Repeat([]string{"stopped"}, 16)...)
	w.Faults = func() int64 { return 10 }
	for range pageRows + 1 {
		w.happened(events.Event{Kind: events.RecordFailed, Name: name, Detail: events.Detail{
			After: events.JSON(value), Fault: fault, Provider: "rfc2136"}})
	}
	for i := range 97 {
		w.must(w.Tx(w.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO samples (at, counts) VALUES (?, ?)`, sqlite.Stamp(w.at.Add(time.Duration(-i)*sampleEvery)),
				fmt.Sprintf(`{"published": %d, "pending": %d, "failed": %d}`, 100000+i%7*1000, 30000-i*10, 9000+i))
			return err
		}))
	}
}

// TestPolicyHasTheStyle: the hash in the policy is that of the style in the page.
// TestLongAddresses: no path and no query makes a page too large. What is over the bound is refused.
func TestLongAddresses(t *testing.T) {
	w := newWorld(t)
	for _, target := range []string{"/?x=", "/names?q=", "/names?service=", "/events?name=", "/events?kind=record.", "/nodes?after=", "/names/"} {
		for length, refused := range map[int]bool{maxAddress - len(target): false, maxAddress: true, 14_000: true} {
			answer := w.get(target + strings.Repeat("A", length))
			if answer.Body.Len() >= maxPage || refused && answer.Code != http.StatusBadRequest && answer.Code != http.StatusNotFound {
				t.Errorf("%s and %d octets: %d, %d octets", target, length, answer.Code, answer.Body.Len())
			}
		}
	}
}

func TestPolicyHasTheStyle(t *testing.T) {
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindSubmatch(newWorld(t).get("/").Body.Bytes())
	sum := sha256.Sum256(style[1])
	if want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
		t.Errorf("%s lacks %s", policy, want)
	}
}

// TestLinksAreRelative: behind a proxy the pages may be below a path, and every link keeps the refresh.
func TestLinksAreRelative(t *testing.T) {
	w := newWorld(t)
	w.fill("_mesh.prefix.office.example.com", "no route", "value")
	for target, base := range map[string]string{"/": "./", "/names": "./", "/names?q=a": "./", "/names/x": "./../", "/nodes": "./", "/zones": "./", "/events?kind=record.*&name=a": "./"} {
		page := w.get(target + map[bool]string{true: "&", false: "?"}[strings.Contains(target, "?")] + "every=60")
		links := regexp.MustCompile(`(?:href|action)="([^"]*)"`).FindAllStringSubmatch(page.Body.String(), -1)
		lost := 0
		for _, l := range links {
			rest, ok := strings.CutPrefix(l[1], base)
			if !ok || strings.HasPrefix(rest, "/") || strings.Contains(rest, "..") {
				t.Errorf("%s: %s", target, l[0])
			}
			if !strings.Contains(rest, "every=60") {
				lost++
			}
		}
		if len(links) < 8 || lost != 1+1 { // that without a refresh, and the search with a hidden field
			t.Errorf("%s: %d of %d links lose the refresh: %s", target, lost, len(links), links)
		}
		if got := page.Header().Get("Refresh"); got != "60" || !strings.Contains(page.Body.String(), `<input type="hidden" name="every" value="60">`) {
			t.Errorf("%s: Refresh %q", target, got)
		}
	}
}

// TestRefresh: 5 to 3600 seconds, and none without being asked.
func TestRefresh(t *testing.T) {
	w := newWorld(t)
	for every, status := range map[string]int{"": 200, "5": 200, "3600": 200, "4": 400, "3601": 400, "x": 400, "-5": 400, "+5": 400, "05": 400, "5;url=x": 400} {
		answer := w.get("/?every=" + url.QueryEscape(every))
		if got := answer.Header().Get("Refresh"); answer.Code != status || (status == 200) != (got == every) {
			t.Errorf("%q: %d, %q", every, answer.Code, got)
		}
	}
}

// TestTextsAreWhole: each text is there in both languages with the same verbs, each that the pages name
// exists, and every state and fault has its own.
func TestTextsAreWhole(t *testing.T) {
	verbs := regexp.MustCompile(`%[a-z]`)
	check := func(id string, text [2]string) {
		t.Helper()
		if text[0] == "" || text[1] == "" || text[0] == text[1] || !slices.Equal(verbs.FindAllString(text[0], -1), verbs.FindAllString(text[1], -1)) {
			t.Errorf("%s: %q", id, text)
		}
	}
	if lines := regexp.MustCompile(`(?m)^[^#\n].*$`).FindAllString(textLines, -1); len(lines) != len(texts) {
		t.Errorf("%d lines and %d texts: one is broken, or is given twice", len(lines), len(texts))
	}
	needed := map[string]bool{"ago ": true, "in ": true}
	for _, group := range eventGroups {
		needed["group "+group] = true
	}
	for _, state := range reconcile.UsageStates {
		needed["state "+string(state)] = true
		if levels[string(state)] == "" {
			t.Errorf("%s has no level", state)
		}
	}
	for state := range leaseLevels {
		needed["lease "+state] = true
	}
	files, err := filepath.Glob("*.*")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(source)
		for _, match := range regexp.MustCompile(`(?:[.]?Say |[sS]ay\((?:in, |v\.in, )?|tell\(v, (?:"[a-z]+"|level), |id := |id = )"([^"]+)"`).FindAllSubmatch(source, -1) {
			if !strings.HasSuffix(file, "_test.go") && strings.HasSuffix(file, ".go") || strings.HasSuffix(file, ".html") {
				needed[string(match[1])] = true
			}
		}
	}
	for id := range needed {
		if texts[msg.ID(id)][0] == "" && !strings.HasSuffix(id, " ") {
			t.Errorf("no text %q", id)
		}
	}
	for key, text := range texts {
		id := string(key)
		check(id, text)
		code, _ := strings.CutPrefix(id, "do ")
		part := id[:strings.IndexByte(id+" ", ' ')+min(1, strings.Count(id, " "))]
		if !needed[id] && !needed[part] && !strings.Contains(sources.String(), `"`+id+`"`) && msg.ID(code).In(msg.English) == code {
			t.Errorf("nothing uses %q", id)
		}
	}
}

// TestNames: fifty names a page, each with what stands, and with what is wanted where that differs.
func TestNames(t *testing.T) {
	w := newWorld(t)
	var asked mesh.Search
	var behind int64
	w.Usages = func(_ context.Context, s mesh.Search, after int64, limit int) (all []mesh.Usage, err error) {
		asked, behind = s, after
		for i := int64(1); i <= 51; i++ {
			if i > after && len(all) < limit {
				all = append(all, mesh.Usage{Seq: i, ID: fmt.Sprint("id-", i), Name: fmt.Sprintf("_mesh.p%d.example", i), ServiceID: "office", Publish: mesh.Publishing{State: "published", Value: "stands"}})
			}
		}
		return all, nil
	}
	w.Names = func(_ context.Context, names []string) (state reconcile.State, err error) {
		for _, name := range names {
			u := reconcile.Usage{ID: "id-1", Network: "0", Account: &reconcile.Account{ID: 1, Provider: "builtin"}, Endpoints: []string{"tcp://192.0.2.1:1", "tcp://192.0.2.2:1"}, Leased: []mesh.Endpoint{{Text: "tcp://192.0.2.3:1"}}, Dead: []string{"tcp://192.0.2.2:1"}}
			state.Names = append(state.Names, reconcile.Name{Name: name, Usages: []reconcile.Usage{u}})
		}
		state.Owner, state.Configured = "0123456789ab", true
		return state, nil
	}
	page := w.want("/names?state=published&service=office", "Of service office only.", "<strong>published</strong>", `./names/id-1">_mesh.p1.example<`, "service office · endpoints: 2 living, 1 dead", "in DNS:</small> <code>stands<", "_mesh.p50.example",
		`./names?after=50&service=office&state=published" rel="next">next<`, "!p51.example", "!wanted:")
	if asked.State != "published" || asked.Service != "office" || strings.Count(page, "<li>") != 50 {
		t.Errorf("%+v", asked)
	}
	w.want("/names?after=50", "_mesh.p51.example", "!>next<", "!p50.")
	if behind != 50 {
		t.Error(behind)
	}
	w.want("/?q=+OFFICE+", `<title>meshddns: Names: OFFICE<`, `value="OFFICE"`, "<h2>Found</h2>")
	if asked.Prefix != "office" || asked.Names != nil || asked.Network.Valid {
		t.Errorf("%+v", asked)
	}
	w.get("/names?q=18446744073709551615")
	if asked.Network.V != mesh.AnyNetwork || asked.Prefix == "" {
		t.Errorf("%+v", asked)
	}
	w.get("/names?q=a.example")
	if !slices.Equal(asked.Names, []string{"a.example", "_mesh.a.example"}) || asked.Prefix != "" {
		t.Errorf("%+v", asked)
	}
	w.Usages = func(context.Context, mesh.Search, int64, int) ([]mesh.Usage, error) {
		u := mesh.Usage{ID: "id-1", Name: "_mesh.p1.example", Publish: mesh.Publishing{State: "failed", Value: "v=mesh1 old", Fault: mesh.Fault{Code: "quota"}, Attempts: 4}}
		u.Network.Valid = true
		return []mesh.Usage{u}, nil
	}
	w.want("/names", "attempts: 4 · network 0", "in DNS:</small> <code>v=mesh1 old<", "wanted:</small> <code>v=mesh1 n=0 o=0123456789ab tcp://192.0.2.1:1 tcp://192.0.2.3:1<", "a quota is used up")
}

// TestReleased: the events of a name that is not reserved any more are found by the full name.
func TestReleased(t *testing.T) {
	w := newWorld(t)
	const name = "_mesh.office.example.com"
	w.happened(events.Event{Kind: events.RecordChanged, Name: name}, events.Event{Kind: events.UsageReleased, Name: "_mesh.other.example.com"})
	for _, query := range []string{name, strings.ToUpper(name) + ".", "office.example.com"} {
		w.want("/names?q="+query, `./events?name=`+name+`">`+name+"<", "not reserved", "History", "!other.example.com<")
	}
	w.want("/names?q=nothing", "Nothing is found.")
}

// TestName: the page of a usage has its records, what to type in clients, endpoints, leases and its history.
func TestName(t *testing.T) {
	w := newWorld(t)
	u := mesh.Usage{Seq: 7, ID: "id-1", Name: "_mesh.p1.example", ServiceID: "office", Description: "mesh sync - Berlin", Publish: mesh.Publishing{State: "published", Value: "v=mesh1 n=5 o=0123456789ab tcp://192.0.2.1:1"}}
	u.Network.V, u.Network.Valid = 5, true
	w.Usage = func(_ context.Context, id string) (mesh.Usage, error) {
		if id != "id-1" {
			return u, sqlite.Refusal(msg.UnknownUsage)
		}
		return u, nil
	}
	account := reconcile.Account{ID: 1, Provider: "builtin"}
	formats := []string{"mesh1", "a", "srv:_nodes._tcp", "ip4p", "urls"}
	w.Names = func(_ context.Context, names []string) (state reconcile.State, err error) {
		known := reconcile.Usage{ID: "id-1", Network: "5", Account: &account, Domain: "example", Formats: formats, Endpoints: []string{"tcp://192.0.2.1:1", "udp://h.example:2"}}
		n := reconcile.Name{Name: names[0], Usages: []reconcile.Usage{known}}
		n.Places = []reconcile.Place{{Name: names[0], Account: account, State: reconcile.Published, Standing: "v=mesh1 n=5 o=0123456789ab tcp://192.0.2.1:1 udp://h.example:2"}}
		return reconcile.State{Owner: "0123456789ab", Configured: true, Names: []reconcile.Name{n}}, nil
	}
	w.Endpoints = func(context.Context, int64, msg.Language) ([]mesh.CheckedEndpoint, error) {
		return []mesh.CheckedEndpoint{{Endpoint: "tcp://192.0.2.1:1", Alive: new(true), Since: "2026-03-04T12:00:00Z"}, {Endpoint: "tcp://192.0.2.9:1", Slot: "b", Alive: new(false), Since: "2026-03-04T10:07:00Z", Error: "connection refused"}, {Endpoint: "udp://h.example:2"}}, nil
	}
	w.Leases = func(context.Context, int64, string, int) ([]mesh.NodeLease, error) {
		return []mesh.NodeLease{{UsageID: "id-1", Name: u.Name, Slot: "home", ACME: true, State: "live", Renewed: w.at.Add(-time.Minute), From: "192.0.2.77", Ends: w.at.Add(5 * time.Minute), Endpoints: []string{"tcp://192.0.2.3:1"}}, {UsageID: "id-2", Slot: "another"}}, nil
	}
	w.must(w.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return w.Events.Add(ctx, tx, events.Event{Kind: events.UsageReleased, Name: u.Name, Usage: 7, UsageID: u.ID})
	}))
	w.want("/names/id-1", "<h2>_mesh.p1.example</h2>", `good">published<`, "network 5 · service office", "mesh sync - Berlin",
		"Records", "<b>p1.example</b>", "A · a", "endpoints left out: 1", "left out (", "udp://h.example:2",
		"What to type in a client", "--peers txt://_mesh.p1.example<", "http://<-node-listen>/d/_mesh.p1.example<",
		"Endpoints", "tcp://192.0.2.1:1", `good">alive<`, "2026-03-04 14:00:00 +02:00 (7 min ago)", "tcp://192.0.2.9:1", `bad">dead<`, "(2 h ago) · slot b", "connection refused", `idle">not checked<`,
		"Leases", "slot home · may get certificates · renewed 2026-03-04 14:06:00 +02:00 (1 min ago) from 192.0.2.77 · ends 2026-03-04 14:12:00 +02:00 (in 5 min)",
		"History", "prefix released", "!static_host_map", "!retry_join", "!another")
	answer := w.get("/names/none")
	if answer.Code != http.StatusNotFound || answer.Header().Get("X-Error-Code") != "unknown_usage" || !strings.Contains(answer.Body.String(), `href="./../names"`) {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

// TestNodes: held leases first, then all in the order of the reservations and slots.
func TestNodes(t *testing.T) {
	w := newWorld(t)
	w.Held = func(context.Context, int) ([]mesh.NodeLease, int, error) {
		return []mesh.NodeLease{{Name: "held.example", Slot: "x", State: "held"}}, 23, nil
	}
	var usage int64
	var slot string
	w.Leases = func(_ context.Context, u int64, s string, limit int) (all []mesh.NodeLease, err error) {
		usage, slot = u, s
		for i := range limit {
			all = append(all, mesh.NodeLease{Usage: int64(i), Name: "a.example", UsageID: "id", Slot: fmt.Sprint("a.", i), State: "ended"})
		}
		return all, nil
	}
	w.want("/nodes", "Held leases", "held.example", `bad">held<`, "and 22 more", "All leases", `./names/id">a.example<`, `busy">ended<`, "slot a.49", `./nodes?after=49.a.49" rel="next"`)
	w.want("/nodes?after=49.a.49", "!Held leases")
	if usage != 49 || slot != "a.49" {
		t.Error(usage, slot)
	}
}

// TestZones: zones with their budgets, and secondaries, those behind first.
func TestZones(t *testing.T) {
	w := newWorld(t)
	w.config = mesh.Configuration{Provider: "alidns", Zone: "example.com", AccountID: 1}
	w.Zone = func(int64, string) (reconcile.ZoneState, bool) {
		return reconcile.ZoneState{Apex: "com", Since: w.at.Add(-72 * time.Hour)}, true
	}
	w.WritesLeft = func() map[string]uint64 { return map[string]uint64{"alidns": 97} }
	w.want("/zones", "<b>example.com</b>", `good">ok<`, "(3 days ago) · Alibaba Cloud DNS · in the zone com · writes left for nodes: 97", "Secondaries", "There is no secondary")
	w.Zone = func(int64, string) (reconcile.ZoneState, bool) {
		return reconcile.ZoneState{Since: w.at, Warning: reconcile.Fault{Code: "serial_stands", Detail: "pdnsutil set-meta"}}, true
	}
	w.want("/zones", `busy">ok<`, "moves the zone", "pdnsutil set-meta", "Run this command at the host of PowerDNS.")
	w.Secondaries = func(_ context.Context, limit int, _ msg.Language, tell func(string, string, mesh.SecondaryZone)) error {
		tell("ns2", "192.0.2.2:53", mesh.SecondaryZone{Zone: "a.example", Serial: 5, Fetched: new(uint32(5))})
		tell("ns3", "192.0.2.3:53", mesh.SecondaryZone{Zone: "a.example", Serial: 5, Fetched: new(uint32(4)), Lag: 90, Error: "no answer to NOTIFY"})
		tell("ns4", "192.0.2.4:53", mesh.SecondaryZone{Zone: "a.example", Serial: 5})
		return nil
	}
	w.want("/zones", "Secondaries", `bad">behind<`, "ns3 · 192.0.2.3:53 · serial 5 · fetched 4 · lag 1m30s", "no answer to NOTIFY", "See whether the server runs",
		`busy">not fetched since the start<`, "ns4 · 192.0.2.4:53 · serial 5<", `good">up to date<`, "ns2 · 192.0.2.2:53 · serial 5 · fetched 5<")
}
