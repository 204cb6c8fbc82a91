package notify

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// The signatures are those that openssl computes; testdata/signatures.sh made the vectors.
func TestSignatures(t *testing.T) {
	text, err := os.ReadFile("testdata/signatures.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines {
		f := strings.Split(line, "\t")
		kind, secret, what, want := f[0], f[1], f[2], f[3]
		got := map[string]func() string{
			"dingtalk": func() string { return dingTalkSign(secret, what) },
			"feishu":   func() string { return feishuSign(secret, what) },
			"generic":  func() string { return genericSign(secret, []byte(what)) },
		}[kind]()
		if got != want {
			t.Errorf("%s: %s", line, got)
		}
	}
	if len(lines) != 9 {
		t.Errorf("%d vectors", len(lines))
	}
}

// sample is a message with one event.
func sample(language msg.Language) message {
	e := events.Event{Seq: 7, At: time.UnixMilli(1_800_000_000_000), Kind: events.RecordFailed, Name: "_mesh.a.example.com"}
	e.Detail.Fault = mesh.Fault{Code: "network", Detail: "refused"}
	return message{language: language, events: []events.Event{e}}
}

// targetOf returns a target of a kind as its receiver wants it, at a host.
func targetOf(kind Kind, host string) Target {
	paths := map[Kind]string{
		DingTalk: "/robot/send?access_token=s3cret-token", Feishu: "/open-apis/bot/v2/hook/s3cret-token", WeCom: "/cgi-bin/webhook/send?key=s3cret-token",
		Bark: "/s3cret-token", Telegram: "/bots3cret-token/sendMessage?chat_id=s3cret-chat", ServerChan: "/s3cret-token.send",
		Gotify: "/message", Ntfy: "/s3cret-token", Generic: "/s3cret-token/a?b=s3cret-query", Healthchecks: "/s3cret-token",
	}
	return Target{ID: "t", Kind: kind, URL: URL(host + paths[kind]), Secret: "s3cret-key+/=", Language: "en"}
}

// Each receiver gets what its documentation says, and the fixed word in every message.
func TestTemplates(t *testing.T) {
	s := newReceiver(t, fine)
	now := time.UnixMilli(1_700_000_000_123)
	for _, test := range []struct {
		kind  Kind
		wants []string // in the request's method, URI, header or body
	}{
		{Generic, []string{"POST /s3cret-token/a?b=s3cret-query", "X-Meshddns-Delivery:[7-7]", "X-Meshddns-Signature:[sha256=", `{"events":[{"seq":7,`, `"kind":"record.failed"`}},
		{DingTalk, []string{"POST /robot/send?access_token=s3cret-token&sign=", "&timestamp=1700000000123", `{"msgtype":"text","text":{"content":"meshddns: `}},
		{Feishu, []string{"POST /open-apis/", `"timestamp":"1700000000","sign":"`, `"msg_type":"text","content":{"text":"meshddns: `}},
		{WeCom, []string{"POST /cgi-bin/webhook/send?key=s3cret-token", `{"msgtype":"text","text":{"content":"meshddns: `}},
		{Bark, []string{"POST /s3cret-token", `{"title":"meshddns: `, `"group":"meshddns"`}},
		{Ntfy, []string{"POST /s3cret-token", "Title:[meshddns: ", "Authorization:[Bearer s3cret-key+/=]", "record failed: _mesh.a.example.com"}},
		{Gotify, []string{"POST /message", "X-Gotify-Key:[s3cret-key+/=]", `{"title":"meshddns: `}},
		{Telegram, []string{"POST /bots3cret-token/sendMessage?chat_id=s3cret-chat", `{"text":"meshddns: `}},
		{ServerChan, []string{"POST /s3cret-token.send", "title=meshddns%3A+"}},
		{Healthchecks, []string{"GET /s3cret-token"}},
	} {
		send(t.Context(), targetOf(test.kind, s.URL), sample(msg.English), now)
		got := s.take()
		if len(got) != 1 {
			t.Fatalf("%s: %d requests", test.kind, len(got))
		}
		all := fmt.Sprint(got[0].method, " ", got[0].uri, "\n", got[0].header, "\n", got[0].body)
		for _, want := range test.wants {
			if !strings.Contains(all, want) {
				t.Errorf("%s: no %s in\n%s", test.kind, want, all)
			}
		}
	}
	for kind := range receivers {
		for _, m := range []message{sample(msg.Chinese), {language: msg.English, test: true}} {
			send(t.Context(), targetOf(kind, s.URL), m, now)
			if d := s.take()[0]; kind != Healthchecks && !strings.Contains(d.body+d.header.Get("Title")+d.header.Get("X-Meshddns-Delivery")+fmt.Sprint(d.header), "eshddns") {
				t.Errorf("%s: %+v", kind, d)
			}
		}
	}
}

// An address that the receiver takes without a message is told: one that was copied with a sample behind it, or is that of another call.
func TestForms(t *testing.T) {
	const key, id = "/yrcvbNbBn2Y2uTDKzEGfkP", "/d1665499-e827-441f-bf13-8f15e8f4c0b9"
	for kind, paths := range map[Kind]struct{ good, bad []string }{
		Generic:      {[]string{"", "/", "/any?thing"}, nil},
		DingTalk:     {[]string{"/relay/robot/send?access_token=x"}, []string{"", "/robot/send", "/robot/send?access_token=", "/topapi/message/send?access_token=x"}},
		Feishu:       {[]string{"/relay/open-apis/bot/v2/hook/x"}, []string{"", "/open-apis/bot/v2/hook/", "/open-apis/bot/hook/x", "/base/automation/webhook/event/x"}},
		WeCom:        {[]string{"/relay/cgi-bin/webhook/send?key=x"}, []string{"", "/cgi-bin/webhook/send", "/cgi-bin/webhook/upload_media?key=x&type=file"}},
		Bark:         {[]string{key, key + "/", "/bark" + key, key + "?sound=bell"}, []string{"", "/", key + "/Body Text", key + "/body", key + "/%E6%8E%A8%E9%80%81", key + "/title/body", "/bark" + key + "/body"}},
		Ntfy:         {[]string{"/alerts-1"}, []string{"", "/", "/alerts/json", "/alerts/publish", "/a/b"}},
		Gotify:       {[]string{"/message", "/gotify/message"}, []string{"", "/", "/stream", "/message/"}},
		Telegram:     {[]string{"/bot1:a/sendMessage?chat_id=1", "/relay/bot1:a/sendmessage?chat_id=1"}, []string{"", "/bot1:a/getUpdates", "/bot1:a/sendMessage", "/bot1:a/getMe?chat_id=1", "/bot1:a/?chat_id=1", "/sendMessage?chat_id=1"}},
		ServerChan:   {[]string{"/SCT1x.send", "/send/sctp1tx.send"}, []string{"", "/SCT1x", "/.send", "/SCT1x.send/title"}},
		Healthchecks: {[]string{id, id + "/", key + "/db", "/ping" + key + "/db", "/api/push/aBcDeFgHiJ?status=up"}, []string{"", "/", id + "/fail", id + "/start", id + "/log", id + "/1", id + "/255", key + "/db/fail"}},
	} {
		target := targetOf(kind, "https://a.example")
		for what, list := range map[bool][]string{false: append(paths.good, strings.TrimPrefix(string(target.URL), "https://a.example")), true: paths.bad} {
			for _, path := range list {
				target.URL = URL("https://a.example" + path)
				if _, err := target.Check(msg.English); err != nil || (len(target.warnings(msg.English)) > 0) != what {
					t.Errorf("%s %s: %q, %v", kind, path, target.warnings(msg.English), err)
				}
			}
		}
	}
}

// What the answers of receivers mean.
func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		kind   Kind
		status int
		body   string
		want   outcome
	}{
		{Generic, 200, "", taken}, {Generic, 299, "error", taken}, {Generic, 400, "", doubtful}, {Generic, 401, "", doubtful}, {Generic, 403, "", doubtful},
		{Generic, 404, "", doubtful}, {Generic, 410, "", final}, {Generic, 408, "", later}, {Generic, 429, "", later}, {Generic, 500, "", later},
		{Generic, 503, "", later}, {Generic, 302, "", later},
		{DingTalk, 200, `{"errcode":0}`, taken}, {DingTalk, 200, `{"errcode":310000,"errmsg":"sign not match"}`, doubtful},
		{DingTalk, 200, `{"errcode":300005}`, final}, {DingTalk, 200, `{"errcode":130101}`, later}, {DingTalk, 200, `<html>`, later},
		{DingTalk, 200, `{"errcode":-1}`, later},
		{Feishu, 200, `{"code":0}`, taken}, {Feishu, 200, `{"StatusCode":0,"StatusMessage":"success"}`, taken}, {Feishu, 200, `{"code":19021}`, doubtful}, {Feishu, 200, `{"code":19022}`, doubtful},
		{Feishu, 200, `{"StatusCode":19001}`, final}, {Feishu, 200, `{"code":19002}`, final}, {Feishu, 400, `{"code":9499}`, final},
		{Feishu, 400, `{"code":11232}`, later}, {Feishu, 200, `login`, later}, {Feishu, 404, `gone`, doubtful},
		{WeCom, 200, `{"errcode":0}`, taken}, {WeCom, 200, `{"errcode":93000}`, final}, {WeCom, 200, `{"errcode":45009}`, later}, {WeCom, 200, ``, later},
		{Telegram, 200, `{"ok":true}`, taken}, {Telegram, 200, `login`, later}, {Telegram, 403, `{"ok":false}`, doubtful}, {Telegram, 429, `{"ok":false}`, later},
		{ServerChan, 200, `{"code":0}`, taken}, {ServerChan, 400, `{"message":"超过当天的发送次数限制"}`, later}, {ServerChan, 400, `{"message":"bad key"}`, doubtful},
		{Healthchecks, 200, `OK`, taken}, {Healthchecks, 200, `OK (not found)`, final}, {Healthchecks, 200, `OK (rate limited)`, later},
		{Bark, 200, `{"code":200}`, taken}, {Bark, 400, `{"code":400}`, doubtful}, {Gotify, 401, ``, doubtful}, {Ntfy, 507, ``, later},
	} {
		v := receivers[test.kind].judged(answer{status: test.status, body: []byte(test.body), header: http.Header{}}, time.Now())
		if v.outcome != test.want {
			t.Errorf("%s %d %s: %d, want %d", test.kind, test.status, test.body, v.outcome, test.want)
		}
	}
}

// A receiver that repeats the whole request in its answer brings no secret into the state, the
// answers and the log.
func TestEchoes(t *testing.T) {
	for _, status := range []int{200, 400, 500} {
		echo := func(_ int, d delivery) reply {
			said := fmt.Sprintf("%s %s %s %q", d.uri, d.header, d.body, d.uri)
			body := fmt.Sprintf(`{"ok":false,"errcode":310000,"code":19021,"errmsg":%q,"msg":%[1]q}`, said)
			if d.method == http.MethodGet {
				body = said + " (not found)"
			}
			return reply{status: status, body: body}
		}
		s := newReceiver(t, echo)
		for _, kind := range slices.Sorted(maps.Keys(receivers)) {
			target := targetOf(kind, s.URL)
			r := send(t.Context(), target, sample(msg.English), time.Now())
			target.fault = r.fault
			told := fmt.Sprintf("%+v %s %s %s %+v", shown(target, nil, msg.English), faultIn(target, msg.Chinese), r.text(msg.English), r.fault.Detail.In(msg.Chinese), target)
			if strings.Contains(told, "s3cret") || strings.Contains(told, "S3CRET") {
				t.Errorf("%s %d: %s", kind, status, told)
			}
			if len(r.text(msg.English)) > maxResult || !r.ok() && r.fault.Detail == "" {
				t.Errorf("%s %d: %q", kind, status, r.text(msg.English))
			}
		}
	}
}

// A receiver that cannot be reached is told without its URL.
func TestUnreached(t *testing.T) {
	s := newReceiver(t, func(int, delivery) reply { return reply{drop: true} })
	dead := newReceiver(t, fine)
	dead.Close()
	for kind := range receivers {
		for _, host := range []string{s.URL, dead.URL} {
			r := send(t.Context(), targetOf(kind, host), sample(msg.English), time.Now())
			if r.outcome != later || r.text(msg.English) == "" || strings.Contains(r.text(msg.English), "s3cret") {
				t.Errorf("%s: %+v", kind, r)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := send(ctx, targetOf(Generic, s.URL), sample(msg.English), time.Now()); r.outcome != later {
		t.Errorf("%+v", r)
	}
}

// A redirect is not followed, because it could take the secrets to another host.
func TestRedirect(t *testing.T) {
	other := newReceiver(t, fine)
	s := newReceiver(t, func(int, delivery) reply {
		return reply{status: http.StatusTemporaryRedirect, header: map[string]string{"Location": other.URL}}
	})
	r := send(t.Context(), targetOf(Generic, s.URL), sample(msg.English), time.Now())
	if r.outcome != later || len(other.take()) != 0 || !strings.Contains(r.text(msg.English), "redirect") {
		t.Errorf("%+v", r)
	}
}

// slow is a transport that answers after a time.
type slow time.Duration

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(time.Duration(s)):
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestTimeOfAnswers: a receiver has 10 s for its answer.
func TestTimeOfAnswers(t *testing.T) {
	standard := client.Transport
	defer func() { client.Transport = standard }()
	for takes, ok := range map[time.Duration]bool{10*time.Second - 1: true, 10*time.Second + 1: false} {
		synctest.Test(t, func(t *testing.T) {
			client.Transport = slow(takes)
			begun := time.Now()
			r := send(t.Context(), targetOf(Generic, "http://192.0.2.1/"), sample(msg.English), begun)
			if r.ok() != ok || time.Since(begun) > 10*time.Second {
				t.Errorf("an answer after %v: %+v after %v", takes, r, time.Since(begun))
			}
		})
	}
}

// A long answer is read up to a limit.
func TestLongAnswer(t *testing.T) {
	s := newReceiver(t, func(int, delivery) reply { return reply{body: strings.Repeat("x", 10*maxAnswer)} })
	if r := send(t.Context(), targetOf(Generic, s.URL), sample(msg.English), time.Now()); !r.ok() || len(r.answer) > maxResult {
		t.Errorf("%+v", r)
	}
}

// Every message keeps to the room of its receiver.
func TestRoom(t *testing.T) {
	m := sample(msg.Chinese)
	m.events[0].Detail.Fault.Detail = msg.Say(strings.Repeat("长", 400))
	for len(m.events) < maxEvents {
		m.events = append(m.events, m.events[0])
	}
	m.more = 5
	for _, room := range []int{weComRoom, barkRoom, ntfyRoom, telegramRoom, dingTalkRoom} {
		text := m.text(room)
		if len(text) > room || !strings.Contains(text, "另有") {
			t.Errorf("%d octets for %d", len(text), room)
		}
	}
}
