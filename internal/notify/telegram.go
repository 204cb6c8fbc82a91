package notify

import (
	"encoding/json"
	"net/http"
	"time"
)

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
