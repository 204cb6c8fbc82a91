package cloudtest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// JDCloud is JD Cloud DNS (domainservice), API version 2. Whether the vendor
// refuses duplicates is not documented: this one takes them.
func JDCloud(t testing.TB) *Cloud {
	return start(t, &Cloud{
		Provider: "jdcloud", Signed: true, AccessKeyID: "JDC_FAKE0123456789ABCDEF01234567", AccessKeySecret: "FAKE0123456789abcdef0123456789ab", MinTTL: 600,
	}, vendor{
		authorize: jdAuthorize, serve: jdServe, spell: spellPlain, read: readPlain,
		throttle: jdFailure(http.StatusTooManyRequests, "RATE_LIMIT_EXCEEDED", "too many requests"),
	})
}

func jdFailure(status int, code, message string) Answer {
	return JSON(status, map[string]any{
		"requestId": "bqt7be14hagpm7u6cc6s13q33ctpd7rw", "error": map[string]any{"code": status, "status": code, "message": message},
	})
}

func jdSuccess(result any) Answer {
	return JSON(http.StatusOK, map[string]any{"requestId": "ce6ttm6ir2hu3mutbkdpr7j3iecwh77q", "result": result})
}

var jdAuthorization = regexp.MustCompile(`^JDCLOUD2-HMAC-SHA256 Credential=([^/]+)/(\d{8})/cn-north-1/domainservice/jdcloud2_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$`)

// jdAuthorize computes the signature from the raw query and the headers. Only
// the answers for a wrong signature and a used nonce are known from the vendor.
func jdAuthorize(c *Cloud, r Request) *Answer {
	fail := func(status int, code, message string) *Answer {
		return new(jdFailure(status, code, message+" [gw]"))
	}
	parts := jdAuthorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if parts == nil || parts[1] != c.AccessKeyID {
		return fail(http.StatusUnauthorized, "ACCESS_ERROR", "access key does not exist")
	}
	date := r.Header.Get("X-Jdcloud-Date")
	at, err := time.Parse("20060102T150405Z", date)
	if err != nil || c.now().Sub(at).Abs() > MaxSkew {
		return fail(http.StatusUnauthorized, "ACCESS_ERROR", "the request has expired")
	}
	names := strings.Split(parts[3], ";")
	for _, must := range []string{"content-type", "host", "x-jdcloud-date", "x-jdcloud-nonce"} {
		if !slices.Contains(names, must) {
			return fail(http.StatusUnauthorized, "ACCESS_ERROR", must+" is not signed")
		}
	}
	scope := parts[2] + "/cn-north-1/domainservice/jdcloud2_request"
	key := []byte("JDCLOUD2" + c.AccessKeySecret)
	for _, part := range strings.Split(scope, "/") {
		key = mac(key, part)
	}
	text := "JDCLOUD2-HMAC-SHA256\n" + date + "\n" + scope + "\n" + sha256Hex(requestText(r, r.Path, names))
	if parts[2] != date[:8] || hex.EncodeToString(mac(key, text)) != parts[4] {
		return fail(http.StatusUnauthorized, "ACCESS_ERROR", "sign result is not same")
	}
	nonce := r.Header.Get("X-Jdcloud-Nonce")
	if nonce == "" || c.used[nonce] {
		return fail(http.StatusForbidden, "HTTP_FORBIDDEN", "please use different noncestr")
	}
	c.used[nonce] = true
	return nil
}

func jdServe(c *Cloud, r Request) Answer {
	below, ok := strings.CutPrefix(r.Path, "/v2/regions/cn-north-1/domain")
	if !ok {
		return jdFailure(http.StatusNotFound, "APIGW_SERVICE_NOT_FOUND", "no such service [gw]")
	}
	if below == "" && r.Method == http.MethodGet {
		return jdDomains(c, r)
	}
	parts := strings.Split(below, "/") // "", the zone, ResourceRecord, the record
	if len(parts) < 3 || parts[2] != "ResourceRecord" {
		return jdFailure(http.StatusNotFound, "APIGW_SERVICE_NOT_FOUND", "no such api [gw]")
	}
	z, ok := c.zoneWhere(func(z zone) bool { return strconv.Itoa(z.id) == parts[1] && !z.private })
	if !ok {
		return jdFailure(http.StatusNotFound, "NOT_FOUND", "domain not found")
	}
	switch {
	case r.Method == http.MethodGet && len(parts) == 3:
		return jdRecords(c, r, z)
	case r.Method == http.MethodPost && len(parts) == 3:
		return jdWrite(c, r, z, nil)
	}
	old := c.record(number(parts[len(parts)-1]))
	switch {
	case old == nil || old.zone != z.name || len(parts) != 4:
		return jdFailure(http.StatusNotFound, "NOT_FOUND", "record not found")
	case r.Method == http.MethodPut:
		return jdWrite(c, r, z, old)
	case r.Method == http.MethodDelete:
		c.delete(old.id)
		return jdSuccess(map[string]any{})
	}
	return jdFailure(http.StatusNotFound, "APIGW_SERVICE_NOT_FOUND", "no such api [gw]")
}

// jdLike matches as SQL does with %pattern%, where "_" is any character.
func jdLike(pattern string) *regexp.Regexp {
	quoted := strings.ReplaceAll(regexp.QuoteMeta(strings.ToLower(pattern)), "_", ".")
	return regexp.MustCompile(strings.ReplaceAll(quoted, "%", ".*"))
}

// jdPage gives one page of a list.
func jdPage(c *Cloud, r Request, found []any) Answer {
	size := number(r.Query("pageSize"))
	if size < 10 || size > 99 || number(r.Query("pageNumber")) < 1 {
		return jdFailure(http.StatusBadRequest, "OUT_OF_RANGE", "pageNumber or pageSize is out of range")
	}
	size = c.size(size, 10, 99)
	shown := page(found, number(r.Query("pageNumber")), size)
	return jdSuccess(map[string]any{
		"dataList": shown, "currentCount": len(shown), "totalCount": len(found), "totalPage": (len(found) + size - 1) / size,
	})
}

func jdDomains(c *Cloud, r Request) Answer {
	var found []any
	like := jdLike(r.Query("domainName"))
	for _, z := range c.zones {
		if !z.private && like.MatchString(z.name) {
			found = append(found, map[string]any{
				"id": z.id, "domainName": z.name, "packId": 0, "packName": "free", "resolvingStatus": "2", "lockStatus": 0, "jcloudNs": true,
			})
		}
	}
	return jdPage(c, r, found)
}

// jdRecords lists records of every type.
func jdRecords(c *Cloud, r Request, z zone) Answer {
	var found []any
	like := jdLike(r.Query("search"))
	for _, record := range c.at(z.name, "", "") {
		if like.MatchString(relativeName(record.name, z.name)) {
			status := "2"
			if record.off {
				status = "4"
			}
			found = append(found, map[string]any{
				"id": record.id, "hostRecord": relativeName(record.name, z.name), "hostValue": record.content, "type": record.kind,
				"ttl": record.ttl, "viewValue": []int{-1}, "viewName": "default", "resolvingStatus": status, "updateTime": 1583280367000,
			})
		}
	}
	return jdPage(c, r, found)
}

// jdWrite makes a record, or changes one.
func jdWrite(c *Cloud, r Request, z zone, old *record) Answer {
	var body struct {
		Req struct {
			DomainName, HostRecord, HostValue, Type string
			TTL                                     uint32
			ViewValue                               *int
		}
	}
	if err := json.Unmarshal(r.Body, &body); err != nil || r.Header.Get("Content-Type") != "application/json" {
		return jdFailure(http.StatusBadRequest, "ARGUMENT_WRONG_FORMAT", fmt.Sprint("body: ", err))
	}
	to := body.Req
	name := fullName(to.HostRecord, z.name)
	switch {
	case to.HostRecord == "" || to.HostValue == "" || to.Type != "TXT" || to.ViewValue == nil || old != nil && to.DomainName != z.name:
		return jdFailure(http.StatusBadRequest, "ARGUMENT_NOT_FOUND", "a required parameter is missing")
	case *to.ViewValue != -1:
		return jdFailure(http.StatusBadRequest, "INVALID_ARGUMENT", "viewValue is wrong")
	case to.TTL < c.MinTTL:
		return jdFailure(http.StatusBadRequest, "OUT_OF_RANGE", "ttl is out of range")
	case c.aliased(name):
		return jdFailure(http.StatusBadRequest, "FAILED_PRECONDITION", "there is a CNAME record")
	case old == nil:
		made := c.insert(name, "TXT", to.HostValue, to.TTL)
		return jdSuccess(map[string]any{"dataList": map[string]any{"id": made.id, "hostRecord": to.HostRecord, "viewValue": []int{-1}}})
	}
	c.changes++
	old.name, old.content, old.ttl = name, to.HostValue, to.TTL
	return jdSuccess(map[string]any{})
}
