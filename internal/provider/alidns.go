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

	"meshddns/internal/dns"
)

// aliDNS is Alibaba Cloud DNS, API version 2015-01-09: one call per action, parameters in the query,
// signed with ACS3-HMAC-SHA256. It stores values without quotes, one value a record.
type aliDNS struct{ *api }

const (
	aliEndpoint  = "https://alidns.aliyuncs.com"
	aliVersion   = "2015-01-09"
	aliMinTTL    = 600 // seconds, in the free plan; the API tells the least TTL of a zone's plan
	aliPageSize  = 100
	aliZonePage  = 500       // records of a zone on a page
	aliLine      = "default" // the line of records for every resolver
	aliAlgorithm = "ACS3-HMAC-SHA256"
)

// NewAliDNS makes a client of Alibaba Cloud DNS. The key pair is AccessKey ID and secret. It needs the
// rights alidns:DescribeDomains, DescribeDomainInfo, DescribeSubDomainRecords, AddDomainRecord,
// UpdateDomainRecord and DeleteDomainRecord, and DescribeDomainRecords to list a whole zone.
func NewAliDNS(c Credentials) (*Client, error) {
	return open(aliEndpoint, c, aliRecords)
}

// aliRecords is the vendor's table. It refuses values that the vendor is known to change: the vendor
// strips double quotes and outer spaces, and damages backslashes.
func aliRecords(a *api) *records {
	v := aliDNS{a}
	return &records{
		api: a, has: allTypes, read: cutTXT, longest: 512, damaged: `"\`,
		search: v.search, details: v.details, entries: v.entries, write: v.write, erase: v.erase,
	}
}

// signACS3 signs the host, the content type and all x-acs headers of a request. The caller has set
// these headers, except the hash of the body.
func signACS3(r *http.Request, body []byte, key Credentials) {
	r.Header.Set("X-Acs-Content-Sha256", hexSHA256(body))
	signed := []string{"host"}
	for name := range r.Header {
		name = strings.ToLower(name)
		if name == "content-type" || strings.HasPrefix(name, "x-acs-") {
			signed = append(signed, name)
		}
	}
	slices.Sort(signed)
	text := aliAlgorithm + "\n" + hexSHA256([]byte(canonicalRequest(r, r.URL.EscapedPath(), signed, body)))
	r.Header.Set("Authorization", aliAlgorithm+" Credential="+key.AccessKeyID+",SignedHeaders="+strings.Join(signed, ";")+
		",Signature="+hex.EncodeToString(hmacSHA256([]byte(key.AccessKeySecret), text)))
}

// aliErrors are the codes in the API's error centre.
var aliErrors = codeKinds{
	{"InvalidAccessKeyId*|SignatureDoesNotMatch|IncompleteSignature|InvalidSecurityToken*", BadCredentials},
	{"Forbidden*|DomainRecordLocked", Permission},
	{"InvalidTimeStamp*|IllegalTimestamp", ClockSkew},
	{"InvalidDomainName.NoExist|IncorrectDomainUser", ZoneNotFound},
	{"DomainRecordNotBelongToUser", gone},
	{"DomainRecordDuplicate", exists},
	{"DomainRecordConflict", Conflict},
	{"QuotaExceeded*", Quota},
	{"*Throttling*", Throttled},
	{"SignatureNonceUsed|InternalError|*UnknownError|*UnKnownError|ServiceUnavailable", Temporary},
}

func (v aliDNS) do(ctx context.Context, action string, parameters url.Values, out any) error {
	c := call{name: action, method: http.MethodPost, query: parameters, header: map[string]string{
		"X-Acs-Action": action, "X-Acs-Version": aliVersion, "X-Acs-Signature-Nonce": v.nonce(),
		"X-Acs-Date": v.now().UTC().Format(extendedTime),
	}}
	return v.ask(ctx, c, func(r *http.Request, body []byte) { signACS3(r, body, v.Key) }, openAli, out)
}

// openAli opens an answer, which always has a request id.
func openAli(ans answer) (reply, error) {
	var head struct{ RequestId, Code, Message string }
	err := json.Unmarshal(ans.body, &head)
	failed := ans.status != http.StatusOK
	if err == nil && !failed && head.RequestId == "" {
		err = errNotTheirs
	}
	return reply{verdict{head.Code, head.Message, head.RequestId}, failed, aliErrors, ans.body}, err
}

type aliPage struct {
	TotalCount    *int
	Domains       struct{ Domain []aliDomain }
	DomainRecords struct{ Record []aliRecord }
}

func (v aliDNS) page(ctx context.Context, action string, query url.Values, page, size int) (answer aliPage, err error) {
	query.Set("PageNumber", strconv.Itoa(page))
	query.Set("PageSize", strconv.Itoa(size))
	err = v.do(ctx, action, query, &answer)
	return answer, err
}

type aliDomain struct {
	DomainId, DomainName, PunyCode string
	DnsServers                     struct{ DnsServer []string }
}

func (d aliDomain) zone() zone {
	name := dns.Parse(cmp.Or(d.PunyCode, d.DomainName))
	return zone{id: d.DomainName, unique: d.DomainId, name: name, minTTL: aliMinTTL, servers: d.DnsServers.DnsServer}
}

// search lists all zones for an internationalised name too: the vendor stores it in Unicode and does not
// document a search by A-labels.
func (v aliDNS) search(ctx context.Context, name string) pageOf[zone] {
	query := url.Values{}
	if name != "" && !strings.Contains(name, "xn--") {
		query = url.Values{"KeyWord": {name}, "SearchMode": {"EXACT"}}
	}
	return func(page, _ int) ([]zone, *int, error) {
		answer, err := v.page(ctx, "DescribeDomains", query, page, aliPageSize)
		return as(answer.Domains.Domain, aliDomain.zone), answer.TotalCount, err
	}
}

// details asks for the least TTL in the zone's plan.
func (v aliDNS) details(ctx context.Context, z zone) zone {
	var info struct{ MinTtl uint32 }
	err := v.do(ctx, "DescribeDomainInfo", url.Values{"DomainName": {z.id}, "NeedDetailAttributes": {"true"}}, &info)
	if err == nil && info.MinTtl > 0 {
		z.minTTL = info.MinTtl // without it, aliMinTTL stays
	}
	return z
}

type aliRecord struct {
	RecordId, RR, Type, Value, Line, Status string
	TTL                                     uint32
	Weight                                  any // of an address; DNS never gives one with 0
}

func (e aliRecord) entry() entry {
	off := e.Line != aliLine || e.Status == "DISABLE" || fmt.Sprint(e.Weight) == "0" // disabled, or not for every resolver
	return entry{id: e.RecordId, host: e.RR, kind: e.Type, text: e.Value, ttl: e.TTL, off: off}
}

// entries names the zone in the vendor's spelling, also within the full name, because the vendor
// splits that name by the zone.
func (v aliDNS) entries(ctx context.Context, z zone, host, kind string) pageOf[entry] {
	action, size, query := "DescribeSubDomainRecords", aliPageSize, url.Values{"DomainName": {z.id}, "Type": {kind}}
	switch host {
	case "":
		action, size, query = "DescribeDomainRecords", aliZonePage, url.Values{"DomainName": {z.id}, "TypeKeyWord": {kind}}
	case "@":
		query.Set("SubDomain", z.id)
	default:
		query.Set("SubDomain", host+"."+z.id)
	}
	return func(page, _ int) ([]entry, *int, error) {
		answer, err := v.page(ctx, action, query, page, size)
		return as(answer.DomainRecords.Record, aliRecord.entry), answer.TotalCount, err
	}
}

func (v aliDNS) write(ctx context.Context, z zone, e entry) error {
	action, query := "AddDomainRecord", url.Values{"RR": {e.host}, "Type": {e.kind}, "Value": {e.text}, "TTL": {fmt.Sprint(e.ttl)}}
	if e.id != "" {
		action = "UpdateDomainRecord"
		query.Set("RecordId", e.id)
	} else {
		query.Set("DomainName", z.id)
		query.Set("Line", aliLine)
	}
	return v.do(ctx, action, query, nil)
}

func (v aliDNS) erase(ctx context.Context, _ zone, id string) error {
	return v.do(ctx, "DeleteDomainRecord", url.Values{"RecordId": {id}}, nil)
}
