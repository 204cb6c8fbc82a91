package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// porkbun is Porkbun's API, version 3: every call is a POST with both keys in its JSON body. It stores
// values without quotes, one value a record.
type porkbun struct {
	api   *api
	turns *turns
	known atomic.Bool // the keys were accepted once
}

const (
	porkbunEndpoint = "https://api.porkbun.com/api/json/v3"
	porkbunHosts    = ".porkbun.com"
	porkbunInterval = time.Second // between calls; the vendor asks for pauses and gives no number
	porkbunMinTTL   = 600         // seconds
	porkbunMaxValue = 764         // octets; the limit is not documented, and this length is known to be kept
)

// NewPorkbun makes a client of Porkbun. The key pair is API key (pk1_...) and secret API key
// (sk1_...); its rights cannot be restricted. A domain without API access counts as missing.
func NewPorkbun(c Credentials) (*Client, error) {
	a, err := newAPI(porkbunEndpoint, c, false)
	if err != nil {
		return nil, err
	}
	a.timeless, a.Hidden = true, []secrets.Secret{secrets.Secret(c.AccessKeyID)}
	v := &porkbun{api: a, turns: newTurns(0)}
	if strings.HasSuffix(a.base.Hostname(), porkbunHosts) {
		v.turns = porkbunTurns
	}
	return newRecordClient(v), nil
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
	{"INVALID_API_KEY*", BadCredentials},
	{"API_KEY_REQUIRED", BadCredentials},
	{"MISSING_*APIKEY", BadCredentials},
	{"INVALID_TOKEN", BadCredentials},
	{"INVALID_USER", BadCredentials},
	{"Invalid API key*", BadCredentials},
	{"IP_NOT_ALLOWED", Permission},
	{"DOMAIN_NOT_ALLOWED", ZoneNotFound},
	{"DOMAIN_NOT_FOUND", ZoneNotFound},
	{"INVALID_DOMAIN", ZoneNotFound},
	{"Invalid domain*", ZoneNotFound},
	{"Domain is not opted in*", ZoneNotFound},
	{"INVALID_RECORD_ID", gone},
	{"DNS_RECORD_NOT_FOUND", gone},
	{"Invalid record ID*", gone},
	{"DUPLICATE_RECORD", exists},
	{"RATE_LIMIT_EXCEEDED", Throttled},
	{"Create error: We were unable to*", Temporary},
	{"Edit error: We were unable to*", Temporary},
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

// do makes one call and parses its answer into out.
func (v *porkbun) do(ctx context.Context, c call, fields map[string]string, out any) error {
	ans, err := v.post(ctx, c, fields)
	if err != nil {
		return err
	}
	var said struct {
		Status, Message string
		Code            scalar
	}
	err = json.Unmarshal(ans.body, &said)
	switch {
	case ans.status == http.StatusAccepted: // not documented: the answer to calls that come too fast
		return v.api.refused(c, ans, verdict{}, codeKinds{{"*", Throttled}})
	case err == nil && (ans.status >= 400 || strings.EqualFold(said.Status, "ERROR")):
		return v.refused(c, ans, string(said.Code), said.Message)
	case err == nil && !strings.EqualFold(said.Status, "SUCCESS"):
		err = msg.Errorf("neither success nor an error")
	case err == nil:
		v.known.Store(true)
		err = json.Unmarshal(ans.body, out)
	}
	return v.api.unreadable(c, ans, err)
}

// post sends a call with both keys when its turn comes.
func (v *porkbun) post(ctx context.Context, c call, fields map[string]string) (answer, error) {
	all := map[string]string{"apikey": v.api.Key.AccessKeyID, "secretapikey": string(v.api.Key.AccessKeySecret)}
	maps.Copy(all, fields)
	c.method, c.header = http.MethodPost, map[string]string{"Content-Type": "application/json"}
	if err := c.json(all); err != nil {
		return answer{}, err
	}
	if !v.turns.wait(ctx) {
		return answer{}, v.api.unreached(ctx, c, ctx.Err())
	}
	return v.api.send(ctx, c, func(*http.Request, []byte) {})
}

// refused makes the error of an answer with or without a code.
func (v *porkbun) refused(c call, ans answer, code, words string) error {
	known := cmp.Or(porkbunErrors.of(code), porkbunErrors.of(words))
	if known == BadCredentials {
		v.known.Store(false)
	}
	return v.api.refused(c, ans, verdict{code: code, message: words}, codeKinds{{"*", known}})
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
		return nil, v.api.lacks(c, "records")
	}
	return *answer.Records, nil
}

// zone asks for the records of a domain. The vendor's answer for a domain outside the account is not
// certain, nor whether the vendor checks the keys first. Keys that were never accepted are therefore
// tested by a call of their own.
func (v *porkbun) zone(ctx context.Context, name string) (z zone, found bool, err error) {
	if strings.HasPrefix(name, "_") {
		return zone{}, false, nil // no domain begins with "_"
	}
	entries, err := v.retrieve(ctx, name)
	if kind := KindOf(err); err != nil && (kind == ZoneNotFound || kind == Invalid) {
		return zone{}, false, v.checkKeys(ctx)
	}
	outside := func(r porkbunRecord) bool { return !strings.HasSuffix("."+dnsname.Fold(r.Name), "."+name) }
	if err != nil || slices.ContainsFunc(entries, outside) { // the vendor listed a parent domain
		return zone{}, false, err
	}
	return zone{id: name, name: name, minTTL: porkbunMinTTL}, true, nil
}

func (v *porkbun) checkKeys(ctx context.Context) error {
	if v.known.Load() {
		return nil
	}
	return v.do(ctx, call{name: "ping", path: "/ping"}, nil, &struct{}{})
}

func (v *porkbun) list(ctx context.Context, z zone, at setKey) (set recordSet, err error) {
	sets := newZoneSets(nil, at.kind)
	err = v.listZone(ctx, z, sets)
	return sets.of(at), err
}

func (v *porkbun) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	entries, err := v.retrieve(ctx, z.id)
	for _, e := range entries {
		switch name := dnsname.Fold(e.Name); e.Type {
		case "CNAME":
			sets.alias(name, e.Content)
		case "TXT":
			ttl, _ := strconv.ParseUint(string(e.TTL), 10, 32) // 0 if absent
			sets.add(setKey{name, TXT}, record{id: string(e.ID), value: cutTXT(e.Content), ttl: uint32(ttl)})
		case "NS":
			if sets.has(e.Type) {
				sets.add(setKey{name, NS}, record{value: cutTXT(e.Content)})
			}
		}
	}
	return err
}

// porkbunFields returns the fields of a write. The zone's own name is "".
func porkbunFields(z zone, name string, value Value, ttl uint32) map[string]string {
	below := strings.TrimSuffix(strings.TrimSuffix(name, z.name), ".")
	return map[string]string{"name": below, "type": "TXT", "content": value.Text(), "ttl": strconv.FormatUint(uint64(ttl), 10)}
}

func (v *porkbun) create(ctx context.Context, z zone, at setKey, value Value, ttl uint32) error {
	c := call{name: "dns/create", path: "/dns/create/" + escape(z.id)}
	return v.do(ctx, c, porkbunFields(z, at.name, value, ttl), &struct{}{})
}

func (v *porkbun) update(ctx context.Context, z zone, at setKey, old record, value Value, ttl uint32) error {
	c := call{name: "dns/edit", path: "/dns/edit/" + escape(z.id) + "/" + escape(old.id)}
	return v.do(ctx, c, porkbunFields(z, at.name, value, ttl), &struct{}{})
}

func (v *porkbun) remove(ctx context.Context, z zone, _ setKey, old record) error {
	c := call{name: "dns/delete", path: "/dns/delete/" + escape(z.id) + "/" + escape(old.id)}
	return v.do(ctx, c, nil, &struct{}{})
}

// fits refuses values that the vendor refuses: an empty text, and spaces at the end.
func (v *porkbun) fits(_ Type, value Value) error { return plainText(value, porkbunMaxValue, "") }
