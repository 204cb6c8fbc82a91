package provider

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/dnsname"
)

// aliDNS is Alibaba Cloud DNS, API version 2015-01-09: one call per action, parameters in the query,
// signed with ACS3-HMAC-SHA256. It stores values without quotes, one value a record.
type aliDNS struct{ api *api }

const (
	aliEndpoint  = "https://alidns.aliyuncs.com"
	aliVersion   = "2015-01-09"
	aliMinTTL    = 600 // seconds, in the free plan; the API tells the least TTL of a zone's plan
	aliMaxValue  = 512 // octets
	aliPageSize  = 100
	aliZonePage  = 500       // records of a zone on a page
	aliLine      = "default" // the line of records for every resolver
	aliAlgorithm = "ACS3-HMAC-SHA256"
)

// NewAliDNS makes a client of Alibaba Cloud DNS. The key pair is AccessKey ID and secret. It needs the
// rights alidns:DescribeDomains, DescribeDomainInfo, DescribeSubDomainRecords, AddDomainRecord,
// UpdateDomainRecord and DeleteDomainRecord, and DescribeDomainRecords to list a whole zone.
func NewAliDNS(c Credentials) (*Client, error) {
	return openRecords(aliEndpoint, c, func(a *api) recordVendor { return &aliDNS{a} })
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
	{"InvalidAccessKeyId*", BadCredentials},
	{"SignatureDoesNotMatch", BadCredentials},
	{"IncompleteSignature", BadCredentials},
	{"InvalidSecurityToken*", BadCredentials},
	{"Forbidden*", Permission},
	{"DomainRecordLocked", Permission},
	{"InvalidTimeStamp*", ClockSkew},
	{"IllegalTimestamp", ClockSkew},
	{"SignatureNonceUsed", Temporary},
	{"InvalidDomainName.NoExist", ZoneNotFound},
	{"IncorrectDomainUser", ZoneNotFound},
	{"DomainRecordNotBelongToUser", gone},
	{"DomainRecordDuplicate", exists},
	{"DomainRecordConflict", Conflict},
	{"QuotaExceeded*", Quota},
	{"*Throttling*", Throttled},
	{"InternalError", Temporary},
	{"*UnknownError", Temporary},
	{"*UnKnownError", Temporary},
	{"ServiceUnavailable", Temporary},
}

// do makes one call and parses its answer into out.
func (v *aliDNS) do(ctx context.Context, action string, parameters url.Values, out any) error {
	c := call{name: action, method: http.MethodPost, query: parameters, header: map[string]string{
		"X-Acs-Action": action, "X-Acs-Version": aliVersion, "X-Acs-Signature-Nonce": v.api.nonce(),
		"X-Acs-Date": v.api.now().UTC().Format(extendedTime),
	}}
	ans, err := v.api.send(ctx, c, func(r *http.Request, body []byte) { signACS3(r, body, v.api.Key) })
	if err != nil {
		return err
	}
	var failure struct{ RequestId, Code, Message string }
	err = json.Unmarshal(ans.body, &failure)
	switch {
	case err == nil && ans.status != http.StatusOK:
		return v.api.refused(c, ans, verdict{failure.Code, failure.Message, failure.RequestId}, aliErrors)
	case err == nil && failure.RequestId == "":
		err = errNotTheirs
	case err == nil:
		err = json.Unmarshal(ans.body, out)
	}
	return v.api.unreadable(c, ans, err)
}

func (v *aliDNS) zone(ctx context.Context, name string) (z zone, found bool, err error) {
	if z, found, err = v.domain(ctx, name); found {
		z = v.complete(ctx, z)
	}
	return z, found, err
}

// complete asks for the least TTL in the zone's plan.
func (v *aliDNS) complete(ctx context.Context, z zone) zone {
	var info struct{ MinTtl uint32 }
	err := v.do(ctx, "DescribeDomainInfo", url.Values{"DomainName": {z.id}, "NeedDetailAttributes": {"true"}}, &info)
	if err == nil && info.MinTtl > 0 {
		z.minTTL = info.MinTtl // without it, aliMinTTL stays
	}
	return z
}

type aliDomain struct {
	DomainId, DomainName, PunyCode string
	DnsServers                     struct{ DnsServer []string }
}

func (d aliDomain) zone() zone {
	name := dnsname.Parse(cmp.Or(d.PunyCode, d.DomainName))
	return zone{id: d.DomainName, unique: d.DomainId, name: name, minTTL: aliMinTTL, servers: d.DnsServers.DnsServer}
}

// domains returns a page of the zones that a search finds.
func (v *aliDNS) domains(ctx context.Context, search url.Values) pageOf[zone] {
	return func(page, _ int) ([]zone, *int, error) {
		var answer struct {
			TotalCount *int
			Domains    struct{ Domain []aliDomain }
		}
		search.Set("PageNumber", strconv.Itoa(page))
		search.Set("PageSize", strconv.Itoa(aliPageSize))
		err := v.do(ctx, "DescribeDomains", search, &answer)
		return as(answer.Domains.Domain, aliDomain.zone), answer.TotalCount, err
	}
}

func (v *aliDNS) zones(ctx context.Context) ([]zone, error) {
	return zonesPaged(v.domains(ctx, url.Values{}))
}

// domain searches for a zone by name. The vendor stores an internationalised name in Unicode and does
// not document a search by A-labels, so domain looks for those in the whole list.
func (v *aliDNS) domain(ctx context.Context, name string) (z zone, found bool, err error) {
	search := url.Values{"KeyWord": {name}, "SearchMode": {"EXACT"}}
	if strings.Contains(name, "xn--") {
		search = url.Values{}
	}
	zones, err := paged(v.domains(ctx, search))
	z, found = pick(zones, name)
	return z, found, err
}

type aliRecord struct {
	RecordId, RR, Type, Value, Line, Status string
	TTL                                     uint32
}

func (e aliRecord) entry(z zone) entry {
	off := e.Line != aliLine || e.Status == "DISABLE" // disabled, or not for every resolver
	return entry{record{id: e.RecordId, value: valueOf(e.Type, e.Value, cutTXT), ttl: e.TTL, off: off}, absolute(e.RR, z), e.Type, e.Value}
}

// entries names the zone in the vendor's spelling, also within the full name, because the vendor
// splits that name by the zone.
func (v *aliDNS) entries(ctx context.Context, z zone, name, kind string) pageOf[entry] {
	action, size, query := "DescribeDomainRecords", aliZonePage, url.Values{"DomainName": {z.id}, "TypeKeyWord": {kind}}
	if name != "" {
		full := z.id
		if name != z.name {
			full = relative(name, z) + "." + z.id
		}
		action, size, query = "DescribeSubDomainRecords", aliPageSize, url.Values{"SubDomain": {full}, "DomainName": {z.id}, "Type": {kind}}
	}
	return func(page, _ int) ([]entry, *int, error) {
		var answer struct {
			TotalCount    *int
			DomainRecords struct{ Record []aliRecord }
		}
		query.Set("PageNumber", strconv.Itoa(page))
		query.Set("PageSize", strconv.Itoa(size))
		err := v.do(ctx, action, query, &answer)
		return as(answer.DomainRecords.Record, func(e aliRecord) entry { return e.entry(z) }), answer.TotalCount, err
	}
}

func (v *aliDNS) list(ctx context.Context, z zone, at setKey) (recordSet, error) {
	return listEntries(ctx, v, z, at)
}

func (v *aliDNS) alias(ctx context.Context, z zone, name string) (string, error) {
	return aliasEntry(ctx, v, z, name)
}

func (v *aliDNS) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	return listZoneEntries(ctx, v, z, sets)
}

func (v *aliDNS) create(ctx context.Context, z zone, at setKey, value Value, ttl uint32) error {
	return v.do(ctx, "AddDomainRecord", url.Values{
		"DomainName": {z.id}, "RR": {relative(at.name, z)}, "Type": {string(at.kind)}, "Value": {value.Text()},
		"TTL": {strconv.FormatUint(uint64(ttl), 10)}, "Line": {aliLine},
	}, &struct{}{})
}

func (v *aliDNS) update(ctx context.Context, z zone, at setKey, old record, value Value, ttl uint32) error {
	return v.do(ctx, "UpdateDomainRecord", url.Values{
		"RecordId": {old.id}, "RR": {relative(at.name, z)}, "Type": {string(at.kind)}, "Value": {value.Text()},
		"TTL": {strconv.FormatUint(uint64(ttl), 10)},
	}, &struct{}{})
}

func (v *aliDNS) remove(ctx context.Context, _ zone, _ setKey, old record) error {
	return v.do(ctx, "DeleteDomainRecord", url.Values{"RecordId": {old.id}}, &struct{}{})
}

func (v *aliDNS) types() []Type { return []Type{TXT, A, AAAA, SRV} }

// fits refuses values that the vendor is known to change: it strips double quotes and outer spaces,
// and damages backslashes.
func (v *aliDNS) fits(_ Type, value Value) error { return plainText(value, aliMaxValue, `"\`) }
