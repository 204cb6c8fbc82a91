package notify

import (
	"mime"
	"net/http"
	"time"
)

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
