package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/msg"
)

// jdCloud is JD Cloud DNS (domainservice), API version 2: REST and JSON, signed with
// JDCLOUD2-HMAC-SHA256. It stores values without quotes, one value a record.
type jdCloud struct{ api *api }

const (
	jdRegion      = "cn-north-1"
	jdEndpoint    = "https://domainservice.jdcloud-api.com/v2/regions/" + jdRegion
	jdMinTTL      = 600 // seconds; no plan's minimum is documented, and the vendor's own client sends this one
	jdMaxValue    = 255 // octets; not documented: every server keeps one character-string
	jdDomainPage  = 10  // the page sizes of the vendor's own clients
	jdRecordPage  = 99
	jdDefaultLine = -1  // the line of records for every resolver
	jdPaused      = "4" // a resolvingStatus
)

var (
	jdSignature = scoped{"JDCLOUD2-HMAC-SHA256", "JDCLOUD2", jdRegion, "domainservice", "jdcloud2_request"}
	jdSigned    = []string{"content-type", "host", "x-jdcloud-date", "x-jdcloud-nonce"}
)

// NewJDCloud makes a client of JD Cloud DNS. The key pair is Access Key ID and Access Key Secret. It
// needs the right to the calls describeDomains, describeResourceRecord, createResourceRecord,
// modifyResourceRecord and deleteResourceRecord of domainservice.
func NewJDCloud(c Credentials) (*Client, error) {
	return openRecords(jdEndpoint, c, func(a *api) recordVendor { return &jdCloud{a} })
}

// signJDCloud signs a request, whose content type, date and nonce are set.
func signJDCloud(r *http.Request, body []byte, key Credentials, at time.Time) {
	r.Header.Set("Authorization", jdSignature.authorization(r, r.URL.EscapedPath(), jdSigned, body, key, at))
}

// jdErrors are codes of the vendor's API gateway. Those of the DNS service are not documented.
var jdErrors = codeKinds{
	{"UNAUTHENTICATED", BadCredentials},
	{"ACCESS_ERROR", BadCredentials},
	{"APIGW_KEY_*", BadCredentials},
	{"APIGW_SIGN_*", BadCredentials},
	{"APIGW_NONCE_CONFLICT", Temporary},
	{"*FORBIDDEN", Permission},
	{"RESOURCE_NOT_EXIST", ZoneNotFound},
	{"NOT_FOUND", ZoneNotFound},
	{"ALREADY_EXISTS", exists},
	{"CONFLICT", Conflict},
	{"ABORTED", Temporary},
	{"CANCELLED", Temporary},
	{"*QUOTA*", Quota}, // comes with HTTP 429
	{"*RATE_LIMIT*", Throttled},
}

// jdNonceUsed is in the gateway's message for a repeated nonce. The code of that error is the one of a
// missing right.
const jdNonceUsed = "noncestr"

// do makes one call and parses its result into out, unless that is nil.
func (v *jdCloud) do(ctx context.Context, c call, parameters map[string]any, out any) error {
	if parameters != nil {
		if err := c.json(parameters); err != nil {
			return err
		}
	}
	at := v.api.now()
	c.header = map[string]string{
		"Content-Type": "application/json", "X-Jdcloud-Date": at.UTC().Format(basicTime), "X-Jdcloud-Nonce": v.api.nonce(),
	}
	ans, err := v.api.send(ctx, c, func(r *http.Request, body []byte) { signJDCloud(r, body, v.api.Key, at) })
	if err != nil {
		return err
	}
	var reply jdReply
	err = json.Unmarshal(ans.body, &reply)
	switch {
	case err == nil && (ans.status != http.StatusOK || reply.Error != jdError{}):
		return v.refused(c, ans, reply)
	case err == nil && out != nil && string(reply.Result) == "null":
		err = msg.Errorf("no result")
	case err == nil && out != nil:
		err = json.Unmarshal(reply.Result, out)
	}
	return v.api.unreadable(c, ans, err)
}

// jdReply is the envelope of every answer.
type jdReply struct {
	RequestID string
	Error     jdError
	Result    json.RawMessage
}

type jdError struct {
	Code            int // the HTTP status
	Status, Message string
}

func (v *jdCloud) refused(c call, ans answer, r jdReply) error {
	if ans.status == http.StatusOK {
		ans.status = r.Error.Code
	}
	e := v.api.refused(c, ans, verdict{r.Error.Status, r.Error.Message, r.RequestID}, jdErrors)
	if strings.Contains(r.Error.Message, jdNonceUsed) { // the vendor got the request twice, and may have done it
		e.Kind, e.Unmade = Temporary, false
	}
	return e
}

// jdList returns a page of a list.
func jdList[T, U any](ctx context.Context, v *jdCloud, c call, size int, form func(T) U) pageOf[U] {
	c.method = http.MethodGet
	c.query.Set("pageSize", strconv.Itoa(size))
	return func(page, _ int) ([]U, *int, error) {
		var result struct {
			DataList   []T
			TotalCount *int
		}
		c.query.Set("pageNumber", strconv.Itoa(page))
		err := v.do(ctx, c, nil, &result)
		return as(result.DataList, form), result.TotalCount, err
	}
}

type jdDomain struct {
	ID         json.Number
	DomainName string
}

func (d jdDomain) zone() zone {
	return zone{id: d.ID.String(), unique: d.ID.String(), name: dnsname.Parse(d.DomainName), minTTL: jdMinTTL}
}

// domains returns a page of the zones that a search finds.
func (v *jdCloud) domains(ctx context.Context, search url.Values) pageOf[zone] {
	return jdList(ctx, v, call{name: "DescribeDomains", path: "/domain", query: search}, jdDomainPage, jdDomain.zone)
}

// zone selects the name among all zones whose names contain it.
func (v *jdCloud) zone(ctx context.Context, name string) (z zone, found bool, err error) {
	zones, err := paged(v.domains(ctx, url.Values{"domainName": {name}}))
	z, found = pick(zones, name)
	return z, found, err
}

func (v *jdCloud) zones(ctx context.Context) ([]zone, error) {
	return zonesPaged(v.domains(ctx, url.Values{}))
}

// list gets the records of any type whose host contains the name. This includes a CNAME, beside which
// there is no value.
func (v *jdCloud) list(ctx context.Context, z zone, at setKey) (set recordSet, err error) {
	entries, err := paged(v.records(ctx, z, url.Values{"search": {relative(at.name, z)}}))
	sets := newZoneSets(nil, at.kind)
	for _, e := range entries {
		sets.entry(e)
	}
	return sets.of(at), err
}

func (v *jdCloud) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	return wholePages(oldEntry.key, v.records(ctx, z, url.Values{}), sets.entry)
}

type jdEntry struct {
	ID                          json.Number
	HostRecord, HostValue, Type string
	TTL                         uint32
	ViewValue, ResolvingStatus  any
}

// records returns a page of the records that a search finds.
func (v *jdCloud) records(ctx context.Context, z zone, search url.Values) pageOf[oldEntry] {
	c := call{name: "DescribeResourceRecord", path: jdRecords(z), query: search}
	return jdList(ctx, v, c, jdRecordPage, func(e jdEntry) oldEntry { return e.entry(z) })
}

func (e jdEntry) entry(z zone) oldEntry {
	off := !jdForAll(e.ViewValue) || fmt.Sprint(e.ResolvingStatus) == jdPaused
	return oldEntry{record{id: e.ID.String(), value: looseTXT(e.HostValue), ttl: e.TTL, off: off}, absolute(e.HostRecord, z), e.Type, e.HostValue}
}

// jdForAll parses viewValue: [-1] in the documentation, and -1 in writes. A record without a line has
// the default line.
func jdForAll(viewValue any) bool {
	text := strings.Trim(fmt.Sprint(viewValue), "[]")
	return viewValue == nil || text == "" || text == strconv.Itoa(jdDefaultLine)
}

func jdRecords(z zone) string { return "/domain/" + escape(z.id) + "/ResourceRecord" }

func jdRecord(name string, z zone, value Value, ttl uint32) map[string]any {
	return map[string]any{
		"hostRecord": relative(name, z), "hostValue": value.Text(), "type": "TXT", "ttl": ttl, "viewValue": jdDefaultLine,
	}
}

func (v *jdCloud) create(ctx context.Context, z zone, at setKey, value Value, ttl uint32) error {
	return v.do(ctx, call{name: "CreateResourceRecord", method: http.MethodPost, path: jdRecords(z)}, map[string]any{
		"regionId": jdRegion, "domainId": z.id, "req": jdRecord(at.name, z, value, ttl),
	}, nil)
}

func (v *jdCloud) update(ctx context.Context, z zone, at setKey, old record, value Value, ttl uint32) error {
	to := jdRecord(at.name, z, value, ttl)
	to["domainName"] = z.name
	c := call{name: "ModifyResourceRecord", method: http.MethodPut, path: jdRecords(z) + "/" + escape(old.id)}
	return jdGone(v.do(ctx, c, map[string]any{"regionId": jdRegion, "domainId": z.id, "resourceRecordId": old.id, "req": to}, nil))
}

func (v *jdCloud) remove(ctx context.Context, z zone, _ setKey, old record) error {
	return jdGone(v.do(ctx, call{name: "DeleteResourceRecord", method: http.MethodDelete, path: jdRecords(z) + "/" + escape(old.id)}, nil, nil))
}

// jdGone takes "not found" as an answer about the record. A missing zone has the same code, but the
// zone is listed again before the change counts as done.
func jdGone(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == ZoneNotFound {
		e.Kind = gone
	}
	return err
}

// fits accepts plain text only, because the vendor's handling of values is not documented.
func (v *jdCloud) fits(_ Type, value Value) error { return plainText(value, jdMaxValue, `"\`) }
