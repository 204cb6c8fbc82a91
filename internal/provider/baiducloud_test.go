package provider

import (
	"net/http"
	"testing"

	"meshddns/test/cloudtest"
)

// baiduFailure is an answer that refuses a call.
func baiduFailure(status int, code string) cloudtest.Answer {
	return cloudtest.JSON(status, map[string]any{"requestId": "c4abab14-ebc4", "code": code, "message": "words of the vendor"})
}

func TestBaiduCloudErrors(t *testing.T) {
	testRefusals(t, "baiducloud", []refusal{
		{baiduFailure(http.StatusForbidden, "InvalidAccessKeyId"), BadCredentials},
		{baiduFailure(http.StatusBadRequest, "InvalidHTTPAuthHeader"), BadCredentials},
		{baiduFailure(http.StatusBadRequest, "SignatureDoesNotMatch"), BadCredentials},
		{baiduFailure(http.StatusForbidden, "AccessDenied"), Permission},
		{baiduFailure(http.StatusForbidden, "QualifyNotPass"), Permission},
		{baiduFailure(http.StatusBadRequest, "OptInRequired"), Permission},
		{baiduFailure(http.StatusBadRequest, "RequestExpired"), ClockSkew},
		{baiduFailure(http.StatusInternalServerError, "InternalError"), Temporary},
		{baiduFailure(http.StatusBadRequest, "InternalError"), Temporary},
		{baiduFailure(http.StatusServiceUnavailable, "NeverHeardOf"), Temporary},
		{baiduFailure(http.StatusTooManyRequests, "NeverHeardOf"), Throttled},
		{baiduFailure(http.StatusBadRequest, "MalformedJSON"), Invalid},
		{baiduFailure(http.StatusPreconditionFailed, "PreconditionFailed"), Invalid},
		{baiduFailure(http.StatusNotFound, "InvalidVersion"), Invalid},
		{baiduFailure(http.StatusBadRequest, "NeverHeardOf"), Invalid},
		{baiduFailure(http.StatusNotFound, "NeverHeardOf"), ZoneNotFound},
		{baiduFailure(http.StatusBadRequest, "NoSuchObject"), ZoneNotFound},
		{baiduFailure(http.StatusBadRequest, "RecordQuotaExceeded"), Quota},
		{baiduFailure(http.StatusBadRequest, "RecordConflict"), Conflict},
	}, "c4abab14-ebc4", "words of the vendor")
	for code, kind := range map[string]Kind{"RecordDuplicated": exists, "RecordAlreadyExists": exists, "NoSuchObject": ""} {
		if got := baiduErrors.of(code, ""); got != kind {
			t.Errorf("%s is %s, want %s", code, got, kind)
		}
	}
}

func TestBaiduCloudMinTTL(t *testing.T) {
	for version, want := range map[string]uint32{"basic": 300, "free": 300, "": 300, "discount": 120, "puhui": 120, "Enterprise": 1} {
		if got := baiduMinTTL(version); got != want {
			t.Errorf("%q: %d, want %d", version, got, want)
		}
	}
}

// TestBaiduCloudPages has a list that goes on without saying where, or that
// comes back to where it was.
func TestBaiduCloudPages(t *testing.T) {
	c := cloudtest.BaiduCloud(t)
	truncated := func(next string) cloudtest.Fault {
		return cloudtest.Instead(cloudtest.JSON(http.StatusOK, map[string]any{"isTruncated": true, "nextMarker": next, "zones": []any{}}))
	}
	for _, next := range []string{"", "one"} {
		c.Fail(truncated("one"), truncated(next))
		if _, err := openCloud(t, c, NewBaiduCloud).Zone(t.Context(), cloudtest.Zone); err == nil || KindOf(err) != BadAnswer {
			t.Errorf("then %q: %v, want %s", next, err, BadAnswer)
		}
	}
}

// TestBaiduCloudAlias reads where a list shows an alias: one that counts excludes new values, one that is off or for
// some resolvers only may not.
func TestBaiduCloudAlias(t *testing.T) {
	c, client := openNamed(t, "baiducloud")
	for list, kind := range map[string]Kind{
		`{"id":"1","rr":"a","type":"CNAME","value":"x","status":"running"},{"id":"2","rr":"a","type":"TXT","status":"stopped"}`:   Conflict,
		`{"id":"1","rr":"a","type":"CNAME","status":"running","line":"ct"},{"id":"2","rr":"a","type":"CNAME","status":"stopped"}`: "",
	} {
		c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusOK, Body: `{"isTruncated":false,"records":[` + list + `]}`}))
		if _, err := client.Read(t.Context(), cloudtest.Zone, "a."+cloudtest.Zone, TXT); KindOf(err) != kind {
			t.Errorf("%s: %v, want %q", list, err, kind)
		}
	}
}
