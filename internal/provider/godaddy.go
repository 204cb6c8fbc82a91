package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"meshddns/internal/dns"
)

// goDaddy is the Domains API of GoDaddy, version 1. A PUT replaces all values of a name. The API shows
// values without quotes.
type goDaddy struct{ api *api }

const (
	goDaddyEndpoint = "https://api.godaddy.com"
	goDaddyMinTTL   = 600 // seconds
	goDaddyMaxValue = 512 // octets; not documented
	goDaddyPageSize = 500 // the greatest size, as users report
)

// NewGoDaddy makes a client of GoDaddy. The key pair is key and secret of a production API key of the
// account that has the domain. GoDaddy refuses its DNS API to some small accounts.
func NewGoDaddy(c Credentials) (*Client, error) {
	a, err := newAPI(goDaddyEndpoint, c, false)
	if err != nil {
		return nil, err
	}
	a.timeless = true
	return newSetClient(&goDaddy{a}), nil
}

// goDaddyErrors are the codes of the API. DUPLICATE_RECORD means a CNAME at the name, because this
// client never sends a value twice in a set.
var goDaddyErrors = codeKinds{
	{"UNABLE_TO_AUTHENTICATE|MALFORMED_CREDENTIALS", BadCredentials},
	{"ACCESS_DENIED", Permission},
	{"UNKNOWN_DOMAIN|NOT_FOUND", ZoneNotFound},
	{"DUPLICATE_RECORD", Conflict},
	{"TOO_MANY_REQUESTS", Throttled},
}

// goDaddyFailure is the body of an error. Fields has the reason for each part of the request.
type goDaddyFailure struct {
	Code, Message string
	Fields        []struct{ Code, Message, Path string }
	RetryAfterSec uint32
}

// do makes one call and parses its answer into out, nil for calls with an empty answer. For a name
// that is no domain the status is clearer than the code.
func (v *goDaddy) do(ctx context.Context, c call, out any) (status int, err error) {
	ans, err := v.api.send(ctx, c, func(r *http.Request, _ []byte) {
		r.Header.Set("Authorization", "sso-key "+v.api.Key.AccessKeyID+":"+string(v.api.Key.AccessKeySecret))
	})
	if err != nil {
		return 0, err
	}
	if ans.status/100 != 2 {
		return ans.status, v.failure(c, ans)
	}
	if out == nil {
		return ans.status, nil
	}
	return ans.status, v.api.unreadable(c, ans, json.Unmarshal(ans.body, out))
}

func (v *goDaddy) failure(c call, ans answer) error {
	var f goDaddyFailure
	if err := json.Unmarshal(ans.body, &f); err != nil {
		return v.api.unreadable(c, ans, err)
	}
	kinds := goDaddyErrors
	if ans.status == http.StatusNotFound && f.Code != "" {
		kinds = codeKinds{{"*", ZoneNotFound}} // any code; a 404 without a code means a wrong endpoint
	}
	for _, field := range f.Fields {
		f.Message += fmt.Sprintf("; %s: %s: %s", field.Path, field.Code, field.Message)
		if field.Code == "DUPLICATE_RECORD" {
			kinds = codeKinds{{"*", Conflict}}
		}
	}
	e := v.api.refused(c, ans, verdict{f.Code, f.Message, ans.header.Get("X-Request-Id")}, kinds)
	if e.Kind == Throttled {
		e.RetryAfter = cmp.Or(e.RetryAfter, time.Duration(f.RetryAfterSec)*time.Second)
	}
	return e
}

func goDaddyPath(domain, kind, name string) string {
	return "/v1/domains/" + url.PathEscape(domain) + "/records/" + kind + "/" + url.PathEscape(name)
}

type goDaddyRecord struct {
	Name string `json:"name,omitempty"`
	Type string `json:"type,omitempty"`
	Data string `json:"data"`
	TTL  uint32 `json:"ttl,omitempty"`
}

// zone asks for the NS records at the apex, which every zone has. The domain's own page (GET
// /v1/domains/NAME) does not serve: the vendor refuses it to small accounts, it lacks domains that are
// registered elsewhere, and its name servers may be another vendor's. The 404 or 422 for a name that
// is no zone is not documented.
func (v *goDaddy) zone(ctx context.Context, name string) (z zone, found bool, err error) {
	if strings.HasPrefix(name, "_") {
		return z, false, nil // no domain begins with "_"
	}
	var records []goDaddyRecord
	c := call{name: "GetZoneServers", method: http.MethodGet, path: goDaddyPath(name, "NS", "@")}
	status, err := v.do(ctx, c, &records)
	if err != nil && (KindOf(err) == ZoneNotFound || status == http.StatusUnprocessableEntity) {
		return z, false, nil
	}
	if err == nil && records == nil {
		err = v.api.lacks(c, "list")
	}
	z = zone{id: name, name: name, minTTL: goDaddyMinTTL}
	for _, r := range records {
		if r.Type == "NS" && goDaddyNamed(r, name, z) && r.Data != "" {
			z.servers = append(z.servers, dns.Fold(r.Data))
		}
	}
	return z, err == nil && len(z.servers) > 0, err
}

func goDaddyNamed(r goDaddyRecord, name string, z zone) bool {
	return dns.Fold(r.Name) == relative(name, z)
}

// list reads the TXT records of a name.
func (v *goDaddy) list(ctx context.Context, z zone, at setKey) (set recordSet, err error) {
	err = v.records(ctx, goDaddyPath(z.id, string(at.kind), relative(at.name, z)), func(r goDaddyRecord) {
		if r.Type == string(at.kind) && goDaddyNamed(r, at.name, z) {
			set = r.addTo(set)
		}
	})
	return set, err
}

// addTo adds a record to the set of its name.
func (r goDaddyRecord) addTo(set recordSet) recordSet {
	if !slices.ContainsFunc(set.records, func(s record) bool { return s.raw == r.Data }) {
		set.ttl = cmp.Or(set.ttl, r.TTL)
		set.records = append(set.records, record{value: cutTXT(r.Data), raw: r.Data, ttl: r.TTL})
	}
	return set
}

// listZone reads all TXT and CNAME records. If the vendor refuses that to a small account, names are
// read one by one.
func (v *goDaddy) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	for _, kind := range []string{"TXT", "CNAME"} {
		err := v.records(ctx, "/v1/domains/"+url.PathEscape(z.id)+"/records/"+kind, func(r goDaddyRecord) {
			switch name := absolute(r.Name, z); {
			case r.Type == "TXT":
				sets.join(setKey{name, TXT}, r.addTo)
			case r.Type == "CNAME":
				sets.alias(name, r.Data)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// records reads pages until one has nothing new. Users report that offset counts pages; the
// documentation seems to mean records. This way works for both.
func (v *goDaddy) records(ctx context.Context, path string, take func(goDaddyRecord)) error {
	c := call{name: "GetRecords", method: http.MethodGet, path: path}
	received := newMarks()
	for page := 1; page <= maxPages; page++ {
		if page > 1 {
			c.query = url.Values{"offset": {strconv.Itoa(page)}, "limit": {strconv.Itoa(goDaddyPageSize)}}
		}
		var records []goDaddyRecord
		if _, err := v.do(ctx, c, &records); err != nil {
			return err
		}
		if records == nil {
			return v.api.lacks(c, "list")
		}
		before := len(received.seen)
		for _, r := range records {
			if !received.again(r) {
				take(r)
			}
		}
		if len(received.seen) == before {
			return nil
		}
	}
	return manyPages(BadAnswer, maxPages)
}

// replace sends each old value back with its TTL. The vendor refuses an empty set, so that replace
// sends a DELETE instead.
func (v *goDaddy) replace(ctx context.Context, z zone, at setKey, _, to recordSet) error {
	c := call{name: "ReplaceRecords", method: http.MethodPut, path: goDaddyPath(z.id, string(at.kind), relative(at.name, z))}
	if len(to.records) == 0 {
		c.name, c.method = "DeleteRecords", http.MethodDelete
		_, err := v.do(ctx, c, nil)
		if KindOf(err) == ZoneNotFound {
			return nil // the set is gone already; if the zone is gone, the next list tells
		}
		return err
	}
	var records []goDaddyRecord
	for _, r := range to.records {
		if strings.ContainsRune(r.raw, utf8.RuneError) {
			return unspeakable(at.name)
		}
		if r.raw == "" {
			r.ttl = max(r.ttl, z.minTTL) // the old set may have a TTL below today's minimum
		}
		records = append(records, goDaddyRecord{Data: r.value.Text(), TTL: r.ttl})
	}
	c.data = records
	_, err := v.do(ctx, c, nil)
	return err
}

// fits accepts plain text only: the handling of quotes and backslashes is not documented.
func (v *goDaddy) fits(_ Type, value Value) error { return plainText(value, goDaddyMaxValue, `"\`) }
