package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// fronts are the protocols, by the name of the provider.
var fronts = map[string]front{}

func init() { // as the fronts use the host, which uses the list
	for _, f := range []front{bridgeFront, aliFront, tencentFront, podFront, powerFront} {
		fronts[f.provider] = f
	}
}

// bridgeFront speaks the webhook protocol: the key pair is user and password,
// a change names what was seen.
var bridgeFront = front{
	provider: "webhook",
	key: func(r *http.Request, _ []byte) (string, string) {
		id, secret, _ := r.BasicAuth()
		return id, secret
	},
	read: readBridge,
	failure: func(kind faultKind) reply {
		switch kind {
		case throttled:
			return bridgeFailure(http.StatusTooManyRequests, "throttled")
		case throttledFor:
			return reply{status: http.StatusTooManyRequests, body: map[string]string{"error": "slowly", "kind": "throttled"}, after: "1"}
		case unavailable:
			return bridgeFailure(http.StatusServiceUnavailable, "")
		}
		return bridgeFailure(http.StatusUnauthorized, "")
	},
}

func bridgeFailure(status int, kind string) reply {
	return reply{status: status, body: map[string]string{"error": "words of the bridge", "kind": kind}}
}

func fails(answer reply) func() reply { return func() reply { return answer } }

func readBridge(h *host, a *account, r *http.Request, body []byte) hostCall {
	name, zone, kind := r.URL.Query().Get("name"), r.URL.Query().Get("zone"), r.URL.Query().Get("type")
	at := spot{a, a.zoneOf(name), typed(name, kind)}
	switch {
	case r.Method == http.MethodPost:
		return bridgeChange(h, a, body)
	case r.Method == http.MethodGet && a.lists && a.zones[zone] != nil:
		return bridgeList(h, spot{a, zone, ""})
	case r.Method == http.MethodGet && a.lists && r.URL.Query().Get("zones") == "all":
		return hostCall{text: "list the zones of " + a.name, answer: func() reply { return bridgeZones(a) }}
	case r.Method != http.MethodGet || name == "" || at.zone == "":
		return hostCall{text: r.Method + " " + r.URL.RawQuery, answer: fails(bridgeFailure(http.StatusNotFound, ""))}
	}
	return hostCall{at: at, looks: true, text: "read " + at.String(), answer: func() reply {
		return reply{status: http.StatusOK, body: map[string]any{
			"zone": at.zone, "id": bridgeID(a, at.zone), "type": kind, "ttl": 60, "values": texts(h.look(at)),
		}}
	}}
}

// bridgeID tells a zone from others of its name, where the bridge does.
func bridgeID(a *account, zone string) string {
	if a.nameless {
		return ""
	}
	return a.name + "/" + zone
}

func bridgeZones(a *account) reply {
	zones := []any{}
	for zone := range a.zones {
		zones = append(zones, map[string]any{"zone": zone, "id": bridgeID(a, zone)})
	}
	return reply{status: http.StatusOK, body: map[string]any{"zones": zones}}
}

// bridgeList has the names that are the zone's, with their TXT values: a bridge has no words for
// those that a longer zone has.
func bridgeList(h *host, at spot) hostCall {
	return hostCall{at: at, looks: true, text: "list all of " + at.String(), answer: func() reply {
		names := []any{}
		for _, name := range h.names(at) {
			if at.account.zoneOf(name) == at.zone && kindOf(name) == "TXT" {
				values := texts(h.look(spot{at.account, at.zone, name}))
				names = append(names, map[string]any{"name": name, "ttl": 60, "values": values})
			}
		}
		return reply{status: http.StatusOK, body: map[string]any{"zone": at.zone, "names": names}}
	}}
}

// trespass notes a change that would remove a value of others, or would add a first value without a mark beside one that
// was seen: only what stands of ours is replaced there. A value that the program has asked to write before may be its own.
func (h *host) trespass(at spot, seen, add, remove []string) {
	others := func(text string) bool {
		owner, _ := marks(text)
		return owner == "" && h.foreign(at, text) && !h.book[at][text]
	}
	marked := slices.ContainsFunc(add, func(text string) bool { owner, _ := marks(text); return owner != "" })
	switch {
	case slices.ContainsFunc(remove, others):
		h.broken = append(h.broken, fmt.Sprintf("a change at %s removes a value of others: %q", at, remove))
	case len(add) > 0 && !marked && !isChallenge(at.name) && len(seen) > 0 && !slices.ContainsFunc(seen, func(text string) bool { return !others(text) }):
		h.broken = append(h.broken, fmt.Sprintf("a change at %s writes beside the values %q of others", at, seen))
	}
}

// bridgeChange compares when the change is made, not when it was sent.
func bridgeChange(h *host, a *account, body []byte) hostCall {
	var change struct {
		Zone, Name, Type  string
		Seen, Add, Remove []string
	}
	if err := json.Unmarshal(body, &change); err != nil {
		return hostCall{text: string(body), answer: fails(bridgeFailure(http.StatusBadRequest, ""))}
	}
	at := spot{a, change.Zone, typed(change.Name, change.Type)}
	h.trespass(at, change.Seen, change.Add, change.Remove)
	text := fmt.Sprintf("change %s +%q -%q", at, change.Add, change.Remove)
	return hostCall{write: true, at: at, puts: map[spot][]string{at: change.Add}, text: text, answer: func() reply {
		if a.zoneOf(at.name) != at.zone || at.zone == "" {
			return bridgeFailure(http.StatusNotFound, "")
		}
		seen, there := slices.Clone(change.Seen), texts(h.values(at))
		slices.Sort(seen)
		slices.Sort(there)
		if !slices.Equal(seen, there) {
			return bridgeFailure(http.StatusConflict, "")
		}
		for _, value := range change.Add {
			if !slices.Contains(there, value) {
				h.add(at, value)
			}
		}
		for _, value := range change.Remove {
			h.remove(at, value)
		}
		return reply{status: http.StatusNoContent}
	}}
}

// aliFront speaks the API of Alibaba Cloud DNS: zones are named in each call,
// and records are changed one by one, by their ids. Signatures are left to the
// tests of package provider.
var aliFront = front{
	provider: "alidns",
	key: func(r *http.Request, _ []byte) (string, string) {
		found := aliCredential.FindStringSubmatch(r.Header.Get("Authorization"))
		if found == nil {
			return "", ""
		}
		return found[1], ""
	},
	read: readAli,
	failure: func(kind faultKind) reply {
		switch kind {
		case throttled:
			return aliFailure(http.StatusBadRequest, "Throttling.User")
		case throttledFor:
			answer := aliFailure(http.StatusTooManyRequests, "Throttling.User")
			answer.after = "1"
			return answer
		case unavailable:
			return aliFailure(http.StatusServiceUnavailable, "ServiceUnavailable")
		}
		return aliFailure(http.StatusNotFound, "InvalidAccessKeyId.NotFound")
	},
}

var aliCredential = regexp.MustCompile(`Credential=([^,]+),`)

func aliFailure(status int, code string) reply {
	return reply{status: status, body: map[string]string{"RequestId": "r", "Code": code, "Message": code}}
}

func aliOK(members map[string]any) reply {
	members["RequestId"] = "r"
	return reply{status: http.StatusOK, body: members}
}

func readAli(h *host, a *account, r *http.Request, _ []byte) hostCall {
	action, query := r.Header.Get("X-Acs-Action"), r.URL.Query()
	zone := strings.ToLower(query.Get("DomainName"))
	kind := query.Get("Type") + query.Get("TypeKeyWord")
	c := hostCall{text: action + " " + query.Get("KeyWord")}
	switch action {
	case "DescribeDomains":
		c.answer = func() reply { return aliDomains(a, query.Get("KeyWord")) }
		return c
	case "UpdateDomainRecord", "DeleteDomainRecord":
		return aliByID(h, a, action, query.Get("RecordId"), query.Get("Value"))
	}
	switch {
	case a.zones[zone] == nil:
		c.answer = fails(aliFailure(http.StatusBadRequest, "InvalidDomainName.NoExist"))
	case action == "DescribeDomainInfo":
		c.answer = fails(aliOK(map[string]any{"MinTtl": 60}))
	case kind == "CNAME": // there are none
		c.answer = fails(aliOK(map[string]any{"TotalCount": 0, "DomainRecords": map[string]any{"Record": []any{}}}))
	case action == "DescribeSubDomainRecords":
		at := spot{a, zone, typed(strings.ToLower(query.Get("SubDomain")), kind)}
		c = hostCall{at: at, looks: true, text: "list " + at.String(), answer: func() reply { return aliRecords(h, at, kind) }}
	case action == "DescribeDomainRecords":
		at := spot{a, zone, ""}
		c = hostCall{at: at, looks: true, text: "list all of " + at.String(), answer: func() reply { return aliRecords(h, at, kind) }}
	case action == "AddDomainRecord":
		name := strings.TrimPrefix(strings.ToLower(query.Get("RR"))+"."+zone, "@.")
		at := spot{a, zone, typed(name, kind)}
		puts := map[spot][]string{at: {query.Get("Value")}}
		c = hostCall{write: true, at: at, puts: puts, text: fmt.Sprintf("add %s %q", at, query.Get("Value")), answer: func() reply {
			if slices.Contains(texts(h.values(at)), query.Get("Value")) {
				return aliFailure(http.StatusBadRequest, "DomainRecordDuplicate")
			}
			if a.zones[zone] == nil {
				return aliFailure(http.StatusBadRequest, "InvalidDomainName.NoExist")
			}
			return aliOK(map[string]any{"RecordId": fmt.Sprint(h.add(at, query.Get("Value")))})
		}}
	default:
		c.answer = fails(aliFailure(http.StatusNotFound, "InvalidAction.NotFound"))
	}
	return c
}

func aliDomains(a *account, word string) reply {
	domains := []any{}
	for zone := range a.zones {
		if word == "" || word == zone {
			domains = append(domains, map[string]any{
				"DomainId": a.name + "/" + zone, "DomainName": zone, "PunyCode": zone, "DnsServers": map[string]any{"DnsServer": []string{}},
			})
		}
	}
	return aliOK(map[string]any{"TotalCount": len(domains), "Domains": map[string]any{"Domain": domains}})
}

// aliRecords lists a name, or the records of a kind ("": all) of the whole zone, which has never
// values enough for more than one page.
func aliRecords(h *host, at spot, kind string) reply {
	records := []any{}
	names := []string{at.name}
	if at.name == "" {
		names = h.names(at)
	}
	for _, name := range names {
		if kind != "" && kindOf(name) != kind {
			continue
		}
		for _, value := range h.look(spot{at.account, at.zone, name}) {
			records = append(records, map[string]any{
				"DomainName": at.zone, "RecordId": fmt.Sprint(value.id), "RR": relativeTo(name, at.zone), "Type": kindOf(name),
				"Value": value.text, "TTL": 60, "Line": "default", "Status": "ENABLE",
			})
		}
	}
	return aliOK(map[string]any{"TotalCount": len(records), "DomainRecords": map[string]any{"Record": records}})
}

func aliByID(h *host, a *account, action, id, value string) hostCall {
	at, old, found := a.find(id)
	c := hostCall{write: found, at: at, text: fmt.Sprintf("%s %s %q %q", action, at.name, old.text, value)}
	if action == "UpdateDomainRecord" {
		c.puts = map[spot][]string{at: {value}}
	}
	c.answer = func() reply {
		at, old, found := a.find(id)
		switch {
		case !found:
			return aliFailure(http.StatusBadRequest, "DomainRecordNotBelongToUser")
		case action == "UpdateDomainRecord" && slices.Contains(texts(h.values(at)), value):
			return aliFailure(http.StatusBadRequest, "DomainRecordDuplicate")
		}
		h.remove(at, old.text)
		if action == "UpdateDomainRecord" {
			a.zones[at.zone][at.name] = append(a.zones[at.zone][at.name], standing{old.id, value})
		}
		return aliOK(map[string]any{"RecordId": id})
	}
	return c
}

// write sends an answer, or the first half of it.
func (a reply) write(w http.ResponseWriter, cut bool) {
	body := []byte{}
	if a.body != nil {
		body, _ = json.Marshal(a.body)
	}
	w.Header().Set("Content-Type", "application/json")
	if a.after != "" {
		w.Header().Set("Retry-After", a.after)
	}
	if cut {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)+10))
	}
	if a.turns != "" {
		w.Header().Set("Location", a.turns)
	}
	w.WriteHeader(a.status)
	if cut {
		w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	}
	w.Write(body)
}
