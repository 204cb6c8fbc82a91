package notify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	"meshddns/internal/answers"
)

// generic is a program of the operator's own. It gets the events as JSON; any status of 200 to 299
// is a success.
var generic = receiver{request: genericRequest, all: true}

func genericRequest(t Target, m message, _ time.Time) (*http.Request, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Events []answers.Event `json:"events"`
		Test   bool            `json:"test,omitempty"`
	}{m.eventsJSON(), m.test})
	if err != nil {
		return nil, err
	}
	r, err := post(string(t.URL), "application/json; charset=utf-8", body.Bytes())
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Meshddns-Delivery", m.delivery())
	if t.Secret != "" {
		r.Header.Set("X-Meshddns-Signature", "sha256="+genericSign(string(t.Secret), body.Bytes()))
	}
	return r, nil
}

// genericSign returns the HMAC-SHA256 of a body in hex.
func genericSign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}
