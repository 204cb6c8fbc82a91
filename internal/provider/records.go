package provider

import (
	"context"
	"slices"
)

// records is a vendor whose lists have single records: a table of what differs between these vendors.
type records struct {
	*api
	has     []Type             // the types of records that the client has
	read    func(string) Value // parses the text of a TXT record
	longest int                // octets of a TXT value
	damaged string             // characters of a TXT value that the vendor does not keep
	quoted  bool               // a write spells a TXT value as quoted character-strings
	mixed   bool               // a list has records of all types, and so it shows aliases

	// search returns a page of the zones that a search for the name finds, and perhaps of others; of all
	// zones if the name is "". It is nil if the vendor lists no zones.
	search func(ctx context.Context, name string) pageOf[zone]

	// find looks for the zone with exactly this name. It is nil if search finds every zone.
	find func(ctx context.Context, name string) (z zone, found bool, err error)

	// details adds what search and find do not tell of a zone. It is nil if they tell everything.
	details func(ctx context.Context, z zone) zone

	// entries returns a page of the records of a type, at a name or, if host is "", in the whole zone.
	// The page may have other records too. A CNAME that excludes no TXT record is off.
	entries func(ctx context.Context, z zone, host, kind string) pageOf[entry]

	write func(ctx context.Context, z zone, e entry) error // changes the record with the id, or makes one if the id is ""
	erase func(ctx context.Context, z zone, id string) error
}

// entry is one record in a vendor's calls.
type entry struct {
	id   string
	host string // the name without the zone, "@" at the zone's own name
	kind string // the type, such as TXT
	text string // the vendor's spelling of the value
	ttl  uint32
	off  bool // disabled or for some resolvers only

	hides bool // as in record

	join func(recordSet) recordSet // adds several records that are one item of a list; nil for one record
}

// key identifies a record in a list.
func (e entry) key() string { return e.id }

// allTypes are the types of the records of names, addresses and services.
var allTypes = []Type{TXT, A, AAAA, SRV}

func (v *records) types() []Type { return v.has }

func (v *records) fits(_ Type, value Value) error { return plainText(value, v.longest, v.damaged) }

func (v *records) zones(ctx context.Context) ([]zone, error) {
	if v.search == nil {
		return nil, &Error{Kind: tooMany}
	}
	return zonesPaged(v.search(ctx, ""))
}

func (v *records) zone(ctx context.Context, name string) (z zone, found bool, err error) {
	if z, found, err = v.listed(ctx, name); found {
		z = v.complete(ctx, z)
	}
	return z, found, err
}

func (v *records) complete(ctx context.Context, z zone) zone {
	if v.details != nil {
		z = v.details(ctx, z)
	}
	return z
}

// listed returns a zone as a list shows it.
func (v *records) listed(ctx context.Context, name string) (z zone, found bool, err error) {
	if v.find != nil {
		return v.find(ctx, name)
	}
	zones, err := paged(v.search(ctx, name))
	z, found = pick(zones, name)
	return z, found, err
}

// pick returns the zone with exactly this name.
func pick(zones []zone, name string) (z zone, found bool) {
	at := slices.IndexFunc(zones, func(z zone) bool { return z.name == name })
	if at < 0 {
		return zone{}, false
	}
	return zones[at], true
}

// list shows an alias only if the vendor's list has records of all types.
func (v *records) list(ctx context.Context, z zone, at setKey) (set recordSet, err error) {
	sets, err := v.look(ctx, z, at.name, string(at.kind), at.kind)
	if set = sets.of(at); !v.mixed {
		set.alias = ""
	}
	return set, err
}

func (v *records) alias(ctx context.Context, z zone, name string) (string, error) {
	if v.mixed {
		return "", nil // list has shown it
	}
	sets, err := v.look(ctx, z, name, "CNAME")
	return sets.aliases[name], err
}

// look collects the records at exactly this name.
func (v *records) look(ctx context.Context, z zone, name, kind string, types ...Type) (*zoneSets, error) {
	sets := newZoneSets(func(at string, _ Value) bool { return at == name }, types...)
	fetch, take := v.entries(ctx, z, relative(name, z), kind), v.into(sets, z)
	if v.mixed { // the list has other names too, and may be long
		return sets, wholePages(entry.key, fetch, take)
	}
	entries, err := paged(fetch)
	for _, e := range entries {
		take(e)
	}
	return sets, err
}

func (v *records) listZone(ctx context.Context, z zone, sets *zoneSets) error {
	kinds := []string{""}
	if !v.mixed {
		kinds = append(as(sets.types, func(t Type) string { return string(t) }), "CNAME")
	}
	for _, kind := range kinds {
		if err := wholePages(entry.key, v.entries(ctx, z, "", kind), v.into(sets, z)); err != nil {
			return err
		}
	}
	return nil
}

// into returns a function that adds a record of the sets' types or an alias to its name, and ignores all
// other records.
func (v *records) into(sets *zoneSets, z zone) func(entry) {
	return func(e entry) {
		name := absolute(e.host, z)
		switch {
		case sets.has(e.kind) && e.join != nil:
			sets.join(setKey{name, Type(e.kind)}, e.join)
		case sets.has(e.kind):
			sets.add(setKey{name, Type(e.kind)}, record{id: e.id, value: valueOf(e.kind, e.text, v.read), ttl: e.ttl, off: e.off, hides: e.hides})
		case e.kind == "CNAME" && !e.off:
			sets.alias(name, e.text)
		}
	}
}

func (v *records) create(ctx context.Context, z zone, at setKey, value Value, ttl uint32) error {
	return v.update(ctx, z, at, record{}, value, ttl)
}

func (v *records) update(ctx context.Context, z zone, at setKey, old record, value Value, ttl uint32) error {
	return v.write(ctx, z, v.entry(z, at, old, value, ttl))
}

// entry returns a value to write in the place of an old record, if there is one.
func (v *records) entry(z zone, at setKey, old record, value Value, ttl uint32) entry {
	text := value.Text()
	if v.quoted && at.kind == TXT {
		text = quoteTXT(value, "")
	}
	return entry{id: old.id, host: relative(at.name, z), kind: string(at.kind), text: text, ttl: ttl}
}

func (v *records) remove(ctx context.Context, z zone, _ setKey, old record) error {
	return v.erase(ctx, z, old.id)
}
