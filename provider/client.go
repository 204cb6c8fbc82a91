package provider

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Client is the client of a vendor with an HTTP API. What all vendors share is
// here: to find the zone, to compare what stands at a name, to leave alone
// what is not named, and to see a change done before it counts as done. It is
// safe for concurrent use.
type Client struct {
	vendor vendor
	apply  func(ctx context.Context, p plan) error
	poll   time.Duration // until the second look at whether a change is done

	mu    sync.Mutex
	zones map[string]zone
	names map[string]turn
}

// vendor is what the API of any vendor can do.
type vendor interface {
	// zone looks in the account for the public zone with exactly this name. A
	// vendor that knows the longest zone that contains it gives that one.
	zone(ctx context.Context, name string) (z zone, found bool, err error)

	// list gives the TXT records at exactly this name.
	list(ctx context.Context, z zone, name string) (recordSet, error)

	// fits says why the vendor would not keep a value as it is, nil if it would.
	fits(v TXT) error
}

// recordVendor changes single records, by their ids.
type recordVendor interface {
	vendor
	create(ctx context.Context, z zone, name string, v TXT, ttl uint32) error
	update(ctx context.Context, z zone, name string, old record, v TXT, ttl uint32) error
	remove(ctx context.Context, z zone, name string, old record) error
}

// setVendor replaces all TXT records at a name together.
type setVendor interface {
	vendor
	// replace puts a set in the place of another; a set without records
	// deletes it. Where the vendor can compare, it fails with Changed when the
	// old set is not there any more.
	replace(ctx context.Context, z zone, name string, from, to recordSet) error
}

// zone is a zone of the account. Its name is folded and has no final dot.
type zone struct {
	id      string
	name    string
	minTTL  uint32   // seconds, the least that the vendor takes here
	servers []string // the vendor's name servers for it, where the API tells
}

// record is one TXT record.
type record struct {
	id    string // of a vendor of single records
	value TXT
	raw   string // the value as the vendor spells it; "" to spell it anew
	ttl   uint32
	off   bool // disabled, or for some resolvers only: not ours to touch
}

// recordSet is what stands at a name.
type recordSet struct {
	id      string // of a vendor that names its sets
	ttl     uint32
	records []record
	alias   string // where a CNAME at the name points, if the list shows one
}

// What a vendor calls an error, and a change or a list does not.
const (
	exists Kind = "exists" // the record is there already
	gone   Kind = "gone"   // the record is not there any more
)

// plan is a change of the records at one name.
type plan struct {
	zone        zone
	name        string
	seen        recordSet
	add, remove []TXT
	ttl         uint32 // of new records
}

const (
	pollInterval = 200 * time.Millisecond
	longestPoll  = 2 * time.Second
)

func newRecordClient(v recordVendor) *Client {
	return &Client{vendor: v, poll: pollInterval, apply: func(ctx context.Context, p plan) error { return p.changeRecords(ctx, v) }}
}

func newSetClient(v setVendor) *Client {
	return &Client{vendor: v, poll: pollInterval, apply: func(ctx context.Context, p plan) error {
		return v.replace(ctx, p.zone, p.name, p.seen, p.after())
	}}
}

// Zone gives the longest zone of the account that contains name.
func (c *Client) Zone(ctx context.Context, name string) (string, error) {
	for at := fold(name); strings.Contains(at, "."); at = parent(at) {
		z, found, err := c.find(ctx, at)
		if found || err != nil {
			return z.name, err
		}
	}
	return "", &Error{Kind: ZoneNotFound, Detail: "the account has no zone that contains " + strconv.Quote(name)}
}

// find looks for a zone, and remembers those that are there.
func (c *Client) find(ctx context.Context, name string) (zone, bool, error) {
	c.mu.Lock()
	z, found := c.zones[name]
	c.mu.Unlock()
	if found {
		return z, true, nil
	}
	z, found, err := c.vendor.zone(ctx, name)
	if err != nil || !found {
		return zone{}, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones == nil {
		c.zones = map[string]zone{}
	}
	c.zones[z.name] = z
	return z, true, nil
}

func (c *Client) named(ctx context.Context, name string) (zone, error) {
	z, found, err := c.find(ctx, fold(name))
	if err == nil && (!found || z.name != fold(name)) {
		err = &Error{Kind: ZoneNotFound, Detail: "the account has no zone " + strconv.Quote(name)}
	}
	return z, err
}

// Read gives the TXT values at a name.
func (c *Client) Read(ctx context.Context, zone, name string) (RRset, error) {
	z, err := c.named(ctx, zone)
	if err != nil {
		return RRset{}, err
	}
	set, err := c.vendor.list(ctx, z, fold(name))
	values := set.values()
	if err == nil && set.alias != "" && len(values.Values) == 0 {
		err = aliased(fold(name), set.alias)
	}
	return values, err
}

// aliased is the failure to put values where a CNAME is. Values that are there
// beside it, whatever the vendor makes of the two, can be read and removed.
func aliased(name, target string) error {
	return &Error{Kind: Conflict, Detail: name + " is an alias: it points to " + target}
}

func (s recordSet) values() RRset {
	var set RRset
	for _, r := range s.records {
		switch {
		case r.off:
			set.Off = append(set.Off, r.value)
		case !slices.ContainsFunc(set.Values, r.value.Equal):
			set.TTL = cmp.Or(s.ttl, r.ttl)
			set.Values = append(set.Values, r.value)
		}
	}
	return set
}

// Change makes the change and returns when the provider shows it. It looks at
// the name first: what is no longer as it was seen is not touched.
func (c *Client) Change(ctx context.Context, ch Change) error {
	for _, v := range ch.Add {
		if err := c.vendor.fits(v); err != nil {
			return &Error{Kind: Invalid, Detail: "value " + strconv.Quote(v.Text()), Err: err}
		}
	}
	z, err := c.named(ctx, ch.Zone)
	if err != nil {
		return err
	}
	name := fold(ch.Name)
	turn := c.turn(name)
	if !turn.take(ctx) {
		return &Error{Kind: Network, Detail: name + ": another change is under way", Err: ctx.Err()}
	}
	defer turn.end()
	seen, err := c.vendor.list(ctx, z, name)
	if err != nil {
		return err
	}
	p, err := newPlan(z, name, seen, ch)
	if err != nil || len(p.add) == 0 && len(p.remove) == 0 {
		return err
	}
	err = c.apply(ctx, p)
	if kind := KindOf(err); kind == gone || kind == exists {
		return &Error{Kind: Changed, Detail: name + ": " + stale, Err: err}
	}
	if err != nil {
		return err
	}
	return c.confirm(ctx, p)
}

// newPlan leaves out what need not be done. A value to add that stands there
// in a record that is switched off is a conflict: a vendor takes no second
// one, and the first is not ours to switch on.
func newPlan(z zone, name string, seen recordSet, ch Change) (plan, error) {
	p := plan{zone: z, name: name, seen: seen, ttl: max(ch.TTL, z.minTTL)}
	standing := seen.values().Values
	if !sameValues(standing, ch.Seen.Values) {
		return p, &Error{Kind: Changed, Detail: name + ": " + stale}
	}
	stands := func(v TXT) bool { return slices.ContainsFunc(standing, v.Equal) }
	p.add = slices.DeleteFunc(slices.Clone(ch.Add), stands)
	p.remove = slices.DeleteFunc(slices.Clone(ch.Remove), func(v TXT) bool { return !stands(v) })
	if seen.alias != "" && len(p.add) > 0 {
		return p, aliased(name, seen.alias)
	}
	for _, r := range seen.records {
		if r.off && slices.ContainsFunc(p.add, r.value.Equal) {
			return p, &Error{Kind: Conflict, Detail: name + ": the record is there, but disabled or for some resolvers only"}
		}
	}
	return p, nil
}

// turn keeps two changes of one name apart.
func (c *Client) turn(name string) turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = map[string]turn{}
	}
	if c.names[name] == nil {
		c.names[name] = newTurn()
	}
	return c.names[name]
}

// turn lets one in at a time. Who waits gives up with its context.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t turn) end() { <-t }

// changeRecords replaces one value by one in place, which takes one call; any
// other change adds before it removes.
func (p plan) changeRecords(ctx context.Context, v recordVendor) error {
	old := slices.DeleteFunc(slices.Clone(p.seen.records), func(r record) bool {
		return r.off || !slices.ContainsFunc(p.remove, r.value.Equal)
	})
	if len(p.add) == 1 && len(old) == 1 {
		return v.update(ctx, p.zone, p.name, old[0], p.add[0], p.ttl)
	}
	for _, value := range p.add {
		if err := v.create(ctx, p.zone, p.name, value, p.ttl); err != nil && KindOf(err) != exists {
			return err
		}
	}
	for _, r := range old {
		if err := v.remove(ctx, p.zone, p.name, r); err != nil && KindOf(err) != gone {
			return err
		}
	}
	return nil
}

// after is the set that a change leaves. One TTL is for a whole set (RFC 2181,
// section 5.2): among other values the one there stays.
func (p plan) after() recordSet {
	to := recordSet{id: p.seen.id, ttl: p.seen.ttl}
	to.records = slices.DeleteFunc(slices.Clone(p.seen.records), func(r record) bool {
		return !r.off && slices.ContainsFunc(p.remove, r.value.Equal)
	})
	if !slices.ContainsFunc(to.records, func(r record) bool { return !r.off }) {
		to.ttl = p.ttl
	}
	for _, v := range p.add {
		to.records = append(to.records, record{value: v, ttl: to.ttl})
	}
	return to
}

// unspeakable is the refusal to write a set back in which another has a value
// with octets that JSON has lost.
func unspeakable(name string) error {
	return &Error{Kind: Conflict, Detail: name + ": a value there is not UTF-8, and would not go back as it is"}
}

// confirm waits until the list shows a change. Some vendors list a new record
// late: whoever read meanwhile would write it again, or leave it behind.
func (c *Client) confirm(ctx context.Context, p plan) error {
	for wait := c.poll; ; wait = min(2*wait, longestPoll) {
		set, err := c.vendor.list(ctx, p.zone, p.name)
		if err != nil {
			return err
		}
		if shows(set.values().Values, p) {
			return nil
		}
		if !pause(ctx, wait) {
			return &Error{Kind: Temporary, Detail: p.name, Err: ErrUnseen}
		}
	}
}

func shows(values []TXT, p plan) bool {
	for _, v := range p.add {
		if !slices.ContainsFunc(values, v.Equal) {
			return false
		}
	}
	return !slices.ContainsFunc(p.remove, func(v TXT) bool { return slices.ContainsFunc(values, v.Equal) })
}

// Authority knows no server to ask, but the names of the vendor's servers
// where the API tells them.
func (c *Client) Authority(ctx context.Context, zone string) (Authority, error) {
	z, err := c.named(ctx, zone)
	return Authority{Names: z.servers}, err
}

// sameValues compares two sets of values.
func sameValues(a, b []TXT) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(v TXT) bool { return !slices.ContainsFunc(b, v.Equal) })
}

// fold gives the form in which equal names are equal texts (RFC 4343).
func fold(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func parent(name string) string {
	_, above, _ := strings.Cut(name, ".")
	return above
}

// relative gives a name as many vendors want it: without the zone, "@" for the
// zone's own name.
func relative(name string, z zone) string {
	if name == z.name {
		return "@"
	}
	return strings.TrimSuffix(name, "."+z.name)
}

// paged collects the items of all pages; given is how many there were on the
// pages before, total how many there are on all. Where an answer does not say
// that (nil), an empty page is the last. An answer with neither, or a list that
// ends too early, is not to be believed: what it lacks would be written again.
func paged[T any](fetch func(page, given int) (items []T, total *int, err error)) ([]T, error) {
	var all []T
	for page := 1; page <= maxPages; page++ {
		items, total, err := fetch(page, len(all))
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		switch {
		case total == nil && items == nil && page == 1:
			return nil, &Error{Kind: BadAnswer, Detail: "neither a list nor its length", Err: errNotTheirs}
		case total == nil && len(items) == 0, total != nil && len(all) >= *total:
			return all, nil
		case len(items) == 0:
			return nil, &Error{Kind: BadAnswer, Detail: fmt.Sprintf("the list ends after %d items of %d", len(all), *total)}
		}
	}
	return nil, &Error{Kind: BadAnswer, Detail: fmt.Sprintf("the list has over %d pages", maxPages)}
}

const maxPages = 1000
