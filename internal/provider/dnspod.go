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

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// dnsPod is DNSPod's older API: a form to one path per action, authenticated by a token in the form
// alone. Every error is an HTTP 200 with a numeric code, whose meaning depends on the action
// (https://github.com/DNSPod/dnspod-api-doc).
type dnsPod struct{ *api }

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
	return openRecords(dnspodEndpoint, c, dnspodRecords)
}

// dnspodRecords is the vendor's table. Its rules are those of the newer API, which serves the same records.
func dnspodRecords(a *api) *records {
	a.timeless, a.Hidden = true, []secrets.Secret{secrets.Secret(a.Key.AccessKeyID)}
	v := dnsPod{a}
	r := tencentRecords(a)
	r.has, r.search, r.find, r.details = []Type{TXT}, v.search, nil, v.details
	r.entries, r.write, r.erase = v.entries, v.write, v.erase
	return r
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
	{"-1|52", BadCredentials},
	{"-8", BadCredentials}, // too many failed logins: locked out for an hour
	{"50", BadCredentials}, // the vendor wants a second factor, which a token does not need
	{"-2", Throttled},
	{"-7|54|83", Permission},
	{"-15", Permission},  // the zone is banned
	{"21", Permission},   // the zone is locked
	{"85", Permission},   // this source address is not allowed
	{"-99|3", Temporary}, // 3 is the vendor's "unknown error"
	{"13", ZoneNotFound}, // not documented; reported by users
	{"104", exists},      // not documented; reported by users
	{"31", Conflict},
	{"25|50002[56]", Quota},
}

// do makes one call and parses its answer into out.
func (v dnsPod) do(ctx context.Context, action string, parameters url.Values, out any) error {
	form := maps.Clone(parameters)
	form.Set("login_token", v.Key.AccessKeyID+","+string(v.Key.AccessKeySecret))
	form.Set("format", "json")
	form.Set("error_on_empty", "no")
	c := call{name: action, method: http.MethodPost, path: "/" + action, body: []byte(form.Encode()), header: map[string]string{
		"Content-Type": "application/x-www-form-urlencoded", "User-Agent": dnspodUserAgent,
	}}
	return v.ask(ctx, c, func(*http.Request, []byte) {}, func(ans answer) (reply, error) {
		var head struct {
			Status struct {
				Code    json.Number
				Message string
			}
		}
		err := json.Unmarshal(ans.body, &head)
		code := head.Status.Code.String()
		if err == nil && code == "" {
			err = msg.Errorf("no status")
		}
		failed := code != dnspodDone || ans.status != http.StatusOK
		return reply{verdict{code: code, message: head.Status.Message}, failed, slices.Concat(dnspodErrors[action], dnspodCommon), ans.body}, err
	}, out)
}

// dnspodPage is a page of zones or of records.
type dnspodPage struct {
	Info struct {
		Zones   json.Number `json:"domain_total"`
		Records json.Number `json:"record_total"`
	}
	Domains []dnspodDomain
	Records []dnspodRecord
}

// page reads a page of a list. An empty list is an error if the vendor ignores error_on_empty.
func (v dnsPod) page(ctx context.Context, action string, query url.Values, offset int) (page dnspodPage, total *int, err error) {
	query.Set("offset", strconv.Itoa(offset))
	query.Set("length", strconv.Itoa(tencentPageSize))
	err = v.do(ctx, action, query, &page)
	if KindOf(err) == gone {
		return dnspodPage{}, new(int), nil
	}
	if n, unread := strconv.Atoi(cmp.Or(page.Info.Zones, page.Info.Records).String()); unread == nil {
		total = &n
	}
	return page, total, err
}

type dnspodDomain struct {
	ID             json.Number
	Name, Punycode string
}

func (d dnspodDomain) zone() zone {
	id := d.ID.String()
	return zone{id: id, unique: id, name: dns.Parse(cmp.Or(d.Punycode, d.Name)), minTTL: tencentMinTTL}
}

// search lists all zones for a name with A-labels too, because a search by them is not documented.
func (v dnsPod) search(ctx context.Context, name string) pageOf[zone] {
	query := url.Values{}
	if name != "" && !strings.Contains(name, "xn--") {
		query.Set("keyword", name)
	}
	return func(_, given int) ([]zone, *int, error) {
		page, total, err := v.page(ctx, "Domain.List", query, given)
		return as(page.Domains, dnspodDomain.zone), total, err
	}
}

// details asks for the least TTL in the zone's plan.
func (v dnsPod) details(ctx context.Context, z zone) zone {
	var answer struct {
		Purview []struct {
			Name  string
			Value any // a number, "yes" or "no"
		}
	}
	if v.do(ctx, "Domain.Purview", url.Values{"domain_id": {z.id}, "lang": {"cn"}}, &answer) != nil {
		return z // tencentMinTTL stays
	}
	for _, p := range answer.Purview {
		seconds, err := strconv.ParseUint(fmt.Sprint(p.Value), 10, 32)
		if p.Name == "记录TTL最低" && err == nil && seconds > 0 {
			z.minTTL = uint32(seconds)
			break
		}
	}
	return z
}

type dnspodRecord struct {
	ID, TTL, Enabled        json.Number
	Name, Type, Value, Line string
	LineID                  any `json:"line_id"` // such as "0" or "10=1"
}

func (v dnsPod) entries(ctx context.Context, z zone, host, kind string) pageOf[entry] {
	query := url.Values{"domain_id": {z.id}, "record_type": {kind}}
	if host != "" {
		query.Set("sub_domain", host)
	}
	return func(_, given int) (entries []entry, total *int, err error) {
		page, total, err := v.page(ctx, "Record.List", query, given)
		entries = as(page.Records, func(r dnspodRecord) entry {
			ttl, unread := strconv.ParseUint(r.TTL.String(), 10, 32)
			if unread != nil && r.Type == "TXT" {
				err = &Error{Kind: BadAnswer, Detail: msg.Say("Record.List: TTL"), Err: unread}
			}
			off := r.Enabled == "0" || !r.everywhere() // disabled, or not for every resolver
			return entry{id: r.ID.String(), host: r.Name, kind: r.Type, text: r.Value, ttl: uint32(ttl), off: off}
		})
		return entries, total, err
	}
}

// everywhere reports whether a record is for every resolver. The vendor may translate the line's name,
// not its id.
func (r dnspodRecord) everywhere() bool {
	if r.LineID == nil {
		return r.Line == tencentLine || strings.EqualFold(r.Line, "default")
	}
	return fmt.Sprint(r.LineID) == tencentLineID
}

// write must not repeat a change that is made already: after five such calls the vendor locks the
// record for an hour.
func (v dnsPod) write(ctx context.Context, z zone, e entry) error {
	action, form := "Record.Create", url.Values{
		"domain_id": {z.id}, "sub_domain": {e.host}, "record_type": {e.kind}, "record_line": {tencentLine},
		"value": {e.text}, "ttl": {fmt.Sprint(e.ttl)},
	}
	if e.id != "" {
		action = "Record.Modify"
		form.Set("record_id", e.id)
	}
	return v.do(ctx, action, form, nil)
}

func (v dnsPod) erase(ctx context.Context, z zone, id string) error {
	return v.do(ctx, "Record.Remove", url.Values{"domain_id": {z.id}, "record_id": {id}}, nil)
}
