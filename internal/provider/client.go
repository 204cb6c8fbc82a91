package provider

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// Client is the client of a vendor with an HTTP API. It has the work that is the same for all
// vendors: it finds the zone, compares the values at a name, leaves all others unchanged, and waits
// until the vendor shows a change. It is safe for concurrent use.
type Client struct {
	vendor vendor
	apply  func(ctx context.Context, p plan) error
	poll   time.Duration // the pause before confirm looks again

	search  turn                  // one search for zones at a time: the others use its result
	listed  atomic.Bool           // the vendor's list of zones was read
	failure atomic.Pointer[error] // of the last search that every other search would meet
	cuts    map[string]string     // by name: the name if NS records delegate it, else ""; in the turn of search

	mu    sync.Mutex
	zones map[string]known
	all   bool // zones has every zone of the account
	sets  map[setKey]turn
	costs map[string]int // by zone name: calls of the last list of the whole zone
}

// vendor is the API of any vendor.
type vendor interface {
	// zone looks in the account for the public zone with exactly this name. A vendor that knows
	// the longest zone that contains the name may return that zone.
	zone(ctx context.Context, name string) (z zone, found bool, err error)

	// list returns the records of exactly this name and type.
	list(ctx context.Context, z zone, at setKey) (recordSet, error)

	// fits returns the reason why the vendor would not keep a value unchanged, nil if it would.
	fits(t Type, v Value) error
}

// typesVendor is a vendor whose client may lack types of records.
type typesVendor interface {
	types() []Type
}

// recordVendor changes single records by their ids.
type recordVendor interface {
	vendor
	create(ctx context.Context, z zone, at setKey, v Value, ttl uint32) error
	update(ctx context.Context, z zone, at setKey, old record, v Value, ttl uint32) error
	remove(ctx context.Context, z zone, at setKey, old record) error
}

// setVendor replaces all records of a name and type together.
type setVendor interface {
	vendor
	// replace puts one set in the place of another; a set without records deletes it. If the
	// vendor can compare, replace fails with Changed when from is no longer there.
	replace(ctx context.Context, z zone, at setKey, from, to recordSet) error
}

// zone is a zone of the account. Its name is folded and has no final dot.
type zone struct {
	id      string
	unique  string // id that differs between zones of this name in several accounts; "" if there is none
	name    string
	plan    string   // the paid plan, if the least TTL depends on it
	minTTL  uint32   // seconds, the least that the vendor accepts in this zone
	servers []string // the vendor's name servers for the zone, if the API tells
	fault   error    // the reason why the zone must not be changed
	warning error    // see Authority.Warning
	primary bool     // the server sends the changes to secondaries when it is asked
}

// record is one record of a set.
type record struct {
	id    string // only of a recordVendor
	value Value
	raw   string // the vendor's spelling of the value; "" if it is to be spelled anew
	ttl   uint32
	off   bool // disabled or for some resolvers only: the client must not touch it
	hides bool // off, and as long as it stands no resolver gets a value of the set
}

// recordSet is the records of one type, and the alias, at a name.
type recordSet struct {
	id      string // of a vendor whose sets have ids
	ttl     uint32
	records []record
	alias   string // target of a CNAME at the name, if the list shows one
	pending bool   // a change is under way
}

// Kinds of a vendor's errors that Change and ReadAll never return.
const (
	exists Kind = "exists" // the record already exists
	gone   Kind = "gone"   // the record no longer exists
)

// plan is a change of the records of one name and type.
type plan struct {
	zone        zone
	at          setKey
	seen        recordSet
	add, remove []Value
	copies      []Value // values that keep one record
	ttl         uint32  // of new records
}

func (p plan) empty() bool { return len(p.add)+len(p.remove)+len(p.copies) == 0 }

const (
	pollInterval = 200 * time.Millisecond
	longestPoll  = 2 * time.Second
)

// open makes a client. The credentials may replace the vendor's own endpoint.
func open[V vendor](endpoint string, c Credentials, vendorOf func(*api) V) (*Client, error) {
	a, err := newAPI(endpoint, c, false)
	if err != nil {
		return nil, err
	}
	return vendorClient(vendorOf(a)), nil
}

// vendorClient makes a client of a setVendor or a recordVendor.
func vendorClient(v vendor) *Client {
	return clientOf(v, func(ctx context.Context, p plan) error {
		if v, ok := v.(setVendor); ok {
			return v.replace(ctx, p.zone, p.at, p.seen, p.after())
		}
		return p.changeRecords(ctx, v.(recordVendor))
	})
}

func clientOf(v vendor, apply func(ctx context.Context, p plan) error) *Client {
	return &Client{
		vendor: v, apply: apply, poll: pollInterval, search: newTurn(),
		zones: map[string]known{}, sets: map[setKey]turn{}, costs: map[string]int{}, cuts: map[string]string{},
	}
}

// Types returns the types of records that the client has.
func (c *Client) Types() []Type {
	if v, ok := c.vendor.(typesVendor); ok {
		return v.types()
	}
	return allTypes
}

// Read returns the values of a type at a name.
func (c *Client) Read(ctx context.Context, zone, name string, t Type) (RRset, error) {
	if err := CheckType(c, t); err != nil {
		return RRset{}, err
	}
	z, err := c.named(ctx, zone)
	if err != nil {
		return RRset{}, err
	}
	set, err := c.vendor.list(ctx, z, setKey{dns.Fold(name), t})
	values := set.values()
	if err == nil && set.alias != "" && len(values.Values) == 0 {
		err = aliased(dns.Fold(name), set.alias)
	}
	return values, err
}

// aliased returns the error of a value at a name with a CNAME. If values exist beside the CNAME, they
// can be read and removed.
func aliased(name, target string) *Error {
	return &Error{Kind: Conflict, Detail: msg.Textf("%s is an alias: it points to %s", name, msg.Say(target))}
}

func (s recordSet) values() RRset {
	var set RRset
	hidden := slices.ContainsFunc(s.records, func(r record) bool { return r.hides })
	for _, r := range s.records {
		switch {
		case r.off || hidden:
			set.Off = append(set.Off, r.value)
		case !slices.ContainsFunc(set.Values, r.value.Equal):
			set.TTL = cmp.Or(set.TTL, s.ttl, r.ttl)
			set.Values = append(set.Values, r.value)
		case !slices.ContainsFunc(set.Copies, r.value.Equal):
			set.Copies = append(set.Copies, r.value)
		}
	}
	return set
}

// Change makes the change and returns when the provider shows it. It reads the name first, and does
// nothing if the values have changed since they were seen.
func (c *Client) Change(ctx context.Context, ch Change) error {
	return c.change(ctx, []Change{ch}, true)[0]
}

// at returns the set that a change is about.
func (ch Change) at() setKey { return setKey{dns.Fold(ch.Name), ch.Type} }

// fits returns the reason why the client cannot make the change, whatever is at the name.
func (c *Client) fits(ch Change) error {
	if err := CheckType(c, ch.Type); err != nil {
		return err
	}
	for _, v := range ch.Add {
		if err := cmp.Or(ch.Type.Check(v), c.vendor.fits(ch.Type, v)); err != nil {
			return &Error{Kind: Invalid, Detail: msg.Textf("value %q", v.Text()), Err: err}
		}
	}
	return nil
}

// overtaken returns Changed for a write that failed because the records are not those listed before
// it: another writer made the value or removed the record.
func overtaken(name string, err error) error {
	if kind := KindOf(err); kind == gone || kind == exists {
		return &Error{Kind: Changed, Detail: staleAt(name), Err: err, Unmade: kind == gone && Unmade(err)}
	}
	return err
}

// newPlan plans only what is still to be done. A value to add that exists in a disabled record is a
// conflict: a vendor refuses a second record, and the client must not enable the first.
func newPlan(z zone, at setKey, seen recordSet, ch Change) (plan, error) {
	p := plan{zone: z, at: at, seen: seen, ttl: max(ch.TTL, z.minTTL)}
	now := seen.values()
	standing := now.Values
	if !sameValues(standing, ch.Seen.Values) {
		return p, &Error{Kind: Changed, Detail: staleAt(at.name)}
	}
	stands := func(v Value) bool { return slices.ContainsFunc(standing, v.Equal) }
	p.add = slices.DeleteFunc(slices.Clone(ch.Add), stands)
	p.remove = slices.DeleteFunc(slices.Clone(ch.Remove), func(v Value) bool { return !stands(v) })
	p.copies = slices.DeleteFunc(slices.Clone(ch.Copies), func(v Value) bool {
		return !slices.ContainsFunc(now.Copies, v.Equal) || slices.ContainsFunc(p.remove, v.Equal)
	})
	if seen.alias != "" && len(p.add) > 0 {
		return p, aliased(at.name, seen.alias)
	}
	for _, r := range seen.records {
		if r.hides && len(p.add) > 0 || r.off && slices.ContainsFunc(p.add, r.value.Equal) {
			return p, &Error{Kind: Conflict, Detail: msg.Textf("%s: a record there is disabled, an alias, or for some resolvers only", at.name)}
		}
	}
	return p, nil
}

// turn returns the turn of a set, so that two changes of one set never overlap.
func (c *Client) turn(at setKey) turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sets[at] == nil {
		c.sets[at] = newTurn()
	}
	return c.sets[at]
}

// turn admits one caller at a time. A waiting caller gives up when its context ends.
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

// changeRecords replaces one value by one in a single call. Any other change adds before it removes.
func (p plan) changeRecords(ctx context.Context, v recordVendor) error {
	_, old := p.split()
	if len(p.add) == 1 && len(old) == 1 {
		return p.orAlias(ctx, v, v.update(ctx, p.zone, p.at, old[0], p.add[0], p.ttl))
	}
	var steps []func() error
	for _, value := range p.add {
		steps = append(steps, func() error {
			err := p.orAlias(ctx, v, v.create(ctx, p.zone, p.at, value, p.ttl))
			return unless(exists, err)
		})
	}
	for _, r := range old {
		steps = append(steps, func() error { return unless(gone, v.remove(ctx, p.zone, p.at, r)) })
	}
	for i, step := range steps {
		if err := step(); err != nil && i > 0 {
			return unsure(err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// unless returns err, or nil if err is of the kind.
func unless(kind Kind, err error) error {
	if KindOf(err) == kind {
		return nil
	}
	return err
}

// aliasVendor is a vendor whose list of a name does not show an alias.
type aliasVendor interface {
	// alias returns the target of a CNAME at the name, "" without one.
	alias(ctx context.Context, z zone, name string) (string, error)
}

// orAlias looks for an alias after a refused write, if an alias can be the reason. Without the Conflict
// the client would wait in vain for the value.
func (p plan) orAlias(ctx context.Context, v vendor, err error) error {
	looks, can := v.(aliasVendor)
	if kind := KindOf(err); !can || kind != exists && kind != Invalid {
		return err
	}
	target, failure := looks.alias(ctx, p.zone, p.at.name)
	if failure != nil || target == "" {
		return err
	}
	conflict := aliased(p.at.name, target)
	conflict.Err, conflict.Unmade = err, Unmade(err)
	return conflict
}

// split returns the records that a change keeps, and those that it removes.
func (p plan) split() (staying, leaving []record) {
	var once []Value
	for _, r := range p.seen.records {
		in := func(values []Value) bool { return slices.ContainsFunc(values, r.value.Equal) }
		switch {
		case r.off:
			staying = append(staying, r)
		case in(p.remove), in(p.copies) && in(once):
			leaving = append(leaving, r)
		default:
			staying, once = append(staying, r), append(once, r.value)
		}
	}
	return staying, leaving
}

// after returns the set after the change. A set has one TTL (RFC 2181, section 5.2): if other values
// remain, their TTL does too.
func (p plan) after() recordSet {
	to := recordSet{id: p.seen.id, ttl: p.seen.values().TTL}
	to.records, _ = p.split()
	if !slices.ContainsFunc(to.records, func(r record) bool { return !r.off }) {
		to.ttl = p.ttl
	}
	for _, v := range p.add {
		to.records = append(to.records, record{value: v, ttl: to.ttl})
	}
	return to
}

// unspeakable returns the error for a set with a foreign value that is not UTF-8: JSON has lost octets
// of it, so the set cannot be written back.
func unspeakable(name string) error {
	return &Error{Kind: Conflict, Detail: msg.Textf("%s: a value there is not UTF-8, and would not go back as it is", name), Unmade: true}
}

func (p plan) shownBy(set recordSet) bool {
	now := set.values()
	for _, v := range p.add {
		if !slices.ContainsFunc(now.Values, v.Equal) {
			return false
		}
	}
	stays := func(v Value) bool { return slices.ContainsFunc(now.Values, v.Equal) }
	twice := func(v Value) bool { return slices.ContainsFunc(now.Copies, v.Equal) }
	return !slices.ContainsFunc(p.remove, stays) && !slices.ContainsFunc(p.copies, twice)
}

// Authority returns the names of the vendor's servers, if the API tells them, and no server to ask. It makes no call for a zone
// that Zone has returned.
func (c *Client) Authority(ctx context.Context, zone string) (Authority, error) {
	z, err := c.named(ctx, zone)
	return Authority{Names: z.servers, Warning: z.warning}, err
}

// sameValues compares two sets of values, in any order.
func sameValues(a, b []Value) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(v Value) bool { return !slices.ContainsFunc(b, v.Equal) })
}

// relative returns a name without its zone, "@" for the zone's own name, as many vendors want it.
func relative(name string, z zone) string {
	if name == z.name {
		return "@"
	}
	return strings.TrimSuffix(name, "."+z.name)
}

// absolute returns the full name of a relative one.
func absolute(relative string, z zone) string {
	if relative = dns.Fold(relative); relative == "@" || relative == "" {
		return z.name
	}
	return relative + "." + z.name
}

// Backoff is the schedule of retries after transient failures.
type Backoff struct {
	First   time.Duration // before the first retry; each further pause is twice as long
	Retries int
}

// maxDelay limits the doubling. A longer First stays unchanged.
const maxDelay = 300 * time.Second

// Delay returns the pause after a number of failed attempts: the provider's RetryAfter, or a pause
// that doubles each time. Jitter prevents that many hosts retry at the same moment.
func (b Backoff) Delay(failed int, err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok && e.RetryAfter > 0 {
		return min(e.RetryAfter, daemon.MaxRetryAfter)
	}
	return daemon.Backoff{First: b.First, Longest: maxDelay}.Jittered(failed)
}

// poll calls done, with pauses, until it is true. It returns false if the context ends before.
func poll(ctx context.Context, pauses daemon.Backoff, done func() bool) bool {
	for failed := 1; !done(); failed++ {
		if !pause(ctx, pauses.Pause(failed)) {
			return false
		}
	}
	return true
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
