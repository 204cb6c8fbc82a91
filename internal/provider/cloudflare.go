package provider

import (
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
)

// cloudflare is Cloudflare's API, version 4: JSON, and a token in every call. It stores values as
// character-strings, mostly quoted, one value a record.
type cloudflare struct{ records }

const (
	cloudflareEndpoint = "https://api.cloudflare.com/client/v4"
	cloudflareMinTTL   = 60   // seconds; enterprise zones accept 30, but the list of zones does not reliably tell the plan
	cloudflareAutoTTL  = 300  // seconds, the meaning of TTL 1 ("automatic")
	cloudflareMaxValue = 4096 // octets of a record on the wire
	cloudflareZones    = "50" // zones on a page
	cloudflareRecords  = "100"
	cloudflareBatch    = 200 // operations in one call, in the free plan
)

// NewCloudflare makes a client of Cloudflare. The key id is the account's e-mail address or the word
// "token", and is not sent. The secret is an API token, never the global API key. The token needs the
// permissions Zone Read and DNS Edit for its zones.
func NewCloudflare(c Credentials) (*Client, error) {
	client, err := open(cloudflareEndpoint, c, cloudflareOf)
	// net/http would refuse the header with an error that looks like a network failure.
	if err == nil && strings.ContainsFunc(string(c.AccessKeySecret), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &Error{Kind: BadCredentials, Detail: msg.Say("the API token has characters that no token has")}
	}
	return client, err
}

// cloudflareOf makes a vendor whose lists do not show a CNAME: the vendor reports one when a record is
// created.
func cloudflareOf(a *api) *cloudflare {
	a.timeless = true
	v := &cloudflare{}
	v.records = records{api: a, has: allTypes, read: looseTXT, quoted: true, find: v.find, entries: v.entries, write: v.write, erase: v.erase}
	return v
}

// signBearer sets the bearer token (RFC 6750, section 2.1).
func signBearer(r *http.Request, key Credentials) {
	r.Header.Set("Authorization", "Bearer "+string(key.AccessKeySecret))
}

// cloudflareErrors are the codes that this client distinguishes. The vendor has no list of them: 6003
// with 6103, 10000 and 81058 are certain, the others come from reports of users.
var cloudflareErrors = codeKinds{
	{"9109: *Unauthorized to access requested resource*", Permission},
	{"6103|6111|6003|910[0-9]|10000", BadCredentials},
	{"971", Throttled},
	{"7003", ZoneNotFound},
	{"81044", gone},
	{"81045", Quota},
	{"8105[34]", Conflict},
	{"8105[78]", exists},
}

// cloudflareNoBatch are the codes for a call that the API does not have.
var cloudflareNoBatch = codeKinds{{"700[013]|10405", noCall}}

// noCall is the kind of a call that the API does not have.
const noCall Kind = "no_call"

// cloudflareFailure is one of the errors in an answer; the chain has details.
type cloudflareFailure struct {
	Code    json.Number
	Message string
	Chain   []cloudflareFailure `json:"error_chain"`
}

// verdict combines all errors: the first known code, and the messages of all. With 429, which has code 10000
// too, and 5xx the status decides.
func (f cloudflareFailure) verdict(status int, requestID string) (verdict, codeKinds) {
	all, kinds := f.flat()[1:], cloudflareErrors
	switch {
	case status == http.StatusTooManyRequests || status >= 500:
		kinds = nil
	case status == http.StatusConflict: // the vendor's own clients retry after it
		kinds = slices.Concat(kinds, codeKinds{{"*", Temporary}})
	}
	known := func(one cloudflareFailure) bool { return kinds.of(one.Code.String(), "") != "" }
	first := max(0, slices.IndexFunc(all, known))
	v := verdict{requestID: requestID}
	var words []string
	for i, one := range all {
		if i == first {
			v.code = one.Code.String()
			words = append(words, one.Message)
		} else {
			words = append(words, one.Code.String()+" "+one.Message)
		}
	}
	v.message = strings.Join(words, "; ")
	return v, kinds
}

// flat returns an error and its chain.
func (f cloudflareFailure) flat() []cloudflareFailure {
	all := []cloudflareFailure{f}
	for _, inner := range f.Chain {
		all = append(all, inner.flat()...)
	}
	return all
}

// cloudflareAnswer is the envelope of every result.
type cloudflareAnswer struct {
	Success bool
	Errors  []cloudflareFailure
	Result  json.RawMessage
	Info    struct {
		Total int `json:"total_count"`
	} `json:"result_info"`
}

// do makes one call and parses its result into out, unless out is nil. total is the number of items on
// all pages of a list.
func (v *cloudflare) do(ctx context.Context, c call, out any) (total int, err error) {
	err = v.ask(ctx, c, func(r *http.Request, _ []byte) { signBearer(r, v.Key) }, func(ans answer) (reply, error) {
		var said cloudflareAnswer
		err := json.Unmarshal(ans.body, &said)
		total = said.Info.Total
		failed := ans.status >= 400 || !said.Success && len(said.Errors) > 0
		verdict, kinds := cloudflareFailure{Chain: said.Errors}.verdict(ans.status, ans.header.Get("cf-ray"))
		if c.name == batchCall {
			kinds = slices.Concat(cloudflareNoBatch, kinds)
		}
		switch {
		case err != nil || failed:
		case !said.Success:
			err = msg.Errorf("neither success nor an error")
		case out != nil && (len(said.Result) == 0 || string(said.Result) == "null"):
			err = msg.Errorf("no result") // as an empty list it would make the program write all values again
		}
		return reply{verdict, failed, kinds, said.Result}, err
	}, out)
	return total, err
}

// cloudflareList returns a page of a list.
func cloudflareList[T any](ctx context.Context, v *cloudflare, c call) pageOf[T] {
	return func(page, _ int) (items []T, total *int, err error) {
		if page > 1 {
			c.query.Set("page", strconv.Itoa(page))
		}
		count, err := v.do(ctx, c, &items)
		return items, &count, err
	}
}

// find selects the active zone of a name. There can be several while a domain moves to another
// account.
func (v *cloudflare) find(ctx context.Context, name string) (z zone, found bool, err error) {
	entries, err := paged(cloudflareList[cloudflareZone](ctx, v, cloudflareZonesCall(url.Values{"name": {name}})))
	z, found = pick(cloudflarePublic(entries), name)
	return z, found, err
}

func (v *cloudflare) zones(ctx context.Context) ([]zone, error) {
	entries, err := zonesPaged(cloudflareList[cloudflareZone](ctx, v, cloudflareZonesCall(url.Values{})))
	return cloudflarePublic(entries), err
}

type cloudflareZone struct {
	ID, Name, Type, Status string
	Servers                []string `json:"name_servers"`
}

func cloudflareZonesCall(query url.Values) call {
	query.Set("per_page", cloudflareZones)
	return call{name: "list zones", method: http.MethodGet, path: "/zones", query: query}
}

// cloudflarePublic selects one zone for each name.
func cloudflarePublic(entries []cloudflareZone) (zones []zone) {
	for _, e := range entries {
		z := zone{id: e.ID, unique: e.ID, name: dns.Fold(e.Name), minTTL: cloudflareMinTTL, servers: e.Servers}
		at := slices.IndexFunc(zones, func(other zone) bool { return other.name == z.name })
		switch {
		case e.Type == "internal":
		case at < 0:
			zones = append(zones, z)
		case e.Status == "active":
			zones[at] = z
		}
	}
	return zones
}

type cloudflareShown struct {
	ID, Name, Type, Content string
	TTL                     uint32
	Proxied                 bool // DNS has addresses of the vendor instead
	Data                    *cloudflareSRV
}

// cloudflareSRV is the data of an SRV record, of which the content lacks the priority.
type cloudflareSRV struct {
	Priority uint16 `json:"priority"`
	Weight   uint16 `json:"weight"`
	Port     uint16 `json:"port"`
	Target   string `json:"target"`
}

// entry marks a CNAME at the zone's own name as off: the vendor flattens it, so it excludes no record. An address that is proxied
// hides all addresses of the name.
func (e cloudflareShown) entry(z zone) entry {
	if e.TTL == 1 {
		e.TTL = cloudflareAutoTTL
	}
	name := dns.Fold(e.Name)
	hides := e.Proxied && e.Type != "CNAME"
	off := hides || e.Type == "CNAME" && name == z.name
	text := e.Content
	if d := e.Data; d != nil && e.Type == string(SRV) {
		text = fmt.Sprintf("%d %d %d %s", d.Priority, d.Weight, d.Port, d.Target)
	}
	return entry{id: e.ID, host: relative(name, z), kind: e.Type, text: text, ttl: e.TTL, off: off, hides: hides}
}

// entries returns a proxied address of the other family, too: the vendor proxies all addresses of a name if one is proxied
// (https://developers.cloudflare.com/dns/proxy-status/).
func (v *cloudflare) entries(ctx context.Context, z zone, host, kind string) pageOf[entry] {
	query := url.Values{"type": {kind}, "per_page": {cloudflareRecords}}
	if host != "" {
		query.Set("name.exact", absolute(host, z))
	}
	list := func(query url.Values) pageOf[entry] {
		c := call{name: "list records", method: http.MethodGet, path: cloudflarePath(z), query: query}
		return formed(cloudflareList[cloudflareShown](ctx, v, c), func(e cloudflareShown) entry { return e.entry(z) })
	}
	other := map[string]string{"A": "AAAA", "AAAA": "A"}[kind]
	if other == "" {
		return list(query)
	}
	hiding, proxied, fetch := []entry(nil), maps.Clone(query), list(query)
	proxied["type"], proxied["proxied"] = []string{other}, []string{"true"}
	return func(page, given int) (entries []entry, total *int, err error) {
		if page == 1 {
			if hiding, err = paged(list(proxied)); err != nil {
				return nil, nil, err
			}
			hiding = slices.DeleteFunc(hiding, func(e entry) bool { return !e.hides })
			for i := range hiding {
				hiding[i].kind = kind
			}
		}
		entries, total, err = fetch(page, given)
		if *total += len(hiding); page == 1 {
			entries = append(entries, hiding...)
		}
		return entries, total, err
	}
}

func cloudflarePath(z zone) string { return "/zones/" + escape(z.id) + "/dns_records" }

// cloudflareRecord is the part of a record that a write sets. An update keeps the other members
// (comment, tags, proxied).
type cloudflareRecord struct {
	Content string         `json:"content,omitempty"`
	Name    string         `json:"name"`
	TTL     uint32         `json:"ttl"`
	Type    string         `json:"type"`
	Data    *cloudflareSRV `json:"data,omitempty"`
}

func cloudflareRecordOf(z zone, e entry) cloudflareRecord {
	r := cloudflareRecord{Name: absolute(e.host, z), TTL: e.ttl, Type: e.kind}
	if e.kind == string(SRV) {
		r.Data = &cloudflareSRV{}
		fmt.Sscan(e.text, &r.Data.Priority, &r.Data.Weight, &r.Data.Port, &r.Data.Target) // the client has checked the value
	} else {
		r.Content = e.text
	}
	return r
}

func (v *cloudflare) write(ctx context.Context, z zone, e entry) error {
	c := call{name: "create record", method: http.MethodPost, path: cloudflarePath(z), data: cloudflareRecordOf(z, e)}
	if e.id != "" {
		c.name, c.method, c.path = "edit record", http.MethodPatch, c.path+"/"+escape(e.id)
	}
	_, err := v.do(ctx, c, nil)
	return err
}

func (v *cloudflare) erase(ctx context.Context, z zone, id string) error {
	_, err := v.do(ctx, call{name: "delete record", method: http.MethodDelete, path: cloudflarePath(z) + "/" + escape(id)}, nil)
	return err
}

const batchCall = "change records"

// cloudflareSteps are the operations of one call, in the vendor's order. They are one transaction: no
// reader sees the old value gone before the new one exists.
type cloudflareSteps struct {
	Deletes []cloudflareID     `json:"deletes,omitempty"`
	Patches []cloudflarePatch  `json:"patches,omitempty"`
	Posts   []cloudflareRecord `json:"posts,omitempty"`
}

type cloudflareID struct {
	ID string `json:"id"`
}

type cloudflarePatch struct {
	cloudflareID
	cloudflareRecord
}

// applyAll changes records of many names in one call, if the API has that call.
func (v *cloudflare) applyAll(ctx context.Context, z zone, plans []plan) ([]error, bool) {
	possible, begun := true, false
	errs := inBatches(ctx, plans, cloudflareFit, func(batch []plan) error {
		if !possible {
			return nil
		}
		c := call{name: batchCall, method: http.MethodPost, path: cloudflarePath(z) + "/batch", data: v.steps(batch)}
		_, err := v.do(ctx, c, nil)
		switch {
		case KindOf(err) != noCall:
		case begun: // an earlier batch may have been made, so single changes must not repeat it
			err = &Error{Kind: Temporary, Detail: msg.Say(c.name), Err: err}
		default:
			possible, err = false, nil
		}
		begun = begun || !Unmade(err)
		return err
	})
	if !possible {
		return nil, false
	}
	for i, p := range plans {
		errs[i] = p.orAlias(ctx, v, errs[i])
	}
	return errs, true
}

func (v *cloudflare) steps(plans []plan) (steps cloudflareSteps) {
	for _, p := range plans {
		_, old := p.split()
		for i, value := range p.add {
			to := cloudflareRecordOf(p.zone, v.entry(p.zone, p.at, record{}, value, p.ttl))
			if i < len(old) {
				steps.Patches = append(steps.Patches, cloudflarePatch{cloudflareID{old[i].id}, to})
			} else {
				steps.Posts = append(steps.Posts, to)
			}
		}
		for _, r := range old[min(len(p.add), len(old)):] {
			steps.Deletes = append(steps.Deletes, cloudflareID{r.id})
		}
	}
	return steps
}

// cloudflareFit returns the number of plans that fit into one call.
func cloudflareFit(plans []plan) int {
	operations := 0
	for i, p := range plans {
		_, old := p.split()
		if operations += max(len(p.add), len(old)); operations > cloudflareBatch {
			return i
		}
	}
	return len(plans)
}

// fits checks the vendor's limits. The handling of octets that are not printable ASCII is not
// documented.
func (v *cloudflare) fits(_ Type, value Value) error {
	text := value.Text()
	switch {
	case text == "":
		return msg.Errorf("the provider takes no empty value")
	case len(text)+len(value) > cloudflareMaxValue: // plus one octet for the length of each string
		return msg.Errorf("the provider takes at most 4096 octets, with one for the length of each string")
	}
	return printableASCII(text)
}
