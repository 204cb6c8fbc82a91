package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// porkbun is Porkbun's API, version 3: every call is a POST with both keys in its JSON body. It stores
// values without quotes, one value a record.
type porkbun struct {
	records
	turns *turns
	known atomic.Bool // the keys were accepted once
}

const (
	porkbunEndpoint = "https://api.porkbun.com/api/json/v3"
	porkbunHosts    = ".porkbun.com"
	porkbunInterval = time.Second // between calls; the vendor asks for pauses and gives no number
	porkbunMinTTL   = 600         // seconds
)

// NewPorkbun makes a client of Porkbun. The key pair is API key (pk1_...) and secret API key
// (sk1_...); its rights cannot be restricted. A domain without API access counts as missing.
func NewPorkbun(c Credentials) (*Client, error) {
	return openRecords(porkbunEndpoint, c, func(a *api) *porkbun {
		if strings.HasSuffix(a.base.Hostname(), porkbunHosts) {
			return porkbunOf(a, porkbunTurns)
		}
		return porkbunOf(a, newTurns(0))
	})
}

// porkbunOf makes the vendor. It refuses values that the vendor refuses: an empty text, and spaces at the
// end. The limit of a value is not documented, and 764 octets are known to be kept.
func porkbunOf(a *api, t *turns) *porkbun {
	a.timeless, a.Hidden = true, []secrets.Secret{secrets.Secret(a.Key.AccessKeyID)}
	v := &porkbun{turns: t}
	v.records = records{
		api: a, has: []Type{TXT}, read: cutTXT, longest: 764, mixed: true,
		find: v.find, entries: v.entries, write: v.write, erase: v.erase,
	}
	return v
}

// porkbunTurns has the turns of all clients, because every domain has a client of its own.
var porkbunTurns = newTurns(porkbunInterval)

// turns keeps calls an interval apart.
type turns struct {
	interval time.Duration
	turn     turn // of the callers that wait for next
	next     time.Time
}

func newTurns(interval time.Duration) *turns {
	return &turns{interval: interval, turn: newTurn()}
}

// wait returns true when the next call may begin, or false if the context ends first. A caller that
// gives up takes no time from others.
func (t *turns) wait(ctx context.Context) bool {
	if !t.turn.take(ctx) {
		return false
	}
	defer t.turn.end()
	if early := time.Until(t.next); early > 0 && !pause(ctx, early) {
		return false
	}
	if ctx.Err() != nil {
		return false
	}
	t.next = time.Now().Add(t.interval)
	return true
}

// porkbunErrors are the codes in the API's description, and the messages of answers without a code. A
// domain of another account and one without API access have the same message. Users report that calls
// that come too fast fail with the messages for edits and creations.
var porkbunErrors = codeKinds{
	{"INVALID_API_KEY*|API_KEY_REQUIRED|MISSING_*APIKEY|INVALID_TOKEN|INVALID_USER", BadCredentials},
	{"*: Invalid API key*", BadCredentials},
	{"IP_NOT_ALLOWED", Permission},
	{"DOMAIN_NOT_ALLOWED|DOMAIN_NOT_FOUND|INVALID_DOMAIN", ZoneNotFound},
	{"*: Invalid domain*|*: Domain is not opted in*", ZoneNotFound},
	{"INVALID_RECORD_ID|DNS_RECORD_NOT_FOUND|*: Invalid record ID*", gone},
	{"DUPLICATE_RECORD", exists},
	{"RATE_LIMIT_EXCEEDED", Throttled},
	{"*: Create error: We were unable to*|*: Edit error: We were unable to*", Temporary},
}

// scalar is a string, or a number, in JSON.
type scalar string

func (s *scalar) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		return json.Unmarshal(data, (*string)(s))
	}
	var n json.Number
	err := json.Unmarshal(data, &n)
	*s = scalar(n)
	return err
}

// do makes one call with both keys when its turn comes, and parses the answer into out.
func (v *porkbun) do(ctx context.Context, c call, fields map[string]string, out any) error {
	all := map[string]string{"apikey": v.Key.AccessKeyID, "secretapikey": string(v.Key.AccessKeySecret)}
	maps.Copy(all, fields)
	c.method, c.data = http.MethodPost, all
	if !v.turns.wait(ctx) {
		return v.unreached(ctx, c, ctx.Err())
	}
	return v.ask(ctx, c, func(*http.Request, []byte) {}, v.open, out)
}

// open opens an answer with or without a code.
func (v *porkbun) open(ans answer) (reply, error) {
	if ans.status == http.StatusAccepted { // not documented: the answer to calls that come too fast
		return reply{failed: true, kinds: codeKinds{{"*", Throttled}}}, nil
	}
	var said struct {
		Status, Message string
		Code            scalar
	}
	err := json.Unmarshal(ans.body, &said)
	why := verdict{code: string(said.Code), message: said.Message}
	failed, done := ans.status >= 400 || strings.EqualFold(said.Status, "ERROR"), strings.EqualFold(said.Status, "SUCCESS")
	switch {
	case err != nil:
	case failed && porkbunErrors.of(why.code, why.message) == BadCredentials:
		v.known.Store(false)
	case !failed && !done:
		err = msg.Errorf("neither success nor an error")
	case !failed:
		v.known.Store(true)
	}
	return reply{why, failed, porkbunErrors, ans.body}, err
}

type porkbunRecord struct {
	ID, TTL             scalar
	Name, Type, Content string
}

// retrieve returns the records of a domain, all in one answer.
func (v *porkbun) retrieve(ctx context.Context, domain string) ([]porkbunRecord, error) {
	var answer struct{ Records *[]porkbunRecord }
	c := call{name: "dns/retrieve", path: "/dns/retrieve/" + escape(domain)}
	if err := v.do(ctx, c, nil, &answer); err != nil {
		return nil, err
	}
	if answer.Records == nil { // as an empty list it would make the program write all values again
		return nil, v.lacks(c, "records")
	}
	return *answer.Records, nil
}

// find asks for the records of a domain. The vendor's answer for a domain outside the account is not
// certain, nor whether the vendor checks the keys first. Keys that were never accepted are therefore
// tested by a call of their own.
func (v *porkbun) find(ctx context.Context, name string) (z zone, found bool, err error) {
	if strings.HasPrefix(name, "_") {
		return zone{}, false, nil // no domain begins with "_"
	}
	shown, err := v.retrieve(ctx, name)
	if kind := KindOf(err); err != nil && (kind == ZoneNotFound || kind == Invalid) {
		return zone{}, false, v.checkKeys(ctx)
	}
	outside := func(r porkbunRecord) bool { return !strings.HasSuffix("."+dns.Fold(r.Name), "."+name) }
	if err != nil || slices.ContainsFunc(shown, outside) { // the vendor listed a parent domain
		return zone{}, false, err
	}
	return zone{id: name, name: name, minTTL: porkbunMinTTL}, true, nil
}

func (v *porkbun) checkKeys(ctx context.Context) error {
	if v.known.Load() {
		return nil
	}
	return v.do(ctx, call{name: "ping", path: "/ping"}, nil, nil)
}

func (v *porkbun) entries(ctx context.Context, z zone, _, _ string) pageOf[entry] {
	return func(int, int) ([]entry, *int, error) {
		shown, err := v.retrieve(ctx, z.id)
		total := len(shown)
		return as(shown, func(r porkbunRecord) entry {
			ttl, _ := strconv.ParseUint(string(r.TTL), 10, 32) // 0 if absent
			return entry{id: string(r.ID), host: relative(dns.Fold(r.Name), z), kind: r.Type, text: r.Content, ttl: uint32(ttl)}
		}), &total, err
	}
}

// write has "" for the zone's own name.
func (v *porkbun) write(ctx context.Context, z zone, e entry) error {
	c := call{name: "dns/create", path: "/dns/create/" + escape(z.id)}
	if e.id != "" {
		c = call{name: "dns/edit", path: "/dns/edit/" + escape(z.id) + "/" + escape(e.id)}
	}
	return v.do(ctx, c, map[string]string{
		"name": strings.TrimPrefix(e.host, "@"), "type": e.kind, "content": e.text, "ttl": fmt.Sprint(e.ttl),
	}, nil)
}

func (v *porkbun) erase(ctx context.Context, z zone, id string) error {
	return v.do(ctx, call{name: "dns/delete", path: "/dns/delete/" + escape(z.id) + "/" + escape(id)}, nil, nil)
}
