package e2e

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"meshddns/internal/mesh"
)

// model is what a history has configured and reserved, as the contract says it
// is to be after the answers that came.
type model struct {
	config   modelConfig
	services map[string]modelService // by id
	usages   []modelUsage            // the elder first
	adopted  map[string]bool         // owners whose values count as ours
	updates  map[string]int          // when /update put a challenge, by the lease's id and the value
}

// credentials say where to publish; the zero value has none of its own.
type credentials struct {
	provider, keyID, secret string
	endpoint                string // "": the provider's address as it is mostly written
}

func (c credentials) address(addrs map[string]string) string {
	return cmp.Or(c.endpoint, addrs[c.provider])
}

type modelConfig struct {
	credentials
	domain, record, mode string
	enabled              bool
	retries              int
	endpoints            []string
}

type modelService struct {
	id, domain string
	credentials
	endpoints []string
	formats   []string
}

type modelUsage struct {
	id, service, prefix string
	auto                bool
	network             uint64
	endpoints           []string
	dead                []string // of them, those that a check has found dead
	formats             []string // none to use the service's
	peer                string
	leases              []modelLease // by slot
	releasing           bool         // asked to go, and not gone yet
	tenant              bool         // reserved by a token of its service
	waits               bool         // it has found its name taken, and not got it yet
}

// modelLease is the lease of a slot. Its endpoints are never changed, only replaced.
type modelLease struct {
	slot, id, token, peer string
	endpoints             []string
	acme                  bool
	challenges            []string // the elder first; never changed, only replaced
}

func (m model) clone() model {
	m.services = maps.Clone(m.services)
	m.usages = slices.Clone(m.usages)
	m.adopted = maps.Clone(m.adopted)
	m.updates = maps.Clone(m.updates)
	return m
}

// wish is what must stand at one name.
type wish struct {
	name     string // "" for the configuration's own
	network  string
	options  []option        // where and what: any one of them
	bad      bool            // the report must have the name
	perhaps  bool            // the report may have the name
	optional bool            // the contract leaves open whether it is published
	skipped  bool            // the report must have the name, but a pass does not fail for it
	refused  bool            // the report must have the name, for a tenant's usage: a pass does not fail for it
	members  map[string]bool // the ids of the usages that have the name
}

type option struct {
	credentials
	value    string
	siblings string // a line each: the name of a spot, a tab, a value
}

// automaticPrefix is the contract's: Base64url of the decimal text.
func automaticPrefix(network uint64) string {
	return "_mesh-" + base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprint(network)))
}

func (m model) name(u modelUsage) string {
	return strings.ToLower("_mesh." + u.prefix + "." + m.services[u.service].domain)
}

func (c modelConfig) name() string {
	if c.record == "@" {
		return c.domain
	}
	return c.record + "." + c.domain
}

func within(name, zone string) bool { return name == zone || strings.HasSuffix(name, "."+zone) }

// target says where a service's values go.
func (m model) target(v modelService) credentials {
	if v.provider == "" && within(v.domain, m.config.domain) {
		return m.config.credentials
	}
	return v.credentials
}

func meshValue(network, owner string, endpoints []string) string {
	words := []string{"v=mesh1"}
	if network != "" {
		words = append(words, "n="+network)
	}
	return strings.Join(append(append(words, "o="+owner), endpoints...), " ")
}

// wishes gives what must stand, by name.
func (m model) wishes(owner string) map[string]*wish {
	groups := map[string][]modelUsage{}
	wishes := map[string]*wish{}
	for _, u := range m.usages {
		groups[m.name(u)] = append(groups[m.name(u)], u)
	}
	for name, group := range groups {
		wishes[name] = m.wishFor(name, group, owner)
		wishes[name].name = name
	}
	c := m.config
	switch taken := wishes[c.name()]; {
	case taken == nil:
		wishes[c.name()] = m.ownWish(wishes, owner)
	case len(taken.members) > 0:
		taken.bad = true
	case !taken.optional: // tenants wait there
		delete(wishes, c.name())
		own := m.ownWish(wishes, owner)
		own.name, own.refused = c.name(), true
		wishes[c.name()] = own
	default: // a release that is not through may have the name still
		taken.options = append(taken.options, option{credentials: c.credentials, value: meshValue("", owner, c.endpoints)})
		taken.perhaps, taken.optional = true, true
	}
	return wishes
}

// ownWish is that of the configuration, which leaves a name to a usage that has a TXT record of another
// format there.
func (m model) ownWish(wishes map[string]*wish, owner string) *wish {
	c := m.config
	own := &wish{options: []option{{credentials: c.credentials, value: meshValue("", owner, c.endpoints)}}}
	for _, other := range wishes {
		taken := slices.ContainsFunc(other.options, func(o option) bool { return o.has(c.name()) })
		free := slices.ContainsFunc(other.options, func(o option) bool { return !o.has(c.name()) })
		switch {
		case taken && (free || other.optional), other.optional && within(c.name(), below(other.name)):
			own.perhaps, own.optional = true, true
		case taken:
			return &wish{bad: true}
		}
	}
	return own
}

// has says that an option has a value at the name of a spot.
func (o option) has(name string) bool {
	return strings.HasPrefix(o.siblings, name+"\t") || strings.Contains(o.siblings, "\n"+name+"\t")
}

// below gives the name below which the records of other formats are.
func below(name string) string { return strings.TrimPrefix(name, "_mesh.") }

// wishFor works out one name from its usages. Those that have it publish there, and the newest of them decides the endpoints.
func (m model) wishFor(name string, group []modelUsage, owner string) *wish {
	active := slices.DeleteFunc(slices.Clone(group), func(u modelUsage) bool { return u.releasing })
	w := &wish{members: map[string]bool{}, optional: len(active) < len(group), perhaps: len(active) < len(group)}
	if len(active) == 0 {
		return w
	}
	at := m.holder(name, active)
	if at < 0 {
		w.network, w.refused = fmt.Sprint(active[0].network), true // what stands may stay
		return w
	}
	holder := active[at]
	members := slices.DeleteFunc(slices.Clone(active), func(u modelUsage) bool { return !u.joins(holder) })
	others := slices.DeleteFunc(slices.Clone(active), func(u modelUsage) bool { return u.joins(holder) })
	for _, u := range members {
		w.members[u.id] = true
	}
	for _, u := range others {
		w.bad, w.refused = w.bad || !u.tenant, w.refused || u.tenant
	}
	publishes := func(u modelUsage) bool { return m.target(m.services[u.service]).provider != "" }
	if w.skipped = !slices.ContainsFunc(members, publishes); w.skipped && len(others) > 0 {
		w.optional = true // The contract does not say whether one that cannot publish has the name.
		if i := slices.IndexFunc(others, publishes); i >= 0 {
			holder = others[i]
			members = slices.DeleteFunc(others, func(u modelUsage) bool { return !u.joins(holder) })
		}
	}
	if w.optional && (w.bad || w.refused || w.skipped) {
		w.bad, w.refused, w.skipped, w.perhaps = false, false, false, true
	}
	w.network = fmt.Sprint(holder.network)
	w.options = m.options(members, owner)
	return w
}

// options are the values of one network: the newest decides. Where its usages
// are at several providers the contract does not say which has the value.
func (m model) options(mine []modelUsage, owner string) (options []option) {
	challenges := m.challenges(mine)
	for _, at := range mine {
		for i, newest := range slices.Backward(mine) {
			service := m.services[newest.service]
			if target := m.target(m.services[at.service]); target.provider != "" {
				value, siblings := m.values(newest, owner)
				options = append(options, option{target, value, strings.Trim(siblings+"\n"+challenges, "\n")})
			}
			if m.target(service).provider != "" || i == 0 {
				break
			}
		}
	}
	return options
}

// endpointsOf gives the endpoints of a usage, and those of its leases, without the dead ones.
func (m model) endpointsOf(u modelUsage) (own, leased []mesh.Endpoint) {
	texts := u.endpoints
	for _, other := range [][]string{m.services[u.service].endpoints, m.config.endpoints} {
		if len(texts) == 0 {
			texts = other
		}
	}
	for _, text := range texts {
		if !slices.Contains(u.dead, text) {
			own = append(own, mesh.Endpoint{Text: text, PeerID: u.peer})
		}
	}
	for _, l := range u.leases {
		for _, text := range l.endpoints {
			leased = append(leased, mesh.Endpoint{Text: text, PeerID: l.peer, Slot: l.slot})
		}
	}
	return own, leased
}

// formatsOf gives the formats of a usage, none for the usual one.
func (m model) formatsOf(u modelUsage) []string {
	if len(u.formats) > 0 {
		return u.formats
	}
	return m.services[u.service].formats
}

// hasMesh1 reports whether the value with the mark has the endpoints of a usage.
func (m model) hasMesh1(u modelUsage) bool {
	formats := m.formatsOf(u)
	return len(formats) == 0 || slices.Contains(formats, mesh.Mesh1)
}

// values gives what a usage publishes: the value with the mark, and the values of other formats.
func (m model) values(u modelUsage, owner string) (value, siblings string) {
	formats := m.formatsOf(u)
	own, leased := m.endpointsOf(u)
	value = meshValue(fmt.Sprint(u.network), owner, nil)
	if m.hasMesh1(u) {
		value, _ = mesh.Fit(fmt.Sprint(u.network), owner, own, leased)
	}
	var lines []string
	for _, set := range mesh.FormatSets(formats, below(m.name(u)), slices.Concat(own, leased)) {
		for _, text := range set.Values {
			if at := typed(set.Name, set.Type); !m.denies(u, at) {
				lines = append(lines, at+"\t"+text)
			}
		}
	}
	slices.Sort(lines)
	return value, strings.Join(lines, "\n")
}

// body gives the configuration as it is put.
func (c modelConfig) body(addrs map[string]string) string {
	return jsonText(map[string]any{
		"provider": c.provider, "access_key_id": c.keyID, "access_key_secret": c.secret, "endpoint": c.address(addrs),
		"domain": c.domain, "txt_record_name": c.record, "sync_mode": c.mode, "enabled": c.enabled,
		"max_retries": c.retries, "retry_interval": 1, "txt_endpoints": c.endpoints,
	})
}

func (v modelService) body(addrs map[string]string) string {
	config := map[string]any{"domain": v.domain, "txt_endpoints": v.endpoints, "formats": append([]string{}, v.formats...)}
	if v.provider != "" {
		config["provider"], config["access_key_id"], config["access_key_secret"] = v.provider, v.keyID, v.secret
		config["endpoint"] = v.address(addrs)
	}
	return jsonText(map[string]any{"name": v.id, "config": config})
}

func jsonText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}
