package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/tasks"
)

const (
	singleNames = 32 // names worked on together where the provider changes one at a time
	overlapping = 8  // calls at a time where a call is about one name
	bulkFrom    = 16 // names from which a list of the whole zone is cheaper
	maxRaces    = 10 // lost races for one name before it counts as a failure
)

// item is one record in work.
type item struct {
	record Record
	goal   goal
	phase  phase
	place  Place  // as it is by now
	before *Place // the place before the last intent; nil while none is committed
	step   Step   // what the last event asks for
	left   *Place // the place that the value leaves, because it belongs into another zone
	seen   provider.RRset
	change provider.Change
	fault  Fault
	wait   time.Duration // that the provider asked for
	began  time.Time
	took   time.Duration
	store  []*Place // what the database is to have
	verify bool     // it withdraws what is wanted in another zone, which is looked at afterwards
}

// phase is how far the work on an item is.
type phase int

const (
	unread phase = iota
	read
	done
	untried // done without a call, because calls were pointless by then
)

// ended reports whether the work on an item is done.
func (i *item) ended() bool { return i.phase >= done }

func newItem(r Record, manualLook bool) *item {
	i := &item{record: r, place: r.Place, goal: r.goal}
	i.goal.want, i.goal.standing, i.goal.doubt = r.Want, r.Place.Standing, r.Place.Doubt
	if manualLook && !r.withdraws() {
		i.goal.mode = LookOnly
	}
	return i
}

// restate brings the state of the place into line with what is wanted there now.
func (i *item) restate(now time.Time) { i.happens(i.record.wanted(), now) }

// happens tells the place of the item of an event.
func (i *item) happens(e Event, now time.Time) {
	i.place, i.step = i.place.After(e, i.record.wish(), i.goal.mode, now)
}

// looked ends the work on an item with what stands there now.
func (i *item) looked(now time.Time) {
	e := Event{Kind: Seen}
	e.Value, e.More = i.goal.remains(i.change)
	i.happens(e, now)
	i.phase = done
}

// fail ends the work on an item.
func (i *item) fail(err error) {
	i.fault, i.phase = Describe(err, i.record.Account), done
	if e, ok := errors.AsType[*provider.Error](err); ok {
		i.wait = e.RetryAfter
	}
}

// zoneless reports whether the provider has no zone for what is wanted.
func (i *item) zoneless() bool { return i.fault.Code == string(provider.ZoneNotFound) }

// batch is some records of one zone, worked on together: read, commit what is
// intended, write, and say what came of it.
type batch struct {
	db        Database
	addresses Addresses
	now       func() time.Time
	probe     func(ctx context.Context, old *connection, wanted Place) (bool, error)
	conn      *connection
	items     []*item
	dry       bool // nothing is written, neither there nor here
	heir      bool // the connection is not that of the places' own key
	mu        sync.Mutex
	answered  bool  // a call has succeeded
	silent    int   // calls in a row that got no answer
	down      error // a failure that would meet every other call too
	crash     error // the last panic
}

// work brings the records to their wanted state as far as it can.
func (b *batch) work(ctx context.Context) {
	for _, i := range b.items {
		b.begin(i)
	}
	b.findAll(ctx)
	b.read(ctx)
	b.plan(ctx)
	if !b.dry {
		b.write(ctx)
	}
	for _, i := range b.items {
		i.took = b.now().Sub(i.began)
	}
}

// begin reads the wish again, and ends an item for which no provider has to be
// asked.
func (b *batch) begin(i *item) {
	r := i.record
	i.began = b.now()
	switch i.restate(i.began); {
	case i.step == End:
		i.phase = done
	case r.withdraws() && !r.Withdrawal.Keep && r.inOneZone():
		i.happens(Event{Kind: Shared}, i.began)
		i.phase = done
	case r.Fault.Code != "":
		i.fault, i.phase = r.Fault, done
	case b.conn.client == nil:
		i.fail(b.conn.refusal)
	}
}

// pending are the items that are not done.
func (b *batch) pending() []*item {
	return slices.DeleteFunc(slices.Clone(b.items), (*item).ended)
}

// byZone groups items by the apex of their zone.
func byZone(items []*item) map[string][]*item {
	zones := map[string][]*item{}
	for _, i := range items {
		zones[i.place.Zone] = append(zones[i.place.Zone], i)
	}
	return zones
}

// each calls f for every pending item, some at a time. When the provider is
// down the rest is not asked.
func (b *batch) each(ctx context.Context, f func(*item)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, overlapping)
	for _, i := range b.pending() {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			b.rescue(func() {
				if !b.spare(ctx, i) {
					f(i)
				}
			}, i)
		})
	}
	group.Wait()
}

// rescue calls a function whose panic is the fault of some items, and of nothing else.
func (b *batch) rescue(f func(), items ...*item) {
	err := tasks.Call(func() error { f(); return nil })
	if err == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crash = err
	for _, i := range items {
		if !i.ended() {
			i.fail(err)
		}
	}
}

// spare ends an item without a call when calls are pointless by now.
func (b *batch) spare(ctx context.Context, i *item) bool {
	b.mu.Lock()
	down := b.down
	b.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		i.fail(ctx.Err())
	case down != nil:
		i.fail(down)
	default:
		return false
	}
	i.phase = untried
	return true
}

// note takes the outcome of a call for an item.
func (b *batch) note(i *item, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.answered, b.silent = true, 0
		return
	}
	i.fail(err)
	kind := provider.KindOf(err)
	if kind == provider.Network || kind == provider.Temporary {
		b.silent++
	}
	switch {
	case b.silent >= overlapping: // as many as were under way together: what answered before does not any more
		b.answered, b.down = false, err
	case kind == provider.Throttled:
		b.down = err
	case b.answered:
	case kind == provider.Network, kind == provider.Temporary, kind == provider.BadCredentials, kind == provider.ClockSkew:
		b.down = err
	}
}

// findAll finds the zones of the items. One that is known without a call is no sign
// that the provider answers, until none of the others has failed.
func (b *batch) findAll(ctx context.Context) {
	var found atomic.Bool
	b.each(ctx, func(i *item) {
		if err := b.find(ctx, i); err != nil {
			b.note(i, err)
		} else {
			found.Store(true)
		}
	})
	b.answered = b.down == nil && found.Load()
}

// find finds the zone of an item by its name, and takes the place in it. A value is
// withdrawn where it was put.
func (b *batch) find(ctx context.Context, i *item) error {
	r := i.record
	if r.Withdrawal.Keep {
		b.keep(ctx, i)
		return nil
	}
	zone, id, err := b.zoneOf(ctx, r)
	switch {
	case r.withdraws() && provider.KindOf(err) == provider.ZoneNotFound:
		i.phase = done
		i.happens(Event{Kind: NoZone}, b.now())
		return nil
	case err == nil:
		i.choosePlace(dnsname.Fold(zone), id, b.now())
	}
	return err
}

// zoneOf finds the zone of a record, and the provider's id of it.
func (b *batch) zoneOf(ctx context.Context, r Record) (zone, id string, err error) {
	if b.heir {
		return b.heirZone(ctx, r)
	}
	switch zone = r.Place.Zone; {
	case r.withdraws() && zone != "":
	case zone != "" && len(b.items) >= bulkFrom:
		zone, err = b.findAmongMany(ctx, r, zone)
	default:
		zone, err = b.conn.client.Zone(ctx, r.Name)
	}
	id = r.Place.ZoneID
	if identifier, ok := b.conn.client.(provider.ZoneIdentifier); err == nil && ok && (id == "" || !r.withdraws()) {
		id, err = identifier.ZoneID(ctx, dnsname.Fold(zone)) // a zone may have been made anew
	}
	return zone, id, err
}

// findAmongMany finds a zone by the domain of its names where each name would be a
// call of its own. A provider that gives no answer to this is not asked in another way.
func (b *batch) findAmongMany(ctx context.Context, r Record, stored string) (string, error) {
	known, err := b.conn.knowsZones(ctx)
	if err != nil {
		return "", err
	}
	if !known {
		f := b.conn.domain(ctx, r.Domain)
		if e, ok := errors.AsType[*provider.Error](f.err); ok && e.Transient() {
			return "", f.err
		}
		if f.apex == stored {
			return stored, nil
		}
	}
	return b.conn.client.Zone(ctx, r.Name)
}

// keep looks at a value that stays until it stands elsewhere. Whatever is wrong
// there, nothing is to be done now.
func (b *batch) keep(ctx context.Context, i *item) {
	i.phase = done
	if err := b.readOne(ctx, i); err != nil {
		i.happens(Event{Kind: Failure, Final: true}, b.now())
		return
	}
	i.change.Seen = i.seen
	i.looked(b.now())
}

// choosePlace takes the place in the zone that was found. A value that stands in
// another zone of the account moves.
func (i *item) choosePlace(zone, id string, now time.Time) {
	r := i.record
	if r.withdraws() {
		i.place.Zone = zone // which an old database may not have known
	}
	if i.place.Zone != zone {
		old := i.place
		if old.Zone != "" {
			i.place = Place{Name: r.Name, Account: r.Account, State: Pending, Attempts: old.Attempts}
		}
		if at := slices.IndexFunc(r.Others, func(p Place) bool { return p.Zone == zone }); at >= 0 {
			i.place = r.Others[at]
		}
		if i.place.ID != old.ID && old.ID != 0 {
			old, _ = old.After(Event{Kind: Unwanted}, Wish{}, Write, now)
			i.left = &old
		}
		i.place.Zone = zone
		i.goal.standing, i.goal.doubt = i.place.Standing, i.place.Doubt
	}
	i.place.ZoneID = id
}

// read learns what stands at the names, with as few calls as the provider needs.
func (b *batch) read(ctx context.Context) {
	for apex, items := range byZone(b.pending()) {
		switch client := b.conn.client.(type) {
		case provider.BatchReader:
			b.readNames(ctx, client, apex, items)
		case provider.ZoneReader:
			b.readList(ctx, client, apex, items)
		}
	}
	b.each(ctx, func(i *item) {
		if i.phase == unread {
			b.note(i, b.readOne(ctx, i))
		}
	})
}

func (b *batch) readOne(ctx context.Context, i *item) (err error) {
	i.seen, err = b.conn.client.Read(ctx, i.place.Zone, i.record.Name)
	kind := provider.KindOf(err)
	if i.record.withdraws() && (kind == provider.Conflict || kind == provider.ZoneNotFound) {
		i.seen, err = provider.RRset{}, nil // beside an alias, and without the zone, there is no value of ours
	}
	if err == nil && i.phase == unread {
		i.phase = read
	}
	return err
}

func (b *batch) readNames(ctx context.Context, client provider.BatchReader, apex string, items []*item) {
	var names []string
	for _, i := range items {
		names = append(names, i.record.Name)
	}
	sets, err := client.ReadNames(ctx, apex, names)
	for _, i := range items {
		if b.note(i, err); err == nil {
			i.seen, i.phase = sets[i.record.Name], read
		}
	}
}

// readList answers from a list of the whole zone where enough names are asked
// for. A list may be older than a write of ours: whether a value has gone is read
// from one that was made while no other task works on its name.
func (b *batch) readList(ctx context.Context, client provider.ZoneReader, apex string, items []*item) {
	if len(items) < bulkFrom {
		return
	}
	anew := slices.ContainsFunc(items, func(i *item) bool { return i.record.withdraws() || !i.record.Place.LookAt.IsZero() })
	listed, _ := b.conn.list(ctx, client, apex, anew)
	if listed == nil {
		return
	}
	for _, i := range items {
		if set, ok := b.conn.listed(listed, i.record.Name); ok {
			i.seen, i.phase = set, read
		}
	}
}

// plan works out every change.
func (b *batch) plan(ctx context.Context) {
	for _, i := range b.pending() {
		b.planOne(ctx, i)
	}
}

func (b *batch) planOne(ctx context.Context, i *item) {
	var err error
	if i.change, err = i.goal.plan(i.seen); err != nil {
		i.fail(err)
		return
	}
	i.change.Zone, i.change.Name = i.place.Zone, i.record.Name
	if i.record.withdraws() && slices.ContainsFunc(i.change.Remove, func(v provider.TXT) bool { return v.Text() == i.record.Withdrawal.Wanted }) {
		same, err := b.sharesZone(ctx, i)
		if err != nil {
			i.fail(err)
			return
		}
		if same {
			i.phase = done
			i.happens(Event{Kind: Shared}, b.now())
			return
		}
		i.verify = true
	}
	unchanged := i.goal.action(i.change) == ActionUnchanged
	if i.goal.disturbed(i.seen, i.place) {
		i.place.Disturbed++
	} else if unchanged {
		i.place.Disturbed = 0
	}
	if unchanged || b.dry {
		i.looked(b.now())
	}
}

// write commits what is intended, makes the changes, and again those for which
// another writer was faster.
func (b *batch) write(ctx context.Context) {
	for range maxRaces {
		due := b.pending()
		if len(due) == 0 || !b.intend(ctx, due) {
			return
		}
		due = b.pending()
		errs := b.change(ctx, due)
		for _, i := range due {
			if err, answered := errs[i]; answered {
				b.took(i, err)
			} else if i.phase == untried { // nothing was sent
				i.happens(Event{Kind: Known, Before: *i.before}, b.now())
			}
		}
		b.again(ctx)
	}
	for _, i := range b.pending() {
		i.fail(&provider.Error{Kind: provider.Changed, Detail: msg.Say(i.record.Name)})
	}
}

// intend commits what is about to be written, if it is still what is wanted. An
// item that is not any more waits for its next turn.
func (b *batch) intend(ctx context.Context, items []*item) bool {
	names := make([]string, 0, len(items))
	for _, i := range items {
		names = append(names, i.record.Name)
	}
	var still map[*item]*Place
	err := b.db.Intend(ctx, names, func(state State) []*Place {
		wanted := map[string][]Record{}
		for _, t := range Desired(state, b.addresses) {
			wanted[t.Name.Name] = t.Records
		}
		still = map[*item]*Place{}
		var places []*Place
		for _, i := range items {
			if !slices.ContainsFunc(wanted[i.record.Name], i.record.same) {
				continue
			}
			p := i.intended(b.now())
			still[i] = &p
			places = append(places, &p)
			if i.left != nil {
				places = append(places, i.left)
			}
		}
		return places
	})
	for _, i := range items {
		p, ok := still[i]
		switch {
		case err != nil:
			i.fault, i.phase = Fault{Code: CodeDatabase, Detail: msg.TextOf(err)}, done
		case !ok:
			i.fault, i.phase = Fault{Code: CodeInterrupted}, untried
		default:
			before := i.place
			i.before, i.place = &before, *p
		}
	}
	return err == nil
}

// same reports whether two records want the same of one place.
func (r Record) same(s Record) bool {
	return r.Account.ID == s.Account.ID && r.Want == s.Want && r.Fault == s.Fault && (!r.withdraws() || r.Place.ID == s.Place.ID)
}

// intended is the place as it is stored before a write.
func (i *item) intended(now time.Time) Place {
	e := Event{Kind: Intent}
	if len(i.change.Add) > 0 {
		e.Value = i.goal.want
		e.More = slices.ContainsFunc(i.change.Remove, func(v provider.TXT) bool { return v.Text() != i.place.Standing })
	}
	p, _ := i.place.After(e, i.record.wish(), i.goal.mode, now)
	return p
}

// places are those of the item that are stored.
func (i *item) places() []*Place {
	if i.left == nil {
		return []*Place{&i.place}
	}
	return []*Place{&i.place, i.left}
}

// change makes the changes of the items, together where the provider can.
func (b *batch) change(ctx context.Context, items []*item) map[*item]error {
	errs := map[*item]error{}
	for _, i := range items {
		b.conn.outdate(i.place.Zone, i.record.Name)
	}
	many, ok := b.conn.client.(provider.BatchChanger)
	if !ok || len(items) == 1 {
		var mu sync.Mutex
		b.each(ctx, func(i *item) {
			ctx, cancel := provider.WriteContext(ctx)
			defer cancel()
			err := b.conn.client.Change(ctx, i.change)
			mu.Lock()
			defer mu.Unlock()
			errs[i] = err
		})
		return errs
	}
	for _, same := range byZone(items) {
		var changes []provider.Change
		for _, i := range same {
			changes = append(changes, i.change)
		}
		writing, cancel := provider.WriteContext(ctx)
		for n, err := range many.ChangeAll(writing, changes) {
			errs[same[n]] = err
		}
		cancel()
	}
	return errs
}

// took takes what a write came to. A lost race leaves the item to be read again.
func (b *batch) took(i *item, err error) {
	if err == nil || provider.Unmade(err) {
		i.happens(Event{Kind: Known, Before: *i.before}, b.now())
	}
	switch kind := provider.KindOf(err); {
	case kind == provider.Changed:
		i.phase = unread
		return
	case i.record.withdraws() && kind == provider.ZoneNotFound:
		b.note(i, nil)
		i.happens(Event{Kind: NoZone}, b.now())
		i.phase = done
		return
	}
	if b.note(i, err); err == nil {
		i.looked(b.now())
	}
}

// again reads and plans those that lost a race.
func (b *batch) again(ctx context.Context) {
	b.each(ctx, func(i *item) { b.note(i, b.readOne(ctx, i)) })
	b.plan(ctx)
}
