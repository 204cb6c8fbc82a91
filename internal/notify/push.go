package notify

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// bark is the app Bark on an iPhone. The URL is that of the device: https://api.day.app/<key>
// (https://github.com/Finb/bark-server/blob/master/docs/API_V2.md).
var bark = receiver{request: barkRequest}

const barkRoom = 3000 // octets of a body; Apple takes 4 KB of everything

func barkRequest(t Target, m message, _ time.Time) (*http.Request, error) {
	return postJSON(t, struct {
		Title string `json:"title"`
		Body  string `json:"body"`
		Group string `json:"group"`
	}{m.title(), m.body(barkRoom), "meshddns"})
}

// gotify is an application of a Gotify server. The URL is https://<host>/message, the secret the
// application's token (https://gotify.net/docs/pushmsg).
var gotify = receiver{request: gotifyRequest, public: []string{"message"}}

const (
	gotifyRoom     = 32 << 10 // octets of a message
	gotifyPriority = 5        // shown with a sound
)

func gotifyRequest(t Target, m message, _ time.Time) (*http.Request, error) {
	r, err := postJSON(t, struct {
		Title    string `json:"title"`
		Message  string `json:"message"`
		Priority int    `json:"priority"`
	}{m.title(), m.body(gotifyRoom), gotifyPriority})
	if err == nil && t.Secret != "" {
		r.Header.Set("X-Gotify-Key", string(t.Secret))
	}
	return r, err
}

// ntfy is a topic of an ntfy server. The URL is that of the topic, the secret an access token
// (https://docs.ntfy.sh/publish/).
var ntfy = receiver{request: ntfyRequest}

const ntfyRoom = 4000 // octets of a message; ntfy makes a file of a longer one

func ntfyRequest(t Target, m message, _ time.Time) (*http.Request, error) {
	r, err := post(string(t.URL), "text/plain; charset=utf-8", []byte(m.body(ntfyRoom)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Title", mime.BEncoding.Encode("utf-8", m.title())) // RFC 2047, ASCII stays as it is
	if t.Secret != "" {
		r.Header.Set("Authorization", "Bearer "+string(t.Secret))
	}
	return r, nil
}

// serverChan is ServerChan, which sends to WeChat. The URL is https://sctapi.ftqq.com/<key>.send
// (https://sct.ftqq.com/sendkey).
var serverChan = receiver{request: serverChanRequest, refused: serverChanRefused, public: []string{"send"}}

const (
	serverChanRoom  = 30 << 10 // octets of a text
	serverChanPause = time.Hour
	serverChanQuota = "次数限制" // the day's number of messages is used up
)

func serverChanRequest(t Target, m message, _ time.Time) (*http.Request, error) {
	form := url.Values{"title": {m.title()}, "desp": {strings.ReplaceAll(m.body(serverChanRoom), "\n", "\n\n")}} // desp is Markdown
	return post(string(t.URL), "application/x-www-form-urlencoded", []byte(form.Encode()))
}

// serverChanRefused waits when the day's messages are used up, to which ServerChan answers 400.
func serverChanRefused(a answer) verdict {
	if said := string(a.body); strings.Contains(said, serverChanQuota) {
		return verdict{outcome: later, pause: serverChanPause, said: said}
	}
	return doubt(a)
}

// telegram is a bot of Telegram. The URL is https://api.telegram.org/bot<token>/sendMessage?chat_id=<id>
// (https://core.telegram.org/bots/api#sendmessage).
var telegram = receiver{request: telegramRequest, judge: telegramJudge, public: []string{"sendMessage"}}

const telegramRoom = 4096 // octets of a text; Telegram counts characters

func telegramRequest(t Target, m message, _ time.Time) (*http.Request, error) {
	return postJSON(t, struct {
		Text      string `json:"text"`
		NoPreview bool   `json:"disable_web_page_preview"`
	}{m.text(telegramRoom), true})
}

// telegramJudge wants "ok" in an answer with status 200. Every other status counts by itself.
func telegramJudge(a answer) verdict {
	var said struct {
		OK bool `json:"ok"`
	}
	if json.Unmarshal(a.body, &said) != nil || !said.OK {
		return unreadable(a)
	}
	return verdict{}
}

// healthchecks is a check of Healthchecks, or any other dead man's switch. It gets no events but a
// GET each minute while all is well; when the GETs stay away, Healthchecks tells the operator
// (https://healthchecks.io/docs/http_api/).
var healthchecks = receiver{request: healthchecksRequest, judge: healthchecksJudge}

// pingEvery is the time between two GETs.
const pingEvery = time.Minute

func healthchecksRequest(t Target, _ message, _ time.Time) (*http.Request, error) {
	return http.NewRequest(http.MethodGet, string(t.URL), nil)
}

// healthchecksJudge reads the words of an answer, because Healthchecks answers 200 for an unknown
// check.
func healthchecksJudge(a answer) verdict {
	switch said := string(a.body); {
	case strings.Contains(said, "(not found)"):
		return verdict{outcome: final, said: said}
	case strings.Contains(said, "(rate limited)"):
		return verdict{outcome: later, said: said}
	}
	return verdict{}
}
