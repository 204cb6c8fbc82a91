package cloudtest

import (
	"encoding/hex"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// AliDNS is Alibaba Cloud DNS, API version 2015-01-09, signed with ACS3.
func AliDNS(t testing.TB) *Cloud {
	return start(t, &Cloud{
		Provider: "alidns", Signed: true, AccessKeyID: "LTAI5tFAKEFAKEFAKEFAKE01", AccessKeySecret: "FakeSecretFakeSecretFakeSecret", MinTTL: 600,
	}, vendor{
		authorize: aliAuthorize, serve: aliServe, spell: spellPlain, read: readPlain,
		throttle: aliFailure(http.StatusBadRequest, "Throttling.User", "Request was denied due to user flow control."),
	})
}

func aliFailure(status int, code, message string) Answer {
	return JSON(status, map[string]any{
		"RequestId": "6856BCF6-11D6-4D7E-AC53-FD579933522B", "HostId": "alidns.aliyuncs.com", "Code": code, "Message": message,
	})
}

var aliAuthorization = regexp.MustCompile(`^ACS3-HMAC-SHA256 Credential=([^,]+),SignedHeaders=([^,]+),Signature=([0-9a-f]{64})$`)

// aliAuthorize computes the signature from the raw query and the headers.
func aliAuthorize(c *Cloud, r Request) *Answer {
	fail := func(status int, code, message string) *Answer { return new(aliFailure(status, code, message)) }
	parts := aliAuthorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if parts == nil {
		return fail(http.StatusBadRequest, "IncompleteSignature", "The request signature does not conform to Aliyun standards.")
	}
	if parts[1] != c.AccessKeyID {
		return fail(http.StatusNotFound, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")
	}
	at, err := time.Parse("2006-01-02T15:04:05Z", r.Header.Get("X-Acs-Date"))
	if err != nil || c.now().Sub(at).Abs() > 3*MaxSkew {
		return fail(http.StatusBadRequest, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired.")
	}
	nonce := r.Header.Get("X-Acs-Signature-Nonce")
	if nonce == "" || c.used[nonce] {
		return fail(http.StatusBadRequest, "SignatureNonceUsed", "Specified signature nonce was used already.")
	}
	c.used[nonce] = true
	names := strings.Split(parts[2], ";")
	for _, must := range []string{"host", "x-acs-action", "x-acs-version", "x-acs-date", "x-acs-signature-nonce", "x-acs-content-sha256"} {
		if !slices.Contains(names, must) {
			return fail(http.StatusBadRequest, "IncompleteSignature", must+" is not signed")
		}
	}
	text := "ACS3-HMAC-SHA256\n" + sha256Hex(requestText(r, "/", names))
	if want := hex.EncodeToString(mac([]byte(c.AccessKeySecret), text)); want != parts[3] || r.Header.Get("X-Acs-Content-Sha256") != sha256Hex(string(r.Body)) {
		return fail(http.StatusBadRequest, "SignatureDoesNotMatch", "Specified signature is not matched with our calculation. server string to sign is:"+text)
	}
	return nil
}

func aliServe(c *Cloud, r Request) Answer {
	if r.Method != http.MethodPost || r.Path != "/" || r.Header.Get("X-Acs-Version") != "2015-01-09" {
		return aliFailure(http.StatusNotFound, "InvalidAction.NotFound", "Specified api is not found.")
	}
	switch r.Header.Get("X-Acs-Action") {
	case "DescribeDomains":
		return aliDomains(c, r)
	case "DescribeDomainInfo":
		if _, ok := aliZone(c, r.Query("DomainName")); !ok {
			return aliFailure(http.StatusBadRequest, "InvalidDomainName.NoExist", "The specified domain name does not exist.")
		}
		return JSON(http.StatusOK, map[string]any{"MinTtl": c.MinTTL, "VersionCode": "mianfei", "RequestId": "r"})
	case "DescribeSubDomainRecords":
		return aliList(c, r, 100)
	case "DescribeDomainRecords":
		return aliList(c, r, 500)
	case "AddDomainRecord":
		return aliAdd(c, r)
	case "UpdateDomainRecord":
		return aliUpdate(c, r)
	case "DeleteDomainRecord":
		if !c.delete(number(r.Query("RecordId"))) {
			return aliFailure(http.StatusBadRequest, "DomainRecordNotBelongToUser", "The DNS record does not belong to you.")
		}
		return JSON(http.StatusOK, map[string]any{"RecordId": r.Query("RecordId"), "RequestId": "r"})
	}
	return aliFailure(http.StatusNotFound, "InvalidAction.NotFound", "Specified api is not found.")
}

// aliUnicode is how the service writes the zone with an A-label, and how it is
// to be named in calls.
var aliUnicode = strings.NewReplacer("xn--fiq228c", "中文")

// aliZone finds a zone by the service's name for it.
func aliZone(c *Cloud, name string) (zone, bool) {
	return c.zoneWhere(func(z zone) bool { return !z.private && aliUnicode.Replace(z.name) == fold(name) })
}

// aliDomains searches for a part of the name unless the mode is EXACT.
func aliDomains(c *Cloud, r Request) Answer {
	var found []any
	for _, z := range c.zones {
		if z.private { // the API knows no such zones
			continue
		}
		name := aliUnicode.Replace(z.name)
		if name == r.Query("KeyWord") || r.Query("SearchMode") != "EXACT" && strings.Contains(name, r.Query("KeyWord")) {
			found = append(found, map[string]any{
				"DomainId": strconv.Itoa(z.id), "DomainName": name, "PunyCode": z.name,
				"DnsServers": map[string]any{"DnsServer": []string{"dns1.hichina.com", "dns2.hichina.com"}},
			})
		}
	}
	shown := page(found, number(r.Query("PageNumber")), c.size(number(r.Query("PageSize")), 20, 100))
	return JSON(http.StatusOK, map[string]any{"TotalCount": len(found), "Domains": map[string]any{"Domain": shown}, "RequestId": "r"})
}

// aliList gives the records of a name, or those of a zone.
func aliList(c *Cloud, r Request, most int) Answer {
	z, ok := aliZone(c, r.Query("DomainName"))
	if !ok {
		return aliFailure(http.StatusBadRequest, "InvalidDomainName.NoExist", "The specified domain name does not exist.")
	}
	kind := r.Query("Type") + r.Query("TypeKeyWord")
	all := c.at(z.name, strings.Replace(r.Query("SubDomain"), aliUnicode.Replace(z.name), z.name, 1), kind)
	var shown []any
	for _, record := range page(all, number(r.Query("PageNumber")), c.size(number(r.Query("PageSize")), 20, most)) {
		line, status := "default", "ENABLE"
		if record.off {
			status = "DISABLE"
		}
		shown = append(shown, map[string]any{
			"DomainName": z.name, "RecordId": strconv.Itoa(record.id), "RR": relativeName(record.name, z.name), "Type": record.kind,
			"Value": record.content, "TTL": record.ttl, "Line": line, "Status": status, "Locked": false,
		})
	}
	return JSON(http.StatusOK, map[string]any{"TotalCount": len(all), "DomainRecords": map[string]any{"Record": shown}, "RequestId": "r"})
}

// aliStored is what the service makes of a value.
func aliStored(kind, value string) string {
	if kind != "TXT" {
		return value
	}
	return strings.TrimRight(strings.ReplaceAll(value, `"`, ""), " ")
}

// aliRefusal checks what a record is to be.
func aliRefusal(c *Cloud, r Request, name string) *Answer {
	fail := func(code string) *Answer { return new(aliFailure(http.StatusBadRequest, code, code)) }
	kind := r.Query("Type")
	value := aliStored(kind, r.Query("Value"))
	switch {
	case value == "" || len(value) > 512 || !rightData(kind, value):
		return fail("InvalidValue")
	case number(r.Query("TTL")) < int(c.MinTTL):
		return fail("InvalidTTL")
	case c.aliased(name):
		return fail("DomainRecordConflict")
	case c.same(name, kind, value) != nil:
		return fail("DomainRecordDuplicate")
	}
	return nil
}

func aliAdd(c *Cloud, r Request) Answer {
	z, ok := aliZone(c, r.Query("DomainName"))
	if !ok || r.Query("RR") == "" {
		return aliFailure(http.StatusBadRequest, "IncorrectDomainUser", "The domain name does not belong to you.")
	}
	name := fullName(r.Query("RR"), z.name)
	if refusal := aliRefusal(c, r, name); refusal != nil {
		return *refusal
	}
	made := c.insert(name, r.Query("Type"), aliStored(r.Query("Type"), r.Query("Value")), uint32(number(r.Query("TTL"))))
	return JSON(http.StatusOK, map[string]any{"RecordId": strconv.Itoa(made.id), "RequestId": "r"})
}

func aliUpdate(c *Cloud, r Request) Answer {
	old := c.record(number(r.Query("RecordId")))
	if old == nil {
		return aliFailure(http.StatusBadRequest, "DomainRecordNotBelongToUser", "The DNS record does not belong to you.")
	}
	name := fullName(r.Query("RR"), old.zone)
	if refusal := aliRefusal(c, r, name); refusal != nil {
		return *refusal
	}
	c.changes++
	old.name, old.kind, old.ttl = name, r.Query("Type"), uint32(number(r.Query("TTL")))
	old.content = aliStored(old.kind, r.Query("Value"))
	return JSON(http.StatusOK, map[string]any{"RecordId": strconv.Itoa(old.id), "RequestId": "r"})
}
