package provider

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"testing"

	"meshddns/test/cloudtest"
)

// TestAliDNSOlderVectors checks the encoding of parameters, on which the
// vendor's older scheme depends most: it escapes them a second time.
func TestAliDNSOlderVectors(t *testing.T) {
	for _, v := range vectors(t, "alidns", "RPC") {
		r, _ := v.request(t)
		query := r.URL.Query()
		query.Del("Signature")
		text := v.Inputs.Method + "&%2F&" + escape(canonicalQuery(query))
		mac := hmac.New(sha1.New, []byte(string(v.Inputs.AccessKeySecret)+"&"))
		mac.Write([]byte(text))
		v.check(t, "alidns", text, v.Expect["string_to_sign"])
		v.check(t, "alidns", base64.StdEncoding.EncodeToString(mac.Sum(nil)), v.Expect["signature"])
	}
}

func TestAliDNSErrors(t *testing.T) {
	failure := func(status int, code string) cloudtest.Answer {
		return cloudtest.JSON(status, map[string]any{"RequestId": "536E9CAD", "Code": code, "Message": "words of the vendor"})
	}
	testRefusals(t, "alidns", []refusal{
		{failure(http.StatusNotFound, "InvalidAccessKeyId.NotFound"), BadCredentials},
		{failure(http.StatusBadRequest, "SignatureDoesNotMatch"), BadCredentials},
		{failure(http.StatusForbidden, "Forbidden.RAM"), Permission},
		{failure(http.StatusBadRequest, "InvalidTimeStamp.Expired"), ClockSkew},
		{failure(http.StatusBadRequest, "SignatureNonceUsed"), Temporary},
		{failure(http.StatusBadRequest, "InvalidDomainName.NoExist"), ZoneNotFound},
		{failure(http.StatusBadRequest, "DomainRecordConflict"), Conflict},
		{failure(http.StatusBadRequest, "QuotaExceeded.Record"), Quota},
		{failure(http.StatusBadRequest, "Throttling.User"), Throttled},
		{failure(http.StatusServiceUnavailable, "Throttling"), Throttled},
		{failure(http.StatusInternalServerError, "InternalError"), Temporary},
		{failure(http.StatusBadGateway, "NeverHeardOf"), Temporary},
		{failure(http.StatusBadRequest, "NeverHeardOf"), Invalid},
	}, "536E9CAD", "words of the vendor")
}
