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

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// baiduCloud is Baidu AI Cloud DNS, API version 1, signed with bce-auth-v1. It stores values without
// quotes, one value a record. It accepts a second record with the same value: no error code for that
// is documented.
type baiduCloud struct{ *api }

const (
	baiduEndpoint = "https://dns.baidubce.com"
	baiduZones    = "/v1/dns/zone"
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
	return openRecords(baiduEndpoint, c, baiduRecords)
}

// baiduRecords is the vendor's table. It refuses values that other vendors without quotes are known to
// change. The behaviour and the greatest length of this vendor are not documented. The API tells no name
// servers.
func baiduRecords(a *api) *records {
	v := baiduCloud{a}
	return &records{
		api: a, has: []Type{TXT}, read: cutTXT, longest: 512, damaged: `"\`, mixed: true,
		search: v.search, entries: v.entries, write: v.write, erase: v.erase,
	}
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
func (v baiduCloud) sign(r *http.Request, body []byte) {
	at := v.now()
	signed := []string{"content-type", "host", "x-bce-date"}
	if len(body) > 0 {
		sum := md5.Sum(body)
		r.Header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
		signed = append([]string{"content-length", "content-md5"}, signed...)
	}
	r.Header.Set("X-Bce-Date", at.UTC().Format(extendedTime))
	r.Header.Set("Authorization", bceAuthorization(r, signed, v.Key, at))
}

// baiduErrors are the codes that all services of the vendor have. Those of the DNS service are not
// documented: the patterns at the end are a guess.
var baiduErrors = codeKinds{
	{"InvalidAccessKeyId|InvalidHTTPAuthHeader|SignatureDoesNotMatch", BadCredentials},
	{"AccessDenied|QualifyNotPass|OptInRequired", Permission},
	{"RequestExpired", ClockSkew},
	{"InternalError|ServiceUnavailable", Temporary},
	{"MalformedJSON|InappropriateJSON|InvalidHTTPRequest|InvalidURI|InvalidVersion", Invalid},
	{"PreconditionFailed|IdempotentParameterMismatch", Invalid},
	{"*Quota*", Quota},
	{"*Duplicate*|*AlreadyExist*", exists},
	{"*Conflict*", Conflict},
}

// do makes a call and parses its answer into out, unless that is nil. missing is the kind of a "not
// found".
func (v baiduCloud) do(ctx context.Context, c call, missing Kind, out any) error {
	c.header = map[string]string{"Content-Type": "application/json;charset=utf-8"}
	return v.ask(ctx, c, v.sign, func(ans answer) (reply, error) {
		body := bytes.TrimSpace(ans.body)
		if len(body) == 0 && out == nil && ans.status == http.StatusOK {
			return reply{}, nil // every write has an empty answer
		}
		var head *struct{ Code, Message, RequestID string }
		err := json.Unmarshal(body, &head)
		if err == nil && head == nil {
			err = errNotTheirs
		}
		if err != nil {
			return reply{}, err
		}
		kinds := baiduErrors
		if ans.status == http.StatusNotFound || strings.HasPrefix(head.Code, "NoSuch") {
			kinds = append(slices.Clip(kinds), codeKinds{{"*", missing}}...)
		}
		return reply{verdict{head.Code, head.Message, head.RequestID}, head.Code != "" || ans.status != http.StatusOK, kinds, body}, nil
	}, out)
}

// baiduPage is a page of zones or of records. Each page names the next one.
type baiduPage struct {
	IsTruncated *bool // present in every list
	NextMarker  string
	Zones       []baiduZone
	Records     []baiduRecord
}

// baiduList returns a page of a list.
func baiduList[T any](ctx context.Context, v baiduCloud, c call, missing Kind, items func(baiduPage) []T) pageOf[T] {
	c.method = http.MethodGet
	c.query.Set("maxKeys", strconv.Itoa(baiduPageSize))
	return func(_, given int) ([]T, *int, error) {
		var page baiduPage
		err := v.do(ctx, c, missing, &page)
		total := given + len(items(page))
		switch {
		case err != nil:
			return nil, nil, err
		case page.IsTruncated == nil:
			return nil, nil, &Error{Kind: BadAnswer, Err: errNotTheirs}
		case *page.IsTruncated && (page.NextMarker == "" || page.NextMarker == c.query.Get("marker")):
			return nil, nil, &Error{Kind: BadAnswer, Detail: msg.Say("the list goes on, but the answer does not say where")}
		case *page.IsTruncated:
			c.query.Set("marker", page.NextMarker)
			total = -1
		}
		return items(page), &total, nil
	}
}

type baiduZone struct{ ID, Name, ProductVersion string }

func (e baiduZone) zone() zone {
	return zone{id: e.Name, unique: e.ID, name: dns.Fold(e.Name), minTTL: baiduMinTTL(e.ProductVersion)}
}

// search lists the zones whose names contain part.
func (v baiduCloud) search(ctx context.Context, part string) pageOf[zone] {
	c := call{name: "ListZone", path: baiduZones, query: url.Values{}}
	if part != "" {
		c.query.Set("name", part)
	}
	return baiduList(ctx, v, c, Invalid, func(p baiduPage) []zone { return as(p.Zones, baiduZone.zone) })
}

// baiduRecord is a record in a list.
type baiduRecord struct {
	ID, RR, Status, Type, Value, Line string
	TTL                               uint32
}

// entry is off if the record is not for every resolver.
func (r baiduRecord) entry() entry {
	off := r.Status != "" && r.Status != "running" || r.Line != "" && r.Line != baiduLine
	return entry{id: r.ID, host: r.RR, kind: r.Type, text: r.Value, ttl: r.TTL, off: off}
}

// entries selects by the name alone. An alias there is a conflict, except beside values, which can be
// removed.
func (v baiduCloud) entries(ctx context.Context, z zone, host, _ string) pageOf[entry] {
	c := call{name: "ListRecord", path: baiduPath(z), query: url.Values{}}
	if host != "" {
		c.query.Set("rr", host)
	}
	return baiduList(ctx, v, c, ZoneNotFound, func(p baiduPage) []entry { return as(p.Records, baiduRecord.entry) })
}

// baiduPath returns the path of a zone's records.
func baiduPath(z zone) string { return baiduZones + "/" + escape(z.id) + "/record" }

// baiduChange is the body of a write.
type baiduChange struct {
	RR    string `json:"rr"`
	Type  string `json:"type"`
	Value string `json:"value"`
	TTL   uint32 `json:"ttl"`
	Line  string `json:"line,omitempty"` // only for a new record
}

// write makes a call with a client token, by which the vendor recognises a repeated request.
func (v baiduCloud) write(ctx context.Context, z zone, e entry) error {
	c := call{name: "CreateRecord", method: http.MethodPost, path: baiduPath(z), query: url.Values{"clientToken": {v.nonce()}}}
	change, missing := baiduChange{e.host, e.kind, e.text, e.ttl, baiduLine}, ZoneNotFound
	if e.id != "" {
		c.name, c.method, c.path = "UpdateRecord", http.MethodPut, c.path+"/"+escape(e.id)
		change.Line, missing = "", gone
	}
	c.data = change
	return v.do(ctx, c, missing, nil)
}

func (v baiduCloud) erase(ctx context.Context, z zone, id string) error {
	c := call{name: "DeleteRecord", method: http.MethodDelete, path: baiduPath(z) + "/" + escape(id), query: url.Values{"clientToken": {v.nonce()}}}
	return v.do(ctx, c, gone, nil)
}
