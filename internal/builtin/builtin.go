// Package builtin has the built-in zones: the backend of the authoritative server in
// package nameserver (Zones, Cache), their table in the database (Table), and a provider
// client that publishes in them (Client).
package builtin

import (
	"context"
	"maps"
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// NotListening is the kind of a failure: this program runs no DNS server.
const NotListening provider.Kind = "not_listening"

// Record is one record. Its name has the labels from the root on ("com.example.office"), so
// the names of a zone are next to each other. All records of a name have one TTL.
type Record struct {
	Name string
	Type dns.Type
	Data []byte // RDATA
	TTL  uint32 // seconds
}

// Stored is a Record whose data is a part of a page.
type Stored struct {
	Name, Data string
	Type       dns.Type
	TTL        uint32
}

// Zone is a zone that is served.
type Zone struct {
	Name   string
	Serial uint32
	Left   bool // the configuration and all services have left it, and values still stand there
}

// Client is the provider client that publishes in the zones.
type Client struct {
	Store     *Table
	Address   string // of the server, "" if it does not run
	Candidate string // a zone that will be served once it is configured
	Hidden    bool   // resolvers cannot reach the server
}

// Authority returns the server's own address.
func (c Client) Authority(context.Context, string) (provider.Authority, error) {
	return provider.Authority{Server: c.Address}, nil
}

// Zone returns the longest zone that contains name; one that was left does not count, except if there
// is no other. If no zone does and records are left at the name, it returns the name itself, so they can
// still be withdrawn.
func (c Client) Zone(ctx context.Context, name string) (string, error) {
	wire, err := dns.ParseName(name)
	if err != nil {
		return "", &provider.Error{Kind: provider.Invalid, Err: err}
	}
	zones, err := c.Store.BuiltinZones(ctx, above(wire.Fold()))
	if err != nil {
		return "", fault(err)
	}
	longest := Zone{Left: true}
	for _, z := range zones {
		if z.Left == longest.Left && len(z.Name) > len(longest.Name) || longest.Left && !z.Left {
			longest = z
		}
	}
	candidate := c.Candidate != "" && dns.Within(dns.Fold(name), c.Candidate)
	switch {
	case c.Address == "" && (longest.Name != "" || candidate):
		return "", &provider.Error{Kind: NotListening}
	case candidate && longest.Left:
		return c.Candidate, nil
	case longest.Name != "":
		return longest.Name, nil
	}
	if left, err := c.Read(ctx, "", name, provider.TXT); err != nil || len(left.Values) > 0 {
		return dns.Fold(name), err
	}
	return "", &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Textf("no configuration and no service has a domain at or above %q", name)}
}

// Types returns the types of records that zones can have.
func (c Client) Types() []provider.Type {
	return []provider.Type{provider.TXT, provider.A, provider.AAAA, provider.SRV}
}

// Read returns the values of a type at a name.
func (c Client) Read(ctx context.Context, zone, name string, t provider.Type) (provider.RRset, error) {
	sets, err := c.ReadNames(ctx, zone, t, []string{name})
	return sets[name], err
}

// ReadNames returns the values of a type at some names.
func (c Client) ReadNames(ctx context.Context, _ string, t provider.Type, names []string) (map[string]provider.RRset, error) {
	if err := provider.CheckType(c, t); err != nil {
		return nil, err
	}
	keys := make([]string, len(names))
	asked := map[string]string{}
	for i, name := range names {
		key, err := keyOf(name)
		if err != nil {
			return nil, err
		}
		keys[i], asked[key] = key, name
	}
	records, err := c.Store.ZoneRecords(ctx, keys)
	if err != nil {
		return nil, fault(err)
	}
	return setsOf(records, t, func(key string) string { return asked[key] })
}

// setsOf groups the records of a type by name. nameOf returns the name of a key.
func setsOf(records []Record, t provider.Type, nameOf func(key string) string) (map[string]provider.RRset, error) {
	sets := map[string]provider.RRset{}
	for _, r := range records {
		if r.Type != t.Wire() {
			continue
		}
		value, err := t.ParseData(r.Data)
		if err != nil {
			return nil, fault(err)
		}
		name := nameOf(r.Name)
		set := sets[name]
		set.TTL, set.Values = r.TTL, append(set.Values, value)
		sets[name] = set
	}
	return sets, nil
}

// ReadPage returns the TXT values at some names of a zone that come after a key, and the
// key to go on from. Without values there is no further page.
func (c Client) ReadPage(ctx context.Context, zone, after string, limit int) (map[string]provider.RRset, string, error) {
	key, err := keyOf(zone)
	if err != nil {
		return nil, "", err
	}
	records, err := c.Store.ZoneRecordsAfter(ctx, key, after, limit)
	if err != nil {
		return nil, "", fault(err)
	}
	if len(records) == limit && records[0].Name != records[limit-1].Name {
		last := records[limit-1].Name // it may have more records
		records = records[:slices.IndexFunc(records, func(r Record) bool { return r.Name == last })]
	}
	if len(records) == 0 {
		return nil, "", nil
	}
	sets, err := setsOf(records, provider.TXT, dns.Reverse)
	if err != nil {
		return nil, "", err
	}
	return sets, records[len(records)-1].Name, c.dropInner(ctx, dns.Fold(zone), sets)
}

// dropInner removes the sets of names that belong to zones within the zone.
func (c Client) dropInner(ctx context.Context, zone string, sets map[string]provider.RRset) error {
	between := map[string]bool{}
	for name := range sets {
		for at := range dns.Ancestors(name) {
			if at == zone || between[at] {
				break
			}
			between[at] = true
		}
	}
	inner, err := c.Store.BuiltinZones(ctx, slices.Collect(maps.Keys(between)))
	if err != nil {
		return fault(err)
	}
	maps.DeleteFunc(sets, func(name string, _ provider.RRset) bool {
		return !dns.Within(name, zone) || slices.ContainsFunc(inner, func(z Zone) bool { return dns.Within(name, z.Name) })
	})
	return nil
}

// Change makes one change. It fails if the present values are not change.Seen.
func (c Client) Change(ctx context.Context, change provider.Change) error {
	return c.ChangeAll(ctx, []provider.Change{change})[0]
}

// ZoneID returns the same id for all zones, because a record does not depend on the zone
// that its name is in.
func (c Client) ZoneID(context.Context, string) (string, error) { return msg.Builtin, nil }

// BatchSize bounds the changes of one transaction.
func (c Client) BatchSize() int { return 400 }

// ChangeAll makes the changes in one transaction, except the ones whose present values are
// not change.Seen.
func (c Client) ChangeAll(ctx context.Context, changes []provider.Change) []error {
	errs := make([]error, len(changes))
	keys := make([]string, len(changes))
	var empty bool
	type rrset struct {
		key string
		typ provider.Type
	}
	named := map[rrset]bool{}
	for i, change := range changes {
		keys[i], errs[i] = keyOf(change.Name)
		set := rrset{keys[i], change.Type}
		if errs[i] == nil {
			errs[i] = unfit(change, keys[i], named[set])
		}
		named[set] = true
		empty = len(change.Add) == 0 && len(change.Remove) == 0
	}
	if len(changes) == 1 && (empty || errs[0] != nil) {
		return errs
	}
	err := ctx.Err()
	if err != nil {
		err = &provider.Error{Kind: provider.Network, Detail: "database", Err: err, Unmade: true}
	} else {
		checked := errs
		err = fault(c.Store.ChangeZoneRecords(ctx, keys, func(now []Record) (add, remove []Record) {
			errs = slices.Clone(checked) // decide may run twice: forget the errors of the first run
			return decide(now, keys, changes, errs)
		}))
	}
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
	return errs
}

// unfit returns an error if a change cannot be stored. again means that an earlier change
// of the call is of the same RRset.
func unfit(change provider.Change, key string, again bool) error {
	if err := provider.CheckType(Client{}, change.Type); err != nil {
		return err
	}
	if again {
		return &provider.Error{Kind: provider.Changed, Detail: msg.Textf("%s is in two changes of one call", change.Name), Unmade: true}
	}
	if len(change.Add) > 0 && strings.HasSuffix("."+key, ".*") {
		return &provider.Error{Kind: provider.Invalid, Detail: msg.Textf("%s: a name at * is a wildcard elsewhere (RFC 4592), and the built-in server has none", change.Name), Unmade: true}
	}
	for _, v := range change.Add {
		if err := change.Type.Check(v); err != nil {
			return &provider.Error{Kind: provider.Invalid, Detail: msg.Say(change.Name), Err: err, Unmade: true}
		}
	}
	return nil
}

// decide returns the records to add and to remove for the changes that have no error in
// errs. It adds an error for each change whose present values are not change.Seen.
func decide(now []Record, keys []string, changes []provider.Change, errs []error) (add, remove []Record) {
	type rrset struct {
		key string
		typ dns.Type
	}
	there := map[rrset]map[string]bool{}
	for _, r := range now {
		set := rrset{r.Name, r.Type}
		if there[set] == nil {
			there[set] = map[string]bool{}
		}
		there[set][string(r.Data)] = true
	}
	for i, change := range changes {
		if errs[i] != nil {
			continue
		}
		if !same(there[rrset{keys[i], change.Type.Wire()}], change.Type, change.Seen.Values) {
			errs[i] = &provider.Error{Kind: provider.Changed, Detail: msg.Say(change.Name), Unmade: true}
			continue
		}
		for _, v := range change.Add {
			add = append(add, record(keys[i], change, v))
		}
		for _, v := range change.Remove {
			remove = append(remove, record(keys[i], change, v))
		}
	}
	return add, remove
}

// record returns the record of a value of a change, which is checked.
func record(key string, change provider.Change, v provider.Value) Record {
	data, _ := change.Type.Data(v)
	return Record{Name: key, Type: change.Type.Wire(), Data: data, TTL: change.TTL}
}

// same reports whether the present data are that of the values.
func same(there map[string]bool, t provider.Type, values []provider.Value) bool {
	return len(there) == len(values) && !slices.ContainsFunc(values, func(v provider.Value) bool {
		data, err := t.Data(v)
		return err != nil || !there[string(data)]
	})
}

// fault makes an error of the database a failure of the provider.
func fault(err error) error {
	if err == nil {
		return nil
	}
	return &provider.Error{Kind: provider.Temporary, Detail: "database", Err: err}
}

// keyOf returns a name in the form that records have: folded, with the labels from the root on.
func keyOf(name string) (string, error) {
	wire, err := dns.ParseName(name)
	if err != nil {
		return "", &provider.Error{Kind: provider.Invalid, Err: err, Unmade: true}
	}
	return wireKey(wire), nil
}

// wireKey is keyOf for a name in wire form.
func wireKey(name dns.Name) string {
	var labels []string
	for n := name.Fold(); n != dns.Root; n = n.Parent() {
		labels = append(labels, strings.TrimSuffix(strings.TrimSuffix(n.String(), n.Parent().String()), "."))
	}
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// above returns a name and all names above it except the root, without the final dot.
func above(name dns.Name) (names []string) {
	for ; name != dns.Root; name = name.Parent() {
		names = append(names, name.Bare())
	}
	return names
}

// Unreachable is the kind of a warning: no resolver can reach the zone, because the
// server's own name in it has no public address.
const Unreachable provider.Kind = "zone_unreachable"

// Reachable returns a warning if no resolver can reach the zone.
func (c Client) Reachable(zone string) error {
	if !c.Hidden {
		return nil
	}
	return &provider.Error{Kind: Unreachable, Detail: msg.Say("ns." + zone)}
}
