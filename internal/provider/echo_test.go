package provider_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"meshddns/internal/provider"
	"meshddns/test/cloudtest"
)

// echoSecret looks different in every encoding.
const echoSecret = "S3cr3t-\u00e9/+=&<\"\\ key:0123456789"

// echoes are encodings in which a provider may repeat a secret. A provider that needs the secret in a
// header has no secret that a header cannot carry.
func echoes(secret, keyID string) map[string]string {
	quoted, _ := json.Marshal(secret)
	std := base64.StdEncoding.EncodeToString
	return map[string]string{
		"plain":          secret,
		"upper case":     strings.ToUpper(secret),
		"lower case":     strings.ToLower(secret),
		"percent, upper": echoOctets(secret, "%%%02X"),
		"percent, lower": echoOctets(secret, "%%%02x"),
		"path":           url.PathEscape(secret),
		"form":           url.QueryEscape(secret),
		"JSON":           string(quoted),
		"JSON, ASCII":    strconv.QuoteToASCII(secret),
		"JSON, slashes":  strings.ReplaceAll(string(quoted), "/", `\/`),
		"HTML":           html.EscapeString(secret),
		"hex":            hex.EncodeToString([]byte(secret)),
		"hex, upper":     strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"base64":         std([]byte(secret)),
		"base64, raw":    base64.RawStdEncoding.EncodeToString([]byte(secret)),
		"base64url":      base64.URLEncoding.EncodeToString([]byte(secret)),
		"Basic":          "Basic " + std([]byte(keyID+":"+secret)),
		"Basic, raw":     "Basic " + base64.RawURLEncoding.EncodeToString([]byte(keyID+":"+secret)),
		"Go":             strconv.Quote(secret),
	}
}

func echoOctets(s, format string) (out string) {
	for _, c := range []byte(s) {
		out += fmt.Sprintf(format, c)
	}
	return out
}

// refusalOf is an error answer with a message in the vendor's form.
func refusalOf(vendor, words string) cloudtest.Answer {
	type object = map[string]any
	switch vendor {
	case "tencentcloud":
		return cloudtest.JSON(http.StatusOK, object{"Response": object{"Error": object{"Code": "InvalidParameter", "Message": words}, "RequestId": words}})
	case "volcengine":
		return cloudtest.JSON(http.StatusBadRequest, object{"ResponseMetadata": object{"Error": object{"Code": "X", "Message": words}, "RequestId": words}})
	case "route53":
		text := html.EscapeString(strings.Map(func(r rune) rune {
			if unicode.IsControl(r) || r == unicode.ReplacementChar {
				return -1 // XML cannot contain it
			}
			return r
		}, words))
		return cloudtest.Answer{Status: http.StatusBadRequest, Body: `<ErrorResponse xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><Error><Type>Sender</Type><Code>X</Code><Message>` +
			text + `</Message></Error><RequestId>` + text + `</RequestId></ErrorResponse>`}
	case "cloudflare":
		return cloudtest.JSON(http.StatusBadRequest, object{"success": false, "errors": []any{object{"code": 1004, "message": words}}})
	case "powerdns", "webhook":
		return cloudtest.JSON(http.StatusUnprocessableEntity, object{"error": words})
	case "dnspod":
		return cloudtest.JSON(http.StatusOK, object{"status": object{"code": "6", "message": words}})
	case "jdcloud":
		return cloudtest.JSON(http.StatusBadRequest, object{"requestId": words, "error": object{"code": 400, "status": "INVALID", "message": words}})
	case "porkbun":
		return cloudtest.JSON(http.StatusInternalServerError, object{"status": "ERROR", "message": words})
	}
	return cloudtest.JSON(http.StatusBadRequest, object{"Code": "X", "Message": words, "RequestId": words, "code": "X", "message": words, "requestId": words})
}

// TestCloudEchoes has every provider repeat the secret in every encoding, and send invalid text.
func TestCloudEchoes(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		if c.AccessKeySecret = echoSecret; c.Provider == "cloudflare" {
			c.AccessKeySecret = "S3cr3t-0123456789_abcdefghijklmnopqrstuv" // a token has nothing else
		}
		client := newClient(t, c)
		for writing, echo := range echoes(c.AccessKeySecret, c.AccessKeyID) {
			if said := saidBy(t, c, client, "(your key is "+echo+" indeed)"); !strings.Contains(strings.ReplaceAll(said, `"`, ""), "(your key is ***") && !strings.Contains(said, "(your key is Basic ***") {
				t.Errorf("%s: %s", writing, said)
			}
		}
		said := saidBy(t, c, client, "(\x1b[31mred\r\nline\u009b2J \u202eturned\x7f)"+strings.Repeat("long ", 1<<16))
		if strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) || len(said) > 2000 || !strings.Contains(said, "red") {
			t.Errorf("%d octets: %.200q", len(said), said)
		}
		c.Fail(cloudtest.Instead(cloudtest.Answer{Status: http.StatusBadRequest, Body: "\xff\x1b" + c.AccessKeySecret}))
		_, err := client.Zone(t.Context(), cloudtest.Zone)
		wantNoSecret(t, c.AccessKeySecret, fmt.Sprint(err))
	})
}

// saidBy returns the error of a call that is refused with this message.
func saidBy(t *testing.T, c *cloudtest.Cloud, client *provider.Client, words string) string {
	t.Helper()
	c.Fail(cloudtest.Instead(refusalOf(c.Provider, words)))
	_, err := client.Zone(t.Context(), cloudtest.Zone)
	if left := c.FailNoMore(); err == nil || left > 0 {
		t.Fatalf("%v, %d faults left", err, left)
	}
	return err.Error()
}
