package provider

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/msg"
)

// volcengine is Volcengine TrafficRoute DNS, API version 2018-08-01: one call per action, lists by GET
// with the parameters in the query, writes by POST of JSON, signed nearly like AWS. It stores values
// without quotes, one value a record. Private zones belong to another service and do not appear here.
type volcengine struct{ api *api }

const (
	volcEndpoint = "https://open.volcengineapi.com"
	volcVersion  = "2018-08-01"
	volcMinTTL   = 600 // seconds, in the free plan; the least TTL of paid plans is not documented
	volcMaxValue = 512 // octets; not documented
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
	return openRecords(volcEndpoint, c, func(a *api) recordVendor { return &volcengine{a} })
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
	{"InvalidAccessKey", BadCredentials},
	{"InvalidCredential", BadCredentials},
	{"InvalidAuthorization", BadCredentials},
	{"InvalidSecretToken", BadCredentials},
	{"SignatureDoesNotMatch", BadCredentials},
	{"MissingAuthenticationToken", BadCredentials},
	{"MissingSignature", BadCredentials},
	{"InvalidTimestamp", ClockSkew},
	{"AccessDenied*", Permission},
	{"LackPolicy", Permission},
	{"*FlowLimitExceeded", Throttled},
	{"Internal*", Temporary},
	{"ServiceUnavailable*", Temporary},
	{"ErrInternalServer", Temporary},
	{"ErrParsingParams", Invalid},
	{"ErrParamInvalid", Invalid},
	{"ErrHostCanNotBeEmpty", Invalid},
	{"ErrPageSizeNotValid", Invalid},
	{"ErrNamesNotMatch", Invalid},
	{"ErrDBDuplicated", exists},
	{"ErrDBNotFound", gone},
	{"ErrZoneNotFound", ZoneNotFound},
	{"ErrQuotaExceeded", Quota},
	{"Err*CountLimited", Quota},
}

// read makes a call that changes nothing and parses its result into out. "Not found" means the zone.
func (v *volcengine) read(ctx context.Context, action string, parameters url.Values, out any) error {
	err := v.do(ctx, call{name: action, method: http.MethodGet, query: parameters}, out)
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == gone {
		e.Kind = ZoneNotFound
	}
	return err
}

// write makes a call that changes a record, and ignores its result.
func (v *volcengine) write(ctx context.Context, action string, parameters map[string]any) error {
	c := call{name: action, method: http.MethodPost}
	if err := c.json(parameters); err != nil {
		return err
	}
	return v.do(ctx, c, nil)
}

// do makes a call. The error code in the answer decides before the HTTP status.
func (v *volcengine) do(ctx context.Context, c call, out any) error {
	query := url.Values{"Action": {c.name}, "Version": {volcVersion}}
	maps.Copy(query, c.query)
	c.query, c.header = query, map[string]string{"Content-Type": "application/json"}
	ans, err := v.api.send(ctx, c, func(r *http.Request, body []byte) { signVolcengine(r, body, v.api.Key, v.api.now()) })
	if err != nil {
		return err
	}
	var envelope struct {
		ResponseMetadata *struct {
			RequestId string
			Error     struct{ Code, Message string }
		}
		Result json.RawMessage
	}
	err = json.Unmarshal(ans.body, &envelope)
	meta := envelope.ResponseMetadata
	switch {
	case err != nil:
	case meta == nil:
		err = msg.Errorf("no ResponseMetadata")
	case meta.Error.Code != "" || ans.status != http.StatusOK:
		return v.api.refused(c, ans, verdict{meta.Error.Code, meta.Error.Message, meta.RequestId}, volcErrors)
	case out != nil && (len(envelope.Result) == 0 || string(envelope.Result) == "null"):
		err = msg.Errorf("no Result")
	case out != nil:
		err = json.Unmarshal(envelope.Result, out)
	}
	return v.api.unreadable(c, ans, err)
}

func (v *volcengine) zone(ctx context.Context, name string) (z zone, found bool, err error) {
	if z, found, err = v.listed(ctx, name); found {
		z = v.complete(ctx, z)
	}
	return z, found, err
}

// listed looks for the zone in the results of a search, because even an exact search may return other
// names.
func (v *volcengine) listed(ctx context.Context, name string) (z zone, found bool, err error) {
	zones, err := paged(v.pageOfZones(ctx, url.Values{"Key": {name}, "SearchMode": {"exact"}}))
	z, found = pick(zones, name)
	return z, found, err
}

// complete asks for the zone's name servers.
func (v *volcengine) complete(ctx context.Context, z zone) zone {
	var info struct{ AllocateDNSServerList []string }
	if v.read(ctx, "QueryZone", url.Values{"ZID": {z.id}}, &info) == nil {
		z.servers = info.AllocateDNSServerList // without the right to ask, they stay unknown
	}
	return z
}

type volcZone struct {
	ZID      int64
	ZoneName string
}

func (e volcZone) zone() zone {
	id := strconv.FormatInt(e.ZID, 10)
	return zone{id: id, unique: id, name: dnsname.Parse(e.ZoneName), minTTL: volcMinTTL}
}

func (v *volcengine) zones(ctx context.Context) ([]zone, error) {
	return zonesPaged(v.pageOfZones(ctx, url.Values{"PageSize": {strconv.Itoa(volcZonePage)}}))
}

// pageOfZones returns a page of the zones that a search finds.
func (v *volcengine) pageOfZones(ctx context.Context, search url.Values) pageOf[zone] {
	return func(page, _ int) ([]zone, *int, error) {
		if page > 1 {
			search.Set("PageNumber", strconv.Itoa(page))
		}
		var answer struct {
			Total *int
			Zones []volcZone
		}
		err := v.read(ctx, "ListZones", search, &answer)
		return as(answer.Zones, volcZone.zone), answer.Total, err
	}
}

// volcRecord is a record in a list.
type volcRecord struct {
	RecordID, Host, Type, Value, Line string
	TTL                               uint32
	Enable                            *bool
}

// entry uses the default line for a record without one. The documentation spells the line in two ways.
func (r volcRecord) entry(z zone) oldEntry {
	off := r.Line != "" && !strings.EqualFold(r.Line, volcLine) || r.Enable != nil && !*r.Enable
	return oldEntry{record{id: r.RecordID, value: cutTXT(r.Value), ttl: r.TTL, off: off}, absolute(r.Host, z), r.Type, r.Value}
}

func (v *volcengine) entries(ctx context.Context, z zone, name, kind string) pageOf[oldEntry] {
	query := url.Values{"ZID": {z.id}, "Type": {kind}}
	if name != "" {
		query.Set("Host", relative(name, z))
		query.Set("SearchMode", "exact")
	}
	return func(page, _ int) ([]oldEntry, *int, error) {
		var answer struct {
			TotalCount *int
			Records    []volcRecord
		}
		query.Set("PageNumber", strconv.Itoa(page))
		query.Set("PageSize", strconv.Itoa(volcPageSize))
		err := v.read(ctx, "ListRecords", query, &answer)
		return as(answer.Records, func(r volcRecord) oldEntry { return r.entry(z) }), answer.TotalCount, err
	}
}

func (v *volcengine) list(ctx context.Context, z zone, at setKey) (recordSet, error) {
	return listEntries(ctx, v, z, at)
}

func (v *volcengine) alias(ctx context.Context, z zone, name string) (string, error) {
	return aliasEntry(ctx, v, z, name)
}

func (v *volcengine) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	return listZoneEntries(ctx, v, z, sets)
}

func (v *volcengine) create(ctx context.Context, z zone, at setKey, value Value, ttl uint32) error {
	return v.write(ctx, "CreateRecord", map[string]any{
		"ZID": json.Number(z.id), "Host": relative(at.name, z), "Type": string(at.kind), "Value": value.Text(), "TTL": ttl, "Line": volcLine,
	})
}

func (v *volcengine) update(ctx context.Context, z zone, at setKey, old record, value Value, ttl uint32) error {
	return v.write(ctx, "UpdateRecord", map[string]any{
		"RecordID": old.id, "Host": relative(at.name, z), "Type": string(at.kind), "Value": value.Text(), "TTL": ttl, "Line": volcLine,
	})
}

func (v *volcengine) remove(ctx context.Context, _ zone, _ setKey, old record) error {
	return v.write(ctx, "DeleteRecord", map[string]any{"RecordID": old.id})
}

// fits refuses values that other vendors without quotes are known to change. The behaviour of this
// vendor is not documented.
func (v *volcengine) fits(_ Type, value Value) error { return plainText(value, volcMaxValue, `"\`) }
