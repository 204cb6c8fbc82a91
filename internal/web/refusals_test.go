package web

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/test/support"
)

// TestRefusalsAreLogged: the log has the caller and the reason, one line a second and kind, and the number of refusals without a line, also
// when none comes after them.
func TestRefusalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out support.Log
		plain := slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}
		guarded := GuardTCP(GuardConfig{Tokens: twoTokens(), Log: slog.New(slog.NewTextHandler(&out, &plain)), Deny: deny}, nil)
		ask := func(times int, host, token string) {
			for range times {
				r := httptest.NewRequest("GET", "/secret-path", nil)
				r.RemoteAddr, r.Host = "192.0.2.7:1234", host
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				guarded.ServeHTTP(httptest.NewRecorder(), r)
			}
		}
		logged := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := out.Take(); got != want {
				t.Errorf("logged:\n%swant:\n%s", got, want)
			}
		}
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		const refused, more = `level=WARN msg="request refused" who=192.0.2.7 `, `level=WARN msg="more: request refused" `
		ask(1, "evil.example", "")
		logged(refused + "status=403 code=host_not_allowed host=evil.example\n")
		pass(2 * linePause)
		logged("")
		ask(5, "localhost", "")
		logged(refused + "status=401 code=unauthorized host=localhost\n")
		pass(linePause)
		logged(more + "count=4 code=unauthorized\n")
		ask(maxWrong, "localhost", wrongToken)
		logged("")
		ask(10, "localhost", wrongToken) // of another kind
		logged(refused + "status=429 code=too_many_attempts host=localhost\n")
		pass(linePause)
		if got := out.Take(); !strings.Contains(got, more+"count=10 code=unauthorized\n") || !strings.Contains(got, more+"count=9 code=too_many_attempts\n") {
			t.Errorf("logged %s", got)
		}
		pass(linePause)
		ask(1, "localhost", wrongToken)
		logged(refused + "status=429 code=too_many_attempts host=localhost\n")
		pass(linePause)
		logged("")
		ask(1, strings.Repeat("a", 10000), "")
		logged(refused + "status=403 code=host_not_allowed host=" + strings.Repeat("a", maxShown) + "\n")
		pass(linePause)
		logged("")
	})
}

// TestNothingRefused: what passes is not logged.
func TestNothingRefused(t *testing.T) {
	var out support.Log
	addr := serveTCP(t, GuardConfig{Tokens: twoTokens(), Log: slog.New(slog.NewTextHandler(&out, nil))})
	if got := guardAttempt(t, addr, "127.0.0.1", firstToken); got != "200 token 1" {
		t.Error(got)
	}
	if got := out.Take(); got != "" {
		t.Errorf("logged %s", got)
	}
}

// TestRefusalsDoNotWaitForTheLog has the log take no line: one refused request waits for it, and all
// others are refused at once and counted.
func TestRefusalsDoNotWaitForTheLog(t *testing.T) {
	out := &support.Log{Held: make(chan struct{})}
	guarded := GuardTCP(GuardConfig{Log: slog.New(slog.NewTextHandler(out, nil)), Deny: deny}, nil)
	const requests = 20
	refused := make(chan struct{}, requests)
	for range requests {
		go func() {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = "evil.example"
			guarded.ServeHTTP(httptest.NewRecorder(), r)
			refused <- struct{}{}
		}()
	}
	support.Eventually(t, support.Limit, "all requests but one are refused while the log takes no line", func() bool { return len(refused) == requests-1 })
	close(out.Held)
	support.Eventually(t, support.Limit, "the others are counted in the log", func() bool { return strings.Contains(out.String(), "count=19 ") })
	if strings.Count(out.String(), "\n") != 2 {
		t.Errorf("logged:\n%s", out)
	}
}
