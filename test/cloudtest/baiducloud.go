package cloudtest

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BaiduCloud is Baidu AI Cloud DNS, API version 1, signed with bce-auth-v1. It
// knows no nonces but the tokens of writes, and no private zones in the same
// list; it makes a second record of one that is there already.
func BaiduCloud(t testing.TB) *Cloud {
	return start(t, &Cloud{
		Provider: "baiducloud", Signed: true, AccessKeyID: "FAKE0123456789abcdef0123456789ab", AccessKeySecret: "FAKEsecret6789abcdef0123456789ab", MinTTL: 300,
	}, vendor{
		authorize: baiduAuthorize, serve: baiduServe, spell: spellPlain, read: readPlain,
		throttle: baiduFailure(http.StatusTooManyRequests, "TooManyRequests", "too many requests"), // the code is not documented
	})
}

const baiduRequestID = "1214cca7-4ad5-451d-9215-71cb844c0a50"

func baiduAnswer(a Answer) Answer {
	a.Header = map[string]string{"x-bce-request-id": baiduRequestID, "Content-Type": "application/json;charset=UTF-8"}
	return a
}

func baiduFailure(status int, code, message string) Answer {
	return baiduAnswer(JSON(status, map[string]any{"code": code, "message": message, "requestId": baiduRequestID}))
}

// baiduDone is the answer to any write that succeeds.
func baiduDone() Answer { return baiduAnswer(Answer{Status: http.StatusOK}) }

var baiduAuthorization = regexp.MustCompile(`^(bce-auth-v1/([^/]+)/([^/]+)/([0-9]+))/([^/]+)/([0-9a-f]{64})$`)

// baiduAuthorize computes the signature from the raw query and the headers.
func baiduAuthorize(c *Cloud, r Request) *Answer {
	fail := func(status int, code, message string) *Answer { return new(baiduFailure(status, code, message)) }
	parts := baiduAuthorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if parts == nil {
		return fail(http.StatusBadRequest, "InvalidHTTPAuthHeader", "The HTTP authorization header is invalid. Consult the service documentation for details.")
	}
	if parts[2] != c.AccessKeyID {
		return fail(http.StatusForbidden, "InvalidAccessKeyId", "The Access Key ID you provided does not exist in our records.")
	}
	at, err := time.Parse("2006-01-02T15:04:05Z", parts[3])
	if err != nil || c.now().Sub(at).Abs() > time.Duration(number(parts[4]))*time.Second {
		return fail(http.StatusBadRequest, "RequestExpired", "Request has expired. Timestamp date is "+parts[3]+".")
	}
	names := strings.Split(parts[5], ";")
	if hash := r.Header.Get("Content-Md5"); !slices.Contains(names, "host") || len(r.Body) > 0 && hash != baiduMD5(r.Body) {
		return fail(http.StatusBadRequest, "InvalidHTTPRequest", "There was an error in the body of your HTTP request.")
	}
	derived := hex.EncodeToString(mac([]byte(c.AccessKeySecret), parts[1]))
	if hex.EncodeToString(mac([]byte(derived), baiduRequestText(r, names))) != parts[6] {
		return fail(http.StatusBadRequest, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	}
	return nil
}

func baiduMD5(body []byte) string {
	sum := md5.Sum(body)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// baiduRequestText is what is signed: names and values are escaped, and the
// body has no part in it.
func baiduRequestText(r Request, names []string) string {
	lines := []string{r.Method, r.Path, sortedQuery(r.RawQuery)}
	for _, name := range names {
		value := strings.TrimSpace(r.Header.Get(name))
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.Itoa(len(r.Body))
		}
		lines = append(lines, reescape(url.QueryEscape(name))+":"+reescape(url.QueryEscape(value)))
	}
	return strings.Join(lines, "\n")
}

func baiduServe(c *Cloud, r Request) Answer {
	path, ok := strings.CutPrefix(r.Path, "/v1/dns/zone")
	parts := strings.Split(path, "/")
	switch {
	case !ok:
	case r.Method == http.MethodGet && path == "":
		return baiduZones(c, r)
	case len(parts) < 3 || parts[2] != "record":
	default:
		z, ok := c.zoneNamed(parts[1])
		if !ok {
			return baiduNothing("zone")
		}
		return baiduRecords(c, r, z, parts[3:])
	}
	return baiduFailure(http.StatusBadRequest, "InvalidURI", "Could not parse the specified URI.")
}

// baiduNothing is the answer where something is not there; the code is that of
// the documentation's one example.
func baiduNothing(what string) Answer {
	return baiduFailure(http.StatusNotFound, "NoSuchObject", what+" not exist")
}

// baiduRecords serves what is below a zone. A token that came before with a
// write that was made means that write.
func baiduRecords(c *Cloud, r Request, z zone, id []string) Answer {
	if r.Method == http.MethodGet && len(id) == 0 {
		return baiduList(c, r, z)
	}
	token := "token " + r.Query("clientToken")
	if len(token) > len("token ") && c.used[token] {
		return baiduDone()
	}
	answer := baiduFailure(http.StatusBadRequest, "InvalidURI", "Could not parse the specified URI.")
	switch {
	case r.Method == http.MethodPost && len(id) == 0:
		answer = baiduCreate(c, r, z)
	case r.Method == http.MethodPut && len(id) == 1:
		answer = baiduUpdate(c, r, z, number(id[0]))
	case r.Method == http.MethodDelete && len(id) == 1 && c.delete(number(id[0])):
		answer = baiduDone()
	case r.Method == http.MethodDelete && len(id) == 1:
		answer = baiduNothing("record")
	}
	c.used[token] = answer.Status == http.StatusOK
	return answer
}

// baiduPage shows a part of a list, and where it goes on.
func baiduPage(c *Cloud, r Request, key string, found []any) Answer {
	first := max(0, min(number(strings.TrimPrefix(r.Query("marker"), "at-")), len(found)))
	size := c.size(number(r.Query("maxKeys")), 1000, 1000)
	last := min(first+size, len(found))
	body := map[string]any{"marker": r.Query("marker"), "isTruncated": last < len(found), "nextMarker": "", "maxKeys": size, key: found[first:last]}
	if last < len(found) {
		body["nextMarker"] = "at-" + strconv.Itoa(last)
	}
	return baiduAnswer(JSON(http.StatusOK, body))
}

// baiduZones searches for a part of the name.
func baiduZones(c *Cloud, r Request) Answer {
	found := []any{}
	for _, z := range c.zones {
		if !z.private && strings.Contains(z.name, r.Query("name")) {
			found = append(found, map[string]any{"id": "dns-zone-" + strconv.Itoa(z.id), "name": z.name, "status": "running", "productVersion": "free", "tags": []any{}})
		}
	}
	return baiduPage(c, r, "zones", found)
}

// baiduList has no filter but the name; whether that is exact is not
// documented, so it is not here.
func baiduList(c *Cloud, r Request, z zone) Answer {
	name, named := fullName(r.Query("rr"), z.name), r.Query("rr") != ""
	records := c.at(z.name, "", "")
	if named {
		records = c.at(z.name, name, "")
	}
	for _, one := range c.records {
		if named && one.zone == z.name && one.name != name && strings.Contains(relativeName(one.name, z.name), r.Query("rr")) {
			records = append(records, one)
		}
	}
	found := []any{}
	for _, one := range records {
		status := "running"
		if one.off {
			status = "stopped"
		}
		found = append(found, map[string]any{
			"id": strconv.Itoa(one.id), "rr": relativeName(one.name, z.name), "status": status, "type": one.kind,
			"value": one.content, "ttl": one.ttl, "line": "default", "description": "", "priority": 0,
		})
	}
	return baiduPage(c, r, "records", found)
}

type baiduChange struct {
	RR, Type, Value, Line string
	TTL                   uint32
}

// baiduChanged reads and checks what a record is to be. The codes of the last
// two refusals are not documented.
func baiduChanged(c *Cloud, r Request, z zone) (change baiduChange, refusal *Answer) {
	fail := func(code, message string) *Answer {
		return new(baiduFailure(http.StatusBadRequest, code, message))
	}
	switch {
	case json.Unmarshal(r.Body, &change) != nil:
		return change, fail("MalformedJSON", "The JSON you provided was not well-formed.")
	case change.RR == "" || change.Type != "TXT" || change.Value == "" || change.Line != "" && change.Line != "default":
		return change, fail("InappropriateJSON", "The JSON you provided was well-formed and valid, but not appropriate for this operation.")
	case change.TTL < c.MinTTL:
		return change, fail("InvalidParameter", "ttl")
	case c.aliased(fullName(change.RR, z.name)):
		return change, fail("RecordConflict", "the record conflicts with another")
	}
	return change, nil
}

func baiduCreate(c *Cloud, r Request, z zone) Answer {
	change, refusal := baiduChanged(c, r, z)
	if refusal != nil {
		return *refusal
	}
	c.insert(fullName(change.RR, z.name), "TXT", change.Value, change.TTL)
	return baiduDone()
}

func baiduUpdate(c *Cloud, r Request, z zone, id int) Answer {
	old := c.record(id)
	if old == nil || old.zone != z.name {
		return baiduNothing("record")
	}
	change, refusal := baiduChanged(c, r, z)
	if refusal != nil {
		return *refusal
	}
	c.changes++
	old.name, old.content, old.ttl = fullName(change.RR, z.name), change.Value, change.TTL
	return baiduDone()
}
