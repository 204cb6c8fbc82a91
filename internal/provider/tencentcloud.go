package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// tencentCloud is Tencent Cloud's DNSPod, API 3.0 version 2021-03-23: one call per action, parameters as
// JSON, signed with TC3-HMAC-SHA256. Each value is a record. Every error is an HTTP 200.
type tencentCloud struct{ *api }

const (
	tencentEndpoint = "https://dnspod.tencentcloudapi.com"
	tencentVersion  = "2021-03-23"
	tencentMinTTL   = 600  // seconds, in the free plan; the API tells the least TTL of a zone's plan
	tencentPageSize = 3000 // the greatest page of a list
	tencentLine     = "默认" // the line of records for every resolver
	tencentLineID   = "0"  // its id in lists, where the name may be translated
)

// tencentScope has no region.
var tencentScope = scoped{algorithm: "TC3-HMAC-SHA256", prefix: "TC3", service: "dnspod", term: "tc3_request"}

// NewTencentCloud makes a client of Tencent Cloud DNSPod. The key pair is SecretId and SecretKey. It
// needs the rights dnspod:DescribeDomainList, DescribeRecordList, CreateRecord, ModifyRecord and
// DeleteRecord, and uses DescribePackageDetail and DescribeDomain if it may. Accounts of the
// international site need the endpoint dnspod.intl.tencentcloudapi.com.
func NewTencentCloud(c Credentials) (*Client, error) {
	return open(tencentEndpoint, c, tencentRecords)
}

// tencentRecords is the vendor's table. It refuses values that could be read as quoted, because write
// sends plain text, and values over 255 octets, because their split is not documented.
func tencentRecords(a *api) *records {
	v := tencentCloud{a}
	return &records{
		api: a, has: allTypes, read: tencentTXT, longest: 255, damaged: `"\`,
		search: v.search, find: v.find, details: v.details, entries: v.entries, write: v.write, erase: v.erase,
	}
}

// signTC3 signs a request over its content type, host and body. The timestamp and the date in the scope
// come from one clock reading, so that they agree at midnight.
func signTC3(r *http.Request, body []byte, key Credentials, at time.Time) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	r.Header.Set("X-TC-Timestamp", timestamp)
	scope := at.UTC().Format(time.DateOnly) + "/" + tencentScope.service + "/" + tencentScope.term
	r.Header.Set("Authorization", tencentScope.stamped(r, "/", []string{"content-type", "host"}, body, key, timestamp, scope))
}

// tencentErrors are codes of the API's common errors and of DNSPod's own.
var tencentErrors = codeKinds{
	{"AuthFailure.SignatureExpire", ClockSkew},
	{"AuthFailure.UnauthorizedOperation", Permission},
	{"AuthFailure*|FailedOperation.LoginFailed|InvalidParameter.InvalidSignature|InvalidParameter.InvalidSecretId", BadCredentials},
	{"InvalidParameter.LoginToken*|LimitExceeded.FailedLoginLimitExceeded", BadCredentials},
	{"InvalidParameterValue.DomainNotExists|InvalidParameter.DomainInvalid|InvalidParameter.DomainIdInvalid", ZoneNotFound},
	{"FailedOperation.NotDomainOwner|OperationDenied.NoPermissionToOperateDomain", ZoneNotFound},
	{"UnauthorizedOperation*|OperationDenied*|FailedOperation.LoginAreaNotAllowed", Permission},
	{"FailedOperation.DomainIs*", Permission}, // locked, or banned as spam
	{"*ealName*", Permission}, // the identity of the account's owner is not verified
	{"InvalidParameter.AccountIsBanned|InvalidParameter.RequestIpLimited|Ip*list", Permission},
	{"ResourceNotFound.NoDataOfRecord|InvalidParameter.RecordIdInvalid", gone},
	{"ResourceNotFound*", ZoneNotFound},
	{"InvalidParameter.DomainRecordExist", exists},
	{"InvalidParameter.ResultMoreThan500", tooMany},
	{"LimitExceeded.RecordTtlLimit|LimitExceeded.SubdomainLevelLimit", Invalid},
	{"LimitExceeded*", Quota},
	{"RequestLimitExceeded*|FailedOperation.FrequencyLimit", Throttled},
	{"InternalError*|FailedOperation.TemporaryError|InvalidParameter.OperateFailed", Temporary},
	{"FailedOperation.UnknowError", Temporary}, // the vendor's spelling
}

func (v tencentCloud) do(ctx context.Context, action string, parameters, out any) error {
	c := call{name: action, method: http.MethodPost, data: parameters, header: map[string]string{
		"X-TC-Action": action, "X-TC-Version": tencentVersion, "X-TC-Language": "en-US",
	}}
	return v.ask(ctx, c, func(r *http.Request, body []byte) { signTC3(r, body, v.Key, v.now()) }, openTencent, out)
}

// openTencent opens an answer, which always has a request id.
func openTencent(ans answer) (reply, error) {
	var envelope struct{ Response json.RawMessage }
	var head struct {
		RequestId string
		Error     struct{ Code, Message string }
	}
	err := json.Unmarshal(ans.body, &envelope)
	if err == nil {
		err = json.Unmarshal(envelope.Response, &head)
	}
	failed := head.Error.Code != "" || ans.status != http.StatusOK
	if err == nil && !failed && head.RequestId == "" {
		err = msg.Errorf("no RequestId, which every answer has")
	}
	return reply{verdict{head.Error.Code, head.Error.Message, head.RequestId}, failed, tencentErrors, envelope.Response}, err
}

// tencentDomain is a zone: its name as entered, perhaps in Unicode, and in A-labels.
type tencentDomain struct {
	DomainId              json.Number
	Name, Punycode, Grade string
	EffectiveDNS          []string
}

func (d tencentDomain) zone() zone {
	name := dns.Parse(cmp.Or(d.Punycode, d.Name))
	return zone{id: d.Name, unique: d.DomainId.String(), name: name, minTTL: tencentMinTTL, plan: d.Grade, servers: d.EffectiveDNS}
}

// search lists the zones whose names contain part.
func (v tencentCloud) search(ctx context.Context, part string) pageOf[zone] {
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

// find asks for the zone itself if a search does not serve. A search by A-labels is not documented.
func (v tencentCloud) find(ctx context.Context, name string) (z zone, found bool, err error) {
	zones, err := paged(v.search(ctx, name))
	if z, found = pick(zones, name); !found && (KindOf(err) == tooMany || err == nil && strings.Contains(name, "xn--")) {
		z, err = v.describe(ctx, name)
		found = err == nil && z.name == name
	}
	return z, found, unless(ZoneNotFound, err)
}

// describe asks for a zone by its exact name.
func (v tencentCloud) describe(ctx context.Context, name string) (zone, error) {
	var answer struct {
		DomainInfo struct {
			DomainId                json.Number
			Domain, Punycode, Grade string
			DnspodNsList            []string
		}
	}
	err := v.do(ctx, "DescribeDomain", struct{ Domain string }{name}, &answer)
	i := answer.DomainInfo
	return tencentDomain{i.DomainId, i.Domain, i.Punycode, i.Grade, i.DnspodNsList}.zone(), err
}

// details asks for the least TTL in the zone's plan.
func (v tencentCloud) details(ctx context.Context, z zone) zone {
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

type tencentRecord struct {
	RecordId                                json.Number
	Name, Type, Value, Line, LineId, Status string
	TTL                                     uint32
	Weight                                  any // of an address; null if it has none, and 0 takes it out
}

// entry is off if the record is disabled or not for every resolver.
func (e tencentRecord) entry() entry {
	enabled := (e.Status == "ENABLE" || e.Status == "") && fmt.Sprint(e.Weight) != "0"
	off := !enabled || e.LineId != tencentLineID && (e.LineId != "" || e.Line != tencentLine)
	return entry{id: e.RecordId.String(), host: e.Name, kind: e.Type, text: e.Value, ttl: e.TTL, off: off}
}

// entries sends Subdomain, although writes send SubDomain. The API ignores unknown parameters: the wrong
// one would list the whole zone, or write to its apex.
func (v tencentCloud) entries(ctx context.Context, z zone, host, kind string) pageOf[entry] {
	return func(_, given int) ([]entry, *int, error) {
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
		}{z.id, host, kind, given, tencentPageSize}, &answer)
		if KindOf(err) == gone {
			return nil, new(int), nil // the vendor reports an empty list, or page, as an error
		}
		return as(answer.RecordList, tencentRecord.entry), answer.RecordCountInfo.TotalCount, err
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

// write sends SubDomain also with a change, which would else move the record to the apex.
func (v tencentCloud) write(ctx context.Context, z zone, e entry) error {
	action := "CreateRecord"
	if e.id != "" {
		action = "ModifyRecord"
	}
	return v.do(ctx, action, struct {
		Domain, SubDomain, RecordType, RecordLine, Value string
		TTL                                              uint32
		RecordId                                         json.Number `json:",omitempty"`
	}{z.id, e.host, e.kind, tencentLine, e.text, e.ttl, json.Number(e.id)}, nil)
}

func (v tencentCloud) erase(ctx context.Context, z zone, id string) error {
	return v.do(ctx, "DeleteRecord", struct {
		Domain   string
		RecordId json.Number
	}{z.id, json.Number(id)}, nil)
}
