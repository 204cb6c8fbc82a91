package provider

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"meshddns/internal/dns"
	"meshddns/internal/secrets"
	"meshddns/test/cloudtest"
)

// vendors are the clients of HTTP, by their number in the inputs of FuzzCloudAnswers.
var vendors = []struct {
	name string
	open func(Credentials) (*Client, error)
}{
	{"alidns", NewAliDNS}, {"tencentcloud", NewTencentCloud}, {"huaweicloud", NewHuaweiCloud}, {"volcengine", NewVolcengine}, {"baiducloud", NewBaiduCloud},
	{"route53", NewRoute53}, {"cloudflare", NewCloudflare}, {"powerdns", NewPowerDNS}, {"dnspod", NewDNSPod}, {"jdcloud", NewJDCloud},
	{"godaddy", NewGoDaddy}, {"porkbun", NewPorkbun}, {"webhook", NewWebhook},
}

// hostile answers requests with one answer after the other, with the last a few times more,
// and then not at all. An answer is a status, a value of Retry-After, a line end, and a body.
type hostile struct {
	answers []string
	calls   int
}

// between stands between two answers in an input.
const between = "\x1e"

const again = 8

func (h *hostile) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.calls++; h.calls > len(h.answers)+again {
		return nil, io.ErrUnexpectedEOF
	}
	text := h.answers[min(h.calls, len(h.answers))-1]
	head, body, _ := strings.Cut(text, "\n")
	status, after, _ := strings.Cut(head, " ")
	code, err := strconv.Atoi(status)
	if err != nil || code < 200 || code > 599 {
		code = http.StatusOK
	}
	return &http.Response{
		StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{"Retry-After": {after}, "Date": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Content-Type": {"application/json"}},
	}, nil
}

const hiddenKey = "S3cr3t-Key-0123456789"

// FuzzCloudAnswers: after any answers of a provider a client ends in time. It returns values that a zone
// can have, or an error with a kind, in one line, without the key.
func FuzzCloudAnswers(f *testing.F) {
	standard := httpClient.Transport
	f.Cleanup(func() { httpClient.Transport = standard })
	for i, v := range vendors {
		f.Add(uint8(i), recorded(f, v.name))
		f.Add(uint8(i), "400 \n"+`{"Code":"X","message":"`+hiddenKey+`","error":"`+hex.EncodeToString([]byte(hiddenKey))+`"}`)
	}
	f.Fuzz(func(t *testing.T, vendor uint8, text string) {
		v := vendors[int(vendor)%len(vendors)]
		client, err := v.open(Credentials{AccessKeyID: "id", AccessKeySecret: hiddenKey, Endpoint: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		client.poll = time.Millisecond
		answers := strings.Split(text, between)
		h := &hostile{answers: answers}
		httpClient.Transport = h
		checkClient(t, client, h)
	})
}

// checkClient calls all functions of a client, each from the first answer on and from where the last one
// ended.
func checkClient(t *testing.T, client *Client, h *hostile) {
	const name = "_mesh.a.example.com"
	zone, err := client.Zone(t.Context(), name)
	if wellSaid(t, "zone", err); err == nil && (!dns.Within(name, zone) || dns.Fold(zone) != zone) {
		t.Errorf("%s is in the zone %q", name, zone)
	}
	calls := h.calls
	for _, from := range []int{0, calls} {
		h.calls = from
		set, err := client.Read(t.Context(), "example.com", name, TXT)
		if wellSaid(t, "read", err); err == nil {
			sane(t, name, set)
		}
	}
	for _, from := range []int{0, calls} {
		h.calls = from
		all, err := client.ReadAll(t.Context(), "example.com", nil)
		wellSaid(t, "list", err)
		for at, set := range all {
			if err != nil || !dns.Within(at, "example.com") || dns.Fold(at) != at {
				t.Errorf("the list of the zone has %q, %v", at, err)
			}
			sane(t, at, set)
		}
	}
	h.calls = calls
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	wellSaid(t, "change", client.Change(ctx, Change{Zone: "example.com", Name: name, Type: TXT, Add: []Value{{"ours"}}, Remove: []Value{{"old"}}, Seen: RRset{Values: []Value{{"old"}}}, TTL: 60}))
}

var kinds = []Kind{Network, Temporary, Throttled, BadCredentials, Permission, ClockSkew, ZoneNotFound, Conflict, Changed, Invalid, Quota, BadAnswer}

// wellSaid checks the text of an error.
func wellSaid(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	text := err.Error()
	if !slices.Contains(kinds, KindOf(err)) {
		t.Errorf("%s: an error of the kind %q: %s", what, KindOf(err), text)
	}
	if len(text) > 4096 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%s: an error of %d octets: %.300q", what, len(text), text)
	}
	for _, form := range []string{hiddenKey, base64.StdEncoding.EncodeToString([]byte(hiddenKey)), hex.EncodeToString([]byte(hiddenKey))} {
		if strings.Contains(text, form) || strings.Contains(fmt.Sprintf("%+v %#v", err, err), form) {
			t.Errorf("%s: the key is in %s", what, text)
		}
	}
}

// sane checks the values that a client has read at a name.
func sane(t *testing.T, name string, set RRset) {
	t.Helper()
	for i, v := range set.Values {
		if slices.ContainsFunc(set.Values[:i], v.Equal) {
			t.Errorf("%s has %q twice", name, v)
		}
	}
	for _, v := range slices.Concat(set.Values, set.Off) {
		if slices.ContainsFunc(v, func(s string) bool { return len(s) > 255 }) {
			t.Errorf("%s has a character-string of over 255 octets", name)
		}
	}
	for _, v := range set.Copies {
		if !slices.ContainsFunc(set.Values, v.Equal) {
			t.Errorf("%s has a copy of %q, which it has not", name, v)
		}
	}
}

// TestRecordedAnswers: real answers of a provider are accepted, so that the inputs of FuzzCloudAnswers
// reach the code that matters.
func TestRecordedAnswers(t *testing.T) {
	standard := httpClient.Transport
	defer func() { httpClient.Transport = standard }()
	for i, v := range vendors {
		httpClient.Transport = standard
		h := &hostile{answers: strings.Split(recorded(t, v.name), between)}
		httpClient.Transport = h
		client, err := v.open(Credentials{AccessKeyID: "id", AccessKeySecret: hiddenKey, Endpoint: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		if zone, err := client.Zone(t.Context(), "_mesh.a.example.com"); zone != "example.com" {
			t.Errorf("%d %s: zone %q, %v", i, v.name, zone, err)
		}
		if set, err := client.Read(t.Context(), "example.com", "_mesh.a.example.com", TXT); len(set.Values) != 1 {
			t.Errorf("%d %s: %q, %v", i, v.name, set.Values, err)
		}
	}
}

// recorder keeps the answers that go through it.
type recorder struct {
	http.RoundTripper
	answers []string
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	response.Body = io.NopCloser(strings.NewReader(string(body)))
	r.answers = append(r.answers, fmt.Sprintf("%d \n%s", response.StatusCode, body))
	return response, err
}

// recorded returns the answers of a stand-in to the calls of FuzzCloudAnswers.
func recorded(f testing.TB, vendor string) string {
	c := cloudtest.Start(f, vendor)
	client, err := openOf(vendor)(Credentials{AccessKeyID: c.AccessKeyID, AccessKeySecret: secrets.Secret(c.AccessKeySecret), Endpoint: c.URL})
	if err != nil {
		f.Fatal(err)
	}
	standard := httpClient.Transport
	r := &recorder{RoundTripper: standard}
	httpClient.Transport = r
	defer func() { httpClient.Transport = standard }()
	c.Add(f, "_mesh.a.example.com", []string{"old"})
	if _, err := client.Zone(f.Context(), "_mesh.a.example.com"); err != nil {
		f.Fatal(err)
	}
	seen, err := client.Read(f.Context(), "example.com", "_mesh.a.example.com", TXT)
	if err != nil {
		f.Fatal(err)
	}
	err = client.Change(f.Context(), Change{Zone: "example.com", Name: "_mesh.a.example.com", Type: TXT, Seen: seen, Add: []Value{{"ours"}}, Remove: []Value{{"old"}}, TTL: 600})
	if err != nil {
		f.Fatal(err)
	}
	return strings.Join(r.answers, between)
}

// FuzzCredentials: for any credentials there is a client, or an error in one line without the secret.
func FuzzCredentials(f *testing.F) {
	for _, endpoint := range []string{"", "dns.example.com", "https://dns.example.com/api", "http://127.0.0.1:8081", "[::1]:53", "192.0.2.1:99999", "http://dns.example.com", "https://user@x", "%zz"} {
		f.Add("mesh-key", "bm90IHRoZSByZWNvcmRlZCBvbmU=", endpoint)
	}
	f.Add("hmac-sha512:mesh-key.", "c2VjcmV0LXNlY3JldA", "ns.example.com")
	f.Add("a:b:c", "not base64, and secret", "ns.example.com:0")
	for _, long := range []string{strings.Repeat("\xce", 5000), strings.Repeat("\xce", 5000) + ":mesh-key"} {
		f.Add(long, "c2VjcmV0LXNlY3JldA", "ns.example.com")
		f.Add("mesh-key", long, "ns.example.com")
		f.Add("mesh-key", "c2VjcmV0LXNlY3JldA", long)
		f.Add("mesh-key", "c2VjcmV0LXNlY3JldA", "https://ns.example.com/"+long)
	}
	f.Fuzz(func(t *testing.T, id, secret, endpoint string) {
		c := Credentials{AccessKeyID: id, AccessKeySecret: secrets.Secret(secret), Endpoint: endpoint}
		errs := map[string]error{}
		for _, v := range vendors {
			_, errs[v.name] = v.open(c)
		}
		_, errs["rfc2136"] = NewRFC2136(c)
		for name, err := range errs {
			wellSaid(t, name, err)
			hidden := len(secret) >= 8 && !strings.Contains(id, secret) && !strings.Contains(endpoint, secret)
			if err != nil && hidden && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the secret is in %v", name, err)
			}
		}
	})
}

// FuzzRecords: from any answer of a DNS server a client reads only values that the name can have.
func FuzzRecords(f *testing.F) {
	owner := dns.Name(wireName(f, "_mesh.a.example.com"))
	for _, answers := range [][]dns.RR{
		nil, {soa(f, "example.com", 7)}, {txt(f, "_mesh.a.example.com", "ours"), txt(f, "_Mesh.a.example.com", "theirs"), txt(f, "a.example.com", "no")},
		{rr(f, "_mesh.a.example.com", dns.TypeCNAME, wireName(f, "b.example.com"))}, {rr(f, "a.example.com", dns.TypeDNAME, wireName(f, "b.example.com"))},
	} {
		f.Add((&dns.Message{Response: true, Answers: answers}).Pack())
		f.Add((&dns.Message{Response: true, Authority: answers}).Pack())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		answer, err := dns.ParseMessage(data)
		if err != nil {
			return
		}
		if apex, ok := apexAbove(answer, owner); ok && (apex == dns.Root || !owner.Within(apex)) {
			t.Errorf("the zone of %s is %s", owner, apex)
		}
		set, err := valuesAt(answer, owner, TXT)
		wellSaid(t, "values", err)
		for _, v := range set.Values {
			if len(v) == 0 || slices.ContainsFunc(v, func(s string) bool { return len(s) > maxString }) {
				t.Errorf("a value of the strings %q", v)
			}
		}
		if rr, ok := alias(answer); ok && strings.ContainsFunc(nameText(rr.Name), unicode.IsSpace) {
			t.Errorf("an alias at %q", nameText(rr.Name))
		}
	})
}
