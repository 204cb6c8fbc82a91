package provider

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"meshddns/test/cloudtest"
)

func TestAliDNSVectors(t *testing.T) {
	for _, v := range vectors(t, "alidns", "ACS3") {
		r, body := v.request(t)
		signACS3(r, body, v.key())
		v.check(t, "alidns", r.Header.Get("Authorization"), v.Expect["authorization"])
	}
}

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

func TestAliDNSExchanges(t *testing.T) {
	const value, other = "v=mesh1;id=1001;ep=203.0.113.7:51820", "v=mesh1;id=1001;ep=203.0.113.8:51820"
	const name = "_mesh.node-1.example.com"
	z := zone{id: "example.com", name: "example.com"}
	for _, e := range exchanges(t, "alidns", "acs3") {
		address, got := e.replay(t)
		a, err := newAPI(aliEndpoint, Credentials{Endpoint: address}, false)
		if err != nil {
			t.Fatal(err)
		}
		v := aliRecords(a)
		switch e.Op {
		case "find zone":
			_, _, err = v.listed(t.Context(), "example.com")
		case "list TXT at name":
			_, err = v.list(t.Context(), z, setKey{name, TXT})
		case "create TXT":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{value}, 600)
		case "create TXT odd characters":
			err = v.create(t.Context(), z, setKey{name, TXT}, Value{oddText}, 600)
		case "update TXT":
			err = v.update(t.Context(), z, setKey{name, TXT}, record{id: "9999985"}, Value{other}, 600)
		case "delete TXT":
			err = v.remove(t.Context(), z, setKey{name, TXT}, record{id: "9999985"})
		case "list TXT at name (alternative)":
			e.unused(t, "alidns", "one way to list is enough")
			continue
		case "delete all TXT at name":
			e.unused(t, "alidns", "it would delete values of others")
			continue
		}
		if err != nil {
			t.Error(e.Op, err)
		}
		e.check(t, "alidns", got(), nil, "X-Acs-Action", "X-Acs-Version", "X-Acs-Content-Sha256")
	}
	for _, e := range exchanges(t, "alidns", "rpc_v1") {
		e.unused(t, "alidns", "the older signature; requests are signed with ACS3")
	}
}

// oddText is the value by which the exchanges show how characters are encoded.
const oddText = `a b"c\d;e+f*g~h=i&j%k/l?m#n,o:p@qé中文😀`

func TestAliDNSErrors(t *testing.T) {
	failure := func(status int, code string) cloudtest.Answer {
		return cloudtest.JSON(status, map[string]any{"RequestId": "536E9CAD", "Code": code, "Message": "words of the vendor"})
	}
	testRefusals(t, cloudtest.AliDNS(t), NewAliDNS, []refusal{
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

func TestAliDNSValues(t *testing.T) {
	v := aliRecords(nil)
	for _, value := range []Value{{""}, {`a "b"`}, {`a\b`}, {"a "}, {" a"}, {"é"}, {"a", "b"}, cutTXT(strings.Repeat("x", 513))} {
		if v.fits(TXT, value) == nil {
			t.Errorf("%q is taken", value)
		}
	}
	for _, value := range []Value{{"v=mesh1 n=1 o=a tcp://[2001:db8::1]:1"}, cutTXT(strings.Repeat("x", 512))} {
		if err := v.fits(TXT, value); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}
