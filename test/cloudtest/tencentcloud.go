package cloudtest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TencentCloud is Tencent Cloud's DNSPod, API 3.0, signed with TC3.
func TencentCloud(t testing.TB) *Cloud {
	return start(t, &Cloud{
		Provider: "tencentcloud", Signed: true, AccessKeyID: "AKIDFAKEz8krbsJ5yKBZQpn74WFkmLPx3FAKE", AccessKeySecret: "FakeGu5t9xGARNpq86cd98joQYCN3FAKE", MinTTL: 600,
	}, vendor{
		authorize: tencentAuthorize, serve: tencentServe, spell: tencentSpell, read: tencentRead,
		throttle: tencentFailure("RequestLimitExceeded", "Your current request times equals to 21 in a second, which exceeds the frequency limit 20 for a second."),
	})
}

const tencentRequestID = "ed93f3cb-f35e-473f-b9f3-0d451b8b79c6"

// tencentFailure is an HTTP 200 like every answer.
func tencentFailure(code, message string) Answer {
	return tencentAnswer(map[string]any{"Error": map[string]any{"Code": code, "Message": message}})
}

func tencentAnswer(response map[string]any) Answer {
	response["RequestId"] = tencentRequestID
	return JSON(http.StatusOK, map[string]any{"Response": response})
}

var tencentAuthorization = regexp.MustCompile(`^TC3-HMAC-SHA256 Credential=([^/]+)/(\d{4}-\d\d-\d\d)/dnspod/tc3_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$`)

// tencentAuthorize computes the signature from the headers and the body. There
// is no nonce: the vendor takes a request twice.
func tencentAuthorize(c *Cloud, r Request) *Answer {
	fail := func(code, message string) *Answer { return new(tencentFailure(code, message)) }
	parts := tencentAuthorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if parts == nil {
		return fail("AuthFailure.InvalidAuthorization", "Authorization in the request header is invalid.")
	}
	if parts[1] != c.AccessKeyID {
		return fail("AuthFailure.SecretIdNotFound", "The SecretId is not found, please ensure that your SecretId is correct.")
	}
	seconds := r.Header.Get("X-Tc-Timestamp")
	at := time.Unix(int64(number(seconds)), 0)
	if c.now().Sub(at).Abs() > MaxSkew {
		return fail("AuthFailure.SignatureExpire", "The provided credentials could not be validated: the request is expired.")
	}
	wrong := fail("AuthFailure.SignatureFailure", "The provided credentials could not be validated. Please check your signature is correct.")
	names := strings.Split(parts[3], ";")
	if parts[2] != at.UTC().Format(time.DateOnly) || !slices.Contains(names, "content-type") || !slices.Contains(names, "host") {
		return wrong
	}
	key := mac(mac(mac([]byte("TC3"+c.AccessKeySecret), parts[2]), "dnspod"), "tc3_request")
	text := "TC3-HMAC-SHA256\n" + seconds + "\n" + parts[2] + "/dnspod/tc3_request\n" + sha256Hex(requestText(r, "/", names))
	if hex.EncodeToString(mac(key, text)) != parts[4] {
		return wrong
	}
	return nil
}

// tencentCall is a request's parameters, by their exact names: another
// spelling is another parameter, and what the service does not know it ignores.
type tencentCall map[string]any

func (p tencentCall) text(name string) string {
	if p[name] == nil {
		return ""
	}
	return fmt.Sprint(p[name])
}

func (p tencentCall) number(name string) int { return number(p.text(name)) }

func tencentServe(c *Cloud, r Request) Answer {
	decoder := json.NewDecoder(strings.NewReader(string(r.Body)))
	decoder.UseNumber()
	var p tencentCall
	switch {
	case r.Method != http.MethodPost || r.Path != "/" || r.Header.Get("Content-Type") != "application/json":
		return tencentFailure("InvalidRequest", "The request is invalid.")
	case r.Header.Get("X-Tc-Version") != "2021-03-23":
		return tencentFailure("NoSuchVersion", "The version does not exist.")
	case decoder.Decode(&p) != nil:
		return tencentFailure("InvalidParameter", "The body is no JSON object.")
	}
	switch action := r.Header.Get("X-Tc-Action"); action {
	case "DescribeDomainList":
		return tencentDomains(c, p)
	case "DescribeDomain":
		return tencentDomain(c, p)
	case "DescribePackageDetail":
		return tencentPackages(c)
	case "DescribeRecordList":
		return tencentList(c, p)
	case "CreateRecord", "ModifyRecord":
		return tencentWrite(c, p, action == "ModifyRecord")
	case "DeleteRecord":
		if _, ok := c.zoneNamed(p.text("Domain")); !ok {
			return tencentNoDomain()
		}
		if !c.delete(p.number("RecordId")) {
			return tencentFailure("InvalidParameter.RecordIdInvalid", "The record number is incorrect.")
		}
		return tencentAnswer(map[string]any{})
	}
	return tencentFailure("InvalidAction", "The requested API does not exist.")
}

func tencentNoDomain() Answer {
	return tencentFailure("InvalidParameterValue.DomainNotExists", "The current domain is incorrect. Return to the previous step and try again.")
}

// tencentDomains searches for a part of the name. The grade of a zone is not
// spelled as in the list of plans.
func tencentDomains(c *Cloud, p tencentCall) Answer {
	var found []any
	for _, z := range c.zones {
		if strings.Contains(z.name, p.text("Keyword")) && !z.private {
			found = append(found, map[string]any{
				"DomainId": z.id, "Name": z.name, "Punycode": z.name, "Status": "ENABLE", "Grade": "DP_FREE", "TTL": 600,
				"EffectiveDNS": []string{"f1g1ns1.dnspod.net", "f1g1ns2.dnspod.net"},
			})
		}
	}
	if len(found) > 500 {
		return tencentFailure("InvalidParameter.ResultMoreThan500", "The search results contain more than 500 entries. Add one or more keywords.")
	}
	shown := fromOffset(found, p.number("Offset"), c.size(p.number("Limit"), 3000, 3000))
	return tencentAnswer(map[string]any{
		"DomainCountInfo": map[string]any{"DomainTotal": len(found), "AllTotal": len(c.zones)}, "DomainList": shown,
	})
}

func tencentDomain(c *Cloud, p tencentCall) Answer {
	z, ok := c.zoneNamed(p.text("Domain"))
	if !ok {
		return tencentNoDomain()
	}
	return tencentAnswer(map[string]any{"DomainInfo": map[string]any{
		"DomainId": z.id, "Domain": z.name, "Punycode": z.name, "Status": "ENABLE", "Grade": "DP_FREE", "TTL": 600,
		"DnspodNsList": []string{"f1g1ns1.dnspod.net", "f1g1ns2.dnspod.net"},
	}})
}

func tencentPackages(c *Cloud) Answer {
	return tencentAnswer(map[string]any{"Info": []any{
		map[string]any{"DomainGrade": "D_Free", "MinTtl": 120},
		map[string]any{"DomainGrade": "DP_Free", "MinTtl": c.MinTTL},
		map[string]any{"DomainGrade": "DP_Plus", "MinTtl": 60},
		map[string]any{"DomainGrade": "DP_Ultra", "MinTtl": 1},
	}})
}

// tencentList gives the whole zone when Subdomain is missing.
func tencentList(c *Cloud, p tencentCall) Answer {
	z, ok := c.zoneNamed(p.text("Domain"))
	if !ok {
		return tencentNoDomain()
	}
	var found []any
	for _, record := range namedOrAll(c, z, p.text("Subdomain"), p.text("RecordType")) {
		status := "ENABLE"
		if record.off {
			status = "DISABLE"
		}
		found = append(found, map[string]any{
			"RecordId": record.id, "Name": relativeName(record.name, z.name), "Type": record.kind, "Value": record.content,
			"TTL": record.ttl, "Line": "默认", "LineId": "0", "Status": status, "Weight": nil, "MX": 0, "Remark": "",
		})
	}
	shown := fromOffset(found, p.number("Offset"), c.size(p.number("Limit"), 100, 3000))
	if len(shown) == 0 {
		return tencentFailure("ResourceNotFound.NoDataOfRecord", "记录列表为空。")
	}
	return tencentAnswer(map[string]any{
		"RecordCountInfo": map[string]any{"SubdomainCount": 1, "ListCount": len(shown), "TotalCount": len(found)}, "RecordList": shown,
	})
}

// namedOrAll gives the records at a relative name, or without one all that a
// zone shows.
func namedOrAll(c *Cloud, z zone, relative, kind string) []*record {
	if relative == "" {
		return c.at(z.name, "", kind)
	}
	return c.at(z.name, fullName(relative, z.name), kind)
}

// tencentWrite makes a record or changes one. Which code tells of a CNAME in
// the way is not documented.
func tencentWrite(c *Cloud, p tencentCall, modify bool) Answer {
	z, ok := c.zoneNamed(p.text("Domain"))
	if !ok {
		return tencentNoDomain()
	}
	old := c.record(p.number("RecordId"))
	name, ttl := fullName(p.text("SubDomain"), z.name), p.number("TTL")
	kind, value := p.text("RecordType"), tencentStored(p.text("RecordType"), p.text("Value"))
	if p.text("TTL") == "" {
		ttl = 600
	}
	switch {
	case modify && (old == nil || old.zone != z.name):
		return tencentFailure("InvalidParameter.RecordIdInvalid", "The record number is incorrect.")
	case !slices.Contains(kinds, kind):
		return tencentFailure("InvalidParameter.RecordTypeInvalid", "The record type is incorrect.")
	case p.text("RecordLine") != "默认":
		return tencentFailure("InvalidParameter.RecordLineInvalid", "The record split zone is incorrect.")
	case !rightData(kind, value):
		return tencentFailure("InvalidParameter.RecordValueInvalid", "The record value is incorrect.")
	case ttl < int(c.MinTTL) || ttl > 604800:
		return tencentFailure("LimitExceeded.RecordTtlLimit", "The TTL value of the record exceeds the limit.")
	case c.aliased(name):
		return tencentFailure("InvalidParameter.CustomMessage", "There is a conflict with another record.")
	case c.same(name, kind, value) != nil:
		return tencentFailure("InvalidParameter.DomainRecordExist", "The record already exists and does not need to be added again.")
	}
	if !modify {
		return tencentAnswer(map[string]any{"RecordId": c.insert(name, kind, value, uint32(ttl)).id})
	}
	c.changes++
	old.name, old.kind, old.content, old.ttl, old.off = name, kind, value, uint32(ttl), false
	return tencentAnswer(map[string]any{"RecordId": old.id})
}

// tencentStored is what the service makes of a value: a host name in it ends with a dot.
func tencentStored(kind, value string) string {
	if kind == "SRV" && !strings.HasSuffix(value, ".") {
		return value + "."
	}
	return value
}

// tencentSpell writes plain text, as most do, and quotes as some other tools
// do what plain text could not say.
func tencentSpell(value []string) string {
	text := spellPlain(value)
	if slices.Equal(readPlain(text), value) && strings.TrimSpace(text) == text && !strings.ContainsAny(text, `"\`) {
		return text
	}
	return spellQuoted(value)
}

var (
	tencentString = regexp.MustCompile(`"((?:[^"\\]|\\[^0-9])*)"`)
	tencentQuoted = regexp.MustCompile(`^(` + tencentString.String() + `\s*)+$`)
	escapedOctet  = regexp.MustCompile(`\\(.)`)
)

func tencentRead(text string) (value []string) {
	if !tencentQuoted.MatchString(text) {
		return readPlain(text)
	}
	for _, s := range tencentString.FindAllStringSubmatch(text, -1) {
		value = append(value, escapedOctet.ReplaceAllString(s[1], "$1"))
	}
	return value
}
