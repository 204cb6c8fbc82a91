package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/mesh"
	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

// foreignRecord is a record that another user of the zone makes. beside reports whether values of ours may stand beside it.
type foreignRecord struct {
	name, kind, text string
	beside           bool
}

func (f foreignRecord) String() string { return f.name + " " + f.kind + " " + f.text }

// foreignRecords are all records that may appear. The program never wants one of them.
var foreignRecords = []foreignRecord{
	{lifeName, "TXT", "v=spf1 -all", true},
	{lifeName, "TXT", "v=mesh1 n=7 o=aaaaaaaaaaaa udp://192.0.2.9:9", false},
	{lifePrefix, "TXT", "192.0.2.9:9", false},
	{lifePrefix, "TXT", "v=spf1 -all", false},
	{lifePrefix, "A", "192.0.2.9", false},
	{lifePrefix, "AAAA", "2001:db8::9", false},
	{"_x._tcp." + lifePrefix, "SRV", "9 9 9 foreign.example.net", false},
	{"_easytier._udp." + lifePrefix, "SRV", "9 9 9 foreign.example.net", false},
	{"ip4p." + lifePrefix, "AAAA", "2001:db8::9", false},
	{"203-0-113-1." + lifePrefix, "A", "192.0.2.9", false},
}

func (l *life) putForeign() {
	f := pick(l.random, foreignRecords)
	if !slices.Contains(l.foreign, f) {
		l.did("  %s", f)
		l.foreign = append(l.foreign, f)
		l.cloud.AddRecord(l.t, f.name, f.kind, f.text)
	}
}

func (l *life) removeForeign() {
	if len(l.foreign) > 0 {
		at := l.random.IntN(len(l.foreign))
		f := l.foreign[at]
		l.did("  %s", f)
		l.cloud.RemoveRecord(l.t, f.name, f.kind, f.text)
		l.foreign = slices.Delete(l.foreign, at, at+1)
	}
}

// stands compares what stands with what must stand after each step: the values of others, and the acknowledged renewals.
func (l *life) stands() {
	l.t.Helper()
	all := l.cloud.AllRecords(cloudtest.Zone)
	for _, f := range l.foreign {
		if !slices.Contains(all, f.String()) {
			l.fail("the foreign record %s is gone", f)
		}
	}
	if wrong := trespasses(l.cloud.Asked()); wrong != "" {
		l.fail("%s", wrong)
	}
	if l.usage == "" {
		return
	}
	stored := l.p.leasesOf(l.usage)
	if len(stored) != len(l.tenants) {
		l.fail("%d leases, want %d", len(stored), len(l.tenants))
	}
	for _, n := range l.tenants {
		if wrong := n.check(stored); wrong != "" {
			l.fail("%s", wrong)
		}
	}
}

// isForeign reports whether a value is that of a foreign record.
func isForeign(text string) bool {
	return slices.ContainsFunc(foreignRecords, func(f foreignRecord) bool { return f.text == text })
}

// trespasses tells of a request that would remove a foreign record, or would add a first value beside one that it has
// seen: only what stands of ours is replaced there.
func trespasses(requests []cloudtest.Request) string {
	for _, r := range requests {
		var change struct {
			Name, Type        string
			Seen, Add, Remove []string
		}
		if r.Method != http.MethodPost {
			continue
		}
		if err := json.Unmarshal(r.Body, &change); err != nil {
			return fmt.Sprintf("not a change: %s", r.Body)
		}
		if change.Type == "" {
			change.Type = "TXT"
		}
		for _, f := range foreignRecords {
			switch {
			case f.name != change.Name || f.kind != change.Type:
			case slices.Contains(change.Remove, f.text), slices.Contains(change.Add, f.text):
				return fmt.Sprintf("a request changes the foreign record %s: %s", f, r.Body)
			case f.beside, len(change.Add) == 0, !slices.Contains(change.Seen, f.text):
			case !slices.ContainsFunc(change.Seen, func(text string) bool { return !isForeign(text) }):
				return fmt.Sprintf("a request writes beside the foreign record %s: %s", f, r.Body)
			}
		}
	}
	return ""
}

// wanted returns the endpoints of the usage, and those of its leases in the order of their slots.
func (l *life) wanted() (own, leased []mesh.Endpoint) {
	texts := l.endpoints
	if len(texts) == 0 {
		texts = []string{lifeFallback}
	}
	for _, text := range texts {
		own = append(own, mesh.Endpoint{Text: text})
	}
	bySlot := slices.SortedFunc(slices.Values(l.tenants), func(a, b *tenant) int { return strings.Compare(a.slot, b.slot) })
	for _, n := range bySlot {
		for _, text := range n.endpoints {
			leased = append(leased, mesh.Endpoint{Text: text, Slot: n.slot})
		}
	}
	return own, leased
}

// shownRecord is an entry of publish.formats.
type shownRecord struct {
	Name, Type, State string
	Values            []string
	LeftOut           []struct{ Endpoint, Slot string } `json:"left_out"`
}

// line returns the record in one line.
func (r shownRecord) line() string {
	return fmt.Sprintf("%s %s %q, without %v", r.Name, r.Type, r.Values, r.LeftOut)
}

// records works out what must stand for the usage if some endpoints are dead.
func (l *life) records(owner string, dead []string) (all []shownRecord) {
	own, leased := l.wanted()
	isDead := func(e mesh.Endpoint) bool { return slices.Contains(dead, e.Text) }
	if slices.ContainsFunc(slices.Concat(own, leased), func(e mesh.Endpoint) bool { return !isDead(e) }) {
		own, leased = slices.DeleteFunc(own, isDead), slices.DeleteFunc(leased, isDead)
	}
	first := shownRecord{Name: lifeName, Type: "TXT"}
	value, leftOut := mesh.Value("42", owner, nil), []mesh.Endpoint(nil)
	if slices.Contains(l.formats, "mesh1") {
		value, leftOut = mesh.Fit("42", owner, own, leased)
	}
	for _, e := range leftOut {
		first.LeftOut = append(first.LeftOut, struct{ Endpoint, Slot string }{e.Text, e.Slot})
	}
	first.Values = []string{value}
	all = append(all, first)
	for _, set := range mesh.FormatSets(l.formats, lifePrefix, slices.Concat(own, leased)) {
		r := shownRecord{Name: set.Name, Type: set.Type, Values: set.Values}
		for _, e := range set.LeftOut {
			r.LeftOut = append(r.LeftOut, struct{ Endpoint, Slot string }{e.Endpoint.Text, e.Endpoint.Slot})
		}
		all = append(all, r)
	}
	return all
}

// end brings the life to its end: the provider works, and the values of others are gone.
func (l *life) end() {
	l.t.Helper()
	l.cloud.FailNoMore()
	for len(l.foreign) > 0 {
		l.removeForeign()
	}
	if l.usage == "" && l.random.IntN(2) == 0 {
		support.Eventually(l.t, limit, "the prefix is free", func() bool { l.synchronise(""); l.reserve(); return l.usage != "" })
		l.setEndpoints()
	}
	l.settles("in the end", l.synchronised)
	l.stands()
	if l.check && l.random.IntN(2) == 0 {
		l.check = false
		l.patch(map[string]any{"check": map[string]any{"kind": "none"}})
		l.settles("without a check", l.verdict)
	}
	l.openAll()
	l.settles("with all endpoints open", l.verdict)
	if l.usage != "" {
		for _, change := range []func(){l.setEndpoints, l.setFormats, l.lend, l.renewLease, l.deleteLease} {
			change()
			l.settles("after a change", l.verdict)
		}
		l.gone()
		l.settles("after the release", l.verdict)
	}
	l.stands()
}

// gone releases the usage, and waits until its prefix is free: a lost answer to a write may hold it until the second look.
// Answers may be slower than that look waits.
func (l *life) gone() {
	l.t.Helper()
	if l.random.IntN(2) == 0 {
		l.did("  answers are slow, and one is lost")
		l.cloud.Delay(300 * time.Millisecond)
		l.cloud.Fail(cloudtest.Lost)
		defer l.cloud.Delay(0)
	}
	path := usagesPath + "/" + l.usage
	a, err := l.p.try("DELETE", path+"?wait=10", "")
	l.did("release in the end: %d", a.status)
	if err != nil || a.status != 200 && a.status != 202 {
		l.fail("the usage is not released: %v %d %s", err, a.status, a.body)
	}
	l.usage = ""
	if !support.Within(limit, func() bool {
		a, err = l.p.try("GET", path, "")
		return err == nil && a.status == 404
	}) {
		l.fail("the usage is not gone: %v %d %s", err, a.status, a.body)
	}
}

// settles waits until a verdict finds nothing wrong.
func (l *life) settles(when string, verdict func() (wrong string)) {
	l.t.Helper()
	l.did("%s", when)
	wrong := ""
	if !support.Within(2*limit, func() bool { wrong = verdict(); return wrong == "" }) {
		l.fail("%s: %s", when, wrong)
	}
}

// synchronised is verdict after a pass without a failure.
func (l *life) synchronised() (wrong string) {
	if a, err := l.p.try("POST", syncPath, ""); err != nil || a.status != 200 {
		return fmt.Sprintf("POST %s: %v %d %s", syncPath, err, a.status, a.body)
	}
	return l.verdict()
}

// verdict compares the zone and the answers with what must be. It returns what is wrong.
func (l *life) verdict() (wrong string) {
	l.t.Helper()
	value := l.cloud.Records(l.t, lifeOwn, "TXT")
	if len(value) != 1 {
		return fmt.Sprintf("%s has %q", lifeOwn, value)
	}
	owner, _ := mesh.Owner(value[0])
	want := []string{lifeOwn + " TXT v=mesh1 o=" + owner + " " + lifeFallback}
	if l.usage != "" {
		dead, shown := l.shown()
		if wrong = l.deadAsClosed(dead); wrong != "" {
			return wrong
		}
		records := l.records(owner, dead)
		if wrong = unlike(shown, records); wrong != "" {
			return wrong
		}
		for _, r := range records {
			for _, value := range r.Values {
				want = append(want, r.Name+" "+r.Type+" "+value)
			}
		}
	}
	slices.Sort(want)
	if got := l.cloud.AllRecords(cloudtest.Zone); !slices.Equal(got, want) {
		return fmt.Sprintf("the zone has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return ""
}

// shown returns the dead endpoints and the records as the usage shows them.
func (l *life) shown() (dead []string, records []shownRecord) {
	l.t.Helper()
	var usage struct {
		Data struct {
			Publish struct {
				Endpoints []endpointState
				Formats   []shownRecord
			}
		}
	}
	if err := json.Unmarshal([]byte(l.p.call(200, "GET", usagesPath+"/"+l.usage, "").body), &usage); err != nil {
		l.t.Fatal(err)
	}
	for _, e := range usage.Data.Publish.Endpoints {
		if e.Alive != nil && !*e.Alive {
			dead = append(dead, e.Endpoint)
		}
	}
	return dead, usage.Data.Publish.Formats
}

// deadAsClosed compares the dead endpoints with the closed ones: all are dead, except the last endpoint of the usage.
func (l *life) deadAsClosed(dead []string) (wrong string) {
	own, leased := l.wanted()
	closed, living := map[string]bool{}, 0
	for _, e := range slices.Concat(own, leased) {
		if isOpen, checked := l.open[e.Text]; checked && l.check && !isOpen {
			closed[e.Text] = true
		} else {
			living++
		}
	}
	slices.Sort(dead)
	dead = slices.Compact(dead)
	for _, e := range dead {
		if !closed[e] {
			return e + " is dead and answers"
		}
	}
	if len(dead) < len(closed) && (living > 0 || len(dead) < len(closed)-1) {
		return fmt.Sprintf("%q are dead of the closed %v", dead, closed)
	}
	return ""
}

// unlike compares the shown records with the wanted ones.
func unlike(shown, want []shownRecord) string {
	var got, wanted []string
	for _, r := range shown {
		if len(r.Values) > 0 && r.State != "published" {
			return fmt.Sprintf("%s is %s", r.line(), r.State)
		}
		got = append(got, r.line())
	}
	for _, r := range want {
		wanted = append(wanted, r.line())
	}
	if !slices.Equal(got, wanted) {
		return fmt.Sprintf("the usage shows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
	return ""
}

// The rules of TestLives find requests that touch what others have.
func TestLivesFindsTrespasses(t *testing.T) {
	t.Parallel()
	for body, sound := range map[string]bool{
		`{"name":"office.example.com","type":"A","seen":["192.0.2.9"],"add":["203.0.113.1"],"remove":[]}`:               false,
		`{"name":"office.example.com","type":"A","seen":["192.0.2.9","203.0.113.1"],"add":[],"remove":["192.0.2.9"]}`:   false,
		`{"name":"office.example.com","seen":[],"add":["192.0.2.9:9"],"remove":[]}`:                                     false,
		`{"name":"office.example.com","type":"A","seen":["192.0.2.9","203.0.113.1"],"add":[],"remove":["203.0.113.1"]}`: true,
		`{"name":"_mesh.office.example.com","seen":["v=spf1 -all"],"add":["v=mesh1"],"remove":[]}`:                      true,
		`{"name":"office.example.com","type":"AAAA","seen":["192.0.2.9"],"add":["2001:db8::1"],"remove":[]}`:            true,
	} {
		if wrong := trespasses([]cloudtest.Request{{Method: http.MethodPost, Body: []byte(body)}}); (wrong == "") != sound {
			t.Errorf("%s: %q", body, wrong)
		}
	}
}
