package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// powerDNS is the HTTP API of the PowerDNS Authoritative Server, version 1
// (https://doc.powerdns.com/authoritative/http-api/). A write replaces a whole set in one transaction,
// and single records can be disabled.
type powerDNS struct {
	api  *api
	turn turn // of writes
}

const (
	pdnsEndpoint = "http://localhost:8081/api/v1" // only the path is used, because there is no common server
	pdnsRecord   = 65535                          // octets of a record's data on the wire

	// pdnsShowsAll is the version from which the API lists the disabled records of a name
	// (https://github.com/PowerDNS/pdns/issues/11473).
	pdnsShowsAll = 5

	pdnsBatch = 500 // sets in one call
)

// NewPowerDNS makes a client of a PowerDNS server. The key pair is the id of the server, "localhost"
// unless a proxy renames it, and its api-key, which has all rights. The endpoint is the address of its
// webserver, such as http://192.0.2.1:8081. The webserver speaks plain HTTP: the network must be
// trusted, or a proxy must add HTTPS.
func NewPowerDNS(c Credentials) (*Client, error) {
	if c.Endpoint == "" {
		return nil, &Error{Kind: Invalid, Detail: msg.Say("endpoint: PowerDNS has no common address: want that of the server, such as http://192.0.2.1:8081")}
	}
	a, err := newAPI(pdnsEndpoint, c, true)
	if err != nil {
		return nil, err
	}
	a.timeless = true
	t, _ := pdnsTurns.LoadOrStore(a.base.Host, newTurn())
	return vendorClient(&powerDNS{a, t.(turn)}), nil
}

// pdnsTurns has the turn of each server, because every domain has a client of its own.
var pdnsTurns sync.Map

// pdnsErrors are the messages of failures with the same HTTP status. The server has no codes.
var pdnsErrors = codeKinds{
	{": *Conflicts with pre-existing RRset*|: *uplicate record*", Conflict},
	{": *Could not find domain*", ZoneNotFound}, // servers before 4.2
	{": *non-hostname content*", NameNotAllowed},
	{": *does not support editing*|: *Consumer zones*", Permission},
}

// do makes one call below the server's path, and parses its answer into out unless out is nil.
func (v *powerDNS) do(ctx context.Context, c call, out any) error {
	c.path = "/servers/" + url.PathEscape(v.api.Key.AccessKeyID) + c.path
	err := v.api.ask(ctx, c, func(r *http.Request, _ []byte) {
		r.Header.Set("X-API-Key", string(v.api.Key.AccessKeySecret))
	}, openPDNS, out)
	if e, ok := errors.AsType[*Error](err); ok && e.status == http.StatusNotFound {
		e.Detail = msg.Textf("%s (no such zone, or the server's id is not %q)", e.Detail, v.api.Key.AccessKeyID)
	}
	return err
}

// openPDNS parses a failure: JSON from the API, plain text from the web server.
func openPDNS(ans answer) (reply, error) {
	if ans.status < 300 {
		return reply{result: ans.body}, nil
	}
	var failure struct {
		Error  string
		Errors []string
	}
	words, kinds := "", pdnsErrors
	switch {
	case json.Unmarshal(ans.body, &failure) == nil:
		words = strings.Join(append([]string{failure.Error}, failure.Errors...), "; ")
	case strings.HasPrefix(ans.header.Get("Content-Type"), "text/plain"):
		words = string(ans.body)
	}
	switch ans.status {
	case http.StatusNotFound:
		kinds = codeKinds{{"", ZoneNotFound}}
	case http.StatusConflict:
		kinds = codeKinds{{"", Conflict}}
	}
	return reply{verdict{message: words}, true, kinds, nil}, nil
}

func (v *powerDNS) zone(ctx context.Context, name string) (zone, bool, error) {
	zones, err := v.zonesWhere(ctx, url.Values{"zone": {name + "."}})
	z, found := pick(zones, name)
	if err = cmp.Or(err, z.fault); err != nil || !found {
		return zone{}, false, err
	}
	return v.complete(ctx, z), true, nil
}

// complete adds a warning if changes by the API leave the zone's serial as it is. Servers before 4.2 do not tell.
func (v *powerDNS) complete(ctx context.Context, z zone) zone {
	var shown struct {
		API  *string `json:"soa_edit_api"`
		Edit string  `json:"soa_edit"`
	}
	c := call{name: "read zone", method: http.MethodGet, path: pdnsZone(z), query: url.Values{"rrsets": {"false"}}}
	if err := v.do(ctx, c, &shown); err != nil || shown.API == nil {
		return z
	}
	if how := strings.ToUpper(*shown.API); how == "" || how == "OFF" || how == "SOA-EDIT" && shown.Edit == "" {
		z.warning = &Error{Kind: SerialStands, Detail: msg.Say("pdnsutil set-meta " + z.name + " SOA-EDIT-API DEFAULT")}
	}
	return z
}

func pdnsZone(z zone) string { return "/zones/" + url.PathEscape(z.id) }

// zones asks without DNSSEC details, because the server takes long to compute them.
func (v *powerDNS) zones(ctx context.Context) ([]zone, error) {
	return v.zonesWhere(ctx, url.Values{"dnssec": {"false"}})
}

func (v *powerDNS) zonesWhere(ctx context.Context, query url.Values) (zones []zone, err error) {
	var entries []struct{ ID, Name, Kind string }
	c := call{name: "list zones", method: http.MethodGet, path: "/zones", query: query}
	if err := v.do(ctx, c, &entries); err != nil {
		return nil, err
	}
	if entries == nil {
		return nil, v.api.lacks(c, "list of zones")
	}
	for _, e := range entries {
		z := zone{id: e.ID, name: dns.Fold(e.Name)}
		switch strings.ToLower(e.Kind) {
		case "master", "primary", "producer":
			z.primary = true
		case "slave", "secondary", "consumer": // the API accepts changes, and the next transfer undoes them
			z.fault = &Error{Kind: Permission, Detail: msg.Textf("the zone %q is a copy on this server (%s): change it at its primary", z.name, e.Kind)}
		}
		zones = append(zones, z)
	}
	return zones, nil
}

// pdnsSet is a set in the API. The records stay raw, so that they go back unchanged.
type pdnsSet struct {
	Name, Type string
	TTL        uint32
	Records    []json.RawMessage
}

// sets reads the part of a zone that the query selects.
func (v *powerDNS) sets(ctx context.Context, z zone, query url.Values, sets *zoneSets) (unread error) {
	var answer struct{ RRsets []struct{} }
	c := call{name: "read zone", method: http.MethodGet, path: pdnsZone(z), query: query}
	c.list = &list{"rrsets", func(d *json.Decoder) error {
		var s pdnsSet
		if err := d.Decode(&s); err != nil {
			return err
		}
		name := dns.Fold(s.Name)
		switch {
		case s.Type == "CNAME":
			target, err := s.target()
			if unread = cmp.Or(unread, err); target != "" {
				sets.alias(name, target)
			}
		case sets.has(s.Type):
			sets.join(setKey{name, Type(s.Type)}, func(set recordSet) recordSet {
				set, err := s.addTo(set)
				unread = cmp.Or(unread, err)
				return set
			})
		}
		return nil
	}}
	switch err := v.do(ctx, c, &answer); {
	case err != nil:
		return err
	case answer.RRsets == nil:
		return v.api.lacks(c, "list of sets")
	case unread != nil:
		return v.api.lacks(c, "record that can be read")
	}
	return nil
}

// target returns the target of an alias, "" if the alias is disabled.
func (s pdnsSet) target() (target string, err error) {
	for _, raw := range s.Records {
		var entry pdnsEntry
		if err := json.Unmarshal(raw, &entry); err != nil {
			return "", err
		}
		if !entry.Disabled {
			target = entry.Content
		}
	}
	return target, nil
}

// addTo adds the records of a set to those of its name and type.
func (s pdnsSet) addTo(set recordSet) (recordSet, error) {
	for _, raw := range s.Records {
		r, err := pdnsRead(Type(s.Type), raw)
		if err != nil {
			return set, err
		}
		r.ttl, set.ttl = s.TTL, s.TTL
		set.records = append(set.records, r)
	}
	return set, nil
}

// pdnsEntry is the part of a record that this client reads.
type pdnsEntry struct {
	Content  string
	Disabled bool
}

// pdnsRead parses a record. In its answers to resolvers the server splits strings that are too long,
// and leaves out values that it cannot parse.
func pdnsRead(t Type, raw json.RawMessage) (record, error) {
	var entry pdnsEntry
	if err := json.Unmarshal(escapeOctets(raw), &entry); err != nil {
		return record{}, err
	}
	r := record{raw: string(raw), off: entry.Disabled}
	value, err := t.Parse(entry.Content)
	if err != nil {
		r.off = true
	}
	if r.value = value; t == TXT {
		r.value = recut(value)
	}
	return r, nil
}

// escapeOctets replaces octets that are not UTF-8 by the escapes of a zone file. The API shows these
// octets raw, and package json would lose them.
func escapeOctets(text []byte) []byte {
	var out []byte
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			out = fmt.Appendf(out, `\\%03d`, text[0])
		} else {
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}

// list does not look for an alias at the name: beside one the server refuses other records.
func (v *powerDNS) list(ctx context.Context, z zone, at setKey) (recordSet, error) {
	sets := newZoneSets(nil, at.kind)
	err := v.sets(ctx, z, url.Values{"rrset_name": {at.name + "."}, "rrset_type": {string(at.kind)}}, sets)
	return sets.sets[at], err
}

// listZone reads the zone with its disabled records in one call.
func (v *powerDNS) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	return v.sets(ctx, z, nil, sets)
}

// alwaysLists makes Client read the whole zone even for a few names: before a set is replaced, its
// disabled records must be known.
func (v *powerDNS) alwaysLists() {}

func (v *powerDNS) replace(ctx context.Context, z zone, at setKey, from, to recordSet) error {
	disabled, err := v.unlisted(ctx, z, at, from)
	if err != nil {
		return unmade(err)
	}
	for _, r := range disabled.records {
		if slices.ContainsFunc(to.records, func(t record) bool { return t.raw == "" && t.value.Equal(r.value) }) {
			return &Error{Kind: Conflict, Detail: msg.Textf("%s: the record is there, but disabled", at.name), Unmade: true}
		}
	}
	to.records = slices.Concat(to.records, disabled.records)
	return v.write(ctx, z, pdnsChange(at, to, cmp.Or(disabled.ttl, from.ttl)))
}

// applyAll changes many sets in one call, which is one transaction. The plans know the disabled
// records, because they come from a list of the whole zone.
func (v *powerDNS) applyAll(ctx context.Context, z zone, plans []plan) ([]error, bool) {
	fit := func(left []plan) int { return min(len(left), pdnsBatch) }
	return inBatches(ctx, plans, fit, func(batch []plan) error {
		var changes []any
		for _, p := range batch {
			changes = append(changes, pdnsChange(p.at, p.after(), p.seen.ttl))
		}
		return v.write(ctx, z, changes...)
	}), true
}

// unlisted returns the records of a set that list did not return: the disabled ones, which older
// servers show only in a list of the whole zone. A server that does not tell its version counts as
// old.
func (v *powerDNS) unlisted(ctx context.Context, z zone, at setKey, listed recordSet) (recordSet, error) {
	var server struct{ Version string }
	if v.do(ctx, call{name: "read server", method: http.MethodGet}, &server) == nil {
		major, _, _ := strings.Cut(server.Version, ".")
		if n, err := strconv.Atoi(major); err == nil && n >= pdnsShowsAll {
			return recordSet{}, nil
		}
	}
	sets := newZoneSets(func(name string, _ Value) bool { return name == at.name }, at.kind)
	if err := v.sets(ctx, z, nil, sets); err != nil {
		return recordSet{}, msg.Errorf("look through the zone for disabled records (before version 5 there is no other way): %w", err)
	}
	all := sets.sets[at]
	all.records = slices.DeleteFunc(all.records, func(r record) bool {
		return !r.off || slices.ContainsFunc(listed.records, func(l record) bool { return l.raw == r.raw })
	})
	return all, nil
}

// pdnsChange returns the replacement of a set. Without a member for comments the set keeps its
// comments. Disabled records share the TTL of the set, so it does not change beside them.
func pdnsChange(at setKey, set recordSet, ttl uint32) any {
	if slices.ContainsFunc(set.records, func(r record) bool { return r.off }) {
		set.ttl = ttl
	}
	change := map[string]any{"name": at.name + ".", "type": string(at.kind), "changetype": "DELETE"}
	if len(set.records) > 0 {
		var records []any
		for _, r := range set.records {
			if r.raw != "" {
				records = append(records, json.RawMessage(r.raw))
			} else {
				records = append(records, map[string]any{"content": at.kind.spell(r.value, `\%03d`), "disabled": false})
			}
		}
		change["changetype"], change["ttl"], change["records"] = "REPLACE", set.ttl, records
	}
	return change
}

// write makes changes in one transaction, and has a primary zone's server tell its secondaries, which it would do a minute later.
// Writes do not overlap: with SQLite the server answers 500 to one of two.
func (v *powerDNS) write(ctx context.Context, z zone, changes ...any) error {
	c := call{name: "change zone", method: http.MethodPatch, path: pdnsZone(z), data: map[string]any{"rrsets": changes}}
	if !v.turn.take(ctx) {
		return unmade(v.api.unreached(ctx, c, ctx.Err()))
	}
	defer v.turn.end()
	err := v.do(ctx, c, nil)
	if err == nil && z.primary {
		v.do(ctx, call{name: "notify secondaries", method: http.MethodPut, path: pdnsZone(z) + "/notify"}, nil) // the change stands without it
	}
	return err
}

// RefusedAlways returns the reason why a provider refuses a value whatever its settings are, "" if it may
// take it: the API of PowerDNS checks the targets of services.
func RefusedAlways(provider string, t Type, text string) msg.Text {
	if target := t.host("", Value{text}); provider == "powerdns" && !dns.IsHost(target) {
		return msg.Textf("the target %s is no host name, and PowerDNS takes no other", target)
	}
	return ""
}

// fits limits the length of a value: the server accepts any, and cannot serve a longer one.
func (v *powerDNS) fits(_ Type, value Value) error {
	if len(value)+len(value.Text()) > pdnsRecord { // one octet for the length of each string
		return msg.Errorf("a record holds at most %d octets", pdnsRecord)
	}
	return nil
}
