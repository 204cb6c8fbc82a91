package provider

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// volcengine is Volcengine TrafficRoute DNS, API version 2018-08-01: one call per action, lists by GET
// with the parameters in the query, writes by POST of JSON, signed nearly like AWS. It stores values
// without quotes, one value a record. Private zones belong to another service and do not appear here.
type volcengine struct{ *api }

const (
	volcEndpoint = "https://open.volcengineapi.com"
	volcVersion  = "2018-08-01"
	volcMinTTL   = 600 // seconds, in the free plan; the least TTL of paid plans is not documented
	volcPageSize = 500 // the greatest page that the API accepts
	volcZonePage = 100 // zones on a page
	volcLine     = "default"
)

// volcScope has a fixed region, because the service is the same in all regions.
var volcScope = scoped{algorithm: "HMAC-SHA256", region: "cn-beijing", service: "dns", term: "request"}

// NewVolcengine makes a client of Volcengine DNS. The key pair is Access Key ID and Secret Access Key;
// the secret looks like base64, and is used as it is shown. The key needs the rights dns:ListZones,
// ListRecords, CreateRecord, UpdateRecord and DeleteRecord, and QueryZone to read the name servers.
func NewVolcengine(c Credentials) (*Client, error) {
	return openRecords(volcEndpoint, c, volcRecords)
}

// volcRecords is the vendor's table. It refuses values that other vendors without quotes are known to
// change. The behaviour and the greatest length of this vendor are not documented.
func volcRecords(a *api) *records {
	v := volcengine{a}
	return &records{
		api: a, has: []Type{TXT}, read: cutTXT, longest: 512, damaged: `"\`,
		search: v.search, details: v.details, entries: v.entries, write: v.write, erase: v.erase,
	}
}

// signVolcengine signs a request whose content type is set.
func signVolcengine(r *http.Request, body []byte, key Credentials, at time.Time) {
	r.Header.Set("X-Content-Sha256", hexSHA256(body))
	r.Header.Set("X-Date", at.UTC().Format(basicTime))
	signed := []string{"content-type", "host", "x-content-sha256", "x-date"}
	r.Header.Set("Authorization", volcScope.authorization(r, r.URL.EscapedPath(), signed, body, key, at))
}

// volcErrors are the codes of the gateway, and then those of the service, which all begin with Err.
var volcErrors = codeKinds{
	{"InvalidAccessKey|InvalidCredential|InvalidAuthorization|InvalidSecretToken", BadCredentials},
	{"SignatureDoesNotMatch|MissingAuthenticationToken|MissingSignature", BadCredentials},
	{"InvalidTimestamp", ClockSkew},
	{"AccessDenied*|LackPolicy", Permission},
	{"*FlowLimitExceeded", Throttled},
	{"Internal*|ServiceUnavailable*", Temporary},
	{"ErrInternalServer", Temporary},
	{"ErrParsingParams|ErrParamInvalid|ErrHostCanNotBeEmpty|ErrPageSizeNotValid|ErrNamesNotMatch", Invalid},
	{"ErrDBDuplicated", exists},
	{"ErrDBNotFound", gone},
	{"ErrZoneNotFound", ZoneNotFound},
	{"ErrQuotaExceeded|Err*CountLimited", Quota},
}

// volcMissing are the codes of calls that change nothing: "not found" means the zone.
var volcMissing = codeKinds{{"ErrDBNotFound", ZoneNotFound}}

// get makes a call that changes nothing and parses its result into out.
func (v volcengine) get(ctx context.Context, action string, parameters url.Values, out any) error {
	return v.do(ctx, call{name: action, method: http.MethodGet, query: parameters}, slices.Concat(volcMissing, volcErrors), out)
}

// post makes a call that changes a record, and ignores its result.
func (v volcengine) post(ctx context.Context, action string, parameters map[string]any) error {
	return v.do(ctx, call{name: action, method: http.MethodPost, data: parameters}, volcErrors, nil)
}

// do makes a call. The error code in the answer decides before the HTTP status.
func (v volcengine) do(ctx context.Context, c call, kinds codeKinds, out any) error {
	query := url.Values{"Action": {c.name}, "Version": {volcVersion}}
	maps.Copy(query, c.query)
	c.query, c.header = query, map[string]string{"Content-Type": "application/json"}
	sign := func(r *http.Request, body []byte) { signVolcengine(r, body, v.Key, v.now()) }
	return v.ask(ctx, c, sign, func(ans answer) (reply, error) {
		var envelope struct {
			ResponseMetadata *struct {
				RequestId string
				Error     struct{ Code, Message string }
			}
			Result json.RawMessage
		}
		err := json.Unmarshal(ans.body, &envelope)
		meta := envelope.ResponseMetadata
		if err == nil && meta == nil {
			err = msg.Errorf("no ResponseMetadata")
		}
		if err != nil {
			return reply{}, err
		}
		failed := meta.Error.Code != "" || ans.status != http.StatusOK
		if !failed && out != nil && (len(envelope.Result) == 0 || string(envelope.Result) == "null") {
			err = msg.Errorf("no Result")
		}
		return reply{verdict{meta.Error.Code, meta.Error.Message, meta.RequestId}, failed, kinds, envelope.Result}, err
	}, out)
}

type volcZone struct {
	ZID      int64
	ZoneName string
}

func (e volcZone) zone() zone {
	id := strconv.FormatInt(e.ZID, 10)
	return zone{id: id, unique: id, name: dns.Parse(e.ZoneName), minTTL: volcMinTTL}
}

// search may return other names too, even if it is exact.
func (v volcengine) search(ctx context.Context, name string) pageOf[zone] {
	query := url.Values{"Key": {name}, "SearchMode": {"exact"}}
	if name == "" {
		query = url.Values{"PageSize": {strconv.Itoa(volcZonePage)}}
	}
	return func(page, _ int) ([]zone, *int, error) {
		if page > 1 {
			query.Set("PageNumber", strconv.Itoa(page))
		}
		var answer struct {
			Total *int
			Zones []volcZone
		}
		err := v.get(ctx, "ListZones", query, &answer)
		return as(answer.Zones, volcZone.zone), answer.Total, err
	}
}

// details asks for the zone's name servers.
func (v volcengine) details(ctx context.Context, z zone) zone {
	var info struct{ AllocateDNSServerList []string }
	if v.get(ctx, "QueryZone", url.Values{"ZID": {z.id}}, &info) == nil {
		z.servers = info.AllocateDNSServerList // without the right to ask, they stay unknown
	}
	return z
}

// volcRecord is a record in a list.
type volcRecord struct {
	RecordID, Host, Type, Value, Line string
	TTL                               uint32
	Enable                            *bool
}

// entry uses the default line for a record without one. The documentation spells the line in two ways.
func (r volcRecord) entry() entry {
	off := r.Line != "" && !strings.EqualFold(r.Line, volcLine) || r.Enable != nil && !*r.Enable
	return entry{id: r.RecordID, host: r.Host, kind: r.Type, text: r.Value, ttl: r.TTL, off: off}
}

func (v volcengine) entries(ctx context.Context, z zone, host, kind string) pageOf[entry] {
	query := url.Values{"ZID": {z.id}, "Type": {kind}}
	if host != "" {
		query.Set("Host", host)
		query.Set("SearchMode", "exact")
	}
	return func(page, _ int) ([]entry, *int, error) {
		var answer struct {
			TotalCount *int
			Records    []volcRecord
		}
		query.Set("PageNumber", strconv.Itoa(page))
		query.Set("PageSize", strconv.Itoa(volcPageSize))
		err := v.get(ctx, "ListRecords", query, &answer)
		return as(answer.Records, volcRecord.entry), answer.TotalCount, err
	}
}

func (v volcengine) write(ctx context.Context, z zone, e entry) error {
	action, body := "CreateRecord", map[string]any{"Host": e.host, "Type": e.kind, "Value": e.text, "TTL": e.ttl, "Line": volcLine}
	if e.id != "" {
		action, body["RecordID"] = "UpdateRecord", e.id
	} else {
		body["ZID"] = json.Number(z.id)
	}
	return v.post(ctx, action, body)
}

func (v volcengine) erase(ctx context.Context, _ zone, id string) error {
	return v.post(ctx, "DeleteRecord", map[string]any{"RecordID": id})
}
