// Package notify sends messages about events to receivers of the operator's choice. A target is one
// receiver; the table notifications has its settings and the seq of the last event that was told.
// Each target has a goroutine, which reads the log of events and sends what the target wants, in
// order and at least once. A receiver that fails for a while gets the message later; one that refuses for
// good, or for a day, is stopped until its target is saved again.
//
// Each kind of receiver has a file with its template and its judge. The sender knows no kind.
package notify

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"meshddns/internal/answers"
	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// Limits of a target.
const (
	MaxTargets   = 32
	maxURL       = 2048 // octets
	maxSecret    = 1024 // octets
	maxSelectors = 64   // patterns of events
)

// Target is a receiver and the progress of its messages.
type Target struct {
	ID       string
	Kind     Kind
	URL      secrets.Secret // its path and query can be the receiver's key
	Secret   secrets.Secret
	Events   []string // patterns as in events.Kind.Matches
	Language msg.Language
	Enabled  bool

	revision int64 // random, new with each change of the settings
	progress
}

// progress is how far the messages of a target are.
type progress struct {
	sent     int64 // seq of the last event that is told, or need not be
	state    State
	fault    mesh.Fault // why the state is not OK
	attempts int        // failures in a row
	since    string     // of the state
	next     time.Time  // of the next try; zero for none
}

// enter notes a state at a time.
func (p *progress) enter(s State, now time.Time) {
	if p.state != s {
		p.state, p.since = s, sqlite.Shown(now)
	}
}

// State is the state of a target.
type State string

// The states of a target.
const (
	OK       State = "ok"
	Retrying State = "retrying"
	Stopped  State = "stopped" // the receiver refuses; saving the target again starts it
)

// Body is a target as clients and provision files write it.
type Body struct {
	ID       string         `json:"id"`
	Kind     Kind           `json:"kind"`
	URL      secrets.Secret `json:"url"`
	Secret   secrets.Secret `json:"secret"`
	Events   []string       `json:"events"`
	Language string         `json:"language"`
	Enabled  *bool          `json:"enabled"`
}

// important are the patterns of a target that names none: all that an operator has to know.
var important = []string{
	string(events.RecordFailed), string(events.RecordConflict), string(events.RecordRecovered), "zone.*", string(events.LeftoverAppeared),
	string(events.OrphanFound), string(events.ProvisionRefused), string(events.AddressChanged), "secondary.*",
}

// languages are the languages of messages by their names.
var languages = map[string]msg.Language{"zh": msg.Chinese, "en": msg.English}

// nameOf returns the name of a language.
func nameOf(language msg.Language) string {
	if language == msg.English {
		return "en"
	}
	return "zh"
}

// Check checks a body, and returns its target. language is that of a body without one. The target
// may still have masks in place of its secrets.
func (b Body) Check(language msg.Language) (Target, error) {
	t := Target{ID: b.ID, Kind: b.Kind, URL: b.URL, Secret: b.Secret, Events: b.Events, Language: language, Enabled: b.Enabled == nil || *b.Enabled}
	if b.Events == nil {
		t.Events = important
	}
	if !mesh.GoodServiceID(b.ID) {
		return t, msg.Refuse(msg.ServiceIDInvalid)
	}
	if _, ok := receivers[b.Kind]; !ok {
		return t, msg.Refuse(msg.NotificationKind, strings.Join(kindNames(), ", "))
	}
	if !goodURL(string(b.URL)) {
		return t, msg.Refuse(msg.NotificationURL, maxURL)
	}
	if b.Secret != "" && !goodSecret(string(b.Secret)) {
		return t, msg.Refuse(msg.NotificationSecret, secrets.Shortest, maxSecret)
	}
	for _, pattern := range b.Events {
		if !events.GoodPattern(pattern) || len(b.Events) > maxSelectors {
			return t, msg.Refuse(msg.NotificationEvents, secrets.ScrubLine(pattern, 64), maxSelectors)
		}
	}
	if b.Language == "" {
		return t, nil
	}
	var ok bool
	if t.Language, ok = languages[b.Language]; !ok {
		return t, msg.Refuse(msg.NotificationLanguage)
	}
	return t, nil
}

// Parse reads a target of a provision file, whose messages are in Chinese if it has no language.
func Parse(body []byte) (Target, error) {
	var b Body
	if err := web.ParseBody(body, &b); err != nil {
		return Target{}, err
	}
	return b.Check(msg.Chinese)
}

// goodURL accepts an http or https URL without user and fragment. A mask may only stand in place of
// the whole path and query.
func goodURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= maxURL && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil &&
		!strings.Contains(text, "#") && (!strings.Contains(text, secrets.Mask) || text == masked(text))
}

func goodSecret(text string) bool {
	return len(text) >= secrets.Shortest && len(text) <= maxSecret && !strings.ContainsFunc(text, unicode.IsControl)
}

// masked returns a good URL with a mask in place of its path and query.
func masked(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return secrets.Mask
	}
	shown := u.Scheme + "://" + u.Host
	if u.Path == "" && u.RawQuery == "" {
		return shown
	}
	if u.Path == "/" && u.RawQuery == "" {
		return shown + "/"
	}
	return shown + "/" + secrets.Mask
}

// address returns the scheme, host and port of a good URL, in one spelling.
func address(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + cmp.Or(u.Port(), usual)
}

// unmasked returns the target with the stored secrets in place of masks. A target of another kind or
// at another scheme or host gets ErrURLMasked or ErrSecretMasked, because the stored secret could go
// to the address of an attacker.
func (t Target) unmasked(stored Target) (Target, error) {
	same := t.Kind == stored.Kind && address(string(t.URL)) == address(string(stored.URL))
	if strings.Contains(string(t.URL), secrets.Mask) {
		if !same {
			return t, ErrURLMasked
		}
		t.URL = stored.URL
	}
	if t.Secret == secrets.Mask {
		if !same || stored.Secret == "" {
			return t, ErrSecretMasked
		}
		t.Secret = stored.Secret
	}
	return t, nil
}

// sameAs reports whether the settings of a target equal those of the stored one.
func (t Target) sameAs(stored Target) bool {
	t, err := t.unmasked(stored)
	return err == nil && t.ID == stored.ID && t.Kind == stored.Kind && t.URL == stored.URL && t.Secret == stored.Secret &&
		slices.Equal(t.Events, stored.Events) && t.Language == stored.Language && t.Enabled == stored.Enabled
}

// wants reports whether the target wants an event. Every target wants to know of events that are not
// kept any more, and of other targets that are stopped.
func (t Target) wants(e events.Event) bool {
	if e.Kind == events.NotificationStopped {
		return string(e.Detail.After) != string(events.JSON(t.ID))
	}
	return e.Kind == events.Gap || slices.ContainsFunc(t.Events, e.Kind.Matches)
}

// Settings are the settings of a target in an answer and in a document, with masks.
type Settings struct {
	ID       string   `json:"id"`
	Kind     Kind     `json:"kind"`
	URL      string   `json:"url"`
	Secret   string   `json:"secret,omitempty"`
	Events   []string `json:"events"`
	Language string   `json:"language"`
	Enabled  bool     `json:"enabled"`
}

// Documents returns targets in the form of a document.
func Documents(targets []Target) []Settings {
	all := []Settings{}
	for _, t := range targets {
		all = append(all, SettingsOf(t))
	}
	return all
}

// SettingsOf returns the settings of a target.
func SettingsOf(t Target) Settings {
	s := Settings{
		ID: t.ID, Kind: t.Kind, URL: masked(string(t.URL)), Events: append([]string{}, t.Events...), Language: nameOf(t.Language), Enabled: t.Enabled,
	}
	if t.Secret != "" {
		s.Secret = secrets.Mask
	}
	return s
}

// shownTarget is a target in an answer.
type shownTarget struct {
	Settings
	SentSeq int64  `json:"sent_seq"`
	State   State  `json:"state"`
	Error   string `json:"error"`
	Since   string `json:"since"`
	NextAt  string `json:"next_at,omitempty"`
}

func shown(t Target, language msg.Language) shownTarget {
	s := shownTarget{
		Settings: SettingsOf(t), SentSeq: t.sent, State: t.state, Since: t.since,
		Error: answers.FaultText(reconcile.Fault(t.fault), language),
	}
	if !t.next.IsZero() {
		s.NextAt = sqlite.Shown(t.next)
	}
	return s
}
