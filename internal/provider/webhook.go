package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// webhook is the client of a bridge: a program of the operator that reads and changes records at any DNS
// provider. docs/webhook.md describes its calls, which have JSON bodies and HTTP Basic credentials (RFC
// 7617): the access key id is the user, the access key secret the password. A failure with a body of the
// bridge means that nothing was done, unless it is temporary.
type webhook struct{ api *api }

// NewWebhook makes a client of a bridge. The endpoint is its address: https://, or http:// on loopback.
// The key pair is the user and the password for the bridge, which decides about their rights.
func NewWebhook(c Credentials) (*Client, error) {
	switch {
	case c.Endpoint == "":
		return nil, &Error{Kind: Invalid, Detail: "endpoint", Err: msg.Errorf("want the address of the bridge")}
	case strings.Contains(c.AccessKeyID, ":"):
		return nil, &Error{Kind: Invalid, Detail: "access_key_id", Err: msg.Errorf("HTTP Basic knows no user with a colon")}
	}
	a, err := newAPI("", c, false)
	if err != nil {
		return nil, err
	}
	a.timeless = true
	v := &webhook{a}
	return clientOf(v, v.change), nil
}

// webhookKinds are the kinds that a bridge can send.
var webhookKinds = codeKinds{
	{"credentials", BadCredentials},
	{"permission", Permission},
	{"clock_skew", ClockSkew},
	{"zone_not_found", ZoneNotFound},
	{"conflict", Conflict},
	{"invalid", Invalid},
	{"quota", Quota},
	{"throttled", Throttled},
	{"temporary", Temporary},
	{"changed", Changed},
}

// webhookStatus are the statuses with a meaning of their own at a bridge.
var webhookStatus = map[int]string{http.StatusNotFound: "zone_not_found", http.StatusConflict: "changed"}

// do makes one call and parses its answer into out, unless that is nil.
func (v *webhook) do(ctx context.Context, c call, out any) error {
	return v.api.ask(ctx, c, func(r *http.Request, _ []byte) {
		r.SetBasicAuth(v.api.Key.AccessKeyID, string(v.api.Key.AccessKeySecret))
	}, openWebhook, out)
}

// openWebhook opens an answer. The page of a proxy has a status too, and does not prove that nothing was done.
func openWebhook(ans answer) (reply, error) {
	switch {
	case ans.status == http.StatusOK || ans.status == http.StatusNoContent:
		return reply{result: ans.body}, nil
	case ans.status < 400:
		return reply{}, msg.Errorf("not a status that a bridge answers with")
	}
	var failure struct{ Error, Kind string }
	err := json.Unmarshal(ans.body, &failure)
	if err != nil || webhookKinds.of(failure.Kind, "") == "" {
		failure.Kind = webhookStatus[ans.status]
	}
	if err != nil && len(ans.body) > 0 {
		return reply{failed: true, kinds: codeKinds{{"", webhookKinds.of(failure.Kind, "")}}}, nil
	}
	return reply{verdict{code: failure.Kind, message: failure.Error}, true, webhookKinds, nil}, nil
}

// webhookMissing are the statuses of a bridge for an unknown call.
var webhookMissing = []int{http.StatusNotFound, http.StatusNotImplemented, http.StatusBadRequest, http.StatusMethodNotAllowed}

// many makes one of the optional calls. known is false if the bridge does not have it.
func (v *webhook) many(ctx context.Context, query url.Values, out any, l *list) (known bool, err error) {
	c := call{name: "list", method: http.MethodGet, query: query, list: l}
	err = v.do(ctx, c, out)
	e, failed := errors.AsType[*Error](err)
	return !failed || !slices.Contains(webhookMissing, e.status), err
}

// zones fails with tooMany if the bridge does not list its zones.
func (v *webhook) zones(ctx context.Context) (zones []zone, err error) {
	var answer struct{ Zones []webhookAnswer }
	switch known, err := v.many(ctx, url.Values{"zones": {"all"}}, &answer, nil); {
	case !known:
		return nil, &Error{Kind: tooMany, Err: err}
	case err != nil:
		return nil, err
	case answer.Zones == nil:
		return nil, v.api.lacks(call{name: "list"}, "list of zones")
	}
	for _, a := range answer.Zones {
		zones = append(zones, zone{name: dns.Fold(a.Zone), unique: a.ID, minTTL: a.MinTTL, servers: a.Servers})
	}
	return zones, nil
}

func (v *webhook) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	var answer struct {
		Zone  string
		Names []struct{}
	}
	names := list{"names", func(d *json.Decoder) error {
		var n struct {
			webhookAnswer
			Name, Alias string
		}
		err := d.Decode(&n)
		name := dns.Fold(n.Name)
		sets.join(setKey{name, TXT}, func(recordSet) recordSet { return n.set() })
		if n.Alias != "" {
			sets.alias(name, n.Alias)
		}
		return err
	}}
	switch known, err := v.many(ctx, url.Values{"zone": {z.name}}, &answer, &names); {
	case !known:
		return &Error{Kind: Invalid, Detail: msg.TextOf(err), Err: ErrNotListed}
	case err != nil:
		return err
	case answer.Names == nil || dns.Fold(answer.Zone) != z.name:
		return v.api.lacks(call{name: "list"}, "list of the zone's names")
	}
	return nil
}

// listsTXT marks a vendor whose list of a zone has no other types of records.
func (v *webhook) listsTXT() {}

// sharesNames marks a vendor at which two keys may reach two zones of one name. Only an id of the bridge
// distinguishes them.
func (v *webhook) sharesNames() {}

// webhookAnswer is a bridge's answer about a name.
type webhookAnswer struct {
	Zone    string
	ID      string
	Type    Type
	TTL     uint32
	Values  []string
	MinTTL  uint32 `json:"min_ttl"`
	Servers []string
}

func (v *webhook) read(ctx context.Context, name string, t Type) (a webhookAnswer, err error) {
	c := call{name: "read", method: http.MethodGet, query: url.Values{"name": {name}}}
	if t != TXT {
		c.query.Set("type", string(t))
	}
	if err := v.do(ctx, c, &a); err != nil {
		return a, err
	}
	a.Zone = dns.Fold(a.Zone)
	switch {
	case a.Zone == "" || name != a.Zone && !strings.HasSuffix(name, "."+a.Zone):
		return a, &Error{Kind: BadAnswer, Detail: v.api.asked(c), Err: msg.Errorf("zone %q does not contain %s", a.Zone, name)}
	case t != TXT && a.Type != t: // a bridge that knows no types, and may show TXT values
		return a, CheckType(txtOnly{}, t)
	case a.Values == nil:
		return a, v.api.lacks(c, "list of values")
	}
	return a, nil
}

// zone returns the longest zone that contains the name. No zone is an error, because the names above
// are not in a zone either.
func (v *webhook) zone(ctx context.Context, name string) (z zone, found bool, err error) {
	a, err := v.read(ctx, name, TXT)
	return zone{name: a.Zone, unique: a.ID, minTTL: a.MinTTL, servers: a.Servers}, err == nil, err
}

// list fails if the name is in another zone now.
func (v *webhook) list(ctx context.Context, z zone, at setKey) (set recordSet, err error) {
	a, err := v.read(ctx, at.name, at.kind)
	if err == nil && a.Zone != z.name {
		err = &Error{Kind: ZoneNotFound, Detail: msg.Textf("the bridge has %s in the zone %s, not in %s", at.name, a.Zone, z.name)}
	}
	if err != nil {
		return set, err
	}
	return a.set(), nil
}

func (a webhookAnswer) set() recordSet {
	set := recordSet{ttl: a.TTL}
	for _, text := range a.Values {
		r := record{value: valueOf(string(a.Type), text, cutTXT)}
		if text != r.value.Text() {
			r.raw = text
		}
		set.records = append(set.records, r)
	}
	return set
}

// change sends the whole change to the bridge, which knows best how to make it at its provider.
func (v *webhook) change(ctx context.Context, p plan) error {
	c := call{name: "change", method: http.MethodPost}
	body := map[string]any{
		"zone": p.zone.name, "name": p.at.name, "ttl": p.ttl,
		"seen": p.webhookTexts(p.seen.values().Values), "add": p.webhookTexts(p.add), "remove": p.webhookTexts(p.remove),
	}
	if p.at.kind != TXT {
		body["type"] = p.at.kind
	}
	c.data = body
	return v.do(ctx, c, nil)
}

// webhookTexts returns a list that is never null in JSON. A value that the bridge has shown is in the
// bridge's spelling, because the bridge compares texts.
func (p plan) webhookTexts(values []Value) []string {
	list := []string{}
	for _, v := range values {
		text := v.Text()
		if at := slices.IndexFunc(p.seen.records, func(r record) bool { return r.value.Equal(v) }); at >= 0 {
			text = cmp.Or(p.seen.records[at].raw, text)
		}
		list = append(list, text)
	}
	return list
}

func (v *webhook) types() []Type { return allTypes }

// txtOnly is a client of TXT records.
type txtOnly struct{}

func (txtOnly) Types() []Type { return []Type{TXT} }

// fits refuses values that a JSON string cannot have.
func (v *webhook) fits(_ Type, value Value) error {
	switch text := value.Text(); {
	case !utf8.ValidString(text):
		return msg.Errorf("a bridge is asked in JSON, which has no octets but UTF-8")
	case !value.Equal(cutTXT(text)):
		return msg.Errorf("a bridge is told %d octets a character-string, and no other cut", maxString)
	}
	return nil
}
