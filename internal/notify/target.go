// Package notify sends messages about events to receivers of the operator's choice. A target is one
// receiver; the table notifications has its settings and the seq of the last event that was told.
// Each target has a goroutine, which reads the log of events and sends what the target wants, in
// order and at least once. A receiver that fails for a while gets the message later; one that refuses for
// good, or for a day, is stopped until its target is saved again.
//
// Each kind of receiver has a template and a judge. The sender knows no kind.
package notify

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/resource"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
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
	ID       string         `json:"id"`
	Kind     Kind           `json:"kind"`
	URL      URL            `json:"url"`
	Secret   secrets.Masked `json:"secret,omitempty"`
	Events   []string       `json:"events"`   // patterns as in events.Kind.Matches
	Language string         `json:"language"` // a name of languages
	Enabled  *bool          `json:"enabled"`  // not nil after Check

	revision int64 // random, new with each change of the settings
	progress
}

// URL is the URL of a target. Its path and query can be the receiver's key: answers mask them, and it prints as "***".
type URL string

func (u URL) Format(f fmt.State, _ rune) { io.WriteString(f, secrets.Scrubbed) }
func (u URL) LogValue() slog.Value       { return slog.StringValue(secrets.Scrubbed) }

// MarshalText returns the URL with a mask in place of its path and query.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.masked()), nil }

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

// important are the patterns of a target that names none: all that an operator has to know.
var important = []string{
	string(events.RecordFailed), string(events.RecordConflict), string(events.RecordRecovered), "zone.*", string(events.LeftoverAppeared),
	string(events.OrphanFound), string(events.ProvisionRefused), string(events.AddressChanged), "secondary.*", string(events.CertificateExpiring),
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

// Check implements resource.Entry.
func (t Target) Check(language msg.Language) (Target, error) {
	t.Language = cmp.Or(t.Language, nameOf(language))
	if t.Events == nil {
		t.Events = important
	}
	if t.Enabled == nil {
		t.Enabled = new(true)
	}
	_, kind := receivers[t.Kind]
	_, spoken := languages[t.Language]
	faults := []error{
		msg.RefuseIf(!mesh.GoodServiceID(t.ID), msg.ServiceIDInvalid),
		msg.RefuseIf(!kind, msg.NotificationKind, strings.Join(kindNames(), ", ")),
		msg.RefuseIf(!t.URL.good(), msg.NotificationURL, maxURL),
		msg.RefuseIf(t.Secret != "" && !goodSecret(string(t.Secret)), msg.NotificationSecret, secrets.Shortest, maxSecret),
	}
	for i, pattern := range t.Events {
		faults = append(faults, msg.RefuseIf(!events.GoodPattern(pattern) || i == maxSelectors, msg.NotificationEvents, secrets.ScrubLine(pattern, 64), maxSelectors))
	}
	return t, errors.Join(append(faults, msg.RefuseIf(!spoken, msg.NotificationLanguage))...)
}

// good accepts an http or https URL without user and fragment. A mask may only stand in place of
// the whole path and query.
func (u URL) good() bool {
	text := string(u)
	at, err := url.Parse(text)
	return err == nil && len(text) <= maxURL && (at.Scheme == "http" || at.Scheme == "https") && at.Hostname() != "" && at.User == nil &&
		!strings.Contains(text, "#") && (!u.isMasked() || text == u.masked())
}

func (u URL) isMasked() bool { return strings.Contains(string(u), secrets.Mask) }

func goodSecret(text string) bool {
	return len(text) >= secrets.Shortest && len(text) <= maxSecret && !strings.ContainsFunc(text, unicode.IsControl)
}

// masked returns a good URL with a mask in place of its path and query.
func (u URL) masked() string {
	at, err := url.Parse(string(u))
	if err != nil {
		return secrets.Mask
	}
	shown := at.Scheme + "://" + at.Host
	if at.Path == "" && at.RawQuery == "" {
		return shown
	}
	if at.Path == "/" && at.RawQuery == "" {
		return shown + "/"
	}
	return shown + "/" + secrets.Mask
}

// address returns the scheme, host and port of a good URL, in one spelling.
func (u URL) address() string {
	at, err := url.Parse(string(u))
	if err != nil {
		return ""
	}
	usual := map[string]string{"http": "80", "https": "443"}[at.Scheme]
	return at.Scheme + "://" + strings.ToLower(at.Hostname()) + ":" + cmp.Or(at.Port(), usual)
}

// Unmask implements resource.Entry: the secrets stay with the kind, the scheme and the host.
func (t Target) Unmask(stored Target) (Target, error) {
	same := t.Kind == stored.Kind && t.URL.address() == stored.URL.address()
	var noURL, noSecret error
	t.URL, noURL = resource.Keep(t.URL, stored.URL, t.URL.isMasked(), same, ErrURLMasked)
	t.Secret, noSecret = resource.Keep(t.Secret, stored.Secret, t.Secret == secrets.Mask, same, ErrSecretMasked)
	return t, cmp.Or(noURL, noSecret)
}

// forms are the addresses of receivers as the vendors' pages have them: an example, and what others
// have in common with it, wherever a server or a relay of the operator's own is: the last steps of the path as path.Match has
// them, or what fits says, and a member of the query.
var forms = map[Kind]struct{ example, path, member string }{
	DingTalk:     {"https://oapi.dingtalk.com/robot/send?access_token=<token>", "robot/send", "access_token"},
	Feishu:       {"https://open.feishu.cn/open-apis/bot/v2/hook/<id>", "open-apis/bot/v2/hook/?*", ""},
	WeCom:        {"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=<key>", "cgi-bin/webhook/send", "key"},
	Bark:         {"https://api.day.app/<key>", "", ""},
	Ntfy:         {"https://ntfy.sh/<topic>", "", ""},
	Gotify:       {"https://<host>/message", "message", ""},
	Telegram:     {"https://api.telegram.org/bot<token>/sendMessage?chat_id=<id>", "bot?*/sendmessage", "chat_id"},
	ServerChan:   {"https://sctapi.ftqq.com/<key>.send", "?*.send", ""},
	Healthchecks: {"https://hc-ping.com/<uuid>", "", ""},
}

// fits reports whether a path has the form of the kind's.
func (k Kind) fits(at string) bool {
	switch k {
	case Bark, Healthchecks:
		at = strings.TrimSuffix(at, "/")
	case Telegram:
		at = strings.ToLower(at)
	}
	steps := strings.Split(strings.TrimPrefix(at, "/"), "/")
	before, last := steps[:len(steps)-1], steps[len(steps)-1]
	switch form := forms[k].path; {
	case k == Bark: // a key has 22 characters; behind it is a text
		return isWord(last) && !slices.ContainsFunc(before, func(step string) bool { return len(step) > 15 })
	case k == Ntfy:
		return len(before) == 0 && isWord(last) && len(last) <= 64
	case k == Healthchecks: // behind a check's key is /fail or an exit status, behind a project's, of 22 characters, the check
		return len(last) >= 6 || last != "" && len(before) > 0 && len(before[len(before)-1]) == 22
	case form != "":
		count := strings.Count(form, "/") + 1
		fits, _ := path.Match(form, strings.Join(steps[max(0, len(steps)-count):], "/"))
		return fits
	}
	return true
}

// isWord reports whether a text has letters, digits, _ and - only.
func isWord(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// warnings tells why messages may not arrive although the receiver takes them.
func (t Target) warnings(language msg.Language) (all []string) {
	form := forms[t.Kind]
	at, err := url.Parse(string(t.URL))
	if err != nil {
		return nil // Check refuses it
	}
	if !t.Kind.fits(at.Path) || form.member != "" && at.Query().Get(form.member) == "" {
		all = append(all, msg.Phrase{ID: msg.WarnReceiver, Args: []any{form.example}}.In(language))
	}
	if t.Kind == Gotify && t.Secret == "" && at.Query().Get("token") == "" {
		all = append(all, msg.WarnNoToken.In(language))
	}
	return all
}

// wants reports whether the target wants an event. Every target wants to know of events that are not
// kept any more, and of other targets that are stopped.
func (t Target) wants(e events.Event) bool {
	if e.Kind == events.NotificationStopped {
		return string(e.Detail.After) != string(events.JSON(t.ID))
	}
	return e.Kind == events.Gap || slices.ContainsFunc(t.Events, e.Kind.Matches)
}

// shownTarget is a target in an answer.
type shownTarget struct {
	Target
	SentSeq  int64    `json:"sent_seq"`
	State    State    `json:"state"`
	Error    string   `json:"error"`
	Since    string   `json:"since"`
	NextAt   string   `json:"next_at,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// shown implements resource.Form.
func shown(t Target, warnings []string, language msg.Language) any {
	s := shownTarget{
		Target: t, SentSeq: t.sent, State: t.state, Since: t.since,
		Error: t.fault.In(language), Warnings: warnings,
	}
	if !t.next.IsZero() {
		s.NextAt = sqlite.Shown(t.next)
	}
	return s
}
