package provider

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// huaweiCloud is Huawei Cloud DNS, API version 2, signed with SDK-HMAC-SHA256. All values of a name are
// one record set, each value a quoted text. The vendor answers a write before it is carried out; until
// then the set is PENDING.
type huaweiCloud struct {
	records
	poll time.Duration
}

const (
	huaweiEndpoint  = "https://dns.myhuaweicloud.com"
	huaweiAlgorithm = "SDK-HMAC-SHA256"
	huaweiMinTTL    = 1 // seconds
	huaweiPageSize  = 500
	huaweiLine      = "default_view" // the line of records for every resolver
)

// NewHuaweiCloud makes a client of Huawei Cloud DNS. The key pair is access key (AK) and secret key
// (SK) of an IAM user. It needs the rights dns:zone:list and dns:recordset:list, create, update and
// delete.
func NewHuaweiCloud(c Credentials) (*Client, error) {
	return open(huaweiEndpoint, c, huaweiOf)
}

func huaweiOf(a *api) *huaweiCloud {
	v := &huaweiCloud{poll: pollInterval}
	v.records = records{api: a, has: []Type{TXT}, search: v.search, entries: v.entries}
	return v
}

// signHuawei signs the host, the date and the content type of a request, whose X-Sdk-Date is set.
func signHuawei(r *http.Request, body []byte, key Credentials) {
	signed := []string{"host", "x-sdk-date"}
	if r.Header.Get("Content-Type") != "" {
		signed = slices.Insert(signed, 0, "content-type")
	}
	r.Header.Set("Authorization", huaweiAuthorization(r, signed, body, key))
}

// huaweiAuthorization signs the path with a final slash, which the request itself does not have.
func huaweiAuthorization(r *http.Request, signed []string, body []byte, key Credentials) string {
	path := strings.TrimSuffix(r.URL.EscapedPath(), "/") + "/"
	text := huaweiAlgorithm + "\n" + r.Header.Get("X-Sdk-Date") + "\n" + hexSHA256([]byte(canonicalRequest(r, path, signed, body)))
	return huaweiAlgorithm + " Access=" + key.AccessKeyID + ", SignedHeaders=" + strings.Join(signed, ";") +
		", Signature=" + hex.EncodeToString(hmacSHA256([]byte(key.AccessKeySecret), text))
}

// huaweiErrors are the codes of the API gateway and of the DNS service, and messages that are clearer than
// their code: a CNAME at the name has the code of an existing set, and the codes of full quotas are not
// documented. The gateway has no code for a wrong clock. Its message about a wrong signature has the date too;
// the answer's Date shows a wrong clock there.
var huaweiErrors = codeKinds{
	{"*: *over ratelimit*", Throttled},
	{"*: *Insufficient*quota*", Quota},
	{"APIG*: *ignature*[Xx]-[Ss]dk-[Dd]ate*|APIG*: *[Xx]-[Ss]dk-[Dd]ate*ignature*", BadCredentials},
	{"APIG*: *[Xx]-[Ss]dk-[Dd]ate*", ClockSkew},
	{"DNS.0312: *type 'CNAME'*", Conflict},
	{"APIG*.0301|APIG*.0303|DNS.0005", BadCredentials},
	{"APIG*.0308|DNS.0014", Throttled},
	{"DNS.000[013]", Temporary},
	{"DNS.0013", Permission},
	{"DNS.0302", ZoneNotFound},
	{"DNS.0004|DNS.0313", gone},
	{"DNS.0312|DNS.0335", exists},
	{"DNS.0314", Changed}, // another change is under way
	{"DNS.0002|DNS.0041|DNS.020[23]|DNS.030[48]|DNS.0319", Invalid},
}

func (v *huaweiCloud) do(ctx context.Context, c call, out any) error {
	c.header = map[string]string{"X-Sdk-Date": v.now().UTC().Format(basicTime)}
	return v.ask(ctx, c, func(r *http.Request, body []byte) { signHuawei(r, body, v.Key) }, openHuawei, out)
}

// openHuawei parses an error. The gateway and the service have different forms of it.
func openHuawei(ans answer) (reply, error) {
	if ans.status/100 == 2 {
		return reply{result: ans.body}, nil
	}
	var f struct {
		Code         string
		Message      string
		ErrorCode    string `json:"error_code"`
		ErrorMessage string `json:"error_msg"`
		RequestID    string `json:"request_id"`
	}
	err := json.Unmarshal(ans.body, &f)
	code, message := cmp.Or(f.Code, f.ErrorCode), cmp.Or(f.Message, f.ErrorMessage)
	id := cmp.Or(f.RequestID, ans.header.Get("X-Request-Id"))
	return reply{verdict{code, message, id}, true, huaweiErrors, nil}, err
}

type huaweiPage struct {
	Zones      []huaweiZone
	RecordSets []huaweiSet `json:"recordsets"`
	Metadata   struct {
		TotalCount *int `json:"total_count"`
	}
}

type huaweiZone struct {
	ID, Name string
	ZoneType string `json:"zone_type"`
}

// huaweiSet is a record set. Line is absent if the vendor has one line only.
type huaweiSet struct {
	ID, Name, Type, Status, Line string
	TTL                          uint32
	Records                      []string
	Weight                       any // 0: a standby of the other sets of its name
}

func (s huaweiSet) forAll() bool  { return s.Line == "" || s.Line == huaweiLine }
func (s huaweiSet) pending() bool { return strings.HasPrefix(s.Status, "PENDING_") }

// off reports whether the user or the vendor has disabled a set.
func (s huaweiSet) off() bool {
	return fmt.Sprint(s.Weight) == "0" || slices.Contains([]string{"DISABLE", "FREEZE", "ILLEGAL"}, s.Status)
}

// huaweiList returns a page of a list.
func huaweiList[T any](ctx context.Context, v *huaweiCloud, c call, items func(huaweiPage) []T) pageOf[T] {
	c.method = http.MethodGet
	c.query.Set("limit", strconv.Itoa(huaweiPageSize))
	return func(_, given int) ([]T, *int, error) {
		if given > 0 {
			c.query.Set("offset", strconv.Itoa(given))
		}
		var page huaweiPage
		err := v.do(ctx, c, &page)
		found := items(page)
		switch {
		case KindOf(err) == gone:
			return nil, new(int), nil
		case err == nil && found == nil:
			err = v.lacks(c, "list")
		}
		return found, page.Metadata.TotalCount, err
	}
}

// search returns a private zone, which the vendor should not list here, without its name.
func (v *huaweiCloud) search(ctx context.Context, name string) pageOf[zone] {
	c := call{name: "ListPublicZones", path: "/v2/zones", query: url.Values{"type": {"public"}}}
	if name != "" {
		c.query.Set("name", name+".")
		c.query.Set("search_mode", "equal")
	}
	return formed(huaweiList(ctx, v, c, func(p huaweiPage) []huaweiZone { return p.Zones }), func(z huaweiZone) zone {
		if z.ZoneType == "private" {
			return zone{}
		}
		return zone{id: z.ID, unique: z.ID, name: dns.Fold(z.Name), minTTL: huaweiMinTTL}
	})
}

func huaweiSets(z zone) string { return "/v2/zones/" + url.PathEscape(z.id) + "/recordsets" }

// sets returns a page of record sets, as entries does: one for every resolver, and those of other lines. The list of version 2
// does not tell lines and weights.
func (v *huaweiCloud) sets(ctx context.Context, z zone, host, kind string) pageOf[huaweiSet] {
	c := call{name: "ListRecordSetsByZone", path: strings.Replace(huaweiSets(z), "v2", "v2.1", 1), query: url.Values{"type": {kind}}}
	if host != "" {
		c.query.Set("name", absolute(host, z)+".")
		c.query.Set("search_mode", "equal")
	}
	return huaweiList(ctx, v, c, func(p huaweiPage) []huaweiSet { return p.RecordSets })
}

func (v *huaweiCloud) entries(ctx context.Context, z zone, host, kind string) pageOf[entry] {
	return formed(v.sets(ctx, z, host, kind), func(s huaweiSet) entry {
		e := entry{id: s.ID, host: relative(dns.Fold(s.Name), z), kind: s.Type, off: !s.forAll() || s.off(), join: s.addTo}
		if len(s.Records) > 0 {
			e.text = s.Records[0]
		}
		return e
	})
}

// addTo adds the values of a record set to the set of its name. The first set of the default line is the one
// to change. A second exists only if the user weights them, and stays unchanged.
func (s huaweiSet) addTo(set recordSet) recordSet {
	ours := set.id == "" && s.forAll()
	if ours {
		set.id, set.ttl = s.ID, s.TTL
	}
	set.pending = set.pending || s.forAll() && (s.pending() || s.Status == "ERROR")
	for _, raw := range s.Records {
		set.records = append(set.records, record{id: s.ID, value: looseTXT(raw), raw: raw, ttl: s.TTL, off: !ours || s.off(), hides: ours && s.off()})
	}
	return set
}

// applyAll writes the sets one by one. The next list shows whether all changes are carried out.
func (v *huaweiCloud) applyAll(ctx context.Context, z zone, plans []plan) ([]error, bool) {
	return each(ctx, WriteTime/2, len(plans), func(i int) error {
		p := plans[i]
		if err := v.write(ctx, z, p.at.name, p.seen, p.after()); err != nil {
			return v.written(ctx, z, p.at.name, err)
		}
		return nil
	}), true
}

// huaweiBody is a record set to write. Without a TTL, an old set keeps its TTL and a new one gets the
// vendor's default.
type huaweiBody struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	TTL     uint32   `json:"ttl,omitempty"`
	Records []string `json:"records"`
}

// replace returns when the vendor has carried out the change.
func (v *huaweiCloud) replace(ctx context.Context, z zone, at setKey, from, to recordSet) error {
	return v.written(ctx, z, at.name, v.write(ctx, z, at.name, from, to))
}

// write sends only the set of the default line. The vendor cannot compare and swap.
func (v *huaweiCloud) write(ctx context.Context, z zone, name string, from, to recordSet) error {
	body := huaweiBody{Name: name + ".", Type: "TXT", TTL: to.ttl}
	for _, r := range to.records {
		if !r.off {
			if strings.ContainsRune(r.raw, utf8.RuneError) {
				return unspeakable(name)
			}
			body.Records = append(body.Records, cmp.Or(r.raw, quoteTXT(r.value, "")))
		}
	}
	one := huaweiSets(z) + "/" + url.PathEscape(from.id)
	switch {
	case from.id == "":
		return v.do(ctx, call{name: "CreateRecordSet", method: http.MethodPost, path: huaweiSets(z), data: body}, &struct{}{})
	case len(body.Records) > 0:
		return v.do(ctx, call{name: "UpdateRecordSet", method: http.MethodPut, path: one, data: body}, &struct{}{})
	}
	return unless(gone, v.do(ctx, call{name: "DeleteRecordSet", method: http.MethodDelete, path: one}, &struct{}{}))
}

// written waits for the end of a write. After Changed it waits for the other change and does not
// retry, because the write was made from the values before that change.
func (v *huaweiCloud) written(ctx context.Context, z zone, name string, err error) error {
	switch KindOf(err) {
	case "":
		return unsure(v.steady(ctx, z, name))
	case exists:
		if set, failure := v.list(ctx, z, setKey{name, TXT}); failure == nil && len(set.records) == 0 {
			return &Error{Kind: Conflict, Detail: msg.Textf("%s: records of another type stand there, such as an alias", name), Err: err, Unmade: Unmade(err)}
		}
	case Changed:
		return cmp.Or(v.steady(ctx, z, name), err)
	}
	return err
}

// steady waits until no change of the name's default line is under way.
func (v *huaweiCloud) steady(ctx context.Context, z zone, name string) (err error) {
	ended := poll(ctx, daemon.Backoff{First: v.poll, Longest: longestPoll}, func() bool {
		var sets []huaweiSet
		if sets, err = paged(v.sets(ctx, z, relative(name, z), "TXT")); err != nil {
			return true
		}
		sets = slices.DeleteFunc(sets, func(s huaweiSet) bool { return !s.forAll() || s.Type != "TXT" || dns.Fold(s.Name) != name })
		if at := slices.IndexFunc(sets, func(s huaweiSet) bool { return s.Status == "ERROR" }); at >= 0 {
			err = &Error{Kind: Temporary, Detail: msg.Textf("%s: the provider could not carry out a change: record set %s has status ERROR", name, sets[at].ID)}
		}
		return err != nil || !slices.ContainsFunc(sets, huaweiSet.pending)
	})
	if !ended {
		return &Error{Kind: Temporary, Detail: msg.Textf("%s: the provider is still at work on the record set", name)}
	}
	return err
}

// fits refuses values that the vendor is known to change, and octets whose handling is unknown.
func (v *huaweiCloud) fits(_ Type, value Value) error {
	text := value.Text()
	if strings.ContainsAny(text, `"\`) {
		return msg.Errorf("the provider does not keep the characters %s as they are", `"\`)
	}
	return printableASCII(text)
}
