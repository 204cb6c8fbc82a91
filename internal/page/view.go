package page

import (
	"cmp"
	"crypto/sha256"
	"database/sql"
	_ "embed"
	"encoding/base64"
	"html/template"
	"strconv"
	"strings"
	"sync"

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

// view is what the template shows: an overview, what a search found, or a fault.
type view struct {
	in       msg.Language
	Now      string
	Query    string
	Overview *overview
	Found    *found
	Fault    string
}

// Style returns the style sheet.
func (v view) Style() template.CSS { return template.CSS(styleCSS) }

// Language returns the value of the attribute lang.
func (v view) Language() string { return say(v.in, "language") }

// Say returns a text of the page.
func (v view) Say(id string, args ...any) string { return say(v.in, id, args...) }

// overview is the page without a search.
type overview struct {
	in        msg.Language
	Level     string // "good", "busy" or "bad"
	Sentence  string
	Counts    []count
	Zones     list[zoneLine]
	Amiss     list[nameLine]
	Leftovers list[leftoverLine]
	Events    list[eventLine]
	Addresses []address
	Versions  []string
	Chart     *chart
}

// found is the page of a search.
type found struct {
	in msg.Language
	list[foundLine]
}

// list is the beginning of a list, and how many more entries there are.
type list[T any] struct {
	Rows []T
	More int
}

func (l *list[T]) add(rows ...T) { l.Rows = append(l.Rows, rows...) }

// first returns at most n entries of the list.
func (l list[T]) first(n int) list[T] {
	if cut := len(l.Rows) - n; cut > 0 {
		return list[T]{Rows: l.Rows[:n], More: l.More + cut}
	}
	return l
}

type (
	count struct {
		State, Text string
		Number      uint64
	}
	zoneLine struct{ Zone, Provider, Level, State, Since, Reason, Advice string }
	nameLine struct {
		Name, Level, State, At, Reason, Advice string
		Attempts                               int
	}
	foundLine struct {
		nameLine
		Value, Network string
		History        list[eventLine]
	}
	leftoverLine struct{ Name, Provider, Since, Reason, Advice string }
	eventLine    struct{ At, Level, Text, Name, Detail string }
	address      struct{ Family, Address, Note string }
)

// maxHalvings is the number of halvings after which no list has more than one entry.
const maxHalvings = 12

// cut returns the view with shorter lists: the longest ones shrink first.
func (v view) cut(halvings int) view {
	half := func(n, begin int) int { return max(1, n>>max(0, halvings-begin)) }
	if v.Overview != nil {
		o := *v.Overview
		o.Amiss = o.Amiss.first(half(maxAmiss, 0))
		o.Zones = o.Zones.first(half(maxZones, 2))
		o.Leftovers = o.Leftovers.first(half(maxLeftovers, 2))
		o.Events = o.Events.first(half(maxEvents, 2))
		v.Overview = &o
	}
	if v.Found != nil {
		f := *v.Found
		f.list = f.first(half(maxFound, 5))
		rows := make([]foundLine, len(f.Rows))
		for i, row := range f.Rows {
			row.History = row.History.first(half(maxHistory, 0))
			rows[i] = row
		}
		f.Rows = rows
		v.Found = &f
	}
	return v
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

func newZoneLine(z reconcile.ZoneState, known bool, in msg.Language) zoneLine {
	line := zoneLine{Zone: msg.Printable(z.Zone), Provider: providerTitle(z.Provider, in), Level: "good", State: say(in, "zone ok"), Since: clock(z.Since)}
	switch {
	case !known:
		line.Level, line.State = "idle", say(in, "zone unknown")
	case z.Fault.Code != "":
		line.Level, line.State = "bad", say(in, "zone down")
		line.Reason, line.Advice = reasonOf(mesh.Fault(z.Fault), in), advice(in, z.Fault.Code)
	}
	return line
}

// providerTitle names a provider.
func providerTitle(name string, in msg.Language) string {
	if name == "" {
		return say(in, "no provider")
	}
	return cmp.Or(msg.ProviderIn(in, name).Title, name)
}

func newNameLine(u mesh.Usage, in msg.Language) nameLine {
	state := cmp.Or(u.Publish.State, string(reconcile.None))
	line := nameLine{
		Name: msg.Printable(u.Name), Level: levels[state], State: say(in, "state "+state), At: stored(u.Publish.At),
		Reason: reasonOf(u.Publish.Fault, in), Attempts: u.Publish.Attempts,
	}
	if u.Publish.Fault.Code != "" {
		line.Advice = advice(in, u.Publish.Fault.Code)
	}
	return line
}

func newLeftoverLine(p reconcile.StoredPlace, in msg.Language) leftoverLine {
	return leftoverLine{
		Name: msg.Printable(p.Place.Name), Provider: providerTitle(p.Place.Account.Provider, in), Since: stored(p.Since),
		Reason: reasonOf(mesh.Fault(p.Place.Fault), in), Advice: advice(in, p.Place.Fault.Code),
	}
}

func networkText(n sql.Null[mesh.NetworkID]) string {
	if !n.Valid {
		return ""
	}
	return n.V.String()
}

// maxDetail bounds the characters of a change in the detail of an event.
const maxDetail = 120

func newEventLine(e events.Event, in msg.Language) eventLine {
	line := eventLine{At: clock(e.At), Level: eventLevels[e.Kind], Text: msg.ID(e.Kind).In(in), Name: msg.Printable(e.Name)}
	var parts []string
	if e.Name == "" && e.ServiceID != "" {
		parts = append(parts, e.ServiceID)
	}
	if e.Detail.Provider != "" {
		parts = append(parts, e.Detail.Provider)
	}
	if e.Detail.Count > 0 {
		parts = append(parts, say(in, "entries", e.Detail.Count))
	}
	for _, change := range e.Detail.Changes() {
		parts = append(parts, short(change, maxDetail))
	}
	if e.Detail.Fault.Code != "" {
		parts = append(parts, reasonOf(e.Detail.Fault, in))
	}
	if e.By != "" {
		parts = append(parts, say(in, "by", e.By))
	}
	line.Detail = strings.Join(parts, " · ")
	return line
}

// count fills the numbers of names by state.
func (o *overview) count(totals map[string]uint64) {
	for _, state := range reconcile.UsageStates {
		if n := totals[string(state)]; n > 0 || state == reconcile.Published || state == reconcile.Failed {
			o.Counts = append(o.Counts, count{State: levels[string(state)], Text: say(o.in, "state "+string(state)), Number: n})
		}
	}
}

// condition is what the first sentence is about.
type condition struct {
	totals          map[string]uint64
	configured, off bool
	down            int
	hidden          bool
	faults          int64
	stopped         uint64
}

// judge says in one sentence whether all is well.
func (o *overview) judge(c condition) {
	number := func(states ...reconcile.PlaceState) (n uint64) {
		for _, state := range states {
			n += c.totals[string(state)]
		}
		return n
	}
	var bad []string
	tell := func(id string, n uint64) {
		if n > 0 {
			bad = append(bad, say(o.in, id, n))
		}
	}
	if c.off {
		bad = append(bad, say(o.in, "off"))
	}
	tell("n failed", number(reconcile.Failed))
	tell("n conflict", number(reconcile.Conflict))
	tell("n none", number(reconcile.None))
	tell("n down", uint64(c.down))
	tell("n faults", uint64(c.faults))
	tell("n stopped", c.stopped)
	if c.hidden {
		bad = append(bad, say(o.in, "hidden"))
	}
	waiting, published := number(reconcile.Pending, reconcile.Withdrawing), strconv.FormatUint(number(reconcile.Published), 10)
	switch {
	case len(bad) > 0:
		o.Level, o.Sentence = "bad", say(o.in, "not well", strings.Join(bad, say(o.in, "comma")))
	case !c.configured:
		o.Level, o.Sentence = "busy", say(o.in, "not configured")
	case waiting > 0:
		o.Level, o.Sentence = "busy", say(o.in, "busy", waiting, published)
	default:
		o.Level, o.Sentence = "good", say(o.in, "well", published)
	}
}
