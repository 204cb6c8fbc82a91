package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"meshddns/internal/daemon"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
	"meshddns/internal/term"
)

const (
	callTime  = 10 * time.Second // limit for one request and its answer
	listTime  = time.Minute      // for the rest of a list of which over maxAnswer octets came in callTime
	maxAnswer = 4 << 20          // octets of an answer
	shortRead = 256 << 10        // octets of an answer that are read without a place in longReads
	maxStream = 256 << 20        // octets of an answer that is read as a stream
	maxSkew   = 5 * time.Minute  // greatest clock error that the strictest vendors accept
	userAgent = "meshddns"
)

// httpClient is the one connection pool for all vendors. It follows no redirect, because the
// credentials are for the configured address only.
var httpClient = &http.Client{
	Transport:     newTransport(),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() // verifies TLS, honours the proxy environment
	t.MaxResponseHeaderBytes = 64 << 10
	t.MaxIdleConnsPerHost = 4
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return term.Dial(ctx, net.Dialer{Timeout: WriteTime}, network, address)
	}
	return t
}

// api is a vendor's HTTP interface: its address, and the clock and random source of its signatures.
type api struct {
	base  *url.URL // its path has no final slash
	Key   Credentials
	now   func() time.Time
	nonce func() string // unique, so that an attacker cannot replay a request

	timeless bool             // nothing is signed, so this host's clock is never the fault
	Hidden   []secrets.Secret // more secrets that no error may contain, besides that of the key
}

// said returns a vendor's words in one line, without secrets.
func (a *api) said(words string, limit int) string {
	hidden := []string{string(a.Key.AccessKeySecret)}
	for _, secret := range a.Hidden {
		hidden = append(hidden, string(secret))
	}
	return secrets.ScrubLine(words, limit, hidden...)
}

// newAPI makes an api for the vendor's standard address, or for the endpoint in the credentials. An
// endpoint without a path gets the vendor's path.
func newAPI(standard string, key Credentials, plain bool) (*api, error) {
	if strings.ContainsFunc(key.AccessKeyID+string(key.AccessKeySecret), unicode.IsControl) {
		// net/http would refuse the header with an error that looks like a network failure.
		return nil, &Error{Kind: BadCredentials, Detail: msg.Say("the key pair has a line break or another control character")}
	}
	base, err := url.Parse(standard)
	if err == nil && key.Endpoint != "" {
		base, err = endpointURL(key.Endpoint, base.Path, plain)
	}
	if err != nil {
		return nil, &Error{Kind: Invalid, Detail: "endpoint", Err: err}
	}
	return &api{base: base, Key: key, now: time.Now, nonce: newNonce}, nil
}

// endpointURL parses an endpoint. Keys must not cross a network in plain text: http is for loopback
// only, unless plain says that the vendor has nothing else.
func endpointURL(text, standardPath string, plain bool) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, msg.Errorf("not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, msg.Errorf("want https://, not %s://", shownEndpoint(u.Scheme))
	case u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, msg.Errorf("want a URL of scheme, host and path alone")
	case u.Scheme == "http" && !plain && !isLoopback(u.Hostname()):
		return nil, msg.Errorf("want https://: plain http is for loopback addresses only")
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), ""
	u.Path = cmp.Or(u.Path, standardPath)
	return u, nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// call is one request to a vendor's API.
type call struct {
	name   string // the vendor's name of the call
	method string
	path   string // below the base URL, escaped
	query  url.Values
	header map[string]string
	body   []byte
	data   any   // its JSON is the body
	list   *list // reads an answer that may be longer than maxAnswer
}

// callCount is the context key of the counter of calls.
type callCount struct{}

// answer is a complete HTTP answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes a call. sign authenticates the request.
func (a *api) send(ctx context.Context, c call, sign func(r *http.Request, body []byte)) (answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(callTime, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	r, body, err := a.request(ctx, c)
	if err != nil {
		return answer{}, &Error{Kind: Invalid, Detail: msg.Say(c.name), Err: err}
	}
	sign(r, body)
	if calls, ok := ctx.Value(callCount{}).(*atomic.Int64); ok {
		calls.Add(1)
	}
	response, err := httpClient.Do(r)
	if err != nil {
		return answer{}, a.unreached(ctx, c, err)
	}
	defer response.Body.Close()
	if c.list != nil && response.StatusCode == http.StatusOK {
		return a.stream(ctx, c, response, func() { late.Reset(listTime) })
	}
	body, tooLong, err := readAnswer(ctx, response.Body)
	if err != nil {
		return answer{}, a.unreached(ctx, c, err)
	}
	switch status := response.StatusCode; {
	case tooLong:
		err = msg.Errorf("the answer is over %d octets: %w", maxAnswer, errTooLong)
	case 300 <= status && status < 400:
		err = msg.Errorf("a redirect (HTTP %d), which is not followed", status)
	default:
		return answer{status, response.Header, body}, nil
	}
	return answer{}, &Error{Kind: BadAnswer, Detail: a.asked(c), Err: err}
}

// longReads bounds the long answers that are read at a time: many zones at once must not fill the
// memory of a small machine.
var longReads = make(chan struct{}, 2)

// readAnswer reads an answer, unless it has over maxAnswer octets. The blocks are joined only at the end,
// so that an answer that is too long costs no more memory than its limit.
func readAnswer(ctx context.Context, from io.Reader) (body []byte, tooLong bool, err error) {
	var read blocks
	octets, err := io.Copy(&read, io.LimitReader(from, shortRead))
	if err == nil && octets == shortRead {
		select {
		case longReads <- struct{}{}:
			defer func() { <-longReads }()
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		var rest int64
		rest, err = io.Copy(&read, io.LimitReader(from, maxAnswer-shortRead+1))
		octets += rest
	}
	if err != nil || octets > maxAnswer {
		return nil, octets > maxAnswer, err
	}
	return slices.Concat(read...), false, nil
}

// blocks keeps what is written to it.
type blocks [][]byte

func (b *blocks) Write(block []byte) (int, error) {
	*b = append(*b, bytes.Clone(block))
	return len(block), nil
}

// asked returns the names of a call and its host.
func (a *api) asked(c call) msg.Text { return msg.Textf("%s at %s", msg.Say(c.name), a.base.Host) }

// errTooLong is wrapped in the error of an answer with too many octets.
var errTooLong = msg.Errorf("too long")

// request makes the request of a call, still unsigned.
func (a *api) request(ctx context.Context, c call) (r *http.Request, body []byte, err error) {
	if body = c.body; c.data != nil {
		body, err = json.Marshal(c.data)
	}
	target, unescaped := below(a.base, c.path)
	if err = cmp.Or(err, unescaped); err != nil {
		return nil, nil, err
	}
	target.RawQuery = canonicalQuery(c.query)
	if r, err = http.NewRequestWithContext(ctx, c.method, target.String(), bytes.NewReader(body)); err != nil {
		return nil, nil, err
	}
	if c.data != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("User-Agent", userAgent)
	r.Header.Set("Accept", "application/json, application/xml;q=0.9")
	for name, value := range c.header {
		r.Header.Set(name, value)
	}
	return r, body, nil
}

// below appends an escaped path to a URL.
func below(u *url.URL, escaped string) (*url.URL, error) {
	unescaped, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, err
	}
	joined := *u
	joined.Path, joined.RawPath = u.Path+unescaped, u.EscapedPath()+escaped
	if joined.Path == "" {
		joined.Path, joined.RawPath = "/", ""
	}
	return &joined, nil
}

// unreached returns the error of a call without an answer. It drops the URL that net/url puts into its
// errors, because some vendors take credentials in the URL.
func (a *api) unreached(ctx context.Context, c call, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return &Error{Kind: Network, Detail: a.asked(c), Err: err}
}

// verdict is a vendor's reason for refusing a call.
type verdict struct {
	code, message, requestID string
}

// codeKinds maps a vendor's codes to kinds. The first matching pattern (path.Match) decides. "|" separates
// patterns of one kind. A pattern with a colon is about code and message, as "code: message", with single
// spaces; any other is about the code alone.
type codeKinds []struct {
	pattern string
	kind    Kind
}

func (k codeKinds) of(code, message string) Kind {
	code = strings.ReplaceAll(code, "/", " ") // "*" does not match a slash
	whole := code + ": " + strings.Join(strings.Fields(strings.ReplaceAll(message, "/", " ")), " ")
	for _, known := range k {
		for pattern := range strings.SplitSeq(known.pattern, "|") {
			text := code
			if strings.Contains(pattern, ":") {
				text = whole
			}
			if ok, _ := path.Match(pattern, text); ok {
				return known.kind
			}
		}
	}
	return ""
}

// reply is what the envelope of an answer says.
type reply struct {
	verdict
	failed bool      // the vendor refused the call, for the verdict
	kinds  codeKinds // of the verdict's codes
	result []byte    // the JSON that the caller asked for
}

// ask makes a call, opens its answer, and parses the result into out, unless out is nil.
func (a *api) ask(ctx context.Context, c call, sign func(r *http.Request, body []byte), open func(answer) (reply, error), out any) error {
	ans, err := a.send(ctx, c, sign)
	if err != nil {
		return err
	}
	said, err := open(ans)
	switch {
	case err == nil && said.failed:
		return a.refused(c, ans, said.verdict, said.kinds)
	case err == nil && out != nil:
		err = json.Unmarshal(said.result, out)
	}
	return a.unreadable(c, ans, err)
}

// refused makes the error of a call that the vendor refused. The vendor's code decides the kind, or
// the HTTP status if the code is unknown. The error is Unmade if the vendor gave a reason of its own
// and the kind is not Temporary.
func (a *api) refused(c call, ans answer, v verdict, kinds codeKinds) *Error {
	e := &Error{Kind: cmp.Or(kinds.of(v.code, v.message), statusKind(ans.status)), status: ans.status}
	e.Detail = a.replied(c, ans)
	for _, part := range []string{v.code, v.message} {
		if part = a.said(part, secrets.MaxPart); part != "" {
			e.Detail = msg.Textf("%s: %s", e.Detail, part)
		}
	}
	if id := a.said(v.requestID, secrets.MaxPart); id != "" {
		e.Detail = msg.Textf("%s (request %s)", e.Detail, id)
	}
	if e.Kind == Throttled || e.Kind == Temporary {
		e.RetryAfter = daemon.RetryAfter(ans.header.Get("Retry-After"), a.now())
	}
	e.Unmade = v.code+v.message != "" && e.Kind != Temporary
	if skew, ok := a.skew(ans); ok && !a.timeless && (e.Kind == BadCredentials || e.Kind == ClockSkew) {
		e.Kind = ClockSkew
		e.Detail = msg.Textf("%s: the provider's time minus ours is %+.0f s", e.Detail, skew.Seconds())
	}
	return e
}

// replied returns the names of a call and its host, and the status of the answer.
func (a *api) replied(c call, ans answer) msg.Text {
	return msg.Textf("%s: HTTP %d", a.asked(c), ans.status)
}

// scrubbed returns an error without secrets: package json repeats values that it cannot read.
func (a *api) scrubbed(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // its own words name Go types
		err = msg.Errorf("the JSON has a %q at %q, which does not belong there", e.Value, e.Field)
	}
	text := msg.TextOf(err)
	if shown := text.Map(func(words string) string { return a.said(words, secrets.MaxPart) }); shown != text {
		return msg.Errorf("%s", shown)
	}
	return err
}

// skew returns the provider's time minus ours, from the header Date. ok is false up to maxSkew.
func (a *api) skew(ans answer) (time.Duration, bool) {
	date, err := http.ParseTime(ans.header.Get("Date"))
	skew := date.Sub(a.now()).Round(time.Second)
	return skew, err == nil && skew.Abs() > maxSkew
}

// statusKind returns the kind for an HTTP status alone.
func statusKind(status int) Kind {
	switch {
	case status == http.StatusUnauthorized:
		return BadCredentials
	case status == http.StatusForbidden:
		return Permission
	case status == http.StatusTooManyRequests:
		return Throttled
	case status == http.StatusRequestTimeout || status >= 500:
		return Temporary
	}
	return Invalid
}

// errNotTheirs is the error of an answer that parses and lacks a member that the vendor always sends.
// To read "null" as an empty list would be to see no values.
var errNotTheirs = msg.Errorf("not an answer of this vendor")

// lacks returns the error of an answer without a required part.
func (a *api) lacks(c call, what string) error {
	return &Error{Kind: BadAnswer, Detail: a.asked(c), Err: msg.Errorf("the answer has no %s", msg.Say(what))}
}

// unreadable returns the error of an answer that cannot be parsed, nil if err is nil. A failing status
// decides, as with the HTML page of a proxy.
func (a *api) unreadable(c call, ans answer, err error) error {
	if err == nil {
		return nil
	}
	if ans.status >= 400 {
		return a.refused(c, ans, verdict{}, nil)
	}
	return &Error{Kind: BadAnswer, Detail: a.replied(c, ans), Err: a.scrubbed(err)}
}

// defaultPorts are the ports that a URL can omit.
var defaultPorts = map[string]string{"https": "443", "http": "80"}

// NormalEndpoint returns the normal form of a provider's endpoint. Two endpoints are the same address
// if their normal forms are equal. A URL has its scheme and its host in lower case, no default port,
// and no slash at its end. An endpoint of rfc2136 is host:port. A text that the provider's client
// refuses stays unchanged.
func NormalEndpoint(name, endpoint string) string {
	if endpoint == "" {
		return ""
	}
	if name == "rfc2136" {
		server, err := serverAddress(endpoint)
		if err != nil {
			return endpoint
		}
		return strings.ToLower(server)
	}
	u, err := endpointURL(endpoint, "", true)
	if err != nil || strings.Contains(u.Host, "%") { // the zone of an IPv6 address is case-sensitive
		return endpoint
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	switch {
	case port != "" && port != defaultPorts[u.Scheme]:
		u.Host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		u.Host = "[" + host + "]"
	default:
		u.Host = host
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}).String()
}
