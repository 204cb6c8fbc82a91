package cloudtest

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Volcengine is Volcengine TrafficRoute DNS, API version 2018-08-01. It knows
// no nonces, and its private zones are another service.
func Volcengine(t testing.TB) *Cloud {
	return start(t, &Cloud{
		Provider: "volcengine", Signed: true, AccessKeyID: "AKLTFAKEFAKEFAKEFAKEFAKEFAKE", AccessKeySecret: "RmFrZVNlY3JldEZha2VTZWNyZXQ=", MinTTL: 600,
	}, vendor{
		authorize: volcAuthorize, serve: volcServe, spell: spellPlain, read: readPlain,
		throttle: volcFailure(http.StatusTooManyRequests, "FlowLimitExceeded", "Request was rejected because the request speed of this openAPI is beyond the current flow control limit."),
	})
}

func volcEnvelope(result, failure any) map[string]any {
	meta := map[string]any{"RequestId": "20230411150314CE53198BCFE9484824BA", "Version": "2018-08-01", "Service": "dns", "Region": "cn-beijing"}
	if failure != nil {
		meta["Error"] = failure
		return map[string]any{"ResponseMetadata": meta}
	}
	return map[string]any{"ResponseMetadata": meta, "Result": result}
}

func volcResult(result any) Answer { return JSON(http.StatusOK, volcEnvelope(result, nil)) }

func volcFailure(status int, code, message string) Answer {
	return JSON(status, volcEnvelope(nil, map[string]any{"Code": code, "CodeN": 1000 * status, "Message": message}))
}

var volcAuthorization = regexp.MustCompile(`^HMAC-SHA256 Credential=([^/]+)/([0-9]{8})/([^/]+)/([^/]+)/request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$`)

// volcAuthorize computes the signature from the raw query and the headers. Any
// region will do.
func volcAuthorize(c *Cloud, r Request) *Answer {
	fail := func(status int, code, message string) *Answer { return new(volcFailure(status, code, message)) }
	parts := volcAuthorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if parts == nil {
		return fail(http.StatusUnauthorized, "MissingAuthenticationToken", "Request is missing Authentication Token.")
	}
	if parts[1] != c.AccessKeyID {
		return fail(http.StatusUnauthorized, "InvalidAccessKey", "The accesskey ["+parts[1]+"] included in the request is invalid.")
	}
	date := r.Header.Get("X-Date")
	at, err := time.Parse("20060102T150405Z", date)
	if err != nil || c.now().Sub(at).Abs() > 3*MaxSkew || !strings.HasPrefix(date, parts[2]) {
		return fail(http.StatusBadRequest, "InvalidTimestamp", "The signature of the request is expired.")
	}
	names := strings.Split(parts[5], ";")
	for _, must := range []string{"host", "x-date", "x-content-sha256", "content-type"} {
		if !slices.Contains(names, must) {
			return fail(http.StatusUnauthorized, "SignatureDoesNotMatch", must+" is not signed")
		}
	}
	scope := strings.Join([]string{parts[2], parts[3], parts[4], "request"}, "/")
	key := mac(mac(mac(mac([]byte(c.AccessKeySecret), parts[2]), parts[3]), "dns"), "request")
	text := "HMAC-SHA256\n" + date + "\n" + scope + "\n" + sha256Hex(requestText(r, "/", names))
	if hex.EncodeToString(mac(key, text)) != parts[6] || r.Header.Get("X-Content-Sha256") != sha256Hex(string(r.Body)) {
		return fail(http.StatusUnauthorized, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	}
	return nil
}

func volcServe(c *Cloud, r Request) Answer {
	serve := map[string]func(*Cloud, Request) Answer{
		"GET ListZones": volcZones, "GET QueryZone": volcZone, "GET ListRecords": volcList,
		"POST CreateRecord": volcCreate, "POST UpdateRecord": volcUpdate, "POST DeleteRecord": volcDelete,
	}[r.Method+" "+r.Query("Action")]
	if serve == nil || r.Path != "/" || r.Query("Version") != "2018-08-01" {
		return volcFailure(http.StatusNotFound, "InvalidActionOrVersion", "Could not find operation "+r.Query("Action")+" for version "+r.Query("Version")+".")
	}
	return serve(c, r)
}

// volcZones searches for a part of the name unless the mode is exact.
func volcZones(c *Cloud, r Request) Answer {
	found := []any{}
	for _, z := range c.zones {
		if !z.private && (z.name == r.Query("Key") || r.Query("SearchMode") != "exact" && strings.Contains(z.name, r.Query("Key"))) {
			found = append(found, map[string]any{"ZID": z.id, "ZoneName": z.name, "RecordCount": 2, "TradeCode": "free_inner"})
		}
	}
	shown := page(found, number(r.Query("PageNumber")), c.size(number(r.Query("PageSize")), 20, 500))
	return volcResult(map[string]any{"Total": len(found), "Zones": shown})
}

func (c *Cloud) volcZoneWith(id int) (zone, bool) {
	return c.zoneWhere(func(z zone) bool { return z.id == id && !z.private })
}

func volcNoZone() Answer {
	return volcFailure(http.StatusBadRequest, "ErrZoneNotFound", "zone not found")
}

func volcZone(c *Cloud, r Request) Answer {
	z, ok := c.volcZoneWith(number(r.Query("ZID")))
	if !ok {
		return volcNoZone()
	}
	return volcResult(map[string]any{"ZoneName": z.name, "TradeCode": "free_inner", "AllocateDNSServerList": []string{"ns1.volcdns.test", "ns2.volcdns.test"}})
}

// volcList searches for a part of the host unless the mode is exact.
func volcList(c *Cloud, r Request) Answer {
	z, ok := c.volcZoneWith(number(r.Query("ZID")))
	switch {
	case !ok:
		return volcNoZone()
	case number(r.Query("PageSize")) > 500:
		return volcFailure(http.StatusBadRequest, "ErrPageSizeNotValid", "page size must be less than 500 when search")
	}
	records := c.at(z.name, fullName(r.Query("Host"), z.name), r.Query("Type"))
	if r.Query("SearchMode") != "exact" || r.Query("Host") == "" {
		records = slices.DeleteFunc(c.at(z.name, "", r.Query("Type")), func(one *record) bool { return !strings.Contains(one.name, r.Query("Host")) })
	}
	shown := []any{}
	for _, one := range page(records, number(r.Query("PageNumber")), c.size(number(r.Query("PageSize")), 20, 500)) {
		shown = append(shown, volcShown(one))
	}
	return volcResult(map[string]any{"TotalCount": len(records), "PageNumber": number(r.Query("PageNumber")), "PageSize": len(shown), "Records": shown})
}

func volcShown(r *record) map[string]any {
	return map[string]any{
		"RecordID": strconv.Itoa(r.id), "Host": relativeName(r.name, r.zone), "PQDN": r.name, "FQDN": r.name + ".",
		"Type": r.kind, "Value": r.content, "TTL": r.ttl, "Line": "default", "Weight": 1, "Enable": !r.off,
	}
}

// volcChange is the body of any write.
type volcChange struct {
	ZID                               int
	RecordID, Host, Type, Value, Line string
	TTL                               uint32
}

// volcChanged reads a body; numbers and texts must be such.
func volcChanged(r Request) (change volcChange, failure *Answer) {
	if err := json.Unmarshal(r.Body, &change); err != nil || r.Header.Get("Content-Type") != "application/json" {
		a := volcFailure(http.StatusBadRequest, "ErrParsingParams", "parsing params error")
		return change, &a
	}
	return change, nil
}

// volcRefusal checks what a record is to be. Beside an alias only the zone's
// own name takes a TXT record; the code for that is not documented.
func volcRefusal(c *Cloud, id int, name string, change volcChange) *Answer {
	fail := func(status int, code, message string) *Answer { return new(volcFailure(status, code, message)) }
	same := c.same(name, "TXT", change.Value)
	switch {
	case change.Host == "":
		return fail(http.StatusBadRequest, "ErrHostCanNotBeEmpty", "host can't be empty, use @ instead")
	case change.Value == "" || change.Type != "TXT" || change.Line != "default" || change.TTL < c.MinTTL:
		return fail(http.StatusBadRequest, "ErrParamInvalid", "validation fail: record")
	case c.aliased(name) && change.Host != "@":
		return fail(http.StatusBadRequest, "ErrParamInvalid", "validation fail: the record conflicts with another")
	case same != nil && same.id != id:
		return fail(http.StatusConflict, "ErrDBDuplicated", "duplicated: "+change.Host)
	}
	return nil
}

func volcCreate(c *Cloud, r Request) Answer {
	change, failure := volcChanged(r)
	if failure != nil {
		return *failure
	}
	z, ok := c.volcZoneWith(change.ZID)
	if !ok {
		return volcNoZone()
	}
	name := fullName(change.Host, z.name)
	if refusal := volcRefusal(c, 0, name, change); refusal != nil {
		return *refusal
	}
	return volcResult(volcShown(c.insert(name, "TXT", change.Value, change.TTL)))
}

func volcNoRecord(id string) Answer {
	return volcFailure(http.StatusBadRequest, "ErrDBNotFound", "record not found :"+id)
}

func volcUpdate(c *Cloud, r Request) Answer {
	change, failure := volcChanged(r)
	if failure != nil {
		return *failure
	}
	old := c.record(number(change.RecordID))
	if old == nil {
		return volcNoRecord(change.RecordID)
	}
	name := fullName(change.Host, old.zone)
	if refusal := volcRefusal(c, old.id, name, change); refusal != nil {
		return *refusal
	}
	c.changes++
	old.name, old.content, old.ttl = name, change.Value, change.TTL
	return volcResult(volcShown(old))
}

func volcDelete(c *Cloud, r Request) Answer {
	change, failure := volcChanged(r)
	switch {
	case failure != nil:
		return *failure
	case !c.delete(number(change.RecordID)):
		return volcNoRecord(change.RecordID)
	}
	return volcResult(map[string]any{})
}
