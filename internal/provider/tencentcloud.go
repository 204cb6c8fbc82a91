package provider

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/msg"
)

// tencentCloud is Tencent Cloud's DNSPod, API 3.0 version 2021-03-23: one call per action, parameters as
// JSON, signed with TC3-HMAC-SHA256. Each value is a record. Every error is an HTTP 200.
type tencentCloud struct{ api *api }

const (
	tencentEndpoint  = "https://dnspod.tencentcloudapi.com"
	tencentVersion   = "2021-03-23"
	tencentService   = "dnspod"
	tencentAlgorithm = "TC3-HMAC-SHA256"
	tencentMinTTL    = 600  // seconds, in the free plan; the API tells the least TTL of a zone's plan
	tencentMaxValue  = 255  // octets: the split of a longer value is not documented
	tencentPageSize  = 3000 // the greatest page of a list
	tencentLine      = "默认" // the line of records for every resolver
	tencentLineID    = "0"  // its id in lists, where the name may be translated
)

// NewTencentCloud makes a client of Tencent Cloud DNSPod. The key pair is SecretId and SecretKey. It
// needs the rights dnspod:DescribeDomainList, DescribeRecordList, CreateRecord, ModifyRecord and
// DeleteRecord, and uses DescribePackageDetail and DescribeDomain if it may. Accounts of the
// international site need the endpoint dnspod.intl.tencentcloudapi.com.
func NewTencentCloud(c Credentials) (*Client, error) {
	return openRecords(tencentEndpoint, c, func(a *api) recordVendor { return &tencentCloud{a} })
}

// signTC3 signs a request over its content type, host and body. The timestamp and the date in the scope
// come from one clock reading, so that they agree at midnight.
func signTC3(r *http.Request, body []byte, key Credentials, at time.Time) {
	timestamp, date := strconv.FormatInt(at.Unix(), 10), at.UTC().Format("2006-01-02")
	r.Header.Set("X-TC-Timestamp", timestamp)
	signed := []string{"content-type", "host"}
	scope := date + "/" + tencentService + "/tc3_request"
	text := tencentAlgorithm + "\n" + timestamp + "\n" + scope + "\n" + hexSHA256([]byte(canonicalRequest(r, "/", signed, body)))
	derived := []byte("TC3" + string(key.AccessKeySecret))
	for part := range strings.SplitSeq(scope, "/") {
		derived = hmacSHA256(derived, part)
	}
	r.Header.Set("Authorization", tencentAlgorithm+" Credential="+key.AccessKeyID+"/"+scope+
		", SignedHeaders="+strings.Join(signed, ";")+", Signature="+hex.EncodeToString(hmacSHA256(derived, text)))
}

// tencentErrors are codes of the API's common errors and of DNSPod's own.
var tencentErrors = codeKinds{
	{"AuthFailure.SignatureExpire", ClockSkew},
	{"AuthFailure.UnauthorizedOperation", Permission},
	{"AuthFailure*", BadCredentials},
	{"FailedOperation.LoginFailed", BadCredentials},
	{"InvalidParameter.InvalidSignature", BadCredentials},
	{"InvalidParameter.InvalidSecretId", BadCredentials},
	{"InvalidParameter.LoginToken*", BadCredentials},
	{"LimitExceeded.FailedLoginLimitExceeded", BadCredentials},
	{"InvalidParameterValue.DomainNotExists", ZoneNotFound},
	{"InvalidParameter.DomainInvalid", ZoneNotFound},
	{"InvalidParameter.DomainIdInvalid", ZoneNotFound},
	{"FailedOperation.NotDomainOwner", ZoneNotFound},
	{"OperationDenied.NoPermissionToOperateDomain", ZoneNotFound},
	{"UnauthorizedOperation*", Permission},
	{"OperationDenied*", Permission},
	{"FailedOperation.DomainIs*", Permission}, // locked, or banned as spam
	{"FailedOperation.LoginAreaNotAllowed", Permission},
	{"*ealName*", Permission}, // the identity of the account's owner is not verified
	{"InvalidParameter.AccountIsBanned", Permission},
	{"InvalidParameter.RequestIpLimited", Permission},
	{"Ip*list", Permission},
	{"ResourceNotFound.NoDataOfRecord", gone},
	{"ResourceNotFound*", ZoneNotFound},
	{"InvalidParameter.RecordIdInvalid", gone},
	{"InvalidParameter.DomainRecordExist", exists},
	{"InvalidParameter.ResultMoreThan500", tooMany},
	{"LimitExceeded.RecordTtlLimit", Invalid},
	{"LimitExceeded.SubdomainLevelLimit", Invalid},
	{"LimitExceeded*", Quota},
	{"RequestLimitExceeded*", Throttled},
	{"FailedOperation.FrequencyLimit", Throttled},
	{"InternalError*", Temporary},
	{"FailedOperation.UnknowError", Temporary}, // the vendor's spelling
	{"FailedOperation.TemporaryError", Temporary},
	{"InvalidParameter.OperateFailed", Temporary},
}

// do makes one call and parses its answer into out.
func (v *tencentCloud) do(ctx context.Context, action string, parameters, out any) error {
	c := call{name: action, method: http.MethodPost, header: map[string]string{
		"Content-Type": "application/json", "X-TC-Action": action, "X-TC-Version": tencentVersion, "X-TC-Language": "en-US",
	}}
	if err := c.json(parameters); err != nil {
		return err
	}
	ans, err := v.api.send(ctx, c, func(r *http.Request, body []byte) { signTC3(r, body, v.api.Key, v.api.now()) })
	if err != nil {
		return err
	}
	var envelope struct{ Response json.RawMessage }
	var head struct {
		RequestId string
		Error     struct{ Code, Message string }
	}
	if err = json.Unmarshal(ans.body, &envelope); err == nil {
		err = json.Unmarshal(envelope.Response, &head)
	}
	switch {
	case err == nil && (head.Error.Code != "" || ans.status != http.StatusOK):
		return v.api.refused(c, ans, verdict{head.Error.Code, head.Error.Message, head.RequestId}, tencentErrors)
	case err == nil && head.RequestId == "":
		err = msg.Errorf("no RequestId, which every answer has")
	case err == nil:
		err = json.Unmarshal(envelope.Response, out)
	}
	return v.api.unreadable(c, ans, err)
}

func (v *tencentCloud) zone(ctx context.Context, name string) (z zone, found bool, err error) {
	if z, found, err = v.domain(ctx, name); found {
		z = v.complete(ctx, z)
	}
	return z, found, err
}

// complete asks for the least TTL in the zone's plan.
func (v *tencentCloud) complete(ctx context.Context, z zone) zone {
	var packages struct {
		Info []struct {
			DomainGrade string
			MinTtl      uint32
		}
	}
	if v.do(ctx, "DescribePackageDetail", struct{}{}, &packages) != nil {
		return z // tencentMinTTL stays
	}
	for _, p := range packages.Info {
		if strings.EqualFold(p.DomainGrade, z.plan) && p.MinTtl > 0 { // one list has DP_FREE, the other DP_Free
			z.minTTL = p.MinTtl
		}
	}
	return z
}

// tencentDomain is a zone: its name as entered, perhaps in Unicode, and in A-labels.
type tencentDomain struct {
	DomainId              json.Number
	Name, Punycode, Grade string
	EffectiveDNS          []string
}

func (d tencentDomain) zone() zone {
	name := dnsname.Parse(cmp.Or(d.Punycode, d.Name))
	return zone{id: d.Name, unique: d.DomainId.String(), name: name, minTTL: tencentMinTTL, plan: d.Grade, servers: d.EffectiveDNS}
}

// domains returns a page of the zones whose names contain part, or of all.
func (v *tencentCloud) domains(ctx context.Context, part string) pageOf[zone] {
	return func(_, given int) ([]zone, *int, error) {
		var answer struct {
			DomainCountInfo struct{ DomainTotal *int }
			DomainList      []tencentDomain
		}
		err := v.do(ctx, "DescribeDomainList", struct {
			Keyword       string `json:",omitempty"`
			Offset, Limit int
		}{part, given, tencentPageSize}, &answer)
		return as(answer.DomainList, tencentDomain.zone), answer.DomainCountInfo.DomainTotal, err
	}
}

func (v *tencentCloud) zones(ctx context.Context) ([]zone, error) {
	return zonesPaged(v.domains(ctx, ""))
}

// domain searches the list of zones by a part of the name.
func (v *tencentCloud) domain(ctx context.Context, name string) (z zone, found bool, err error) {
	zones, err := paged(v.domains(ctx, name))
	if z, found = pick(zones, name); found {
		return z, true, nil
	}
	switch {
	case KindOf(err) == ZoneNotFound:
		return z, false, nil
	case KindOf(err) == tooMany, err == nil && strings.Contains(name, "xn--"):
		// A search by A-labels is not documented.
		return v.describe(ctx, name)
	}
	return z, false, err
}

// describe asks for a zone by its exact name.
func (v *tencentCloud) describe(ctx context.Context, name string) (z zone, found bool, err error) {
	var answer struct {
		DomainInfo struct {
			DomainId                json.Number
			Domain, Punycode, Grade string
			DnspodNsList            []string
		}
	}
	err = v.do(ctx, "DescribeDomain", struct{ Domain string }{name}, &answer)
	if KindOf(err) == ZoneNotFound {
		return z, false, nil
	}
	i := answer.DomainInfo
	z = tencentDomain{i.DomainId, i.Domain, i.Punycode, i.Grade, i.DnspodNsList}.zone()
	return z, err == nil && z.name == name, err
}

func (v *tencentCloud) list(ctx context.Context, z zone, at setKey) (recordSet, error) {
	return listEntries(ctx, v, z, at)
}

func (v *tencentCloud) alias(ctx context.Context, z zone, name string) (string, error) {
	return aliasEntry(ctx, v, z, name)
}

func (v *tencentCloud) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	return listZoneEntries(ctx, v, z, sets)
}

type tencentRecord struct {
	RecordId                                json.Number
	Name, Type, Value, Line, LineId, Status string
	TTL                                     uint32
}

func (e tencentRecord) entry(z zone) oldEntry {
	return oldEntry{record{id: e.RecordId.String(), value: valueOf(e.Type, e.Value, tencentTXT), ttl: e.TTL, off: e.off()}, absolute(e.Name, z), e.Type, e.Value}
}

// off reports whether the record is disabled or not for every resolver.
func (e tencentRecord) off() bool {
	enabled := e.Status == "ENABLE" || e.Status == ""
	return !enabled || e.LineId != tencentLineID && (e.LineId != "" || e.Line != tencentLine)
}

// entries sends Subdomain, although writes send SubDomain. The API ignores unknown parameters: the wrong
// one would list the whole zone, or write to its apex.
func (v *tencentCloud) entries(ctx context.Context, z zone, name, kind string) pageOf[oldEntry] {
	if name != "" {
		name = relative(name, z)
	}
	return func(_, given int) ([]oldEntry, *int, error) {
		var answer struct {
			RecordCountInfo struct{ TotalCount *int }
			RecordList      []tencentRecord
		}
		err := v.do(ctx, "DescribeRecordList", struct {
			Domain     string
			Subdomain  string `json:",omitempty"`
			RecordType string
			Offset     int `json:",omitempty"`
			Limit      int
		}{z.id, name, kind, given, tencentPageSize}, &answer)
		if KindOf(err) == gone {
			return nil, new(int), nil // the vendor reports an empty list, or page, as an error
		}
		return as(answer.RecordList, func(e tencentRecord) oldEntry { return e.entry(z) }), answer.RecordCountInfo.TotalCount, err
	}
}

// tencentTXT parses a value, which is stored as it was written: as plain text, or by some tools as
// quoted character-strings.
func tencentTXT(text string) Value {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return cutTXT(text)
	}
	return looseTXT(text)
}

func (v *tencentCloud) create(ctx context.Context, z zone, at setKey, value Value, ttl uint32) error {
	return v.write(ctx, "CreateRecord", z, at, "", value, ttl)
}

func (v *tencentCloud) update(ctx context.Context, z zone, at setKey, old record, value Value, ttl uint32) error {
	return v.write(ctx, "ModifyRecord", z, at, old.id, value, ttl)
}

// write creates a record, or changes the one with the id. A change without SubDomain would move the
// record to the apex.
func (v *tencentCloud) write(ctx context.Context, action string, z zone, at setKey, id string, value Value, ttl uint32) error {
	return v.do(ctx, action, struct {
		Domain, SubDomain, RecordType, RecordLine, Value string
		TTL                                              uint32
		RecordId                                         json.Number `json:",omitempty"`
	}{z.id, relative(at.name, z), string(at.kind), tencentLine, value.Text(), ttl, json.Number(id)}, &struct{}{})
}

func (v *tencentCloud) remove(ctx context.Context, z zone, _ setKey, old record) error {
	return v.do(ctx, "DeleteRecord", struct {
		Domain   string
		RecordId json.Number
	}{z.id, json.Number(old.id)}, &struct{}{})
}

func (v *tencentCloud) types() []Type { return []Type{TXT, A, AAAA, SRV} }

// fits refuses values that could be read as quoted, because write sends plain text.
func (v *tencentCloud) fits(_ Type, value Value) error {
	return plainText(value, tencentMaxValue, `"\`)
}
