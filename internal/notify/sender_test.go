package notify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/msg"
)

// Events within ten seconds are one message, which lists twenty and counts the rest. Events that a
// target does not want are not told, and cost no write each.
func TestGrouping(t *testing.T) {
	inBubble(t, fine, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Ntfy, URL: s.at("/topic"), Language: "zh"})
		w.run()
		w.note(events.RecordPublished)
		w.note(events.RecordFailed)
		w.pass(9 * time.Second)
		w.notes(events.RecordRecovered, 24)
		w.note(events.UsageReserved)
		if got := s.take(); len(got) != 0 {
			t.Fatalf("told at once: %v", got)
		}
		w.pass(2 * time.Second)
		got := s.take()
		if len(got) != 1 {
			t.Fatalf("%d messages", len(got))
		}
		lines := strings.Split(got[0].body, "\n")
		if len(lines) != maxListed+1 || !strings.Contains(lines[0], "记录发布失败：_mesh.a.example.com") || lines[maxListed] != "……另有 5 个事件" {
			t.Errorf("%d lines:\n%s", len(lines), got[0].body)
		}
		if title, err := new(mime.WordDecoder).DecodeHeader(got[0].header.Get("Title")); err != nil || title != "meshddns: 25 个事件" {
			t.Errorf("title %q, %v", title, err)
		}
		w.note(events.ZoneDown)
		w.pass(11 * time.Second)
		if got := s.take(); len(got) != 1 || !strings.Contains(got[0].body, "区域故障") || strings.Contains(got[0].body, "\n") {
			t.Errorf("%v", got)
		}
		told := w.target().sent
		w.notes(events.RecordPublished, maxSkipped)
		w.pass(time.Minute)
		if sent := w.target().sent; sent != told {
			t.Errorf("events that are not told moved the stored seq from %d to %d", told, sent)
		}
		w.note(events.RecordPublished)
		w.pass(time.Minute)
		if sent := w.target().sent; sent != told+maxSkipped+1 {
			t.Errorf("the stored seq is %d, want %d", sent, told+maxSkipped+1)
		}
		if got := s.take(); len(got) != 0 {
			t.Errorf("%v", got)
		}
	})
}

// A receiver that drops half of all connections, before or after it has read the message, and is
// busy at times gets each event at least once, and in order.
func TestUnreliableReceiver(t *testing.T) {
	taken := int64(0) // the last seq that the receiver has acknowledged
	got := map[int64]bool{}
	answer := func(n int, d delivery) reply {
		first, last := d.span(t)
		if first > taken+1 || first <= taken && taken > 0 {
			t.Errorf("message %d-%d after %d was taken", first, last, taken)
		}
		for seq := first; seq <= last; seq++ {
			got[seq] = true
			if !strings.Contains(d.body, fmt.Sprintf(`"seq":%d,`, seq)) {
				t.Errorf("message %d-%d lacks %d: %s", first, last, seq, d.body)
			}
		}
		switch n % 4 {
		case 0:
			return reply{drop: true}
		case 1:
			return reply{status: http.StatusServiceUnavailable}
		case 2:
			return reply{drop: true}
		}
		taken = last
		return reply{status: http.StatusAccepted}
	}
	inBubble(t, answer, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Generic, URL: s.at("/"), Events: []string{"record.*"}})
		w.run()
		for range 30 {
			w.notes(events.RecordFailed, 10)
			w.pass(7 * time.Second)
		}
		w.pass(time.Hour)
		if target := w.target(); target.sent != 300 || target.state != OK || target.attempts != 0 {
			t.Errorf("%d, %s after %d", target.sent, target.state, target.attempts)
		}
		if s.mu.Lock(); taken != 300 || len(got) != 300 {
			t.Errorf("%d are taken, %d are told", taken, len(got))
		}
		s.mu.Unlock()
		if log := w.logs.String(); !strings.Contains(log, "delivered again") || strings.Contains(log, s.URL) {
			t.Errorf("%s", log)
		}
	})
}

// A target tries again after 5 s, then after twice as long each time up to 5 minutes, unless the
// receiver says when.
func TestBackoff(t *testing.T) {
	answer := func(n int, _ delivery) reply {
		if n == 12 {
			return reply{status: http.StatusTooManyRequests, header: map[string]string{"Retry-After": "7200"}}
		}
		return reply{status: http.StatusBadGateway}
	}
	inBubble(t, answer, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Gotify, URL: s.at("/message"), Secret: "token"})
		w.run()
		w.note(events.RecordFailed)
		w.pass(window + time.Second)
		for n := range 13 {
			target := w.target()
			if target.state != Retrying || target.attempts != n+1 || !strings.Contains(faultIn(target, msg.English), "HTTP") {
				t.Fatalf("%+v", shown(target, nil, msg.English))
			}
			least := min(5*time.Second<<n, 5*time.Minute)
			if n == 12 {
				least = time.Hour // however much the receiver wants
			}
			left := time.Until(target.next)
			if left < least-2*time.Second || left > least*6/5 {
				t.Errorf("try %d: %v, want %v", n, left, least)
			}
			w.pass(left + time.Second)
		}
		if got := len(s.take()); got != 14 {
			t.Errorf("%d tries", got)
		}
	})
}

// A receiver that refuses for good stops its target, also when it answers 200, until the target is saved
// again. Then it gets what it missed.
func TestStop(t *testing.T) {
	answers := []reply{{body: `{"errcode":300005,"errmsg":"no such token"}`}, {body: `{"errcode":130101,"errmsg":"too fast"}`}, {body: `{"errcode":0,"errmsg":"ok"}`}}
	inBubble(t, func(n int, _ delivery) reply { return answers[min(n, 2)] }, func(w *world, s *receiverServer) {
		body := Target{Kind: DingTalk, URL: s.at("/robot/send?access_token=t0ken"), Secret: "SECRET"}
		w.put(body)
		w.run()
		w.note(events.RecordFailed)
		w.pass(time.Hour)
		w.note(events.RecordRecovered)
		w.pass(24 * time.Hour)
		target := w.target()
		if target.state != Stopped || target.sent != 0 || len(s.got) != 1 {
			t.Fatalf("%s, %d, %d messages", target.state, target.sent, len(s.got))
		}
		if text := faultIn(target, msg.English); !strings.Contains(text, "300005 no such token") {
			t.Error(text)
		}
		w.put(body)
		w.pass(time.Second)
		if target := w.target(); target.state != Retrying || time.Until(target.next) < dingTalkBlock-2*time.Second {
			t.Errorf("%s until %v", target.state, time.Until(target.next))
		}
		w.pass(dingTalkBlock)
		if target := w.target(); target.state != OK || target.sent != 3 || target.fault.Code != "" {
			t.Errorf("%+v", target.progress)
		}
		if got := s.take(); len(got) != 3 || strings.Count(got[2].body, "_mesh.a.example.com") != 2 {
			t.Errorf("%v", got)
		}
	})
}

// What a proxy answers while its service restarts, and a robot while the clock of this host is not set,
// is tried again for a day with growing pauses. Then the target is stopped.
func TestDoubt(t *testing.T) {
	kinds := map[Kind]reply{
		Gotify: {status: http.StatusNotFound, body: "404 page not found"}, DingTalk: {body: `{"errcode":310000,"errmsg":"invalid timestamp"}`},
		Feishu: {body: `{"code":19021,"msg":"timestamp is not within one hour from current time"}`},
	}
	for kind, refusal := range kinds {
		good := reply{body: `{"errcode":0,"code":0}`}
		tries := 0
		inBubble(t, func(n int, _ delivery) reply {
			if tries++; n == 1 { // the second try, in between
				return good
			}
			return refusal
		}, func(w *world, s *receiverServer) {
			w.put(Target{Kind: kind, URL: s.at("/robot/send?access_token=t0ken"), Secret: "SECRET"})
			w.run()
			w.note(events.RecordFailed)
			w.pass(window + time.Second)
			if target := w.target(); target.state != Retrying || target.fault.Code != string(msg.MessageDoubtful) {
				t.Errorf("%s: %+v", kind, target.progress)
			}
			w.pass(10 * time.Second)
			if target := w.target(); target.state != OK || target.sent != 1 {
				t.Errorf("%s: when it is right again: %+v", kind, target.progress)
			}
			w.note(events.RecordRecovered)
			w.pass(22 * time.Hour)
			if target := w.target(); target.state != Retrying {
				t.Errorf("%s, 22 h: %+v", kind, target.progress)
			}
			w.pass(6 * time.Hour)
			if target := w.target(); target.state != Stopped || tries > 40 {
				t.Errorf("%s, 29 h: %d tries, %+v", kind, tries, target.progress)
			}
		})
	}
}

// Doubtful answers among others never stop a target, however long it fails.
func TestDoubtAmongOthers(t *testing.T) {
	answer := func(n int, _ delivery) reply {
		return reply{status: []int{http.StatusNotFound, http.StatusBadGateway}[n/doubtTries%2]}
	}
	inBubble(t, answer, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Generic, URL: s.at("/")})
		w.run()
		w.note(events.RecordFailed)
		w.pass(7 * 24 * time.Hour)
		if target := w.target(); target.state != Retrying || len(s.take()) < 3*doubtTries {
			t.Errorf("%+v", target.progress)
		}
	})
}

// A target that is stopped is told to all others once, whatever they want, and never to itself.
func TestStopIsTold(t *testing.T) {
	answer := func(_ int, d delivery) reply {
		if d.uri == "/gone" {
			return reply{status: http.StatusGone}
		}
		return reply{}
	}
	inBubble(t, answer, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Generic, URL: s.at("/gone")})
		w.put(Target{ID: "other", Kind: Generic, URL: s.at("/"), Events: []string{"zone.*"}})
		w.run()
		w.note(events.RecordFailed)
		w.pass(time.Hour)
		got := s.take()
		if len(got) != 2 || got[1].uri != "/" || !strings.Contains(got[1].body, `"kind":"notification.stopped"`) || !strings.Contains(got[1].body, `"after":"t"`) {
			t.Errorf("%v", got)
		}
		if states, err := w.Targets.States(w.t.Context()); err != nil || states[Stopped] != 1 || states[OK] != 1 {
			t.Errorf("%v, %v", states, err)
		}
		w.put(Target{Kind: Generic, URL: s.at("/")})
		w.pass(time.Hour)
		if got := s.take(); len(got) != 1 || strings.Contains(got[0].body, "notification.stopped") {
			t.Errorf("%v", got)
		}
	})
}

// A target of a kind that this program does not know, as after a rollback, is stopped, and the others are
// told. A program that knows the kind sends what it missed.
func TestUnknownKind(t *testing.T) {
	inBubble(t, fine, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Generic, URL: s.at("/t")})
		w.put(Target{ID: "other", Kind: Generic, URL: s.at("/other")})
		become := func(kind Kind) {
			w.stop()
			if _, err := w.db.Writer.Exec(`UPDATE notifications SET kind = ? WHERE id = 't'`, kind); err != nil {
				t.Fatal(err)
			}
			w.run()
			w.pass(time.Minute)
		}
		w.note(events.RecordFailed)
		become("future")
		become("future")
		got := s.take()
		if !toldOnce(got) {
			t.Errorf("%v", got)
		}
		if target := w.target(); target.state != Stopped || target.sent != 0 || !strings.Contains(w.logs.String(), "is stopped") {
			t.Errorf("%+v, log: %s", target.progress, w.logs)
		}
		become(Generic)
		if got := s.take(); len(got) != 1 || got[0].uri != "/t" || w.target().state != OK {
			t.Errorf("%v, %+v", got, w.target().progress)
		}
	})
}

// toldOnce reports whether the other target alone was told of a failed record and then, once, of the target that is stopped: in
// one message or in two, because both may be due at one moment.
func toldOnce(got []delivery) bool {
	all := ""
	for _, m := range got {
		if all += m.body; m.uri != "/other" {
			return false
		}
	}
	return strings.Count(all, "record.failed") == 1 && strings.Count(all, "notification.stopped") == 1 && strings.Index(all, "record.failed") < strings.Index(all, "notification.stopped")
}

// A crash at one target stops that one, and is logged with its place and told. The others go on.
func TestCrash(t *testing.T) {
	receivers["crashing"] = receiver{request: func(Target, message, time.Time) (*http.Request, error) { panic("injected") }}
	defer delete(receivers, "crashing")
	inBubble(t, fine, func(w *world, s *receiverServer) {
		w.put(Target{Kind: "crashing", URL: s.at("/t")})
		w.put(Target{ID: "other", Kind: Generic, URL: s.at("/other")})
		w.run()
		w.note(events.RecordFailed)
		w.pass(time.Minute)
		got := s.take()
		if !toldOnce(got) {
			t.Errorf("%v", got)
		}
		if target := w.target(); target.state != Stopped || target.sent != 0 || target.attempts != 1 {
			t.Errorf("%+v", target.progress)
		}
		if log := w.logs.String(); strings.Count(log, "injected") != 1 || !strings.Contains(log, "sender_test.go") {
			t.Errorf("%s", log)
		}
	})
}

// A program that ends forgets no event and tells none again. A target that is new, disabled or
// deleted gets nothing.
func TestRestart(t *testing.T) {
	inBubble(t, fine, func(w *world, s *receiverServer) {
		w.note(events.RecordFailed)
		no := false
		w.put(Target{Kind: Generic, URL: s.at("/")})
		w.put(Target{ID: "off", Kind: Generic, URL: s.at("/"), Enabled: &no})
		w.put(Target{ID: "gone", Kind: Generic, URL: s.at("/")})
		w.run()
		w.pass(time.Minute)
		if err := w.Targets.Delete(w.t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		w.note(events.RecordRecovered)
		w.pass(time.Second)
		w.stop()
		w.run()
		w.note(events.RecordConflict)
		w.pass(time.Minute)
		w.stop()
		w.run()
		w.pass(time.Minute)
		got := s.take()
		if len(got) != 1 || got[0].header.Get("X-Meshddns-Delivery") != "2-3" {
			t.Errorf("%v", got)
		}
		w.put(Target{ID: "off", Kind: Generic, URL: s.at("/")})
		w.pass(time.Minute)
		if got := s.take(); len(got) != 1 || got[0].header.Get("X-Meshddns-Delivery") != "2-3" {
			t.Errorf("%v", got)
		}
	})
}

// A delivery has the seqs of its first and last event, not those of events around them that the
// target does not want. A program gets every event, a hundred a message.
func TestDelivery(t *testing.T) {
	inBubble(t, fine, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Generic, URL: s.at("/"), Events: []string{"record.*"}})
		w.run()
		for _, step := range []struct {
			kinds []events.Kind
			many  int // more failures
			want  []string
			sent  int64
		}{
			{[]events.Kind{events.UsageReserved, events.RecordFailed, events.BackupMade, events.RecordRecovered, events.UsageReserved}, 0, []string{"2-4"}, 5},
			{[]events.Kind{events.UsageReserved, events.RecordFailed, events.BackupMade}, 0, []string{"7-7"}, 8},
			{nil, 2*maxEvents + 1, []string{"9-108", "109-208", "209-209"}, 209},
		} {
			for _, kind := range step.kinds {
				w.note(kind)
			}
			w.notes(events.RecordFailed, step.many)
			w.pass(window + time.Second)
			var got []string
			for _, d := range s.take() {
				got = append(got, d.header.Get("X-Meshddns-Delivery"))
			}
			if sent := w.target().sent; !slices.Equal(got, step.want) || sent != step.sent {
				t.Errorf("deliveries %q up to %d, want %q up to %d", got, sent, step.want, step.sent)
			}
		}
	})
}

// A target that was off for long is told how many events it has missed.
func TestGap(t *testing.T) {
	inBubble(t, fine, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Bark, URL: s.at("/key")})
		w.notes(events.RecordFailed, 7)
		if _, err := w.db.Writer.Exec(`DELETE FROM events WHERE seq < 7`); err != nil {
			t.Fatal(err)
		}
		w.run()
		w.pass(time.Minute)
		if got := s.take(); len(got) != 1 || !strings.Contains(got[0].body, "6 events are not kept any more") || w.target().sent != 7 {
			t.Errorf("%v", got)
		}
	})
}

// A dead man's switch gets a GET each minute while all is well.
func TestHealthchecks(t *testing.T) {
	inBubble(t, fine, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Healthchecks, URL: s.at("/ping/uuid")})
		w.run()
		w.pass(10*time.Minute + time.Second)
		got := s.take()
		if len(got) != 11 || got[0].method != "GET" || got[0].uri != "/ping/uuid" {
			t.Errorf("%d: %v", len(got), got)
		}
		w.stop()
		w.ill = true
		w.run()
		w.pass(10 * time.Minute)
		if got := s.take(); len(got) != 0 {
			t.Errorf("%v", got)
		}
	})
}

// There are at most 32 targets; one more is refused, and a replaced one is not.
func TestTooMany(t *testing.T) {
	inBubble(t, fine, func(w *world, s *receiverServer) {
		for n := range MaxTargets {
			w.put(Target{ID: fmt.Sprint("t", n), Kind: Generic, URL: s.at("/")})
		}
		w.put(Target{ID: "t0", Kind: Ntfy, URL: s.at("/")})
		target, err := Target{ID: "one-more", Kind: Generic, URL: s.at("/")}.Check(msg.English)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Targets.Save(w.t.Context(), target); err != ErrTooMany {
			t.Error(err)
		}
	})
}

// A secret and a URL that are replaced or deleted are in no file of the database.
func TestSecretsAreErased(t *testing.T) {
	inBubble(t, fine, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Generic, URL: s.at("/first-path"), Secret: "first-secret"})
		w.put(Target{Kind: Generic, URL: s.at("/second-path"), Secret: "second-secret"})
		w.put(Target{ID: "gone", Kind: Generic, URL: s.at("/third-path"), Secret: "third-secret"})
		if err := w.Targets.Delete(w.t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		w.db.WaitErased()
		var all []byte
		for _, suffix := range []string{"", "-wal"} {
			data, err := os.ReadFile(w.path + suffix)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			all = append(all, data...)
		}
		for text, want := range map[string]bool{"first-": false, "second-path": true, "second-secret": true, "third-": false} {
			if bytes.Contains(all, []byte(text)) != want {
				t.Errorf("%q is in the files: %v", text, !want)
			}
		}
	})
}

// A test message that arrives makes a stopped target try at once; one that is refused says why, and one to an odd address doubts.
func TestTest(t *testing.T) {
	answers := []reply{{status: http.StatusGone}, {status: http.StatusForbidden, body: "no"}, {}}
	inBubble(t, func(n int, d delivery) reply {
		if strings.HasSuffix(d.uri, "/text") {
			n = 2
		}
		return answers[min(n, 2)]
	}, func(w *world, s *receiverServer) {
		w.put(Target{Kind: Generic, URL: s.at("/")})
		w.run()
		w.note(events.RecordFailed)
		w.pass(time.Hour)
		ask := func(want string) {
			t.Helper()
			r, err := http.NewRequestWithContext(w.t.Context(), "POST", "/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.SetPathValue("id", "t")
			r.Header.Set("Accept-Language", "en")
			answer, err := w.Test(r)
			got, _ := json.Marshal(answer.Data)
			if err != nil || string(got) != want {
				t.Errorf("%s, %v, want %s", got, err, want)
			}
		}
		ask(`{"ok":false,"status":403,"message":"HTTP 403: no"}`)
		ask(`{"ok":true,"status":200,"message":""}`)
		w.pass(time.Second)
		got := s.take()
		if len(got) != 4 || !strings.HasPrefix(got[2].body, `{"events":[],"test":true}`) || got[3].header.Get("X-Meshddns-Delivery") != "1-1" {
			t.Errorf("%v", got)
		}
		if target := w.target(); target.state != OK || target.sent != 2 {
			t.Errorf("%+v", target.progress)
		}
		w.put(Target{Kind: Bark, URL: s.at("/yrcvbNbBn2Y2uTDKzEGfkP/text")})
		ask(`{"ok":true,"status":200,"message":"url is not of the form https://api.day.app/\u003ckey\u003e, so messages may not arrive"}`)
	})
}
