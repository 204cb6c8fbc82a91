package page

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"sync"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
)

//go:embed page.html
var pageHTML string

//go:embed style.css
var styleCSS string

// layout is parsed when the first page is asked for: most starts never need it.
var layout = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(pageHTML)) })

// policy allows the inline style of the page and nothing else.
var policy = "default-src 'none'; style-src 'sha256-" + styleHash() + "'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

func styleHash() string {
	sum := sha256.Sum256([]byte(styleCSS))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// view collects one page for one request.
type view struct {
	*Page
	sheet
	id   string // in the path
	down []reconcile.ZoneState
	left map[string]uint64 // writes of nodes, by provider
}

// sheet is what the template shows. It leads to no type of another part of the program, because the linker keeps every
// method of each type that a template can reach.
type sheet struct {
	in    msg.Language
	now   time.Time
	path  string // of the request, escaped, without the first slash
	query url.Values
	every string // seconds until the browser asks again, "" for never

	Title, Query           string
	Level, Verdict, Advice string // Level is "good", "busy" or "bad"
	Sections               []*section
}

// section is a part of a page: a title, and a list.
type section struct {
	Title, Lead, None string // ids of texts, or texts; None stands in place of an empty list
	Class             string // of the list: "events" for one of a line each
	Links             []link // to other selections of the list
	Counts            []count
	Chart             *chart
	Clients           *clients
	Host              []pair
	Rows              []*row
	Rest              int // rows that are not shown
	keep              int // halvings that the list outlasts
	next              func(last *row) string
}

// row is an entry of a list.
type row struct {
	Title, Link  string
	Level, State string
	When         string
	Facts        []string
	Values       []pair
	Why, Do      string
	Links        []link
	cursor       string
}

type (
	link struct{ Text, URL string }
	pair struct{ Label, Text string }
	tab  struct {
		link
		Here bool
	}
	count struct {
		Text, URL, Level string
		Number           uint64
	}
)

// Style returns the style sheet.
func (v *sheet) Style() template.CSS { return template.CSS(styleCSS) }

// Say returns a text of the page.
func (v *sheet) Say(id string, args ...any) string { return say(v.in, id, args...) }

// Link returns the relative link to a page, with names and values of its query. It keeps the refresh.
func (v *sheet) Link(page string, query ...string) string {
	return v.link(v.every, page, query...)
}

func (v *sheet) link(every, page string, query ...string) string {
	values := url.Values{}
	for i := 0; i < len(query); i += 2 {
		if query[i+1] != "" {
			values.Set(query[i], query[i+1])
		}
	}
	values.Del("every")
	if every != "" {
		values.Set("every", every)
	}
	at := "./"
	for range strings.Count(v.path, "/") {
		at += "../"
	}
	if len(values) > 0 {
		page += "?" + values.Encode()
	}
	return at + page
}

// Action returns the address of the search.
func (v *sheet) Action() string { return v.link("", "names") }

// Tabs returns the links to all pages that need no id.
func (v *sheet) Tabs() (all []tab) {
	for _, page := range []string{"", "names", "nodes", "zones", "events"} {
		all = append(all, tab{link{v.Say("tab " + page), v.Link(page)}, page == v.path})
	}
	return all
}

// Every returns the seconds of the refresh, "" for none.
func (v *sheet) Every() string { return v.every }

// Self returns the link to this page with another refresh, "" for none.
func (v *sheet) Self(every string) string {
	var query []string
	for name := range v.query {
		query = append(query, name, v.query.Get(name))
	}
	return v.link(every, v.path, query...)
}

// usageLink returns the link to the page of a usage.
func (v *view) usageLink(id string) string { return v.Link("names/" + url.PathEscape(id)) }

// clock shows a time in the time zone of this host, and how long ago it was.
func (v *view) clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return stamp(t) + " (" + v.ago(t) + ")"
}

func stamp(t time.Time) string { return t.In(time.Local).Format("2006-01-02 15:04:05 -07:00") }

// stored is clock for a time that the database has as text.
func (v *view) stored(text string) string {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return v.clock(t)
}

// Now shows the time of the page.
func (v *sheet) Now() string { return stamp(v.now) }

// ago says how long ago a time was, or in which time it comes.
func (v *view) ago(t time.Time) string {
	d, id := v.now.Sub(t), "ago "
	if d < 0 {
		d, id = -d, "in "
	}
	switch {
	case d < time.Minute:
		return v.Say(id+"seconds", int(d/time.Second))
	case d < time.Hour:
		return v.Say(id+"minutes", int(d/time.Minute))
	case d < 48*time.Hour:
		return v.Say(id+"hours", int(d/time.Hour))
	}
	return v.Say(id+"days", int(d/(24*time.Hour)))
}

// maxHalvings is the number of halvings after which no list has more than one entry.
const maxHalvings = 12

// cut shortens the lists.
func (v *sheet) cut(halvings int) {
	for _, s := range v.Sections {
		s.first(max(1, pageRows>>max(0, halvings-s.keep)))
	}
}

// first leaves at most n rows in the section, and n values and links in each.
func (s *section) first(n int) *section {
	s.Rest += max(0, len(s.Rows)-n)
	s.Rows = s.Rows[:min(n, len(s.Rows))]
	for _, r := range s.Rows {
		r.Values, r.Links = r.Values[:min(n, len(r.Values))], r.Links[:min(n, len(r.Links))]
	}
	return s
}

// Next returns the link to the rows behind the last one, "" if there are none, or no page shows them.
func (s *section) Next() string {
	if s.Rest == 0 || s.next == nil {
		return ""
	}
	return s.next(s.Rows[len(s.Rows)-1])
}

// span says how long a number of seconds is.
func (v *view) span(seconds int64) string {
	return (time.Duration(seconds) * time.Second).String()
}

// short bounds a text in characters.
func short(text string, limit int) string {
	text = msg.Printable(text)
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// maxReason bounds the characters of a reason. The log and the API have all of it.
const maxReason = 240

func reasonOf(f mesh.Fault, in msg.Language) string {
	return short(f.In(in), maxReason)
}

// faulty adds a fault, and what to do, to a row.
func (r *row) faulty(f mesh.Fault, in msg.Language) *row {
	if f.Code != "" {
		r.Why, r.Do = reasonOf(f, in), advice(in, f.Code)
	}
	return r
}

// providerTitle names a provider.
func providerTitle(name string, in msg.Language) string {
	if name == "" {
		return say(in, "no provider")
	}
	return cmp.Or(msg.ProviderIn(in, name).Title, name)
}

// facts returns the texts that are not empty.
func facts(all ...string) (some []string) {
	for _, text := range all {
		if text != "" {
			some = append(some, text)
		}
	}
	return some
}

// stateOf returns the level and the text of a state of a usage.
func (v *view) stateOf(state string) (level, text string) {
	state = cmp.Or(state, string(reconcile.None))
	return levels[state], v.Say("state " + state)
}

// say returns a text of the page in a language; args replace its verbs.
func say(in msg.Language, id string, args ...any) string {
	text, ok := texts[msg.ID(id)]
	if !ok {
		return id
	}
	return fmt.Sprintf(text[in], args...)
}

//go:embed texts.txt
var textLines string

// texts are {Chinese, English}.
var texts = msg.Table(textLines)

// leaseLevels has the class of each state of a lease.
var leaseLevels = map[string]string{"live": "good", "held": "bad", "ended": "busy", "new": "idle"}

// levels has the class of each state of a usage.
var levels = map[string]string{
	string(reconcile.None): "bad", string(reconcile.Pending): "busy", string(reconcile.Published): "good",
	string(reconcile.Failed): "bad", string(reconcile.Conflict): "bad", string(reconcile.Withdrawing): "busy",
}

// eventLevels has the class of kinds of events that are good or bad news.
var eventLevels = map[events.Kind]string{
	events.RecordPublished: "good", events.RecordRecovered: "good", events.ZoneRecovered: "good", events.LeftoverGone: "good",
	events.RecordFailed: "bad", events.RecordConflict: "bad", events.ZoneDown: "bad", events.ProvisionRefused: "bad", events.SecondaryBehind: "bad", events.SecondaryCaughtUp: "good",
	events.EndpointDead: "bad", events.EndpointAlive: "good",
	events.LeftoverAppeared: "busy", events.OrphanFound: "busy", events.LeaseExpired: "busy", events.LeaseHeld: "bad", events.NotificationStopped: "bad", events.CertificateExpiring: "bad",
}

// advice returns what to do about a fault.
func advice(in msg.Language, code string) string {
	text, ok := texts["do "+msg.ID(code)]
	if !ok {
		text = texts["do "+msg.Temporary]
	}
	return text[in]
}
