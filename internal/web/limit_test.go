package web

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// attempt sends a token from a loopback address and gives the answer and its Retry-After.
func guardAttempt(t *testing.T, to net.Addr, from, token string) string {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	request := "GET / HTTP/1.1\nHost: localhost"
	if token != "" {
		request += "\nAuthorization: Bearer " + token
	}
	answer, header := guardSend(t, d, to, request)
	if wait := header.Get("Retry-After"); wait != "" {
		answer += ", retry after " + wait
	}
	return answer
}

func TestLimit(t *testing.T) {
	clock := newClock()
	addr := serveTCP(t, GuardConfig{Tokens: twoTokens(), Now: clock.now})
	for _, step := range []struct {
		wait  time.Duration
		times int
		from  string
		token string
		want  string
	}{
		{0, 20, "127.0.0.2", "", "401 unauthorized"}, // no token, no guess
		{0, 1, "127.0.0.2", wrongToken, "401 unauthorized"},
		{20 * time.Second, 9, "127.0.0.2", wrongToken, "401 unauthorized"},
		{0, 1, "127.0.0.2", wrongToken, "429 too_many_attempts, retry after 40"},
		{0, 5, "127.0.0.2", firstToken, "200 token 1"}, // a right one passes, and changes nothing
		{0, 1, "127.0.0.2", wrongToken, "429 too_many_attempts, retry after 40"},
		{0, 1, "127.0.0.2", "", "401 unauthorized"},
		{0, 1, "127.0.0.3", firstToken, "200 token 1"},
		{500 * time.Millisecond, 30, "127.0.0.2", wrongToken, "429 too_many_attempts, retry after 40"},
		{39*time.Second + 499*time.Millisecond, 1, "127.0.0.2", wrongToken, "429 too_many_attempts, retry after 1"},
		{time.Millisecond, 1, "127.0.0.2", firstToken, "200 token 1"},
		// The minute slides: nine of the ten still count, so one more guess is let through, not ten.
		{0, 1, "127.0.0.2", wrongToken, "401 unauthorized"},
		{0, 1, "127.0.0.2", wrongToken, "429 too_many_attempts, retry after 20"},
		{time.Minute, 10, "127.0.0.2", wrongToken, "401 unauthorized"},
		{0, 1, "127.0.0.2", wrongToken, "429 too_many_attempts, retry after 60"},
		{0, 1, "127.0.0.2", secondToken, "200 token 2"},
	} {
		clock.advance(step.wait)
		for i := range step.times {
			if got := guardAttempt(t, addr, step.from, step.token); got != step.want {
				t.Errorf("%+v, number %d: got %q", step, i+1, got)
			}
		}
	}
}

func TestLimitSideBySide(t *testing.T) {
	addr := serveTCP(t, GuardConfig{Tokens: twoTokens(), Now: newClock().now})
	var mu sync.Mutex
	var guesses sync.WaitGroup
	answers := map[string]int{}
	for range 50 {
		guesses.Go(func() {
			answer := guardAttempt(t, addr, "127.0.0.1", wrongToken)
			mu.Lock()
			defer mu.Unlock()
			answers[answer]++
		})
	}
	guesses.Wait()
	if answers["401 unauthorized"] != maxWrong || answers["429 too_many_attempts, retry after 60"] != 50-maxWrong {
		t.Error(answers)
	}
}

func TestLimiterIsBounded(t *testing.T) {
	clock := newClock()
	l := newWrongTokens(clock.now)
	nth := func(i int) netip.Prefix { return network(fmt.Sprintf("[2001:db8:0:%x::1]:1", i)) }
	for i := range maxNetworks + 1000 {
		l.wrongToken(nth(i))
		clock.advance(time.Millisecond)
	}
	if len(l.wrong) != maxNetworks {
		t.Errorf("%d networks remembered", len(l.wrong))
	}
	for i, want := range map[int]bool{0: false, 999: false, 1000: true, maxNetworks + 999: true} {
		if _, known := l.wrong[nth(i)]; known != want {
			t.Errorf("network %d: remembered %v, want %v", i, known, want)
		}
	}
	l.wrongToken(nth(1000))
	if _, known := l.wrong[nth(1001)]; !known {
		t.Error("one more from a known network pushed out another")
	}
	clock.advance(window)
	l.wrongToken(nth(0))
	if len(l.wrong) != 1 {
		t.Errorf("%d networks remembered when all others have expired", len(l.wrong))
	}
}

func TestNetwork(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1234":              "192.0.2.1/32",
		"[::ffff:192.0.2.1]:1234":     "192.0.2.1/32",
		"[2001:db8:1:2:3:4:5:6]:1234": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::]:1":     "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1":            "fe80::/64",
		"@":                           "invalid Prefix",
	} {
		if got := network(remote).String(); got != want {
			t.Errorf("%s: got %s, want %s", remote, got, want)
		}
	}
}
