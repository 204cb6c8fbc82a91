package reconcile

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

const (
	singleNames = 32 // names of a batch if the provider changes one name in a call
	overlapping = 8  // concurrent calls, if a call is about one name
	syncTime    = 5 * time.Second
	bulkFrom    = 16 // from this number of names on a list of the whole zone is cheaper
	maxRaces    = 10 // tries of a write while other writers change the same name
)

// batch is some records of one zone that are worked on together: find the zone, read, plan,
// commit the intent, and write.
type batch struct {
	db        Database
	addresses Addresses
	now       func() time.Time
	probe     func(ctx context.Context, old *connection, wanted Place) (bool, error)
	synced    func(ctx context.Context) error // as in Config
	conn      *connection
	items     []*item
	dry       bool // neither DNS nor the database is written
	heir      bool // the connection is that of the heir, not of the places' own account
	mu        sync.Mutex
	answered  bool  // a call has succeeded
	found     bool  // a zone was found, perhaps without a call
	silent    int   // calls in a row that got no answer
	silence   error // the failure of the last one
	down      error // a failure that every other call would meet too
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
	b.conclude()
	for _, i := range b.items {
		i.took = b.now().Sub(i.began)
	}
}

// conclude judges the provider after the last call. If calls got no answer and none succeeded, the
// provider is down, although a zone was found without a call.
func (b *batch) conclude() {
	if b.down == nil && !b.answered && b.silence != nil {
		b.down = b.silence
	}
	b.answered = b.answered || b.found && b.down == nil
}

// begin reads the wish of an item again, and ends an item that needs no call to the
// provider.
func (b *batch) begin(i *item) {
	r := i.record
	i.began = b.now()
	switch i.restate(i.began); {
	case i.step == End:
		i.phase = done
	case r.withdraws() && r.Sibling.marked() && !r.Withdrawal.Keep && r.inOneZone() >= 0:
		i.happens(Event{Kind: Shared}, i.began)
		i.phase = done
	case r.Fault.Code != "":
		i.fault, i.phase = r.Fault, done
	case b.conn.client == nil:
		i.fail(b.conn.refusal)
	}
}

// pending returns the items that are not done.
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

// each calls f for every pending item, at most overlapping at once. Once the provider is
// down, it ends the other items without a call.
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

// rescue calls a function. If the function panics, only the given items fail.
func (b *batch) rescue(f func(), items ...*item) {
	err := daemon.Call(func() error { f(); return nil })
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

// spare ends an item without a call if ctx has ended or the provider is down.
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

// note records the outcome of a call for an item, and whether the whole zone is down.
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
		b.silence = err
	}
	switch {
	case b.silent >= overlapping: // as many as run at once: the provider does not answer any more
		b.answered, b.down = false, err
	case kind == provider.Throttled:
		b.down = err
	case b.answered, b.found:
	case kind == provider.Network, kind == provider.Temporary, kind == provider.BadCredentials, kind == provider.ClockSkew:
		b.down = err
	}
}

// findAll finds the zones of the items. A zone that is known without a call does not prove
// that the provider answers.
func (b *batch) findAll(ctx context.Context) {
	var found atomic.Bool
	b.each(ctx, func(i *item) {
		if err := b.find(ctx, i); err != nil {
			b.note(i, err)
		} else {
			found.Store(true)
		}
	})
	b.found = b.down == nil && found.Load()
}

// find finds the zone of an item, and chooses the place in it. A value is withdrawn at the
// place where it was written.
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
		b.conn.zoneless.Store(true)
		i.happens(Event{Kind: NoZone}, b.now())
		return nil
	case err == nil:
		i.choosePlace(dns.Fold(zone), id, b.now())
		i.goal.cut, err = b.cut(ctx, r, zone)
	}
	return err
}

// cut returns the name at which the zone delegates a part with the record's domain to other servers, "" if it
// does not, or if the provider does not tell.
func (b *batch) cut(ctx context.Context, r Record, zone string) (string, error) {
	client, ok := b.conn.client.(provider.DelegationReader)
	if !ok || r.withdraws() || r.Domain == zone {
		return "", nil
	}
	at, err := client.Delegated(ctx, zone, r.Domain)
	if kind := provider.KindOf(err); kind == provider.Permission || kind == provider.Invalid {
		err = nil // the key may be for records of other types only
	}
	return at, err
}

// zoneOf finds the apex of a record's zone and the provider's id of the zone.
func (b *batch) zoneOf(ctx context.Context, r Record) (zone, id string, err error) {
	if b.heir {
		return b.heirZone(ctx, r)
	}
	switch zone = r.Place.Zone; {
	case r.withdraws() && zone != "":
	case zone != "" && len(b.items) >= bulkFrom:
		zone, err = b.findAmongMany(ctx, r, zone)
	default:
		zone, err = b.conn.client.Zone(ctx, r.ownerName())
	}
	id = r.Place.ZoneID
	if identifier, ok := b.conn.client.(provider.ZoneIdentifier); err == nil && ok && (id == "" || !r.withdraws()) {
		id, err = identifier.ZoneID(ctx, dns.Fold(zone)) // the zone may have been deleted and made again
	}
	return zone, id, err
}

// findAmongMany finds a zone by the domain of the service if a search by name would need a
// call for each name. After a transient failure it does not search by name.
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
	return b.conn.client.Zone(ctx, r.ownerName())
}

// keep reads a value that stays until it stands at its new place. It ends the item without
// a fault, because no change is due.
func (b *batch) keep(ctx context.Context, i *item) {
	i.phase = done
	if err := b.readOne(ctx, i); err != nil {
		i.happens(Event{Kind: Failure, Final: true}, b.now())
		return
	}
	i.change.Seen = i.seen
	i.looked(b.now())
}

// read reads the values at the names, with as few calls as the provider allows.
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

// readOne reads the values at the name of one item.
func (b *batch) readOne(ctx context.Context, i *item) (err error) {
	name, t := i.record.owner()
	i.seen, err = b.conn.client.Read(ctx, i.place.Zone, name, t)
	kind := provider.KindOf(err)
	if i.record.withdraws() && !provider.Hidden(err) && (kind == provider.Conflict || kind == provider.ZoneNotFound) {
		i.seen, err = provider.RRset{}, nil // beside an alias, or without the zone, no value of ours can stand
	}
	if err == nil && i.phase == unread {
		i.phase = read
	}
	return err
}

// readNames reads the values at the names of some items, in one call for each type.
func (b *batch) readNames(ctx context.Context, client provider.BatchReader, apex string, items []*item) {
	names, types := map[provider.Type][]string{}, map[provider.Type][]*item{}
	for _, i := range items {
		name, t := i.record.owner()
		names[t], types[t] = append(names[t], name), append(types[t], i)
	}
	for t, items := range types {
		sets, err := client.ReadNames(ctx, apex, t, names[t])
		for n, i := range items {
			if b.note(i, err); err == nil {
				i.seen, i.phase = sets[names[t][n]], read
			}
		}
	}
}

// readList reads the values of at least bulkFrom names from a list of the whole zone. A
// list may be older than a write of ours. So a withdrawal or a second look needs a new
// list, which is read while no other task works on these names.
func (b *batch) readList(ctx context.Context, client provider.ZoneReader, apex string, items []*item) {
	items = slices.DeleteFunc(slices.Clone(items), func(i *item) bool { return i.goal.sibling }) // a list has TXT records of reserved names only
	if len(items) < bulkFrom {
		return
	}
	anew := slices.ContainsFunc(items, func(i *item) bool { return i.record.withdraws() || !i.record.Place.LookAt.IsZero() })
	listed, _ := b.conn.list(ctx, client, apex, anew)
	if listed == nil {
		return
	}
	for _, i := range items {
		if set, ok := b.conn.listed(listed, i.record.Name); ok && (set.Alias == "" || !i.record.withdraws()) { // below a delegation the list lacks values
			i.seen, i.phase = set, read
		}
	}
}

// plan plans the change of every pending item.
func (b *batch) plan(ctx context.Context) {
	for _, i := range b.pending() {
		b.planOne(ctx, i)
	}
}

// planOne plans the change of one item, and ends the item if there is none. Before it
// removes a value that is wanted in another zone, it makes sure that the two are not the
// same zone. Before a write the place of a sibling record knows what stands.
func (b *batch) planOne(ctx context.Context, i *item) {
	i.learn() // also what an earlier try may have written
	if err := b.recognise(ctx, i); err != nil {
		i.fail(err)
		return
	}
	i.change, i.conflict = i.goal.plan(i.seen)
	if i.record.withdraws() && slices.ContainsFunc(i.change.Remove, i.record.wantsBeside) {
		same, err := b.sharesZone(ctx, i)
		switch {
		case err != nil:
			i.fail(err)
			return
		case same && i.record.Sibling.marked():
			i.phase = done
			i.happens(Event{Kind: Shared}, b.now())
			return
		case same:
			i.change, i.conflict = i.goal.plan(i.seen)
		default:
			i.verify = true
		}
	}
	i.change.Zone = i.place.Zone
	i.change.Name, i.change.Type = i.record.owner()
	unchanged := i.goal.action(i.change) == ActionUnchanged
	if i.goal.disturbed(i.seen, i.place) {
		i.place.Disturbed++
	} else if unchanged {
		i.place.Disturbed = 0
	}
	if unchanged || b.dry {
		i.looked(b.now())
	} else if i.goal.sibling {
		i.sees(provider.Change{Seen: i.seen}, b.now())
	}
}

// write commits the intents and makes the changes. It repeats the changes that lost a race
// against another writer.
func (b *batch) write(ctx context.Context) {
	for range maxRaces {
		due := b.pending()
		if len(due) == 0 {
			return
		}
		b.intend(ctx, due)
		b.sync(ctx)
		due = b.pending()
		errs := b.change(ctx, due)
		for _, i := range due {
			if err, answered := errs[i]; answered {
				b.took(ctx, i, err)
			} else if i.phase == untried { // no call was made
				i.happens(Event{Kind: Known, Before: *i.before}, b.now())
			}
		}
		b.again(ctx)
	}
	for _, i := range b.pending() {
		i.fail(&provider.Error{Kind: provider.Changed, Detail: msg.Say(i.record.Name)})
	}
}

// intendItems bounds the items of one transaction, which takes a few milliseconds.
const intendItems = 128

// intend commits the places that are about to be written, if their values are still wanted.
// Other items wait for their next turn. The items are handed in in parts, which share a commit
// unless a request waits.
func (b *batch) intend(ctx context.Context, items []*item) {
	var parts sync.WaitGroup
	for part := range slices.Chunk(items, intendItems) {
		parts.Go(func() { b.rescue(func() { b.intendPart(ctx, part) }, part...) })
	}
	parts.Wait()
}

// intendPart is intend for one transaction. After a fault of the database the items end.
func (b *batch) intendPart(ctx context.Context, items []*item) {
	var names, owners []string
	for _, i := range items {
		names, owners = append(names, i.record.Name), append(owners, i.record.Sibling.Owner)
	}
	var still map[*item]*Place
	err := b.db.Intend(ctx, names, owners, func(state State) (places []*Place) {
		still = b.stillWanted(state, items)
		for _, i := range items {
			p := still[i]
			if p == nil {
				continue
			}
			places = append(places, p)
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
}

// sync waits, for syncTime at most, until the intents of new values without a mark are in the replica: after a takeover only
// their places tell that they are ours. If they are not there in time, these items fail, and the others go on.
func (b *batch) sync(ctx context.Context) {
	due := slices.DeleteFunc(b.pending(), func(i *item) bool { return !i.goal.sibling || len(i.change.Add) == 0 || i.record.Account.Builtin() })
	if b.synced == nil || len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	err := b.synced(ctx)
	for n := 0; n < len(due) && err != nil; n++ {
		due[n].happens(Event{Kind: Known, Before: *due[n].before}, b.now())
		due[n].fail(&provider.Error{Kind: CodeNotInReplica, Err: err})
	}
}

// stillWanted returns the items whose record is still wanted in a state, each with its
// place as it is stored before the write.
func (b *batch) stillWanted(state State, items []*item) map[*item]*Place {
	wanted, before := map[string][]Record{}, map[string]*made{}
	for _, i := range items {
		before[i.record.Name] = i.record.made
	}
	for i, n := range state.Names {
		state.Names[i].made = before[n.Name]
	}
	for _, t := range Desired(state, b.addresses) {
		wanted[t.Name.Name] = t.Records
	}
	still := map[*item]*Place{}
	for _, i := range items {
		if slices.ContainsFunc(wanted[i.record.Name], i.record.same) {
			p := i.intended(b.now())
			still[i] = &p
		}
	}
	return still
}

// same reports whether two records want the same value at the same place, or the same withdrawal. A value that
// is to stay since its network has the name again is not withdrawn.
func (r Record) same(s Record) bool {
	return r.Sibling == s.Sibling && r.Account.ID == s.Account.ID && r.Want == s.Want && r.Fault == s.Fault &&
		(!r.withdraws() || r.Place.ID == s.Place.ID && r.Withdrawal.Keep == s.Withdrawal.Keep)
}

// change makes the changes of the items, in one call per zone if the provider can. An item
// that was not tried has no error.
func (b *batch) change(ctx context.Context, items []*item) map[*item]error {
	errs := map[*item]error{}
	for _, i := range items {
		b.conn.outdate(i.place.Zone, i.record.ownerName())
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

// took handles the outcome of a write. After a lost race the item is read again. A change that
// stands after a second try leaves the doubt of the first.
func (b *batch) took(ctx context.Context, i *item, err error) {
	made := err == nil || errors.Is(err, provider.ErrRepeated)
	if i.goal.open && made {
		err = cmp.Or(b.shows(ctx, i), err)
	}
	if errors.Is(err, provider.ErrRepeated) {
		err = nil
	} else if err == nil || !made && provider.Unmade(err) { // a read that failed says nothing about the write
		i.happens(Event{Kind: Known, Before: *i.before}, b.now())
	}
	switch kind := provider.KindOf(err); {
	case errors.Is(err, provider.ErrLater):
		i.fault, i.phase, i.later = Fault{Code: CodeInterrupted}, done, true
		return
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

// shows reads the values of an open record again after some were added, because an authority asks for them at once. The
// error is ErrUnseen if the provider does not show them yet.
func (b *batch) shows(ctx context.Context, i *item) error {
	if len(i.change.Add) == 0 || i.record.Account.Builtin() {
		return nil
	}
	name, t := i.record.owner()
	set, err := b.conn.client.Read(ctx, i.place.Zone, name, t)
	if err == nil && slices.ContainsFunc(i.change.Add, func(v provider.Value) bool { return !sees(set, v.Text()) }) {
		err = &provider.Error{Kind: provider.Temporary, Detail: msg.Say(name), Err: provider.ErrUnseen}
	}
	return err
}

// again reads and plans the items that lost a race.
func (b *batch) again(ctx context.Context) {
	b.each(ctx, func(i *item) { b.note(i, b.readOne(ctx, i)) })
	b.plan(ctx)
}
