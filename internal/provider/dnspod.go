package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/dnsname"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// dnsPod is DNSPod's older API: a form to one path per action, authenticated by a token in the form
// alone. Every error is an HTTP 200 with a numeric code, whose meaning depends on the action
// (https://github.com/DNSPod/dnspod-api-doc).
type dnsPod struct{ api *api }

const (
	dnspodEndpoint = "https://dnsapi.cn"
	dnspodDone     = "1" // the code of success

	// The terms ask for a name, a version and a mail address. The program does not know the
	// operator's address.
	dnspodUserAgent = userAgent + "/1.0"
)

// NewDNSPod makes a client of DNSPod's older API. The key pair is the id of a DNSPod token and the
// token, which has all rights of its account.
func NewDNSPod(c Credentials) (*Client, error) {
	a, err := newAPI(dnspodEndpoint, c, false)
	if err != nil {
		return nil, err
	}
	a.timeless, a.Hidden = true, []secrets.Secret{secrets.Secret(c.AccessKeyID)}
	return newRecordClient(&dnsPod{a}), nil
}

// dnspodErrors are the codes of each action.
var dnspodErrors = map[string]codeKinds{
	"Domain.List":   {{"9", gone}}, // the account has no zone
	"Record.List":   {{"6", ZoneNotFound}, {"9", ZoneNotFound}, {"10", gone}},
	"Record.Create": {{"7", Permission}},
	"Record.Modify": {{"6", ZoneNotFound}, {"7", Permission}, {"8", gone}},
	"Record.Remove": {{"6", ZoneNotFound}, {"7", Permission}, {"8", gone}},
}

// dnspodCommon are the codes that all actions have.
var dnspodCommon = codeKinds{
	{"-1", BadCredentials},
	{"-2", Throttled},
	{"-7", Permission},
	{"-8", BadCredentials}, // too many failed logins: locked out for an hour
	{"-15", Permission},    // the zone is banned
	{"-99", Temporary},
	{"3", Temporary},     // the vendor's "unknown error"
	{"13", ZoneNotFound}, // not documented; reported by users
	{"21", Permission},   // the zone is locked
	{"25", Quota},
	{"31", Conflict},
	{"50", BadCredentials}, // the vendor wants a second factor, which a token does not need
	{"52", BadCredentials},
	{"54", Permission},
	{"83", Permission},
	{"85", Permission}, // this source address is not allowed
	{"104", exists},    // not documented; reported by users
	{"50002[56]", Quota},
}

// do makes one call and parses its answer into out.
func (v *dnsPod) do(ctx context.Context, action string, parameters url.Values, out any) error {
	form := maps.Clone(parameters)
	form.Set("login_token", v.api.Key.AccessKeyID+","+string(v.api.Key.AccessKeySecret))
	form.Set("format", "json")
	form.Set("error_on_empty", "no")
	c := call{name: action, method: http.MethodPost, path: "/" + action, body: []byte(form.Encode()), header: map[string]string{
		"Content-Type": "application/x-www-form-urlencoded", "User-Agent": dnspodUserAgent,
	}}
	ans, err := v.api.send(ctx, c, func(*http.Request, []byte) {})
	if err != nil {
		return err
	}
	var head struct {
		Status struct {
			Code    json.Number
			Message string
		}
	}
	err = json.Unmarshal(ans.body, &head)
	code := head.Status.Code.String()
	switch {
	case err == nil && code == "":
		err = msg.Errorf("no status")
	case err == nil && (code != dnspodDone || ans.status != http.StatusOK):
		return v.api.refused(c, ans, verdict{code: code, message: head.Status.Message}, slices.Concat(dnspodErrors[action], dnspodCommon))
	case err == nil:
		err = json.Unmarshal(ans.body, out)
	}
	return v.api.unreadable(c, ans, err)
}

func (v *dnsPod) zone(ctx context.Context, name string) (z zone, found bool, err error) {
	search := url.Values{"keyword": {name}}
	if strings.Contains(name, "xn--") {
		search.Del("keyword") // a search by A-labels is not documented: read all zones
	}
	zones, err := paged(v.domains(ctx, search))
	if z, found = pick(zones, name); found {
		z = v.complete(ctx, z)
	}
	return z, found, err
}

// complete asks for the least TTL in the zone's plan.
func (v *dnsPod) complete(ctx context.Context, z zone) zone {
	z.minTTL = v.minTTL(ctx, z)
	return z
}

type dnspodDomain struct {
	ID             json.Number
	Name, Punycode string
}

func (d dnspodDomain) zone() zone {
	id := d.ID.String()
	return zone{id: id, unique: id, name: dnsname.Parse(cmp.Or(d.Punycode, d.Name))}
}

// domains returns a page of the zones that a search finds.
func (v *dnsPod) domains(ctx context.Context, search url.Values) pageOf[zone] {
	return func(_, given int) ([]zone, *int, error) {
		var answer struct {
			Info struct {
				Total json.Number `json:"domain_total"`
			}
			Domains []dnspodDomain
		}
		err := v.do(ctx, "Domain.List", dnspodPage(given, search), &answer)
		if KindOf(err) == gone {
			return nil, new(int), nil
		}
		return as(answer.Domains, dnspodDomain.zone), dnspodTotal(answer.Info.Total), err
	}
}

func (v *dnsPod) zones(ctx context.Context) ([]zone, error) {
	return zonesPaged(v.domains(ctx, url.Values{}))
}

// dnspodPage adds the parameters of a page.
func dnspodPage(offset int, parameters url.Values) url.Values {
	parameters.Set("offset", strconv.Itoa(offset))
	parameters.Set("length", strconv.Itoa(tencentPageSize))
	return parameters
}

// dnspodTotal parses the length of a list, nil if there is none.
func dnspodTotal(total json.Number) *int {
	if n, err := strconv.Atoi(total.String()); err == nil {
		return &n
	}
	return nil
}

// minTTL asks for the least TTL in a zone's plan. Without an answer it is that of the free plan.
func (v *dnsPod) minTTL(ctx context.Context, z zone) uint32 {
	var answer struct {
		Purview []struct {
			Name  string
			Value any // a number, "yes" or "no"
		}
	}
	if v.do(ctx, "Domain.Purview", url.Values{"domain_id": {z.id}, "lang": {"cn"}}, &answer) != nil {
		return tencentMinTTL
	}
	for _, p := range answer.Purview {
		seconds, err := strconv.ParseUint(fmt.Sprint(p.Value), 10, 32)
		if p.Name == "记录TTL最低" && err == nil && seconds > 0 {
			return uint32(seconds)
		}
	}
	return tencentMinTTL
}

type dnspodRecord struct {
	ID, TTL, Enabled        json.Number
	Name, Type, Value, Line string
	LineID                  any `json:"line_id"` // such as "0" or "10=1"
}

func (v *dnsPod) entries(ctx context.Context, z zone, name, kind string) pageOf[oldEntry] {
	search := url.Values{"domain_id": {z.id}, "record_type": {kind}}
	if name != "" {
		search.Set("sub_domain", relative(name, z))
	}
	return func(_, given int) (entries []oldEntry, total *int, err error) {
		var answer struct {
			Info struct {
				Total json.Number `json:"record_total"`
			}
			Records []dnspodRecord
		}
		err = v.do(ctx, "Record.List", dnspodPage(given, search), &answer)
		if KindOf(err) == gone {
			return nil, new(int), nil
		}
		entries = as(answer.Records, func(e dnspodRecord) oldEntry {
			ttl, unread := strconv.ParseUint(e.TTL.String(), 10, 32)
			if unread != nil && e.Type == "TXT" {
				err = &Error{Kind: BadAnswer, Detail: msg.Say("Record.List: TTL"), Err: unread}
			}
			off := e.Enabled == "0" || !e.everywhere() // disabled, or not for every resolver
			return oldEntry{record{id: e.ID.String(), value: tencentTXT(e.Value), ttl: uint32(ttl), off: off}, absolute(e.Name, z), e.Type, e.Value}
		})
		return entries, dnspodTotal(answer.Info.Total), err
	}
}

func (v *dnsPod) list(ctx context.Context, z zone, at setKey) (recordSet, error) {
	return listEntries(ctx, v, z, at)
}

func (v *dnsPod) alias(ctx context.Context, z zone, name string) (string, error) {
	return aliasEntry(ctx, v, z, name)
}

func (v *dnsPod) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	return listZoneEntries(ctx, v, z, sets)
}

// everywhere reports whether a record is for every resolver. The vendor may translate the line's name,
// not its id.
func (e dnspodRecord) everywhere() bool {
	if e.LineID == nil {
		return e.Line == tencentLine || strings.EqualFold(e.Line, "default")
	}
	return fmt.Sprint(e.LineID) == tencentLineID
}

func (v *dnsPod) create(ctx context.Context, z zone, at setKey, value Value, ttl uint32) error {
	return v.do(ctx, "Record.Create", dnspodForm(z, at.name, value, ttl), &struct{}{})
}

// update must not repeat a change that is made already: after five such calls the vendor locks the
// record for an hour.
func (v *dnsPod) update(ctx context.Context, z zone, at setKey, old record, value Value, ttl uint32) error {
	parameters := dnspodForm(z, at.name, value, ttl)
	parameters.Set("record_id", old.id)
	return v.do(ctx, "Record.Modify", parameters, &struct{}{})
}

// dnspodForm returns the parameters of a write.
func dnspodForm(z zone, name string, value Value, ttl uint32) url.Values {
	return url.Values{
		"domain_id": {z.id}, "sub_domain": {relative(name, z)}, "record_type": {"TXT"}, "record_line": {tencentLine},
		"value": {value.Text()}, "ttl": {strconv.FormatUint(uint64(ttl), 10)},
	}
}

func (v *dnsPod) remove(ctx context.Context, z zone, _ setKey, old record) error {
	return v.do(ctx, "Record.Remove", url.Values{"domain_id": {z.id}, "record_id": {old.id}}, &struct{}{})
}

// fits has the rules of the newer API, which serves the same records.
func (v *dnsPod) fits(_ Type, value Value) error { return plainText(value, tencentMaxValue, `"\`) }
