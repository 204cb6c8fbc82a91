package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
	"meshddns/internal/web"
)

// Kind is a kind of receiver.
type Kind string

// The kinds of receivers.
const (
	Generic      Kind = "generic"
	DingTalk     Kind = "dingtalk"
	Feishu       Kind = "feishu"
	WeCom        Kind = "wecom"
	Bark         Kind = "bark"
	Ntfy         Kind = "ntfy"
	Gotify       Kind = "gotify"
	Telegram     Kind = "telegram"
	ServerChan   Kind = "serverchan"
	Healthchecks Kind = "healthchecks"
)

// receiver is the template and the judge of a kind.
type receiver struct {
	// request makes the request that has a message.
	request func(t Target, m message, now time.Time) (*http.Request, error)
	// judge judges an answer with a status of 200 to 299; nil takes each one as a success.
	judge func(answer) verdict
	// refused judges an answer with a status from 400 on, which by itself is doubtful; nil leaves it so.
	refused func(answer) verdict

	public []string // words of the receiver's path that are no secret
	all    bool     // a message has each event, and at most maxEvents
}

// maxEvents is the number of events in a message for programs. The next message has the rest.
const maxEvents = 100

// receivers are the receivers by kind.
var receivers = map[Kind]receiver{
	Generic: generic, DingTalk: dingTalk, Feishu: feishu, WeCom: weCom, Bark: bark,
	Ntfy: ntfy, Gotify: gotify, Telegram: telegram, ServerChan: serverChan, Healthchecks: healthchecks,
}

func kindNames() (names []string) {
	for _, kind := range slices.Sorted(maps.Keys(receivers)) {
		names = append(names, string(kind))
	}
	return names
}

// outcome is what became of a message.
type outcome int

const (
	taken    outcome = iota
	later            // another try may succeed
	doubtful         // it is refused, for good or until a proxy or a clock is right
	final            // another try would be refused too
)

// verdict is what an answer means. The zero verdict is a success.
type verdict struct {
	outcome
	pause time.Duration // the receiver wants no try before; 0 for none
	said  string        // the receiver's reason
}

func (v verdict) ok() bool { return v.outcome == taken }

// refusal returns the verdict of a code that a receiver's body has. outcomes has the codes that are not
// later.
func refusal(code int, words string, outcomes map[int]outcome) verdict {
	v := verdict{outcome: later, said: fmt.Sprintf("%d %s", code, words)}
	if o, known := outcomes[code]; known {
		v.outcome = o
	}
	return v
}

// unreadable is the verdict of a body that is not that of a receiver: a proxy may have answered.
func unreadable(a answer) verdict { return verdict{outcome: later, said: string(a.body)} }

// answer is what a receiver answered.
type answer struct {
	status int
	header http.Header
	body   []byte // at most maxAnswer octets
}

const (
	callTime  = 10 * time.Second
	maxAnswer = 64 << 10 // octets
	maxSaid   = 240      // octets of a receiver's words that are shown
	maxResult = 300      // octets of the message about a test
	userAgent = "meshddns"
)

// client sends all messages. It follows no redirect, because the secrets are for the target's
// address only. It keeps no connection, because messages are rare.
var client = &http.Client{
	Transport:     newTransport(),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() // verifies TLS, honours the proxy environment
	t.DisableKeepAlives = true
	t.MaxResponseHeaderBytes = maxAnswer
	return t
}

// result is the result of one try.
type result struct {
	verdict
	status int        // HTTP status, 0 without an answer
	fault  mesh.Fault // why it failed, without secrets
	answer string     // the receiver's words, without secrets
}

// text returns what the receiver says, or why it cannot be reached.
func (r result) text(language msg.Language) string {
	if r.ok() {
		return r.answer
	}
	return clip(r.fault.Detail.In(language), maxResult)
}

// send sends a message once, and judges the answer.
func send(ctx context.Context, t Target, m message, now time.Time) result {
	r, known := receivers[t.Kind]
	if !known { // a newer version of the program has stored it
		return result{verdict: verdict{outcome: final}, fault: mesh.Fault{Code: string(msg.KindNewer), Detail: msg.Text(t.Kind)}}
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	request, err := r.request(t, m, now)
	if err != nil {
		return result{verdict: verdict{outcome: final}, fault: mesh.Fault{Code: string(msg.MessageImpossible), Detail: msg.Textf("no message can be made for this URL")}}
	}
	hidden := secretParts(t, request, r.public)
	a, err := call(request.WithContext(ctx))
	if err != nil {
		text := msg.TextOf(err).Map(func(text string) string { return secrets.ScrubLine(text, maxSaid, hidden...) })
		return result{verdict: verdict{outcome: later}, fault: mesh.Fault{Code: string(msg.MessageUnreached), Detail: text}}
	}
	v := r.judged(a, now)
	result := result{verdict: v, status: a.status, answer: secrets.ScrubLine(string(a.body), maxSaid, hidden...)}
	if !v.ok() {
		result.fault = v.fault(a.status, hidden)
	}
	return result
}

// fault returns the fault of a refusal.
func (v verdict) fault(status int, hidden []string) mesh.Fault {
	f := mesh.Fault{Code: string(msg.MessageRefused), Detail: msg.Text(fmt.Sprintf("HTTP %d", status))}
	switch v.outcome {
	case later:
		f.Code = string(msg.MessageLater)
	case doubtful:
		f.Code = string(msg.MessageDoubtful)
	}
	if 300 <= status && status < 400 {
		f.Detail = msg.Textf("a redirect (HTTP %d), which is not followed", status)
	}
	if said := secrets.ScrubLine(v.said, maxSaid, hidden...); said != "" {
		f.Detail = f.Detail.Map(func(text string) string { return text + ": " + said })
	}
	return f
}

// call makes a request and reads the answer. An error does not have the URL.
func call(r *http.Request) (answer, error) {
	r.Header.Set("User-Agent", userAgent)
	r.Header.Set(web.NotificationHeader, "1")
	response, err := client.Do(r)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return answer{status: response.StatusCode, header: response.Header, body: body}, err
}

// judged returns the verdict of an answer. The status decides, and the body where the receiver
// answers 200 to refusals.
func (r receiver) judged(a answer, now time.Time) (v verdict) {
	switch {
	case a.status < 300 && r.judge == nil:
	case a.status < 300:
		v = r.judge(a)
	case temporary(a.status):
		v = verdict{outcome: later, said: string(a.body)}
	case r.refused != nil:
		v = r.refused(a)
	default:
		v = doubt(a)
	}
	if after := daemon.RetryAfter(a.header.Get("Retry-After"), now); v.outcome == later && after > 0 {
		v.pause = after
	}
	return v
}

// doubt is the verdict of a status from 400 on. Only 410 cannot be that of a proxy whose service restarts.
func doubt(a answer) verdict {
	if a.status == http.StatusGone {
		return verdict{outcome: final, said: string(a.body)}
	}
	return verdict{outcome: doubtful, said: string(a.body)}
}

// temporary reports whether a status may become a success later. A redirect may be that of a network
// that wants a login.
func temporary(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status < 400 || status >= 500
}

// secretParts returns the texts that neither an answer nor the log may have: the secret, and what the URL
// of a request has beyond its host. public are words of the path that are no secret.
func secretParts(t Target, r *http.Request, public []string) []string {
	u := r.URL
	all := []string{string(t.Secret), u.RequestURI(), u.EscapedPath(), u.Path, u.RawQuery}
	if stored, err := url.Parse(string(t.URL)); err == nil {
		all = append(all, stored.RequestURI(), stored.RawQuery)
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		all = append(all, part, strings.TrimPrefix(part, "bot")) // Telegram's key follows this word
	}
	for _, values := range u.Query() {
		all = append(all, values...)
	}
	return slices.DeleteFunc(all, func(text string) bool {
		return len(text) < secrets.Shortest || slices.Contains(public, strings.Trim(text, "/"))
	})
}

// postJSON makes a POST of a value as JSON.
func postJSON(t Target, value any) (*http.Request, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return post(string(t.URL), "application/json; charset=utf-8", body.Bytes())
}

func post(target, mediaType string, body []byte) (*http.Request, error) {
	r, err := http.NewRequest(http.MethodPost, target, bytes.NewReader(body))
	if err == nil {
		r.Header.Set("Content-Type", mediaType)
	}
	return r, err
}

// textMessage is a text for DingTalk and WeCom.
type textMessage struct {
	Type string      `json:"msgtype"`
	Text textContent `json:"text"`
}

type textContent struct {
	Content string `json:"content"`
}
