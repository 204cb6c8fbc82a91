package cloudtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Cloudflare is Cloudflare's API, version 4, with an API token. It has no
// clock in its requests. A record that is off is an address that is proxied.
func Cloudflare(t testing.TB) *Cloud {
	throttled := cfFailure(http.StatusTooManyRequests, 971, "Please wait and consider throttling your request speed")
	throttled.Header["Retry-After"] = "7"
	return start(t, &Cloud{
		Provider: "cloudflare", AccessKeyID: "token", AccessKeySecret: "FAKE-cloudflare-api-token-0123456789abcdef", MinTTL: 60,
	}, vendor{authorize: cfAuthorize, serve: cfServe, spell: cfSpell, read: cfRead, throttle: throttled})
}

type cfError struct {
	Code    int       `json:"code"`
	Message string    `json:"message"`
	Chain   []cfError `json:"error_chain,omitempty"`
}

func cfAnswer(status int, success bool, result, info any, failures ...cfError) Answer {
	a := JSON(status, map[string]any{
		"success": success, "result": result, "result_info": info, "errors": append([]cfError{}, failures...), "messages": []string{},
	})
	a.Header["cf-ray"] = "8f0000000000abcd-FRA"
	return a
}

func cfFailure(status, code int, message string, chain ...cfError) Answer {
	return cfAnswer(status, false, nil, nil, cfError{code, message, chain})
}

func cfInvalid(code int, message string) Answer {
	return cfFailure(http.StatusBadRequest, 1004, "DNS Validation Error", cfError{Code: code, Message: message})
}

func cfAuthorize(c *Cloud, r Request) *Answer {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	var failure Answer
	switch {
	case !bearer || token == "" || strings.Contains(token, " "):
		failure = cfFailure(http.StatusBadRequest, 6003, "Invalid request headers", cfError{Code: 6111, Message: "Invalid format for Authorization header"})
	case token != c.AccessKeySecret:
		failure = cfFailure(http.StatusForbidden, 9109, "Invalid access token")
	default:
		return nil
	}
	return &failure
}

var cfPath = regexp.MustCompile(`^/client/v4/zones/([^/]+)/dns_records(?:/([^/]+))?$`)

func cfServe(c *Cloud, r Request) Answer {
	if r.Path == "/client/v4/zones" && r.Method == http.MethodGet {
		return cfZones(c, r)
	}
	parts := cfPath.FindStringSubmatch(r.Path)
	if parts == nil {
		return cfFailure(http.StatusBadRequest, 7000, "No route for that URI")
	}
	z, ok := c.zoneWhere(func(z zone) bool { return cfID(z.id) == parts[1] })
	if !ok {
		return cfFailure(http.StatusBadRequest, 7003, "Could not route to "+r.Path+", perhaps your object identifier is invalid?")
	}
	if parts[2] == "" {
		switch r.Method {
		case http.MethodGet:
			return cfList(c, r, z)
		case http.MethodPost:
			return cfCreate(c, r, z)
		}
		return cfFailure(http.StatusMethodNotAllowed, 10405, "Method not allowed for this authentication scheme")
	}
	if parts[2] == "batch" && r.Method == http.MethodPost {
		return cfBatch(c, r, z)
	}
	at := slices.IndexFunc(c.records, func(one *record) bool { return one.zone == z.name && cfID(one.id) == parts[2] })
	if at < 0 {
		return cfFailure(http.StatusNotFound, 81044, "Record does not exist.")
	}
	switch old := c.records[at]; r.Method {
	case http.MethodPatch:
		return cfPatch(c, r, z, old)
	case http.MethodDelete:
		c.delete(old.id)
		return cfAnswer(http.StatusOK, true, map[string]string{"id": parts[2]}, nil)
	}
	return cfFailure(http.StatusMethodNotAllowed, 10405, "Method not allowed for this authentication scheme")
}

func cfID(id int) string { return fmt.Sprintf("%032x", id) }

// cfPage answers with one page of a list; without a page, the first.
func cfPage(c *Cloud, r Request, items []any, most int) Answer {
	current, size := max(1, number(r.Query("page"))), c.size(number(r.Query("per_page")), 20, most)
	shown := append([]any{}, page(items, current, size)...)
	return cfAnswer(http.StatusOK, true, shown, map[string]int{
		"page": current, "per_page": size, "count": len(shown), "total_count": len(items), "total_pages": (len(items) + size - 1) / size,
	})
}

// cfZones lists every zone unless it is asked for a name. A zone that only a
// private network sees is of the type internal.
func cfZones(c *Cloud, r Request) Answer {
	var found []any
	for _, z := range c.zones {
		if name := r.Query("name"); name != "" && name != z.name {
			continue
		}
		kind := "full"
		if z.private {
			kind = "internal"
		}
		found = append(found, map[string]any{
			"id": cfID(z.id), "name": z.name, "status": "active", "paused": false, "type": kind,
			"name_servers": []string{"a.ns.cloudflare.com", "b.ns.cloudflare.com"},
		})
	}
	return cfPage(c, r, found, 50)
}

// cfList lists the whole zone unless it is asked for a name.
func cfList(c *Cloud, r Request, z zone) Answer {
	var found []any
	for _, one := range c.at(z.name, r.Query("name.exact"), r.Query("type")) {
		if r.Query("proxied") == "true" && !one.off {
			continue
		}
		found = append(found, cfShown(one))
	}
	return cfPage(c, r, found, 5000)
}

func cfShown(r *record) map[string]any {
	shown := map[string]any{
		"id": cfID(r.id), "name": r.name, "type": r.kind, "content": r.content, "ttl": r.ttl,
		"proxiable": r.kind[0] == 'A', "proxied": r.off, "settings": map[string]any{}, "meta": map[string]any{}, "comment": nil, "tags": []string{},
	}
	if r.kind == "SRV" { // the content lacks the priority
		var data cfSRV
		fmt.Sscan(r.content, &data.Priority, &data.Weight, &data.Port, &data.Target)
		shown["content"] = fmt.Sprintf("%d %d %s", data.Weight, data.Port, data.Target)
		shown["priority"], shown["data"] = data.Priority, data
	}
	return shown
}

// cfSRV is the data of an SRV record.
type cfSRV struct {
	Priority uint16 `json:"priority"`
	Weight   uint16 `json:"weight"`
	Port     uint16 `json:"port"`
	Target   string `json:"target"`
}

// cfBody is a record in a request. What an edit does not name stays.
type cfBody struct {
	Type, Name, Content string
	TTL                 int
	Data                *cfSRV
}

// parse reads the body of a request into the record. The content of an SRV record is made of its data.
func (b *cfBody) parse(r Request) bool {
	if err := json.Unmarshal(r.Body, b); err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return false
	}
	if b.Type == "SRV" && b.Data != nil {
		b.Content = fmt.Sprintf("%d %d %d %s", b.Data.Priority, b.Data.Weight, b.Data.Port, b.Data.Target)
	}
	return true
}

// cfName completes a name that is not in the zone, which is easily a surprise.
func cfName(name, zone string) string {
	if name = fold(name); name == zone || strings.HasSuffix(name, "."+zone) {
		return name
	}
	return fullName(name, zone)
}

// cfRefusal checks what a record is to be; old is the one that is edited.
func cfRefusal(c *Cloud, b cfBody, name, zone string, old *record) *Answer {
	fail := func(a Answer) *Answer { return &a }
	for _, r := range c.records {
		if r.name == name && r != old && r.kind == b.Type && slices.Equal(cfRead(r.content), cfRead(b.Content)) {
			return fail(cfFailure(http.StatusBadRequest, 81058, "An identical record already exists."))
		}
	}
	switch {
	case !slices.Contains(kinds, b.Type):
		return fail(cfInvalid(9000, "DNS name is invalid."))
	case strings.Join(cfRead(b.Content), "") == "" || !rightData(b.Type, b.Content) || b.Type == "SRV" && b.Data == nil && old == nil:
		return fail(cfInvalid(9009, "Content for "+b.Type+" record is invalid."))
	case b.TTL != 1 && (b.TTL < 60 || b.TTL > 86400):
		return fail(cfInvalid(9021, "Invalid TTL. Must be between 60 and 86400 seconds, or 1 for Automatic."))
	case name != zone && c.aliased(name): // at the zone's own name a CNAME is flattened, and excludes nothing
		return fail(cfFailure(http.StatusBadRequest, 81054, "A CNAME record with that host already exists."))
	}
	return nil
}

// cfBatch makes deletions, edits and creations, in this order, in one
// transaction: the first failure undoes all.
func cfBatch(c *Cloud, r Request, z zone) Answer {
	var steps struct{ Deletes, Patches, Posts []json.RawMessage }
	if err := json.Unmarshal(r.Body, &steps); err != nil {
		return cfFailure(http.StatusBadRequest, 9207, "Failed to parse request body")
	}
	if n := len(steps.Deletes) + len(steps.Patches) + len(steps.Posts); n == 0 || n > cfOperations {
		return cfFailure(http.StatusBadRequest, 9500, fmt.Sprintf("Batch has %d operations, at most 200 are allowed", n))
	}
	before, changes := c.copied(), c.changes
	for kind, bodies := range [][]json.RawMessage{steps.Deletes, steps.Patches, steps.Posts} {
		for _, body := range bodies {
			step := r
			step.Body = body
			if answer := cfStep(c, step, z, kind); answer.Status != http.StatusOK {
				c.records, c.changes = before, changes
				return answer
			}
		}
	}
	return cfAnswer(http.StatusOK, true, map[string]any{"deletes": nil, "patches": nil, "puts": nil, "posts": nil}, nil)
}

const cfOperations = 200 // in a batch

// cfStep makes one step of a batch: kind 0 deletes, 1 edits, 2 creates.
func cfStep(c *Cloud, r Request, z zone, kind int) Answer {
	if kind == 2 {
		return cfCreate(c, r, z)
	}
	var named struct{ ID string }
	if err := json.Unmarshal(r.Body, &named); err != nil {
		return cfFailure(http.StatusBadRequest, 9207, "Failed to parse request body")
	}
	at := slices.IndexFunc(c.records, func(one *record) bool { return one.zone == z.name && cfID(one.id) == named.ID })
	switch {
	case at < 0:
		return cfFailure(http.StatusNotFound, 81044, "Record does not exist.")
	case kind == 1:
		return cfPatch(c, r, z, c.records[at])
	}
	c.delete(c.records[at].id)
	return cfAnswer(http.StatusOK, true, nil, nil)
}

func cfCreate(c *Cloud, r Request, z zone) Answer {
	var b cfBody
	if !b.parse(r) {
		return cfFailure(http.StatusBadRequest, 9207, "Failed to parse request body")
	}
	name := cfName(b.Name, z.name)
	if refusal := cfRefusal(c, b, name, z.name, nil); refusal != nil {
		return *refusal
	}
	return cfAnswer(http.StatusOK, true, cfShown(c.insert(name, b.Type, b.Content, uint32(b.TTL))), nil)
}

func cfPatch(c *Cloud, r Request, z zone, old *record) Answer {
	b := cfBody{Type: old.kind, Name: old.name, Content: old.content, TTL: int(old.ttl)}
	if !b.parse(r) {
		return cfFailure(http.StatusBadRequest, 9207, "Failed to parse request body")
	}
	name := cfName(b.Name, z.name)
	if refusal := cfRefusal(c, b, name, z.name, old); refusal != nil {
		return *refusal
	}
	c.changes++
	old.name, old.kind, old.content, old.ttl = name, b.Type, b.Content, uint32(b.TTL)
	return cfAnswer(http.StatusOK, true, cfShown(old), nil)
}

// cfSpell writes a value as users do: without quotes where that is enough,
// and as it was written it comes back.
func cfSpell(value []string) string {
	if len(value) == 1 && value[0] != "" && !strings.ContainsAny(value[0], `"\`) && strings.TrimSpace(value[0]) == value[0] {
		return value[0]
	}
	return spellQuoted(value)
}

var (
	cfQuoted = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
	cfValue  = regexp.MustCompile(`^(?:\s*"(?:[^"\\]|\\.)*")+\s*$`)
	cfEscape = regexp.MustCompile(`\\([0-9]{3}|.)`)
)

// cfRead cuts a string that is too long, as the service does.
func cfRead(text string) (value []string) {
	if !cfValue.MatchString(text) {
		return readPlain(text)
	}
	for _, part := range cfQuoted.FindAllStringSubmatch(text, -1) {
		plain := cfEscape.ReplaceAllStringFunc(part[1], func(escape string) string {
			if octet, err := strconv.ParseUint(escape[1:], 10, 8); err == nil && len(escape) == 4 {
				return string([]byte{byte(octet)})
			}
			return escape[1:]
		})
		value = append(value, readPlain(plain)...)
	}
	return value
}
