package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// jdCloud is JD Cloud DNS (domainservice), API version 2: REST and JSON, signed with
// JDCLOUD2-HMAC-SHA256. It stores values without quotes, one value a record.
type jdCloud struct{ *api }

const (
	jdRegion      = "cn-north-1"
	jdEndpoint    = "https://domainservice.jdcloud-api.com/v2/regions/" + jdRegion
	jdMinTTL      = 600 // seconds; no plan's minimum is documented, and the vendor's own client sends this one
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
	return openRecords(jdEndpoint, c, jdRecords)
}

// jdRecords is the vendor's table. It accepts plain text of one character-string only, because the
// vendor's handling of values is not documented.
func jdRecords(a *api) *records {
	v := jdCloud{a}
	return &records{
		api: a, has: []Type{TXT}, read: looseTXT, longest: 255, damaged: `"\`, mixed: true,
		search: v.search, entries: v.entries, write: v.write, erase: v.erase,
	}
}

// signJDCloud signs a request, whose content type, date and nonce are set.
func signJDCloud(r *http.Request, body []byte, key Credentials, at time.Time) {
	r.Header.Set("Authorization", jdSignature.authorization(r, r.URL.EscapedPath(), jdSigned, body, key, at))
}

// jdErrors are codes of the vendor's API gateway. Those of the DNS service are not documented.
var jdErrors = codeKinds{
	{"*: *noncestr*", Temporary}, // a repeated nonce, with the code of a missing right: the call may have been made
	{"UNAUTHENTICATED|ACCESS_ERROR|APIGW_KEY_*|APIGW_SIGN_*", BadCredentials},
	{"*FORBIDDEN", Permission},
	{"RESOURCE_NOT_EXIST|NOT_FOUND", ZoneNotFound},
	{"ALREADY_EXISTS", exists},
	{"APIGW_NONCE_CONFLICT|ABORTED|CANCELLED", Temporary},
	{"CONFLICT", Conflict},
	{"*QUOTA*", Quota}, // comes with HTTP 429
	{"*RATE_LIMIT*", Throttled},
}

// do makes one call and parses its result into out, unless that is nil.
func (v jdCloud) do(ctx context.Context, c call, out any) error {
	at := v.now()
	c.header = map[string]string{
		"Content-Type": "application/json", "X-Jdcloud-Date": at.UTC().Format(basicTime), "X-Jdcloud-Nonce": v.nonce(),
	}
	return v.ask(ctx, c, func(r *http.Request, body []byte) { signJDCloud(r, body, v.Key, at) }, func(ans answer) (reply, error) {
		var envelope struct {
			RequestID string
			Error     jdError
			Result    json.RawMessage
		}
		err := json.Unmarshal(ans.body, &envelope)
		e := envelope.Error
		failed := ans.status != http.StatusOK || e != jdError{}
		if err == nil && !failed && out != nil && string(envelope.Result) == "null" {
			err = msg.Errorf("no result")
		}
		return reply{verdict{e.Status, e.Message, envelope.RequestID}, failed, e.kinds(c, ans), envelope.Result}, err
	}, out)
}

type jdError struct {
	Code            int // the HTTP status
	Status, Message string
}

// kinds returns the meaning of the codes in an answer, whose HTTP status may be 200. To a change, "not found"
// is an answer about the record. A missing zone has the same code, but the zone is listed again before the
// change counts as done.
func (e jdError) kinds(c call, ans answer) codeKinds {
	kinds := jdErrors
	if c.method == http.MethodPut || c.method == http.MethodDelete {
		kinds = slices.Concat(codeKinds{{"RESOURCE_NOT_EXIST|NOT_FOUND", gone}}, kinds)
	}
	if ans.status == http.StatusOK {
		kinds = slices.Concat(kinds, codeKinds{{"*", statusKind(e.Code)}})
	}
	return kinds
}

// jdList returns a page of a list.
func jdList[T, U any](ctx context.Context, v jdCloud, c call, size int, form func(T) U) pageOf[U] {
	c.method = http.MethodGet
	c.query.Set("pageSize", strconv.Itoa(size))
	return func(page, _ int) ([]U, *int, error) {
		var result struct {
			DataList   []T
			TotalCount *int
		}
		c.query.Set("pageNumber", strconv.Itoa(page))
		err := v.do(ctx, c, &result)
		return as(result.DataList, form), result.TotalCount, err
	}
}

type jdDomain struct {
	ID         json.Number
	DomainName string
}

func (d jdDomain) zone() zone {
	return zone{id: d.ID.String(), unique: d.ID.String(), name: dns.Parse(d.DomainName), minTTL: jdMinTTL}
}

// search lists all zones whose names contain part.
func (v jdCloud) search(ctx context.Context, part string) pageOf[zone] {
	c := call{name: "DescribeDomains", path: "/domain", query: url.Values{}}
	if part != "" {
		c.query.Set("domainName", part)
	}
	return jdList(ctx, v, c, jdDomainPage, jdDomain.zone)
}

type jdEntry struct {
	ID                          json.Number
	HostRecord, HostValue, Type string
	TTL                         uint32
	ViewValue, ResolvingStatus  any
}

func (e jdEntry) entry() entry {
	off := !jdForAll(e.ViewValue) || fmt.Sprint(e.ResolvingStatus) == jdPaused
	return entry{id: e.ID.String(), host: e.HostRecord, kind: e.Type, text: e.HostValue, ttl: e.TTL, off: off}
}

// entries gets the records of any type whose host contains part. This includes a CNAME, beside which
// there is no value.
func (v jdCloud) entries(ctx context.Context, z zone, part, _ string) pageOf[entry] {
	c := call{name: "DescribeResourceRecord", path: jdPath(z), query: url.Values{}}
	if part != "" {
		c.query.Set("search", part)
	}
	return jdList(ctx, v, c, jdRecordPage, jdEntry.entry)
}

// jdForAll parses viewValue: [-1] in the documentation, and -1 in writes. A record without a line has
// the default line.
func jdForAll(viewValue any) bool {
	text := strings.Trim(fmt.Sprint(viewValue), "[]")
	return viewValue == nil || text == "" || text == strconv.Itoa(jdDefaultLine)
}

func jdPath(z zone) string { return "/domain/" + escape(z.id) + "/ResourceRecord" }

func (v jdCloud) write(ctx context.Context, z zone, e entry) error {
	to := map[string]any{"hostRecord": e.host, "hostValue": e.text, "type": e.kind, "ttl": e.ttl, "viewValue": jdDefaultLine}
	body := map[string]any{"regionId": jdRegion, "domainId": z.id, "req": to}
	if e.id == "" {
		return v.do(ctx, call{name: "CreateResourceRecord", method: http.MethodPost, path: jdPath(z), data: body}, nil)
	}
	to["domainName"], body["resourceRecordId"] = z.name, e.id
	return v.do(ctx, call{name: "ModifyResourceRecord", method: http.MethodPut, path: jdPath(z) + "/" + escape(e.id), data: body}, nil)
}

func (v jdCloud) erase(ctx context.Context, z zone, id string) error {
	return v.do(ctx, call{name: "DeleteResourceRecord", method: http.MethodDelete, path: jdPath(z) + "/" + escape(id)}, nil)
}
