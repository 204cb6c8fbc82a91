package notify

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

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
