package msg

import (
	"strings"
	"testing"
)

func TestClosest(t *testing.T) {
	known := []string{"token-file", "dns-listen", "dns-host", "db", "sync_mode", "enabled"}
	for name, want := range map[string]string{
		"dns-listen": "dns-listen", "DNSLISTEN": "dns-listen", "dns.host": "dns-host", "dns-hots": "dns-host", "syncmde": "sync_mode",
		"token": "token-file", "tokens": "token-file", "listen": "dns-listen", "listens": "",
		"": "", "x": "", "d": "", "bd": "", "host": "", "mode": "", "dns-lsitne": "dns-listen", "enabeld": "enabled", "enbalde": "", "enxxled": "", "a-name-of-something-else": "",
		strings.Repeat("enabled", 1<<20): "",
	} {
		if got, ok := Closest(name, known); ok != (want != "") || ok && got != want {
			t.Errorf("%.30q is taken for %q, %t; want %q", name, got, ok, want)
		}
	}
	if got, ok := Closest("x", nil); ok {
		t.Errorf("%q is taken from no names", got)
	}
}

func TestDistance(t *testing.T) {
	for words, want := range map[string]int{" ": 0, "a ": 1, " a": 1, "abc abc": 0, "abc acb": 1, "kitten sitting": 3, "abcd badc": 2, "a abcdefgh": mostSlips + 1} {
		a, b, _ := strings.Cut(words, " ")
		if got := distance(a, b); got != want {
			t.Errorf("%q: %d, want %d", words, got, want)
		}
	}
}
