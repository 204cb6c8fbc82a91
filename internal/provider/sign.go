package provider

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// escape percent-encodes all characters except the unreserved ones (RFC 3986, section 2.3), in
// upper-case hex, as all vendors' signatures want it.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// canonicalQuery returns the parameters sorted and escaped; an empty value keeps its "=".
func canonicalQuery(q url.Values) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(q)) {
		for _, value := range slices.Sorted(slices.Values(q[name])) {
			pairs = append(pairs, escape(name)+"="+escape(value))
		}
	}
	return strings.Join(pairs, "&")
}

// canonicalRequest returns the text that ACS3, TC3, SDK-HMAC-SHA256 and signatures like that of AWS
// have in common: method, path, query, the signed headers (lower case), their names, and the hash of
// the body.
func canonicalRequest(r *http.Request, path string, signed []string, body []byte) string {
	var headers strings.Builder
	for _, name := range signed {
		headers.WriteString(name + ":" + headerValue(r, name) + "\n")
	}
	return strings.Join([]string{
		r.Method, path, canonicalQuery(r.URL.Query()), headers.String(), strings.Join(signed, ";"), hexSHA256(body),
	}, "\n")
}

// headerValue returns a header as net/http sends it. net/http keeps two headers outside the map.
func headerValue(r *http.Request, name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		return strconv.FormatInt(r.ContentLength, 10)
	}
	return strings.TrimSpace(strings.Join(r.Header.Values(name), ","))
}

func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func hmacSHA256(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// scoped is a signature with a key for one day, region and service, like AWS Signature Version 4.
type scoped struct {
	algorithm string
	prefix    string // before the secret
	region    string
	service   string
	term      string // the last part of the scope
}

// authorization signs a request, whose date header is set already.
func (s scoped) authorization(r *http.Request, path string, signed []string, body []byte, key Credentials, at time.Time) string {
	at = at.UTC()
	scope := strings.Join([]string{at.Format("20060102"), s.region, s.service, s.term}, "/")
	return s.stamped(r, path, signed, body, key, at.Format(basicTime), scope)
}

// stamped signs a request with the vendor's own forms of the time and of the scope.
func (s scoped) stamped(r *http.Request, path string, signed []string, body []byte, key Credentials, stamp, scope string) string {
	text := strings.Join([]string{s.algorithm, stamp, scope, hexSHA256([]byte(canonicalRequest(r, path, signed, body)))}, "\n")
	derived := []byte(s.prefix + string(key.AccessKeySecret))
	for part := range strings.SplitSeq(scope, "/") {
		derived = hmacSHA256(derived, part)
	}
	return s.algorithm + " Credential=" + key.AccessKeyID + "/" + scope +
		", SignedHeaders=" + strings.Join(signed, ";") + ", Signature=" + hex.EncodeToString(hmacSHA256(derived, text))
}

// Formats of times in signatures, always UTC.
const (
	basicTime    = "20060102T150405Z"
	extendedTime = "2006-01-02T15:04:05Z"
)

// newNonce returns a random UUID (RFC 9562, section 5.4), as JD Cloud's own clients send it. Other
// vendors accept it too.
func newNonce() string {
	var id [16]byte
	rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
