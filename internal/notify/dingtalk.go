package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// dingTalk is a custom robot of a DingTalk group. It takes 20 messages a minute, and blocks the robot
// for ten minutes then. It answers 200 to refusals too
// (https://open.dingtalk.com/document/orgapp/custom-robot-access).
var dingTalk = receiver{request: dingTalkRequest, judge: dingTalkJudge, public: []string{"robot", "send", "robot/send"}}

const (
	dingTalkRoom  = 18_000 // octets of a text; a message has 20 000
	dingTalkBlock = 10 * time.Minute
)

// Codes of DingTalk's answers.
var (
	// dingTalkOutcomes: parameter missing, token unknown, group dissolved, robot stopped or gone, type of
	// message or content refused, message too long. 310000 is a keyword, a signature or an address that is
	// refused, and also a time, as that of a host whose clock is not set yet.
	dingTalkOutcomes = map[int]outcome{
		40035: final, 43004: final, 300001: final, 300005: final, 400013: final, 400101: final, 400102: final, 400105: final,
		400106: final, 430101: final, 430102: final, 430103: final, 430104: final, 460101: final, 310000: doubtful,
	}
	// dingTalkFast: too many messages.
	dingTalkFast = []int{130101, 410100}
)

func dingTalkRequest(t Target, m message, now time.Time) (*http.Request, error) {
	if t.Secret != "" {
		u, err := url.Parse(string(t.URL))
		if err != nil {
			return nil, err
		}
		at := strconv.FormatInt(now.UnixMilli(), 10)
		query := u.Query()
		query.Set("timestamp", at)
		query.Set("sign", dingTalkSign(string(t.Secret), at))
		u.RawQuery = query.Encode()
		t.URL = URL(u.String())
	}
	return postJSON(t, textMessage{"text", textContent{m.text(dingTalkRoom)}})
}

// dingTalkSign returns the signature of a time in milliseconds.
func dingTalkSign(secret, at string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(at + "\n" + secret))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func dingTalkJudge(a answer) verdict {
	return judgeCode(a, dingTalkOutcomes, dingTalkBlock, dingTalkFast...)
}

// judgeCode judges an answer with errcode and errmsg. After one of the codes in fast the target pauses.
func judgeCode(a answer, outcomes map[int]outcome, pause time.Duration, fast ...int) verdict {
	var said struct {
		Code    *int   `json:"errcode"`
		Message string `json:"errmsg"`
	}
	if json.Unmarshal(a.body, &said) != nil || said.Code == nil {
		return unreadable(a)
	}
	if *said.Code == 0 {
		return verdict{}
	}
	v := refusal(*said.Code, said.Message, outcomes)
	if slices.Contains(fast, *said.Code) {
		v.pause = pause
	}
	return v
}

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
