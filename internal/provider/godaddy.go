package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"meshddns/internal/dns"
)

// goDaddy is the Domains API of GoDaddy, version 1. A PUT replaces all values of a name. The API shows
// values without quotes.
type goDaddy struct{ records }

const (
	goDaddyEndpoint = "https://api.godaddy.com"
	goDaddyMinTTL   = 600 // seconds
	goDaddyPageSize = 500 // the greatest size, as users report
)

// NewGoDaddy makes a client of GoDaddy. The key pair is key and secret of a production API key of the
// account that has the domain. GoDaddy refuses its DNS API to some small accounts.
func NewGoDaddy(c Credentials) (*Client, error) {
	a, err := newAPI(goDaddyEndpoint, c, false)
	if err != nil {
		return nil, err
	}
	return newSetClient(goDaddyOf(a)), nil
}

// goDaddyOf makes the vendor. It accepts plain text only: the handling of quotes and backslashes is not
// documented, and neither is the limit of 512 octets.
func goDaddyOf(a *api) *goDaddy {
	a.timeless = true
	v := &goDaddy{}
	v.records = records{api: a, has: []Type{TXT}, read: cutTXT, longest: 512, damaged: `"\`, find: v.find, entries: v.entries}
	return v
}

// goDaddyErrors are the codes of the API, and of parts of a request. DUPLICATE_RECORD means a CNAME at the
// name, because this client never sends a value twice in a set.
var goDaddyErrors = codeKinds{
	{"DUPLICATE_RECORD|*: DUPLICATE_RECORD:*", Conflict},
	{"UNABLE_TO_AUTHENTICATE|MALFORMED_CREDENTIALS", BadCredentials},
	{"ACCESS_DENIED", Permission},
	{"UNKNOWN_DOMAIN|NOT_FOUND", ZoneNotFound},
	{"TOO_MANY_REQUESTS", Throttled},
}

// do makes one call and parses its answer into out, nil for calls with an empty answer.
func (v *goDaddy) do(ctx context.Context, c call, out any) error {
	return v.ask(ctx, c, func(r *http.Request, _ []byte) {
		r.Header.Set("Authorization", "sso-key "+v.Key.AccessKeyID+":"+string(v.Key.AccessKeySecret))
	}, openGoDaddy, out)
}

// openGoDaddy parses an error, which has the reason for each part of the request.
func openGoDaddy(ans answer) (reply, error) {
	if ans.status/100 == 2 {
		return reply{result: ans.body}, nil
	}
	var f struct {
		Code, Message string
		Fields        []struct{ Code, Message, Path string }
		RetryAfterSec uint32
	}
	err := json.Unmarshal(ans.body, &f)
	for _, field := range f.Fields {
		f.Message += fmt.Sprintf("; %s: %s: %s", field.Path, field.Code, field.Message)
	}
	if f.RetryAfterSec > 0 && ans.header.Get("Retry-After") == "" {
		ans.header.Set("Retry-After", fmt.Sprint(f.RetryAfterSec))
	}
	kinds := goDaddyErrors
	if ans.status == http.StatusNotFound && f.Code != "" {
		kinds = codeKinds{{"*", ZoneNotFound}} // any code; a 404 without a code means a wrong endpoint
	}
	return reply{verdict{f.Code, f.Message, ans.header.Get("X-Request-Id")}, true, kinds, nil}, err
}

// goDaddyPath returns the path of the records of a type, at a name or, if host is "", in the whole zone.
func goDaddyPath(domain, kind, host string) string {
	path := "/v1/domains/" + url.PathEscape(domain) + "/records/" + kind
	if host != "" {
		path += "/" + url.PathEscape(host)
	}
	return path
}

type goDaddyRecord struct {
	Name string `json:"name,omitempty"`
	Type string `json:"type,omitempty"`
	Data string `json:"data"`
	TTL  uint32 `json:"ttl,omitempty"`
}

// key identifies a record, which has no id.
func (r goDaddyRecord) key() string { return dns.Fold(r.Name) + " " + r.Type + " " + r.Data }

// find asks for the NS records at the apex, which every zone has. The domain's own page (GET
// /v1/domains/NAME) does not serve: the vendor refuses it to small accounts, it lacks domains that are
// registered elsewhere, and its name servers may be another vendor's. The 404 or 422 for a name that
// is no zone is not documented; at a 422 the status is clearer than the code.
func (v *goDaddy) find(ctx context.Context, name string) (z zone, found bool, err error) {
	if strings.HasPrefix(name, "_") {
		return z, false, nil // no domain begins with "_"
	}
	var records []goDaddyRecord
	c := call{name: "GetZoneServers", method: http.MethodGet, path: goDaddyPath(name, "NS", "@")}
	err = v.do(ctx, c, &records)
	if e, ok := errors.AsType[*Error](err); ok && (e.Kind == ZoneNotFound || e.status == http.StatusUnprocessableEntity) {
		return z, false, nil
	}
	if err == nil && records == nil {
		err = v.lacks(c, "list")
	}
	z = zone{id: name, name: name, minTTL: goDaddyMinTTL}
	for _, r := range records {
		if r.Type == "NS" && r.Name == "@" && r.Data != "" {
			z.servers = append(z.servers, dns.Fold(r.Data))
		}
	}
	return z, err == nil && len(z.servers) > 0, err
}

// entries reads pages until one has nothing new. Users report that offset counts pages; the documentation
// seems to mean records. This way works for both.
func (v *goDaddy) entries(ctx context.Context, z zone, host, kind string) pageOf[entry] {
	c := call{name: "GetRecords", method: http.MethodGet, path: goDaddyPath(z.id, kind, host)}
	received := newMarks()
	return func(page, _ int) ([]entry, *int, error) {
		if page > 1 {
			c.query = url.Values{"offset": {strconv.Itoa(page)}, "limit": {strconv.Itoa(goDaddyPageSize)}}
		}
		var records []goDaddyRecord
		if err := v.do(ctx, c, &records); err != nil {
			return nil, nil, err
		}
		if records == nil {
			return nil, nil, v.lacks(c, "list")
		}
		fresh := slices.DeleteFunc(records, func(r goDaddyRecord) bool { return received.again(r.key()) })
		return as(fresh, func(r goDaddyRecord) entry {
			return entry{id: r.key(), host: r.Name, kind: r.Type, text: r.Data, ttl: r.TTL}
		}), nil, nil
	}
}

// replace sends each old value back with its TTL. The vendor refuses an empty set, so that replace
// sends a DELETE instead. If the zone is gone, the next list tells.
func (v *goDaddy) replace(ctx context.Context, z zone, at setKey, _, to recordSet) error {
	c := call{name: "ReplaceRecords", method: http.MethodPut, path: goDaddyPath(z.id, string(at.kind), relative(at.name, z))}
	if len(to.records) == 0 {
		c.name, c.method = "DeleteRecords", http.MethodDelete
		return unless(ZoneNotFound, v.do(ctx, c, nil))
	}
	var records []goDaddyRecord
	for _, r := range to.records {
		if strings.ContainsRune(r.value.Text(), utf8.RuneError) {
			return unspeakable(at.name)
		}
		if r.id == "" {
			r.ttl = max(r.ttl, z.minTTL) // the old set may have a TTL below today's minimum
		}
		records = append(records, goDaddyRecord{Data: r.value.Text(), TTL: r.ttl})
	}
	c.data = records
	return v.do(ctx, c, nil)
}
