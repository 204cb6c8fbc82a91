package notify

import (
	"net/http"
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
