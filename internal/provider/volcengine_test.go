package provider

import (
	"net/http"
	"testing"

	"meshddns/test/cloudtest"
)

// volcFailure is an answer that refuses a call.
func volcFailure(status int, code string) cloudtest.Answer {
	return cloudtest.JSON(status, map[string]any{"ResponseMetadata": map[string]any{
		"RequestId": "20230411150314CE", "Error": map[string]any{"Code": code, "CodeN": 400100, "Message": "words of the vendor"},
	}})
}

func TestVolcengineErrors(t *testing.T) {
	testRefusals(t, "volcengine", []refusal{
		{volcFailure(http.StatusUnauthorized, "InvalidAccessKey"), BadCredentials},
		{volcFailure(http.StatusBadRequest, "InvalidCredential"), BadCredentials},
		{volcFailure(http.StatusBadRequest, "InvalidAuthorization"), BadCredentials},
		{volcFailure(http.StatusUnauthorized, "SignatureDoesNotMatch"), BadCredentials},
		{volcFailure(http.StatusBadRequest, "InvalidTimestamp"), ClockSkew},
		{volcFailure(http.StatusForbidden, "AccessDenied"), Permission},
		{volcFailure(http.StatusBadRequest, "LackPolicy"), Permission},
		{volcFailure(http.StatusBadRequest, "FlowLimitExceeded"), Throttled},
		{volcFailure(http.StatusTooManyRequests, "NeverHeardOf"), Throttled},
		{volcFailure(http.StatusInternalServerError, "ErrInternalServer"), Temporary},
		{volcFailure(http.StatusOK, "InternalServiceTimeout"), Temporary},
		{volcFailure(http.StatusBadGateway, "NeverHeardOf"), Temporary},
		{volcFailure(http.StatusBadRequest, "ErrParsingParams"), Invalid},
		{volcFailure(http.StatusBadRequest, "ErrParamInvalid"), Invalid},
		{volcFailure(http.StatusBadRequest, "ErrPageSizeNotValid"), Invalid},
		{volcFailure(http.StatusBadRequest, "ErrZoneNotFound"), ZoneNotFound},
		{volcFailure(http.StatusOK, "ErrZoneNotFound"), ZoneNotFound},
		{volcFailure(http.StatusBadRequest, "ErrDBNotFound"), ZoneNotFound},
		{volcFailure(http.StatusBadRequest, "ErrQuotaExceeded"), Quota},
		{volcFailure(http.StatusBadRequest, "ErrZoneRecordCountLimited"), Quota},
		{volcFailure(http.StatusOK, "NeverHeardOf"), Invalid},
	}, "20230411150314CE", "words of the vendor")
	for code, kind := range map[string]Kind{"ErrDBDuplicated": exists, "ErrDBNotFound": gone} {
		if got := volcErrors.of(code, ""); got != kind {
			t.Errorf("%s is %s, want %s", code, got, kind)
		}
	}
}

// TestVolcengineServers learns the name servers, and does without them.
func TestVolcengineServers(t *testing.T) {
	c := cloudtest.Volcengine(t)
	authority, err := openCloud(t, c, NewVolcengine).Authority(t.Context(), cloudtest.Zone)
	if err != nil || len(authority.Names) != 2 || authority.Names[0] != "ns1.volcdns.test" {
		t.Errorf("%v, %v", authority, err)
	}
	c.Fail(cloudtest.Pass, cloudtest.Instead(volcFailure(http.StatusForbidden, "AccessDenied")))
	if authority, err := openCloud(t, c, NewVolcengine).Authority(t.Context(), cloudtest.Zone); err != nil || len(authority.Names) != 0 {
		t.Errorf("without the right: %v, %v", authority, err)
	}
}

// TestVolcengineAlias writes beside an alias at the zone's own name, which the vendor allows, and has a value refused
// where no alias is.
func TestVolcengineAlias(t *testing.T) {
	c, client := openNamed(t, "volcengine")
	add := func(name string) error {
		return client.Change(t.Context(), Change{Zone: cloudtest.Zone, Name: name, Type: TXT, Add: []Value{{"v"}}, TTL: 600})
	}
	c.AddAlias(cloudtest.Zone, "elsewhere.example")
	if err := add(cloudtest.Zone); err != nil {
		t.Error(err)
	}
	c.Fail(cloudtest.Pass, cloudtest.Instead(volcFailure(http.StatusBadRequest, "ErrParamInvalid")))
	if err := add("plain." + cloudtest.Zone); KindOf(err) != Invalid {
		t.Errorf("refused without an alias: %v, want %s", err, Invalid)
	}
}
