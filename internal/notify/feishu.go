package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// feishu is a custom robot of a Feishu or Lark group. It answers 200 to refusals too
// (https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot).
var feishu = receiver{request: feishuRequest, judge: feishuJudge, refused: feishuJudge, public: []string{"open-apis", "hook"}}

const feishuRoom = 18_000 // octets of a text; a request has 20 KB

// feishuOutcomes are of codes of answers: bad request, parameter or keyword refused. 19021 is a signature
// or a time, as that of a host whose clock is not set yet; 19022 is an address, which may change.
var feishuOutcomes = map[int]outcome{9499: final, 19001: final, 19002: final, 19024: final, 19021: doubtful, 19022: doubtful}

func feishuRequest(t Target, m message, now time.Time) (*http.Request, error) {
	type content struct {
		Text string `json:"text"`
	}
	body := struct {
		Timestamp string  `json:"timestamp,omitempty"`
		Sign      string  `json:"sign,omitempty"`
		Type      string  `json:"msg_type"`
		Content   content `json:"content"`
	}{Type: "text", Content: content{m.text(feishuRoom)}}
	if t.Secret != "" {
		body.Timestamp = strconv.FormatInt(now.Unix(), 10)
		body.Sign = feishuSign(string(t.Secret), body.Timestamp)
	}
	return postJSON(t, body)
}

// feishuSign returns the signature of a time in seconds. The text that is signed is empty.
func feishuSign(secret, at string) string {
	mac := hmac.New(sha256.New, []byte(at+"\n"+secret))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// feishuJudge reads the code under its new name and its old one. Feishu also answers 400 to a robot
// that sends too fast.
func feishuJudge(a answer) verdict {
	var said struct {
		Code       *int   `json:"code"`
		Message    string `json:"msg"`
		OldCode    *int   `json:"StatusCode"`
		OldMessage string `json:"StatusMessage"`
	}
	if json.Unmarshal(a.body, &said) != nil || said.Code == nil && said.OldCode == nil {
		if a.status >= 400 {
			return doubt(a)
		}
		return unreadable(a)
	}
	for _, part := range []struct {
		code  *int
		words string
	}{{said.Code, said.Message}, {said.OldCode, said.OldMessage}} {
		if part.code != nil && *part.code != 0 {
			return refusal(*part.code, part.words, feishuOutcomes)
		}
	}
	if a.status >= 400 {
		return doubt(a)
	}
	return verdict{said: said.Message}
}
