package provider

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/msg"
)

// baiduCloud is Baidu AI Cloud DNS, API version 1, signed with bce-auth-v1. It stores values without
// quotes, one value a record. It accepts a second record with the same value: no error code for that
// is documented.
type baiduCloud struct{ api *api }

const (
	baiduEndpoint = "https://dns.baidubce.com"
	baiduZones    = "/v1/dns/zone"
	baiduMaxValue = 512 // octets; not documented
	baiduPageSize = 1000
	baiduLine     = "default"
	baiduAuth     = "bce-auth-v1"
	baiduExpiry   = "1800" // seconds that a signature is valid
)

// baiduMinTTL returns the least TTL, in seconds, of a zone by its product version. The documentation
// names three versions and not their spelling in the API; the vendor's client has "discount".
func baiduMinTTL(productVersion string) uint32 {
	switch strings.ToLower(productVersion) {
	case "enterprise":
		return 1
	case "discount", "puhui":
		return 120
	}
	return 300
}

// NewBaiduCloud makes a client of Baidu AI Cloud DNS. The key pair is Access Key and Secret Key of an
// account that has passed the vendor's real-name check. It needs the rights to list zones, and to
// list, create, update and delete their records.
func NewBaiduCloud(c Credentials) (*Client, error) {
	return openRecords(baiduEndpoint, c, func(a *api) recordVendor { return &baiduCloud{a} })
}

// bceAuthorization signs a request over the named headers. The signature covers the body only by a
// header with its MD5.
func bceAuthorization(r *http.Request, signed []string, key Credentials, at time.Time) string {
	scope := strings.Join([]string{baiduAuth, key.AccessKeyID, at.UTC().Format(extendedTime), baiduExpiry}, "/")
	derived := hex.EncodeToString(hmacSHA256([]byte(key.AccessKeySecret), scope)) // the hex text is the key
	lines := []string{r.Method, r.URL.EscapedPath(), canonicalQuery(r.URL.Query())}
	for _, name := range signed {
		lines = append(lines, escape(name)+":"+escape(headerValue(r, name)))
	}
	signature := hmacSHA256([]byte(derived), strings.Join(lines, "\n"))
	return scope + "/" + strings.Join(signed, ";") + "/" + hex.EncodeToString(signature)
}

// sign adds the hash of the body and the signature to a request.
func (v *baiduCloud) sign(r *http.Request, body []byte) {
	at := v.api.now()
	signed := []string{"content-type", "host", "x-bce-date"}
	if len(body) > 0 {
		sum := md5.Sum(body)
		r.Header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
		signed = append([]string{"content-length", "content-md5"}, signed...)
	}
	r.Header.Set("X-Bce-Date", at.UTC().Format(extendedTime))
	r.Header.Set("Authorization", bceAuthorization(r, signed, v.api.Key, at))
}

// baiduErrors are the codes that all services of the vendor have. Those of the DNS service are not
// documented: the patterns at the end are a guess.
var baiduErrors = codeKinds{
	{"InvalidAccessKeyId", BadCredentials},
	{"InvalidHTTPAuthHeader", BadCredentials},
	{"SignatureDoesNotMatch", BadCredentials},
	{"AccessDenied", Permission},
	{"QualifyNotPass", Permission},
	{"OptInRequired", Permission},
	{"RequestExpired", ClockSkew},
	{"InternalError", Temporary},
	{"ServiceUnavailable", Temporary},
	{"MalformedJSON", Invalid},
	{"InappropriateJSON", Invalid},
	{"InvalidHTTPRequest", Invalid},
	{"InvalidURI", Invalid},
	{"InvalidVersion", Invalid},
	{"PreconditionFailed", Invalid},
	{"IdempotentParameterMismatch", Invalid},
	{"*Quota*", Quota},
	{"*Duplicate*", exists},
	{"*AlreadyExist*", exists},
	{"*Conflict*", Conflict},
}

// do makes a call and parses its answer into out, unless that is nil. missing is the kind of a "not
// found".
func (v *baiduCloud) do(ctx context.Context, c call, missing Kind, out any) error {
	c.header = map[string]string{"Content-Type": "application/json;charset=utf-8"}
	ans, err := v.api.send(ctx, c, v.sign)
	if err != nil {
		return err
	}
	body := bytes.TrimSpace(ans.body)
	if len(body) == 0 && out == nil && ans.status == http.StatusOK {
		return nil // every write has an empty answer
	}
	var failure *struct{ Code, Message, RequestID string }
	err = json.Unmarshal(body, &failure)
	switch {
	case err != nil:
	case failure == nil:
		err = errNotTheirs
	case failure.Code != "" || ans.status != http.StatusOK:
		kinds := baiduErrors
		if ans.status == http.StatusNotFound || strings.HasPrefix(failure.Code, "NoSuch") {
			kinds = append(slices.Clip(kinds), codeKinds{{"*", missing}}...)
		}
		return v.api.refused(c, ans, verdict{failure.Code, failure.Message, failure.RequestID}, kinds)
	case out != nil:
		err = json.Unmarshal(body, out)
	}
	return v.api.unreadable(c, ans, err)
}

// baiduPage is the common part of the pages of all lists.
type baiduPage struct {
	IsTruncated *bool // present in every list
	NextMarker  string
}

// baiduPaged reads all pages; each page names the next one.
func baiduPaged(query url.Values, pages int, fetch func(query url.Values) (page baiduPage, err error)) error {
	query.Set("maxKeys", strconv.Itoa(baiduPageSize))
	for range pages {
		page, err := fetch(query)
		if err != nil {
			return err
		}
		if page.IsTruncated == nil {
			return &Error{Kind: BadAnswer, Err: errNotTheirs}
		}
		if !*page.IsTruncated {
			return nil
		}
		if page.NextMarker == "" || page.NextMarker == query.Get("marker") {
			return &Error{Kind: BadAnswer, Detail: msg.Say("the list goes on, but the answer does not say where")}
		}
		query.Set("marker", page.NextMarker)
	}
	return manyPages(tooMany, pages)
}

// zone searches among the zones whose names contain this one. The API tells no name servers.
func (v *baiduCloud) zone(ctx context.Context, name string) (z zone, found bool, err error) {
	zones, err := v.zonesWhere(ctx, url.Values{"name": {name}}, maxPages)
	z, found = pick(zones, name)
	return z, found, err
}

func (v *baiduCloud) zones(ctx context.Context) ([]zone, error) {
	return v.zonesWhere(ctx, url.Values{}, zonePages)
}

// zonesWhere returns the zones that a search finds on at most so many pages.
func (v *baiduCloud) zonesWhere(ctx context.Context, search url.Values, pages int) (zones []zone, err error) {
	err = baiduPaged(search, pages, func(query url.Values) (baiduPage, error) {
		var answer struct {
			baiduPage
			Zones []struct{ ID, Name, ProductVersion string }
		}
		err := v.do(ctx, call{name: "ListZone", method: http.MethodGet, path: baiduZones, query: query}, Invalid, &answer)
		for _, e := range answer.Zones {
			zones = append(zones, zone{id: e.Name, unique: e.ID, name: dnsname.Fold(e.Name), minTTL: baiduMinTTL(e.ProductVersion)})
		}
		return answer.baiduPage, err
	})
	if err != nil {
		return nil, err
	}
	return zones, nil
}

// baiduRecord is a record in a list.
type baiduRecord struct {
	ID, RR, Status, Type, Value, Line string
	TTL                               uint32
}

// off reports whether the record is not for every resolver.
func (r baiduRecord) off() bool {
	return r.Status != "" && r.Status != "running" || r.Line != "" && r.Line != baiduLine
}

// list selects the TXT records among all records at the name. An alias there is a conflict, except
// beside values, which can be removed.
func (v *baiduCloud) list(ctx context.Context, z zone, at setKey) (set recordSet, err error) {
	sets := newZoneSets(nil, at.kind)
	err = v.records(ctx, z, url.Values{"rr": {relative(at.name, z)}}, sets)
	return sets.of(at), err
}

func (v *baiduCloud) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	return v.records(ctx, z, url.Values{}, sets)
}

// records collects the records that a search finds.
func (v *baiduCloud) records(ctx context.Context, z zone, search url.Values, sets *zoneSets) error {
	seen := newMarks()
	return baiduPaged(search, maxPages, func(query url.Values) (baiduPage, error) {
		var answer struct {
			baiduPage
			Records []baiduRecord
		}
		err := v.do(ctx, call{name: "ListRecord", method: http.MethodGet, path: baiduRecords(z), query: query}, ZoneNotFound, &answer)
		for _, r := range answer.Records {
			if seen.again(r.ID) {
				return answer.baiduPage, &Error{Kind: Changed, Detail: msg.Say("the list changes while it is read: an item is on two pages")}
			}
			sets.entry(oldEntry{record{id: r.ID, value: cutTXT(r.Value), ttl: r.TTL, off: r.off()}, absolute(r.RR, z), r.Type, r.Value})
		}
		return answer.baiduPage, err
	})
}

// baiduRecords returns the path of a zone's records.
func baiduRecords(z zone) string { return baiduZones + "/" + escape(z.id) + "/record" }

// baiduChange is the body of a write.
type baiduChange struct {
	RR    string `json:"rr"`
	Type  string `json:"type"`
	Value string `json:"value"`
	TTL   uint32 `json:"ttl"`
	Line  string `json:"line,omitempty"` // only for a new record
}

// write makes a call that changes a record. With the client token the vendor recognises a repeated
// request.
func (v *baiduCloud) write(ctx context.Context, c call, missing Kind, change *baiduChange) error {
	c.query = url.Values{"clientToken": {v.api.nonce()}}
	if change != nil {
		if err := c.json(change); err != nil {
			return err
		}
	}
	return v.do(ctx, c, missing, nil)
}

func (v *baiduCloud) create(ctx context.Context, z zone, at setKey, value Value, ttl uint32) error {
	c := call{name: "CreateRecord", method: http.MethodPost, path: baiduRecords(z)}
	return v.write(ctx, c, ZoneNotFound, &baiduChange{relative(at.name, z), string(at.kind), value.Text(), ttl, baiduLine})
}

func (v *baiduCloud) update(ctx context.Context, z zone, at setKey, old record, value Value, ttl uint32) error {
	c := call{name: "UpdateRecord", method: http.MethodPut, path: baiduRecords(z) + "/" + escape(old.id)}
	return v.write(ctx, c, gone, &baiduChange{RR: relative(at.name, z), Type: string(at.kind), Value: value.Text(), TTL: ttl})
}

func (v *baiduCloud) remove(ctx context.Context, z zone, _ setKey, old record) error {
	return v.write(ctx, call{name: "DeleteRecord", method: http.MethodDelete, path: baiduRecords(z) + "/" + escape(old.id)}, gone, nil)
}

// fits refuses values that other vendors without quotes are known to change. The behaviour of this
// vendor is not documented.
func (v *baiduCloud) fits(_ Type, value Value) error { return plainText(value, baiduMaxValue, `"\`) }
