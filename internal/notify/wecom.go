package notify

import (
	"net/http"
	"time"
)

// weCom is a robot of a WeCom group, whose key is in its URL. It answers 200 to refusals too
// (https://developer.work.weixin.qq.com/document/path/91770).
var weCom = receiver{request: weComRequest, judge: weComJudge, public: []string{"cgi-bin", "webhook", "send", "cgi-bin/webhook/send"}}

const (
	weComRoom  = 2048        // octets of a text
	weComFast  = 45009       // over 20 messages a minute
	weComPause = time.Minute // after weComFast
)

// weComOutcomes are of codes of answers: the key is unknown, the type or the text of the message is refused.
var weComOutcomes = map[int]outcome{40008: final, 40058: final, 44004: final, 45002: final, 93000: final}

func weComRequest(t Target, m message, _ time.Time) (*http.Request, error) {
	return postJSON(t, textMessage{"text", textContent{m.text(weComRoom)}})
}

func weComJudge(a answer) verdict { return judgeCode(a, weComOutcomes, weComPause, weComFast) }
