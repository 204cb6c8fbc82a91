package notify

import (
	"net/http"
	"time"
)

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
