package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"meshddns/test/cloudtest"
)

func jdFailure(status int, code, message string) cloudtest.Answer {
	return cloudtest.JSON(status, map[string]any{
		"requestId": "bqt7be14", "error": map[string]any{"code": status, "status": code, "message": message},
	})
}

func TestJDCloudErrors(t *testing.T) {
	const words = "words of the vendor"
	inside := jdFailure(http.StatusForbidden, "NeverHeardOf", words)
	inside.Status = http.StatusOK
	testRefusals(t, "jdcloud", []refusal{
		{jdFailure(http.StatusUnauthorized, "ACCESS_ERROR", words), BadCredentials},
		{jdFailure(http.StatusUnauthorized, "UNAUTHENTICATED", words), BadCredentials},
		{jdFailure(http.StatusBadRequest, "APIGW_KEY_DISABLED", words), BadCredentials},
		{jdFailure(http.StatusBadRequest, "APIGW_SIGN_RESULT_NOT_SAME", words), BadCredentials},
		{jdFailure(http.StatusForbidden, "HTTP_FORBIDDEN", words), Permission},
		{jdFailure(http.StatusForbidden, "APIGW_USER_BLACK_LIST", words), Permission},
		{jdFailure(http.StatusForbidden, "HTTP_FORBIDDEN", words+": please use different noncestr [gw]"), Temporary},
		{jdFailure(http.StatusForbidden, "APIGW_NONCE_CONFLICT", words), Temporary},
		{jdFailure(http.StatusNotFound, "RESOURCE_NOT_EXIST", words), ZoneNotFound},
		{jdFailure(http.StatusNotFound, "NOT_FOUND", words), ZoneNotFound},
		{jdFailure(http.StatusConflict, "ALREADY_EXISTS", words), exists},
		{jdFailure(http.StatusConflict, "CONFLICT", words), Conflict},
		{jdFailure(http.StatusConflict, "ABORTED", words), Temporary},
		{jdFailure(499, "CANCELLED", words), Temporary},
		{jdFailure(http.StatusTooManyRequests, "QUOTA_EXCEEDED", words), Quota},
		{jdFailure(http.StatusBadRequest, "RATE_LIMIT_EXCEEDED", words), Throttled},
		{jdFailure(http.StatusTooManyRequests, "NeverHeardOf", words), Throttled},
		{jdFailure(http.StatusBadGateway, "SOURCE_UNAVAILABLE", words), Temporary},
		{jdFailure(http.StatusBadRequest, "NeverHeardOf", words), Invalid},
		{inside, Permission},
	}, "bqt7be14", words)
}

// TestJDCloudExactly has hosts that only look alike, on every page.
func TestJDCloudExactly(t *testing.T) {
	c := cloudtest.JDCloud(t)
	client := openCloud(t, c, NewJDCloud)
	for _, label := range []string{"mesh", "_mesh.x", "x_mesh", "xmesh.y"} {
		for i := range cloudtest.PageLimit {
			c.Add(t, label+"."+cloudtest.Zone, []string{fmt.Sprintf("of %s %d", label, i)})
		}
	}
	c.Add(t, "_mesh."+cloudtest.Zone, []string{"ours"})
	set, err := client.Read(t.Context(), cloudtest.Zone, "_mesh."+cloudtest.Zone, TXT)
	if err != nil || len(set.Values) != 1 || set.Values[0].Text() != "ours" {
		t.Errorf("%v, %v", set, err)
	}
}

// TestJDCloudLines: a record is for every resolver, or of a special line.
func TestJDCloudLines(t *testing.T) {
	for viewValue, all := range map[string]bool{
		`[-1]`: true, `-1`: true, `"-1"`: true, `[]`: true, `null`: true, `[3]`: false, `[-1,3]`: false, `3`: false, `{}`: false,
	} {
		var decoded any
		if err := json.Unmarshal([]byte(viewValue), &decoded); err != nil {
			t.Fatal(err)
		}
		if jdForAll(decoded) != all {
			t.Errorf("viewValue %s: %v, want %v", viewValue, !all, all)
		}
	}
}
