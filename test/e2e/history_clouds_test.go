package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// DNSPod has two protocols for the same accounts, zones and records: its own older
// one and Tencent Cloud's. Both tell a zone by the same number. Signatures are left
// to the tests of package provider.

// podRequest is what either protocol asks for.
type podRequest struct {
	action           podAction
	search           string // of zones
	zone, name, kind string // of records; no name for the whole zone
	id, value        string
}

type podAction string

const (
	podDomains podAction = "list the zones"
	podRecords podAction = "list"
	podCreate  podAction = "add"
	podModify  podAction = "change"
	podRemove  podAction = "remove"
	podOther   podAction = "something else"
)

// podWords are how a protocol answers.
type podWords struct {
	zones   func(h *host, a *account, names []string) reply
	records func(zone string, records []podRecord) reply
	done    func(id string) reply
	fail    func(podFailure) reply
}

type podRecord struct{ id, name, kind, text string }

type podFailure int

const (
	podNoZone podFailure = iota
	podNoRecord
	podExists
	podUnknown
	podThrottled
	podBusy
	podRefused
)

// podCall makes a call of a request.
func podCall(h *host, a *account, q podRequest, words podWords) hostCall {
	at := spot{a, q.zone, typed(q.name, q.kind)}
	c := hostCall{text: string(q.action) + " " + at.String() + " " + q.value}
	switch {
	case q.action == podDomains:
		c.answer = func() reply {
			var names []string
			for zone := range a.zones {
				if strings.Contains(zone, q.search) {
					names = append(names, zone)
				}
			}
			slices.Sort(names)
			return words.zones(h, a, names)
		}
	case q.action == podOther:
		c.answer = fails(words.fail(podUnknown))
	case a.zones[q.zone] == nil:
		c.answer = fails(words.fail(podNoZone))
	case q.action == podRecords && q.kind == "CNAME": // there are none
		c.answer = fails(words.records(q.zone, nil))
	case q.action == podRecords:
		c.at, c.looks = at, true
		c.answer = func() reply { return words.records(q.zone, podList(h, at, q.kind)) }
	case q.action == podCreate:
		c.at, c.write, c.puts = at, true, map[spot][]string{at: {q.value}}
		c.answer = func() reply {
			switch {
			case a.zones[q.zone] == nil:
				return words.fail(podNoZone)
			case slices.Contains(texts(h.values(at)), q.value):
				return words.fail(podExists)
			}
			return words.done(strconv.Itoa(h.add(at, q.value)))
		}
	default:
		return podByID(h, a, q, words)
	}
	return c
}

// podList gives what stands at a name, or what of a kind stands in the whole zone.
func podList(h *host, at spot, kind string) (records []podRecord) {
	names := []string{at.name}
	if at.name == "" {
		names = h.names(at)
	}
	for _, name := range names {
		if kind != "" && kindOf(name) != kind {
			continue
		}
		for _, value := range h.look(spot{at.account, at.zone, name}) {
			records = append(records, podRecord{strconv.Itoa(value.id), relativeTo(name, at.zone), kindOf(name), value.text})
		}
	}
	return records
}

func podByID(h *host, a *account, q podRequest, words podWords) hostCall {
	at, old, found := a.find(q.id)
	c := hostCall{write: found, at: at, text: fmt.Sprintf("%s %s %q %q", q.action, at.name, old.text, q.value)}
	if q.action == podModify {
		c.puts = map[spot][]string{at: {q.value}}
	}
	c.answer = func() reply {
		at, old, found := a.find(q.id)
		switch {
		case !found:
			return words.fail(podNoRecord)
		case q.action == podModify && slices.Contains(texts(h.values(at)), q.value):
			return words.fail(podExists)
		}
		h.remove(at, old.text)
		if q.action == podModify {
			a.zones[at.zone][at.name] = append(a.zones[at.zone][at.name], standing{old.id, q.value})
		}
		return words.done(q.id)
	}
	return c
}

// podName gives a full name.
func podName(relative, zone string) string {
	return strings.TrimPrefix(strings.ToLower(relative)+"."+zone, "@.")
}

var tencentCredential = regexp.MustCompile(`Credential=([^/]+)/`)

var tencentFront = front{
	provider: "tencentcloud",
	key: func(r *http.Request, _ []byte) (string, string) {
		found := tencentCredential.FindStringSubmatch(r.Header.Get("Authorization"))
		if found == nil {
			return "", ""
		}
		return found[1], ""
	},
	read:    readTencent,
	failure: podFault(tencentWords),
}

// podFault gives the failures of a protocol.
func podFault(words podWords) func(kind faultKind) reply {
	return func(kind faultKind) reply {
		switch kind {
		case throttled:
			return words.fail(podThrottled)
		case throttledFor:
			answer := words.fail(podThrottled)
			answer.after = "1"
			return answer
		case unavailable:
			return words.fail(podBusy)
		}
		return words.fail(podRefused)
	}
}

func tencentOK(response map[string]any) reply {
	response["RequestId"] = "r"
	return reply{status: http.StatusOK, body: map[string]any{"Response": response}}
}

var tencentCodes = map[podFailure]string{
	podNoZone: "InvalidParameterValue.DomainNotExists", podNoRecord: "InvalidParameter.RecordIdInvalid", podExists: "InvalidParameter.DomainRecordExist",
	podUnknown: "InvalidAction", podThrottled: "RequestLimitExceeded", podBusy: "InternalError", podRefused: "AuthFailure.SecretIdNotFound",
}

var tencentWords = podWords{
	zones: func(h *host, a *account, names []string) reply {
		list := []any{}
		for _, name := range names {
			list = append(list, map[string]any{"DomainId": h.id(a, name), "Name": name, "Punycode": name, "Grade": "DP_FREE", "EffectiveDNS": []string{}})
		}
		return tencentOK(map[string]any{"DomainCountInfo": map[string]any{"DomainTotal": len(list)}, "DomainList": list})
	},
	records: func(_ string, records []podRecord) reply {
		list := []any{}
		for _, r := range records {
			list = append(list, map[string]any{
				"RecordId": json.Number(r.id), "Name": r.name, "Type": r.kind, "Value": r.text, "TTL": 600, "Line": "默认", "LineId": "0", "Status": "ENABLE",
			})
		}
		return tencentOK(map[string]any{"RecordCountInfo": map[string]any{"TotalCount": len(list)}, "RecordList": list})
	},
	done: func(id string) reply { return tencentOK(map[string]any{"RecordId": json.Number(id)}) },
	fail: func(f podFailure) reply {
		return tencentOK(map[string]any{"Error": map[string]string{"Code": tencentCodes[f], "Message": "words of the vendor"}})
	},
}

func readTencent(h *host, a *account, r *http.Request, body []byte) hostCall {
	var p struct {
		Keyword, Domain, Subdomain, SubDomain, RecordType, Value string
		RecordId                                                 json.Number
	}
	json.Unmarshal(body, &p)
	q := podRequest{action: podOther, search: p.Keyword, zone: strings.ToLower(p.Domain), kind: p.RecordType, id: p.RecordId.String(), value: p.Value}
	switch r.Header.Get("X-TC-Action") {
	case "DescribeDomainList":
		q.action = podDomains
	case "DescribeRecordList":
		if q.action = podRecords; p.Subdomain != "" {
			q.name = podName(p.Subdomain, q.zone)
		}
	case "CreateRecord":
		q.action, q.name = podCreate, podName(p.SubDomain, q.zone)
	case "ModifyRecord":
		q.action = podModify
	case "DeleteRecord":
		q.action = podRemove
	}
	return podCall(h, a, q, tencentWords)
}

var podFront = front{
	provider: "dnspod",
	key: func(_ *http.Request, body []byte) (string, string) {
		form, _ := url.ParseQuery(string(body))
		id, secret, _ := strings.Cut(form.Get("login_token"), ",")
		return id, secret
	},
	read:    readPod,
	failure: podFault(ownPodWords),
}

func podOK(answer map[string]any) reply {
	answer["status"] = map[string]string{"code": "1", "message": "done"}
	return reply{status: http.StatusOK, body: answer}
}

var podCodes = map[podFailure]string{
	podNoZone: "6", podNoRecord: "8", podExists: "104", podUnknown: "4", podThrottled: "-2", podBusy: "-99", podRefused: "-1",
}

var ownPodWords = podWords{
	zones: func(h *host, a *account, names []string) reply {
		list := []any{}
		for _, name := range names {
			list = append(list, map[string]any{"id": h.id(a, name), "name": name, "punycode": name})
		}
		return podOK(map[string]any{"info": map[string]any{"domain_total": len(list)}, "domains": list})
	},
	records: func(_ string, records []podRecord) reply {
		list := []any{}
		for _, r := range records {
			list = append(list, map[string]any{
				"id": r.id, "name": r.name, "type": r.kind, "value": r.text, "ttl": "600", "line": "默认", "line_id": "0", "enabled": "1",
			})
		}
		return podOK(map[string]any{"info": map[string]any{"record_total": strconv.Itoa(len(list))}, "records": list})
	},
	done: func(id string) reply { return podOK(map[string]any{"record": map[string]string{"id": id}}) },
	fail: func(f podFailure) reply {
		return reply{status: http.StatusOK, body: map[string]any{"status": map[string]string{"code": podCodes[f], "message": "words of the vendor"}}}
	},
}

func readPod(h *host, a *account, r *http.Request, body []byte) hostCall {
	form, _ := url.ParseQuery(string(body))
	q := podRequest{action: podOther, search: form.Get("keyword"), kind: form.Get("record_type"), id: form.Get("record_id"), value: form.Get("value")}
	for zone := range a.zones {
		if strconv.Itoa(h.id(a, zone)) == form.Get("domain_id") {
			q.zone = zone
		}
	}
	switch r.URL.Path {
	case "/Domain.List":
		q.action = podDomains
	case "/Record.List":
		if q.action = podRecords; form.Get("sub_domain") != "" {
			q.name = podName(form.Get("sub_domain"), q.zone)
		}
	case "/Record.Create":
		q.action, q.name = podCreate, podName(form.Get("sub_domain"), q.zone)
	case "/Record.Modify":
		q.action = podModify
	case "/Record.Remove":
		q.action = podRemove
	}
	return podCall(h, a, q, ownPodWords)
}

// powerFront speaks the HTTP API of PowerDNS: sets are replaced whole, those of many
// names in one transaction.
var powerFront = front{
	provider: "powerdns",
	key: func(r *http.Request, _ []byte) (string, string) {
		id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, powerPath), "/")
		return id, r.Header.Get("X-API-Key")
	},
	read: readPower,
	failure: func(kind faultKind) reply {
		switch kind {
		case throttled:
			return powerFailure(http.StatusTooManyRequests)
		case throttledFor:
			answer := powerFailure(http.StatusTooManyRequests)
			answer.after = "1"
			return answer
		case unavailable:
			return powerFailure(http.StatusInternalServerError)
		}
		return powerFailure(http.StatusUnauthorized)
	},
}

const powerPath = "/api/v1/servers/"

func powerFailure(status int) reply {
	return reply{status: status, body: map[string]string{"error": "words of the server"}}
}

func readPower(h *host, a *account, r *http.Request, body []byte) hostCall {
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, powerPath), "/")
	part, zone, _ := strings.Cut(path, "/")
	zone = strings.TrimSuffix(zone, ".")
	query := r.URL.Query()
	switch {
	case path == "":
		return hostCall{text: "read the server", answer: fails(reply{status: http.StatusOK, body: map[string]string{"version": "5.0.1"}})}
	case part == "zones" && zone == "" && r.Method == http.MethodGet:
		return hostCall{text: "list the zones of " + a.name, answer: func() reply { return powerZones(a, strings.TrimSuffix(query.Get("zone"), ".")) }}
	case part != "zones" || a.zones[zone] == nil:
		return hostCall{text: r.Method + " " + path, answer: fails(powerFailure(http.StatusNotFound))}
	case r.Method == http.MethodPatch:
		return powerChange(h, spot{a, zone, ""}, body)
	}
	if query.Get("rrsets") == "false" {
		return hostCall{text: "read the members of " + zone, answer: fails(reply{status: http.StatusOK, body: map[string]string{"id": zone + ".", "name": zone + ".", "kind": "Native"}})}
	}
	at := spot{a, zone, strings.TrimSuffix(query.Get("rrset_name"), ".")}
	if kind := query.Get("rrset_type"); at.name != "" {
		at.name = typed(at.name, kind)
	}
	return hostCall{at: at, looks: true, text: "list " + at.String(), answer: func() reply {
		names := []string{at.name}
		if at.name == "" {
			names = h.names(at)
		}
		return reply{status: http.StatusOK, body: map[string]any{"id": zone + ".", "name": zone + ".", "rrsets": powerSets(h, at, names)}}
	}}
}

func powerZones(a *account, only string) reply {
	list := []any{}
	for zone := range a.zones {
		if only == "" || only == zone {
			list = append(list, map[string]string{"id": zone + ".", "name": zone + ".", "kind": "Native"})
		}
	}
	return reply{status: http.StatusOK, body: list}
}

func powerSets(h *host, at spot, names []string) []any {
	sets := []any{}
	for _, name := range names {
		records := []any{}
		for _, text := range texts(h.look(spot{at.account, at.zone, name})) {
			records = append(records, map[string]any{"content": powerContent(kindOf(name), text), "disabled": false})
		}
		if len(records) > 0 {
			sets = append(sets, map[string]any{"name": bare(name) + ".", "type": kindOf(name), "ttl": 60, "records": records})
		}
	}
	return sets
}

// powerChange replaces the sets of some names. It compares nothing: the client that writes last
// wins.
func powerChange(h *host, zone spot, body []byte) hostCall {
	var change struct {
		RRsets []struct {
			Name, Type string
			Records    []struct{ Content string }
		}
	}
	if err := json.Unmarshal(body, &change); err != nil || len(change.RRsets) == 0 {
		return hostCall{text: string(body), answer: fails(powerFailure(http.StatusBadRequest))}
	}
	c := hostCall{write: true, text: "replace"}
	sets := map[spot][]string{}
	for _, set := range change.RRsets {
		at := spot{zone.account, zone.zone, typed(strings.TrimSuffix(strings.ToLower(set.Name), "."), set.Type)}
		sets[at] = []string{}
		for _, r := range set.Records {
			sets[at] = append(sets[at], powerData(set.Type, r.Content))
		}
		c.all = append(c.all, at)
		c.text += fmt.Sprintf(" %s %q", at, sets[at])
	}
	c.at, c.puts = c.all[0], sets
	c.answer = func() reply {
		if zone.account.zones[zone.zone] == nil {
			return powerFailure(http.StatusNotFound)
		}
		for _, at := range c.all {
			zone.account.zones[at.zone][at.name] = nil
			for _, text := range sets[at] {
				h.add(at, text)
			}
		}
		return reply{status: http.StatusNoContent}
	}
	return c
}

// powerContent writes data as PowerDNS does: text in quotes, the target of an SRV record with its final dot.
func powerContent(kind, text string) string {
	switch kind {
	case "TXT":
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
	case "SRV":
		return text + "."
	}
	return text
}

// powerData is the inverse of powerContent.
func powerData(kind, content string) string {
	if kind == "TXT" {
		return powerText(content)
	}
	return strings.TrimSuffix(content, ".")
}

// powerText reads quoted strings, joined.
func powerText(content string) (text string) {
	for _, part := range powerString.FindAllStringSubmatch(content, -1) {
		text += powerEscape.ReplaceAllStringFunc(part[1], func(escape string) string {
			if octet, err := strconv.ParseUint(escape[1:], 10, 8); err == nil && len(escape) == 4 {
				return string([]byte{byte(octet)})
			}
			return escape[1:]
		})
	}
	return text
}

var (
	powerString = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
	powerEscape = regexp.MustCompile(`\\([0-9]{3}|.)`)
)
