// Package builtin is the zones that this program answers for itself: what the
// authoritative server in package nameserver answers from, and a client for
// publishing there as at any other provider. Both read one store.
package builtin

import (
	"context"
	"maps"
	"slices"
	"strings"

	"meshddns/internal/dnsname"
	"meshddns/internal/dnswire"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// Name is the provider's name in a configuration.
const Name = "builtin"

// NotListening is the kind of failure of a program without a DNS server.
const NotListening provider.Kind = "not_listening"

// Record is one TXT record. Its name begins at the root ("com.example.office"),
// so that the names of a zone stand together.
type Record struct {
	Name string
	Data []byte // RDATA (RFC 1035, section 3.3.14)
	TTL  uint32 // seconds
}

// Zone is a zone that is served.
type Zone struct {
	Name   string
	Serial uint32
}

// Store keeps the zones.
type Store interface {
	// BuiltinZones gives those of some names that are zones.
	BuiltinZones(ctx context.Context, names []string) ([]Zone, error)
	// BuiltinZonesAfter gives zones after a name, in the order of their names.
	BuiltinZonesAfter(ctx context.Context, after string, limit int) ([]Zone, error)
	ZoneRecords(ctx context.Context, names []string) ([]Record, error)
	// ZoneRecordsAfter gives records at and below a name, from another name on.
	ZoneRecordsAfter(ctx context.Context, zone, after string, limit int) ([]Record, error)
	// ZoneRecordsPage tells of records after a name, in order and all of a name, in
	// some limit, and gives the last name, "" when there is none.
	ZoneRecordsPage(ctx context.Context, after string, limit int, each func(name, data string, ttl uint32) error) (last string, err error)
	// ZoneHasBelow reports whether anything is below a name, given from the root
	// and as text.
	ZoneHasBelow(ctx context.Context, name, text string) (bool, error)
	// ChangeZoneRecords adds and removes what decide says, in one transaction; when
	// the first try comes to nothing it is asked anew.
	ChangeZoneRecords(ctx context.Context, names []string, decide func(now []Record) (add, remove []Record)) error
}

// Client publishes in the zones.
type Client struct {
	Store     Store
	Address   string // of the server, "" when it does not run
	Candidate string // a zone that will be served once it is configured
	Hidden    bool   // the world does not find the server
}

// Authority is the server itself.
func (c Client) Authority(context.Context, string) (provider.Authority, error) {
	return provider.Authority{Server: c.Address}, nil
}

// Zone gives the longest zone that contains name. What a zone that is served no
// more has left can still be withdrawn.
func (c Client) Zone(ctx context.Context, name string) (string, error) {
	wire, err := dnswire.ParseName(name)
	if err != nil {
		return "", &provider.Error{Kind: provider.Invalid, Err: err}
	}
	zones, err := c.Store.BuiltinZones(ctx, above(wire.Fold()))
	if err != nil {
		return "", fault(err)
	}
	longest := ""
	for _, z := range zones {
		if len(z.Name) > len(longest) {
			longest = z.Name
		}
	}
	candidate := c.Candidate != "" && dnsname.Within(dnsname.Fold(name), c.Candidate)
	switch {
	case c.Address == "" && (longest != "" || candidate):
		return "", &provider.Error{Kind: NotListening}
	case longest != "":
		return longest, nil
	case candidate:
		return c.Candidate, nil
	}
	if left, err := c.Read(ctx, "", name); err != nil || len(left.Values) > 0 {
		return dnsname.Fold(name), err
	}
	return "", &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Textf("no configuration and no service has a domain at or above %q", name)}
}

// Read gives the TXT values at a name.
func (c Client) Read(ctx context.Context, zone, name string) (provider.RRset, error) {
	sets, err := c.ReadNames(ctx, zone, []string{name})
	return sets[name], err
}

// ReadNames gives the TXT values at some names.
func (c Client) ReadNames(ctx context.Context, _ string, names []string) (map[string]provider.RRset, error) {
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
	return setsOf(records, func(key string) string { return asked[key] })
}

// setsOf gathers records by the names of their keys.
func setsOf(records []Record, nameOf func(key string) string) (map[string]provider.RRset, error) {
	sets := map[string]provider.RRset{}
	for _, r := range records {
		value, err := dnswire.ParseTXT(r.Data)
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

// ReadPage gives the TXT values at some names of a zone, from a name on, and the
// name to go on from.
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
		last := records[limit-1].Name // it may have more
		records = records[:slices.IndexFunc(records, func(r Record) bool { return r.Name == last })]
	}
	if len(records) == 0 {
		return nil, "", nil
	}
	sets, err := setsOf(records, dnsname.Reverse)
	if err != nil {
		return nil, "", err
	}
	return sets, records[len(records)-1].Name, c.dropInner(ctx, dnsname.Fold(zone), sets)
}

// dropInner takes out what belongs to zones within the zone.
func (c Client) dropInner(ctx context.Context, zone string, sets map[string]provider.RRset) error {
	between := map[string]bool{}
	for name := range sets {
		for at := range dnsname.Ancestors(name) {
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
		return !dnsname.Within(name, zone) || slices.ContainsFunc(inner, func(z Zone) bool { return dnsname.Within(name, z.Name) })
	})
	return nil
}

// Change makes one change.
func (c Client) Change(ctx context.Context, change provider.Change) error {
	return c.ChangeAll(ctx, []provider.Change{change})[0]
}

// ZoneID is the same for all zones: a record stands where its name is, whatever
// zone that is in.
func (c Client) ZoneID(context.Context, string) (string, error) { return Name, nil }

// BatchSize bounds a transaction.
func (c Client) BatchSize() int { return 400 }

// ChangeAll makes the changes in one transaction, but for those whose values are
// no longer those that were seen.
func (c Client) ChangeAll(ctx context.Context, changes []provider.Change) []error {
	errs := make([]error, len(changes))
	keys := make([]string, len(changes))
	var empty bool
	named := map[string]bool{}
	for i, change := range changes {
		keys[i], errs[i] = keyOf(change.Name)
		if errs[i] == nil {
			errs[i] = unfit(change, keys[i], named[keys[i]])
		}
		named[keys[i]] = true
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
			errs = slices.Clone(checked) // a first try that came to nothing takes its verdicts with it
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

// unfit says why a change cannot be stored.
func unfit(change provider.Change, key string, again bool) error {
	if again {
		return &provider.Error{Kind: provider.Invalid, Detail: msg.Textf("%s is in two changes of one call", change.Name), Unmade: true}
	}
	if len(change.Add) > 0 && strings.HasSuffix("."+key, ".*") {
		return &provider.Error{Kind: provider.Invalid, Detail: msg.Textf("%s: a name at * is a wildcard elsewhere (RFC 4592), and the built-in server has none", change.Name), Unmade: true}
	}
	for _, v := range change.Add {
		if err := v.Check(); err != nil {
			return &provider.Error{Kind: provider.Invalid, Detail: msg.Say(change.Name), Err: err, Unmade: true}
		}
	}
	return nil
}

func decide(now []Record, keys []string, changes []provider.Change, errs []error) (add, remove []Record) {
	there := map[string]map[string]bool{}
	for _, r := range now {
		if there[r.Name] == nil {
			there[r.Name] = map[string]bool{}
		}
		there[r.Name][string(r.Data)] = true
	}
	for i, change := range changes {
		if errs[i] != nil {
			continue
		}
		if !same(there[keys[i]], change.Seen.Values) {
			errs[i] = &provider.Error{Kind: provider.Changed, Detail: msg.Say(change.Name), Unmade: true}
			continue
		}
		for _, v := range change.Add {
			add = append(add, Record{Name: keys[i], Data: dnswire.TXTData(v), TTL: change.TTL})
		}
		for _, v := range change.Remove {
			remove = append(remove, Record{Name: keys[i], Data: dnswire.TXTData(v)})
		}
	}
	return add, remove
}

func same(there map[string]bool, values []provider.TXT) bool {
	return len(there) == len(values) && !slices.ContainsFunc(values, func(v provider.TXT) bool { return !there[string(dnswire.TXTData(v))] })
}

func fault(err error) error {
	if err == nil {
		return nil
	}
	return &provider.Error{Kind: provider.Temporary, Detail: "database", Err: err}
}

// keyOf gives a name as records have it: folded, labels from the root.
func keyOf(name string) (string, error) {
	wire, err := dnswire.ParseName(name)
	if err != nil {
		return "", &provider.Error{Kind: provider.Invalid, Err: err, Unmade: true}
	}
	return wireKey(wire), nil
}

func wireKey(name dnswire.Name) string {
	var labels []string
	for n := name.Fold(); n != dnswire.Root; n = n.Parent() {
		labels = append(labels, strings.TrimSuffix(strings.TrimSuffix(n.String(), n.Parent().String()), "."))
	}
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// textOf gives a name as zones have it, without the final dot.
func textOf(name dnswire.Name) string { return strings.TrimSuffix(name.String(), ".") }

// above are a name and all above it but the root, without the final dot.
func above(name dnswire.Name) (names []string) {
	for ; name != dnswire.Root; name = name.Parent() {
		names = append(names, textOf(name))
	}
	return names
}
