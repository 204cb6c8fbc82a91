package provider

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// TestMessages writes failures in both languages: all our words are translated, and none of a vendor's.
func TestMessages(t *testing.T) {
	a, err := newAPI("https://dns.example", Credentials{AccessKeySecret: "s3cr3t"}, false)
	if err != nil {
		t.Fatal(err)
	}
	list, now := call{name: "list zones"}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a.now = func() time.Time { return now }
	old := http.Header{"Date": {now.Add(-time.Hour).Format(http.TimeFormat)}}
	_, noServer := NewRFC2136(Credentials{})
	call := msg.Textf("transfer zone %s from %s", "example.com", "192.0.2.1:53")
	for _, test := range []struct {
		err              error
		english, chinese string
	}{
		{a.refused(list, answer{status: 400}, verdict{"Code.X", "Your key has no balance", "1-2"}, nil),
			"invalid: list zones at dns.example: HTTP 400: Code.X: Your key has no balance (request 1-2)",
			"invalid: 列出区域（dns.example）：HTTP 400: Code.X: Your key has no balance (request 1-2)"},
		{a.refused(list, answer{status: 401, header: old}, verdict{}, nil),
			"clock_skew: list zones at dns.example: HTTP 401: the provider's time minus ours is -3600 s",
			"clock_skew: 列出区域（dns.example）：HTTP 401：服务商时间减本机时间为 -3600 秒"},
		{a.unreached(t.Context(), list, context.DeadlineExceeded),
			"network: list zones at dns.example: no answer in time", "network: 列出区域（dns.example）: 超时"},
		{a.unreadable(list, answer{status: 200}, errNotTheirs),
			"bad_answer: list zones at dns.example: HTTP 200: not an answer of this vendor",
			"bad_answer: 列出区域（dns.example）：HTTP 200: 不是该服务商的应答"},
		{a.unreadable(list, answer{status: 200}, errors.New("odd s3cr3t")),
			"bad_answer: list zones at dns.example: HTTP 200: odd ***", "bad_answer: 列出区域（dns.example）：HTTP 200: odd ***"},
		{a.lacks(list, "list of zones"),
			"bad_answer: list zones at dns.example: the answer has no list of zones", "bad_answer: 列出区域（dns.example）: 应答缺少 区域列表"},
		{overtaken("a.example", &Error{Kind: gone, Detail: msg.Say("x")}),
			"changed: a.example: the records at the name are no longer those seen: gone: x", "changed: a.example: 该名称下的记录已被改动: gone: x"},
		{aliased("a.example", "what the provider chooses"),
			"conflict: a.example is an alias: it points to what the provider chooses", "conflict: a.example 是别名，指向 由服务商决定的内容"},
		{rcodeError(call, transferErrors, dns.RcodeNotAuth, false),
			"permission: transfer zone example.com from 192.0.2.1:53: NOTAUTH: the server has no such zone, or does not transfer it for this key, or the key's name, algorithm or secret, or the clock, is wrong: answer carries no TSIG",
			"permission: 从 192.0.2.1:53 传送区域 example.com: NOTAUTH: 服务器没有该区域，或不允许此密钥传送，或者密钥名称、算法、内容或时钟有误: 应答未带 TSIG"},
		{noServer, "invalid: endpoint: the DNS server is missing: want host or host:port", "invalid: endpoint: 缺少 DNS 服务器，应为 host 或 host:port"},
	} {
		if text := msg.TextOf(test.err); test.err.Error() != test.english || text.In(msg.Chinese) != test.chinese {
			t.Errorf("%s\n%s, want\n%s\n%s", test.err, text.In(msg.Chinese), test.english, test.chinese)
		}
	}
}

// TestMeanings: every meaning of an rcode has a Chinese text.
func TestMeanings(t *testing.T) {
	for _, meanings := range []map[dns.Rcode]meaning{queryErrors, updateErrors, transferErrors} {
		for rcode := range meanings {
			text := rcodeError(msg.Say("x"), meanings, rcode, true).Detail
			if chinese := text.In(msg.Chinese); !regexp.MustCompile(`\p{Han}`).MatchString(chinese) || strings.Contains(chinese, "the ") {
				t.Errorf("%s is %q", rcode, chinese)
			}
		}
	}
}
