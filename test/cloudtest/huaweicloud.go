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

// HuaweiCloud is Huawei Cloud DNS, API version 2. Its record sets are PENDING
// for as many looks as the lag has. What is off is a set of another line.
func HuaweiCloud(t testing.TB) *Cloud {
	h := &huawei{sets: map[huaweiKey]*huaweiSet{}}
	return start(t, &Cloud{
		Provider: "huaweicloud", Signed: true, AccessKeyID: "HPUAFAKEFAKEFAKEFAKE", AccessKeySecret: "FakeSecretFakeSecretFakeSecretFakeSecret", MinTTL: 1,
	}, vendor{
		authorize: huaweiAuthorize, serve: h.serve, spell: spellQuoted, read: huaweiRead,
		throttle: huaweiGateway(http.StatusTooManyRequests, "APIGW.0308", "The throttling threshold has been reached: policy user over ratelimit,limit:100,time:1 minute"),
	})
}

const huaweiRequest = "81da7d08ae78ac805e64094a908beca7"

func huaweiAnswer(status int, value any) Answer {
	a := JSON(status, value)
	a.Header["X-Request-Id"] = huaweiRequest
	return a
}

// huaweiGateway and huaweiFailure are the two forms of a refusal.
func huaweiGateway(status int, code, message string) Answer {
	return huaweiAnswer(status, map[string]any{"error_code": code, "error_msg": message, "request_id": huaweiRequest})
}

func huaweiFailure(status int, code, message string) Answer {
	return huaweiAnswer(status, map[string]any{"code": code, "message": message})
}

var huaweiAuthorization = regexp.MustCompile(`^SDK-HMAC-SHA256 Access=([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$`)

// huaweiAuthorize computes the signature, over the path with a final slash.
func huaweiAuthorize(c *Cloud, r Request) *Answer {
	fail := func(code, why string) *Answer {
		return new(huaweiGateway(http.StatusUnauthorized, code, "Incorrect IAM authentication information: "+why))
	}
	parts := huaweiAuthorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if parts == nil {
		return fail("APIGW.0301", "header Authorization malformed")
	}
	if parts[1] != c.AccessKeyID {
		return fail("APIGW.0301", "get secretKey failed, ak "+parts[1]+" not exist")
	}
	date := r.Header.Get("X-Sdk-Date")
	at, err := time.Parse("20060102T150405Z", date)
	if err != nil || c.now().Sub(at).Abs() > 3*MaxSkew {
		return fail("APIGW.0303", "x-sdk-date is off by more than 15 minutes")
	}
	names := strings.Split(parts[2], ";")
	if !slices.IsSorted(names) || !slices.Contains(names, "x-sdk-date") {
		return fail("APIGW.0301", "SignedHeaders")
	}
	text := "SDK-HMAC-SHA256\n" + date + "\n" + sha256Hex(requestText(r, r.Path+"/", names))
	if hex.EncodeToString(mac([]byte(c.AccessKeySecret), text)) != parts[3] {
		return fail("APIGW.0301", "verify aksk signature fail")
	}
	return nil
}

// huawei has what the records do not say: which of them are one set, and how
// far the changes of a set are.
type huawei struct{ sets map[huaweiKey]*huaweiSet }

type huaweiKey struct {
	zone, name, kind string
	off              bool
}

type huaweiSet struct {
	id, status string
	looks      int // that still show the status; the set takes no change meanwhile
}

func (h *huawei) serve(c *Cloud, r Request) Answer {
	parts := strings.Split(strings.TrimPrefix(r.Path, "/"), "/")
	whole := parts[0] == "v2.1" && len(parts) == 4 && r.Method == http.MethodGet // tells lines and weights
	if len(parts) < 2 || parts[0] != "v2" && !whole || parts[1] != "zones" || len(parts) > 5 || len(parts) > 3 && parts[3] != "recordsets" {
		return huaweiGateway(http.StatusNotFound, "APIGW.0101", "The API does not exist or has not been published in the environment")
	}
	if len(parts) == 2 {
		return huaweiZones(c, r)
	}
	z, ok := c.zoneWhere(func(z zone) bool { return huaweiID(z.id) == parts[2] })
	if !ok {
		return huaweiFailure(http.StatusNotFound, "DNS.0302", "This zone does not exist.")
	}
	switch {
	case len(parts) == 4 && r.Method == http.MethodGet:
		return h.list(c, r, z)
	case len(parts) == 4 && r.Method == http.MethodPost:
		return h.create(c, r, z)
	case len(parts) == 5 && (r.Method == http.MethodPut || r.Method == http.MethodDelete):
		return h.change(c, r, z, parts[4])
	}
	return huaweiGateway(http.StatusNotFound, "APIGW.0101", "The API does not exist or has not been published in the environment")
}

func huaweiID(n int) string { return fmt.Sprintf("%032x", n) }

// huaweiMatches is the search for names: for a part of them, unless it is
// asked to be equal.
func huaweiMatches(r Request, name string) bool {
	if r.Query("search_mode") == "equal" {
		return name == strings.TrimSuffix(r.Query("name"), ".") || r.Query("name") == ""
	}
	return strings.Contains(name, strings.TrimSuffix(r.Query("name"), "."))
}

// huaweiPage answers one page, from an offset on.
func huaweiPage(c *Cloud, r Request, what string, found []any) Answer {
	first := min(len(found), max(0, number(r.Query("offset"))))
	size := c.size(number(r.Query("limit")), 500, 500)
	return huaweiAnswer(http.StatusOK, map[string]any{
		"links": map[string]any{"self": "https://dns.myhuaweicloud.com" + r.Target},
		what:    append([]any{}, found[first:min(len(found), first+size)]...), "metadata": map[string]any{"total_count": len(found)},
	})
}

// huaweiZones lists private zones too, whatever type is asked for.
func huaweiZones(c *Cloud, r Request) Answer {
	var found []any
	for _, z := range c.zones {
		if !huaweiMatches(r, z.name) {
			continue
		}
		kind := "public"
		if z.private {
			kind = "private"
		}
		found = append(found, map[string]any{
			"id": huaweiID(z.id), "name": z.name + ".", "ttl": 300, "status": "ACTIVE", "zone_type": kind, "record_num": 2,
		})
	}
	return huaweiPage(c, r, "zones", found)
}

// records gives the records of a set.
func (h *huawei) records(c *Cloud, key huaweiKey) (found []*record) {
	for _, r := range c.records {
		if key == (huaweiKey{r.zone, r.name, r.kind, r.off}) {
			found = append(found, r)
		}
	}
	return found
}

// set gives what is known of the set that records make.
func (h *huawei) set(c *Cloud, key huaweiKey) *huaweiSet {
	if h.sets[key] == nil {
		h.sets[key] = &huaweiSet{id: huaweiID(c.newID()), status: "ACTIVE"}
	}
	return h.sets[key]
}

func (h *huawei) drop(c *Cloud, key huaweiKey) {
	for _, r := range h.records(c, key) {
		c.delete(r.id)
	}
	delete(h.sets, key)
}

func (h *huawei) list(c *Cloud, r Request, z zone) Answer {
	var keys []huaweiKey
	for _, r := range c.records {
		if key := (huaweiKey{r.zone, r.name, r.kind, r.off}); r.zone == z.name && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	var found []any
	for _, key := range keys {
		if !huaweiMatches(r, key.name) || r.Query("type") != "" && r.Query("type") != key.kind {
			continue
		}
		set := h.set(c, key)
		switch {
		case set.looks > 0:
			set.looks--
		case set.status == "PENDING_DELETE":
			h.drop(c, key)
			continue
		default:
			set.status = "ACTIVE"
		}
		found = append(found, h.show(c, key))
	}
	return huaweiPage(c, r, "recordsets", found)
}

func (h *huawei) show(c *Cloud, key huaweiKey) map[string]any {
	set, line := h.set(c, key), "default_view"
	if key.off {
		line = "Dianxin"
	}
	var values []string
	var ttl uint32
	for _, r := range h.records(c, key) {
		values, ttl = append(values, r.content), r.ttl
	}
	return map[string]any{
		"id": set.id, "name": key.name + ".", "type": key.kind, "ttl": ttl, "records": values, "status": set.status,
		"zone_name": key.zone + ".", "default": false, "line": line, "weight": 1,
	}
}

type huaweiBody struct {
	Name, Type string
	TTL        *int
	Records    []string
}

// huaweiText is a value as the service takes it from an API call. What came
// in by other ways can be sent back as it is.
var huaweiText = regexp.MustCompile(`^"[^"\\]{0,255}"( "[^"\\]{0,255}")*$`)

// huaweiRefusal checks what a set is to be.
func huaweiRefusal(r Request, body huaweiBody, z zone, there []string) *Answer {
	fail := func(code, message string) *Answer {
		return new(huaweiFailure(http.StatusBadRequest, code, message))
	}
	name, dotted := strings.CutSuffix(body.Name, ".")
	switch {
	case r.Header.Get("Content-Type") != "application/json":
		return fail("DNS.0002", "Invalid request.")
	case !dotted || name != z.name && !strings.HasSuffix(name, "."+z.name) || body.Type != "TXT":
		return fail("DNS.0304", "Invalid record set name.")
	case body.TTL != nil && (*body.TTL < 1 || *body.TTL > 2147483647):
		return fail("DNS.0319", "Invalid record set TTL value.")
	case len(body.Records) == 0:
		return fail("DNS.0308", "Invalid record set value.")
	}
	for i, text := range body.Records {
		if slices.Contains(body.Records[:i], text) || !huaweiText.MatchString(text) && !slices.Contains(there, text) {
			return fail("DNS.0308", "Invalid record set value.")
		}
	}
	return nil
}

// put makes the records of a set, and has it pend.
func (h *huawei) put(c *Cloud, key huaweiKey, body huaweiBody, ttl uint32, status string) Answer {
	for _, r := range h.records(c, key) {
		c.delete(r.id)
	}
	if body.TTL != nil {
		ttl = uint32(*body.TTL)
	}
	for _, text := range body.Records {
		made := c.insert(key.name, key.kind, text, ttl)
		made.hidden, made.off = 0, key.off
	}
	set := h.set(c, key)
	set.status, set.looks = status, c.lag
	return huaweiAnswer(http.StatusAccepted, h.show(c, key))
}

func (h *huawei) create(c *Cloud, r Request, z zone) Answer {
	var body huaweiBody
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return huaweiFailure(http.StatusBadRequest, "DNS.0002", "Invalid request.")
	}
	if refusal := huaweiRefusal(r, body, z, nil); refusal != nil {
		return *refusal
	}
	key := huaweiKey{zone: z.name, name: fold(body.Name), kind: body.Type}
	conflict := "Attribute 'name' conflicts with Record Set '" + body.Name + "' type "
	switch {
	case c.aliased(key.name):
		return huaweiFailure(http.StatusBadRequest, "DNS.0312", conflict+"'CNAME'.")
	case len(h.records(c, key)) > 0:
		return huaweiFailure(http.StatusBadRequest, "DNS.0312", conflict+"'TXT' in line 'default_view'.")
	}
	return h.put(c, key, body, 300, "PENDING_CREATE")
}

// change replaces or deletes the set with an id.
func (h *huawei) change(c *Cloud, r Request, z zone, id string) Answer {
	for key, set := range h.sets {
		old := h.records(c, key)
		switch {
		case set.id != id || key.zone != z.name || len(old) == 0:
			continue
		case set.looks > 0:
			return huaweiFailure(http.StatusBadRequest, "DNS.0314", "The record set is not in a steady state.")
		case r.Method == http.MethodDelete:
			return h.remove(c, key)
		}
		var body huaweiBody
		if err := json.Unmarshal(r.Body, &body); err != nil {
			return huaweiFailure(http.StatusBadRequest, "DNS.0002", "Invalid request.")
		}
		var there []string
		for _, r := range old {
			there = append(there, r.content)
		}
		if refusal := huaweiRefusal(r, body, z, there); refusal != nil {
			return *refusal
		}
		return h.put(c, key, body, old[0].ttl, "PENDING_UPDATE")
	}
	return huaweiFailure(http.StatusNotFound, "DNS.0313", "This record set does not exist.")
}

// remove deletes a set at once, or at the look after the last that shows it.
func (h *huawei) remove(c *Cloud, key huaweiKey) Answer {
	set := h.set(c, key)
	set.status, set.looks = "PENDING_DELETE", c.lag
	answer := huaweiAnswer(http.StatusAccepted, h.show(c, key))
	if c.changes++; c.lag == 0 {
		h.drop(c, key)
	}
	return answer
}

var huaweiString = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)

// huaweiRead is of values in quotes.
func huaweiRead(text string) (value []string) {
	for _, found := range huaweiString.FindAllStringSubmatch(text, -1) {
		value = append(value, regexp.MustCompile(`\\(.)`).ReplaceAllString(found[1], "$1"))
	}
	return value
}
