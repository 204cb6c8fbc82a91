package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/crash"
	"meshddns/dnsname"
	"meshddns/provider"
)

const (
	singleNames = 32 // names worked on together where the provider changes one at a time
	overlapping = 8  // calls at a time where a call is about one name
	bulkFrom    = 16 // names from which a list of the whole zone is cheaper
	maxRaces    = 10 // lost races for one name before it counts as a failure
)

// item is one record in work.
type item struct {
	record   Record
	goal     goal
	zone     string
	zoneID   string
	seen     provider.RRset
	change   provider.Change
	action   string
	place    Place // as it is to be stored
	ended    bool  // the place is no more
	stored   bool  // with what was intended, so what came of it is news
	untried  bool  // the zone is down: nothing was asked
	withZone bool  // the fault is the zone's
	done     bool
	fault    Fault
	wait     time.Duration // that the provider asked for
	began    time.Time
	took     time.Duration
	left     *Place   // the place that the value leaves, for it belongs into another zone
	store    []*Place // what has news
	// followed is set when another key has a zone of this name: its value is looked
	// at after this one is withdrawn.
	followed bool
}

func newItem(r Record, manualLook bool) *item {
	i := &item{record: r, place: r.Place}
	i.goal = goal{
		owner: r.owner, adopted: r.adopted, want: r.Want, standing: r.Place.Standing,
		upsertOnly: r.upsertOnly, spares: r.spares, spared: r.spared, lookOnly: manualLook && !r.withdrawal(),
	}
	return i
}

// fail ends the work on an item.
func (i *item) fail(err error) {
	i.fault, i.done = Describe(err, i.record.Account), true
	if i.record.inherited() && i.fault.Code != CodeInterrupted {
		i.fault = i.record.Refused
	}
	if e, ok := errors.AsType[*provider.Error](err); ok {
		i.wait = e.RetryAfter
	}
}

// batch is some records of one zone, worked on together: read, commit what is
// intended, write, and say what came of it.
type batch struct {
	db        Database
	addresses Addresses
	now       func() time.Time
	conn      *connection
	items     []*item
	dry       bool // nothing is written, neither there nor here
	mu        sync.Mutex
	answered  bool  // a call has succeeded
	silent    int   // calls in a row that got no answer
	down      error // a failure that would meet every other call too
	crash     error // the last panic
}

// work brings the records to their wanted state as far as it can.
func (b *batch) work(ctx context.Context) {
	for _, i := range b.items {
		i.began = b.now()
		b.settleWithoutCalls(i)
	}
	b.findAll(ctx)
	b.read(ctx)
	b.plan()
	if !b.dry {
		b.write(ctx)
	}
	for _, i := range b.items {
		i.took = b.now().Sub(i.began)
	}
}

// settleWithoutCalls ends the items for which nobody has to be asked.
func (b *batch) settleWithoutCalls(i *item) {
	r := i.record
	switch {
	case r.withdrawal() && r.Place.Standing == "" && r.Place.Doubt == "" && r.Place.State != Withdrawn:
		i.ended, i.done = true, true // nothing was ever written there
	case r.withdrawal() && !r.Keep && r.followed():
		i.leave(b.now())
	case r.Keep && (r.Fault.Code != "" || b.conn.client == nil):
		i.done = true
	case r.Fault.Code != "":
		i.fault, i.done = r.Fault, true
	case r.withdrawal() && r.upsertOnly && !r.Keep:
		i.fault, i.done = Fault{Code: CodeDeletesForbidden}, true
	case b.conn.client == nil:
		i.fail(b.conn.refusal)
	}
}

// pending are the items that are not done.
func (b *batch) pending() []*item {
	return slices.DeleteFunc(slices.Clone(b.items), func(i *item) bool { return i.done })
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
	err := crash.Call(func() error { f(); return nil })
	if err == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crash = err
	for _, i := range items {
		if !i.done {
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
	i.untried = true
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

// find finds the zone of an item: by its name, and not by a domain it was asked
// for. A value is withdrawn where it was put.
func (b *batch) find(ctx context.Context, i *item) (err error) {
	r := i.record
	if r.Keep {
		return b.keep(ctx, i)
	}
	i.zone = r.Place.Zone
	switch {
	case r.withdrawal() && i.zone != "":
	case i.zone != "" && len(b.items) >= bulkFrom:
		i.zone, err = b.findAmongMany(ctx, r, i.zone)
	default:
		i.zone, err = b.conn.client.Zone(ctx, r.Name)
	}
	if r.gone(err) {
		i.gone(b.now())
		return nil
	}
	if err != nil {
		return err
	}
	i.zone = dnsname.Fold(i.zone)
	i.zoneID = r.Place.ZoneID
	if identifier, ok := b.conn.client.(provider.ZoneIdentifier); ok && (i.zoneID == "" || !r.withdrawal() || r.inherited()) {
		if i.zoneID, err = identifier.ZoneID(ctx, i.zone); err != nil { // a zone may have been made anew
			return err
		}
		if r.inherited() && r.Place.ZoneID != "" && r.Place.ZoneID != i.zoneID {
			return errOtherZone
		}
	}
	i.choosePlace()
	return nil
}

// findAmongMany finds a zone by the domain of its names where each name would be a
// call of its own. Who gives no answer to this is not asked in another way.
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

// keep looks only whether the zone is still there of a value that stays until it
// stands elsewhere.
func (b *batch) keep(ctx context.Context, i *item) error {
	i.zone, i.done = i.record.Place.Zone, true
	if i.zone == "" {
		return nil
	}
	if _, err := b.conn.client.Read(ctx, i.zone, i.record.Name); provider.KindOf(err) == provider.ZoneNotFound {
		i.gone(b.now())
	}
	return nil // whatever else is wrong there, nothing is to be done now
}

// choosePlace takes the place in the zone that was found. A value that stands in
// another zone of the account moves.
func (i *item) choosePlace() {
	r := i.record
	if r.withdrawal() || i.place.Zone == i.zone {
		i.place.ZoneID = i.zoneID
		return
	}
	old := i.place
	i.place = Place{Name: r.Name, Account: r.Account, State: Pending, Attempts: old.Attempts}
	if old.Zone == "" {
		i.place = old
	}
	if at := slices.IndexFunc(r.Others, func(p Place) bool { return p.Zone == i.zone }); at >= 0 {
		i.place = r.Others[at]
	}
	i.place.Zone, i.place.ZoneID = i.zone, i.zoneID
	if i.place.ID != old.ID && old.ID != 0 {
		old.State = Withdrawing
		i.left = &old
	}
	i.goal.standing = i.place.Standing
}

// successor is the place of another key that has followed in a zone of the same
// name at the same address.
func (r Record) successor() (p Place, ok bool) {
	at := slices.IndexFunc(r.Beside, func(p Place) bool {
		same := p.Zone == r.Place.Zone && p.Zone != "" || p.ZoneID == r.Place.ZoneID && p.ZoneID != ""
		return same && p.Account.address() == r.Account.address()
	})
	if !r.withdrawal() || at < 0 {
		return p, false
	}
	return r.Beside[at], true
}

// followed reports whether another key has followed in the same zone: what stands
// there is the other's now.
func (r Record) followed() bool {
	return r.withdrawal() && slices.ContainsFunc(r.Beside, r.Place.inZoneOf)
}

// inZoneOf reports whether two places are known to be in one zone of one provider: by
// the provider's id of the zone, or, where it tells none, because one key has them, perhaps
// with another secret.
func (p Place) inZoneOf(q Place) bool {
	switch {
	case p.Account.address() != q.Account.address():
		return false
	case p.ZoneID != "" && q.ZoneID != "":
		return p.ZoneID == q.ZoneID
	}
	return p.Zone != "" && p.Zone == q.Zone && p.Account.AccessKeyID == q.Account.AccessKeyID
}

// leave ends the place without a change. A value that may still arrive is waited
// for.
func (i *item) leave(now time.Time) {
	i.done = true
	i.ended = i.place.Doubt == "" || !now.Before(i.place.LookAt)
}

// guessSuccessor decides after a look whether two keys have one zone where the
// provider does not tell: the new key's value is there, and the old one has
// gone, or has come back after it was withdrawn.
func (i *item) guessSuccessor(now time.Time) {
	p, ok := i.record.successor()
	old := i.record.Place
	if !ok || old.ZoneID != "" && p.ZoneID != "" || !sees(i.seen, p.Standing) {
		return
	}
	if old.State == Withdrawn && old.Doubt == "" || old.Standing != p.Standing && !sees(i.seen, old.Standing) {
		i.leave(now)
		return
	}
	i.followed = true // should it be one zone after all, the new key's value is put back at once
}

// read learns what stands at the names, with as few calls as the provider needs.
func (b *batch) read(ctx context.Context) {
	zones := map[string][]*item{}
	for _, i := range b.pending() {
		zones[i.zone] = append(zones[i.zone], i)
	}
	for apex, items := range zones {
		switch client := b.conn.client.(type) {
		case provider.BatchReader:
			b.readNames(ctx, client, apex, items)
		case provider.ZoneReader:
			b.readList(ctx, client, apex, items)
		}
	}
	b.each(ctx, func(i *item) {
		if i.action == "" {
			b.note(i, b.readOne(ctx, i))
		}
	})
}

// readDone marks an item as read until it is planned.
const readDone = "read"

func (b *batch) readOne(ctx context.Context, i *item) (err error) {
	i.seen, err = b.conn.client.Read(ctx, i.zone, i.record.Name)
	if i.record.gone(err) || i.record.withdrawal() && provider.KindOf(err) == provider.Conflict {
		i.seen, err = provider.RRset{}, nil // beside an alias, and without the zone, there is no value of ours
	}
	if err == nil {
		i.action = readDone
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
			i.seen, i.action = sets[i.record.Name], readDone
		}
	}
}

// readList answers from a list of the whole zone where enough names are asked
// for. A list may be older than a write of ours: whether a value has gone is read
// from one that was made while its name is in nobody else's hands.
func (b *batch) readList(ctx context.Context, client provider.ZoneReader, apex string, items []*item) {
	if len(items) < bulkFrom {
		return
	}
	anew := slices.ContainsFunc(items, func(i *item) bool { return i.record.withdrawal() || !i.record.Place.LookAt.IsZero() })
	listed, _ := b.conn.list(ctx, client, apex, anew)
	if listed == nil {
		return
	}
	for _, i := range items {
		if set, ok := b.conn.listed(listed, i.record.Name); ok {
			i.seen, i.action = set, readDone
		}
	}
}

// plan works out every change.
func (b *batch) plan() {
	for _, i := range b.pending() {
		b.planOne(i)
	}
}

func (b *batch) planOne(i *item) {
	var err error
	if i.guessSuccessor(b.now()); i.done {
		return
	}
	i.change, i.action, err = i.goal.plan(i.seen)
	if err != nil {
		i.fail(err)
		return
	}
	i.change.Zone, i.change.Name = i.zone, i.record.Name
	if i.goal.disturbed(i.seen, i.place) {
		i.place.Disturbed++
	} else if i.action == ActionUnchanged {
		i.place.Disturbed = 0
	}
	if i.action == ActionUnchanged || b.dry {
		i.succeed(b.now())
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
		for n, err := range b.change(ctx, b.pending()) {
			b.took(n, err)
		}
		b.again(ctx)
	}
	for _, i := range b.pending() {
		i.fail(&provider.Error{Kind: provider.Changed, Detail: i.record.Name})
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
		for _, r := range Desired(state, b.addresses) {
			wanted[r.Name] = append(wanted[r.Name], r)
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
			i.fault, i.done = Fault{Code: CodeDatabase, Detail: err.Error()}, true
		case !ok:
			i.fault, i.done, i.untried = Fault{Code: CodeInterrupted}, true, true
		default:
			i.place, i.stored = *p, true
		}
	}
	return err == nil
}

// same reports whether two records want the same of one place.
func (r Record) same(s Record) bool {
	if r.inherited() {
		return s.withdrawal() && r.Place.ID == s.Place.ID && s.Place.Heir != nil && s.Place.Heir.ID == r.Account.ID
	}
	return r.Account.ID == s.Account.ID && r.Want == s.Want && r.Fault == s.Fault && (!r.withdrawal() || r.Place.ID == s.Place.ID)
}

// intended is the place as it is stored before a write.
func (i *item) intended(now time.Time) Place {
	p := i.place
	p.Intent = i.goal.want
	if i.record.withdrawal() {
		if p.State != Leftover {
			p.State = Withdrawing
		}
		return p
	}
	p.State = Pending
	if len(i.change.Add) > 0 {
		if p.Doubt != "" && p.Doubt != p.Intent {
			p.Doubt = severalDoubts
		} else {
			p.Doubt = p.Intent
		}
		p.LookAt = now.Add(SecondLook)
	}
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
		b.conn.outdate(i.zone, i.record.Name)
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
	zones := map[string][]*item{}
	for _, i := range items {
		zones[i.zone] = append(zones[i.zone], i)
	}
	for _, same := range zones {
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

// took takes what a write came to. A lost race leaves the item pending.
func (b *batch) took(i *item, err error) {
	kind := provider.KindOf(err)
	if kind == provider.Changed {
		i.untaint()
		i.action = ""
		return
	}
	if i.record.gone(err) {
		err = nil
	}
	b.note(i, err)
	switch {
	case err == nil:
		i.succeed(b.now())
	case kind == provider.Invalid, len(i.change.Remove) == 0 && slices.Contains(refusals, kind):
		i.untaint()
	}
}

// refusals are failures of a single addition after which it was not made.
var refusals = []provider.Kind{provider.Permission, provider.Quota, provider.Conflict}

// untaint takes a doubt back: the write was not made.
func (i *item) untaint() {
	if i.place.Doubt == i.goal.want && i.record.Place.Doubt != i.goal.want {
		i.place.Doubt, i.place.LookAt = "", time.Time{}
	}
}

// again reads and plans those that lost a race.
func (b *batch) again(ctx context.Context) {
	b.each(ctx, func(i *item) { b.note(i, b.readOne(ctx, i)) })
	b.plan()
}

// gone ends a withdrawal whose zone the key does not have any more.
func (i *item) gone(now time.Time) {
	i.seen = provider.RRset{}
	i.action = ActionUnchanged
	i.succeed(now)
}

// succeed ends an item as wanted: its place as it is now known to be.
func (i *item) succeed(now time.Time) {
	i.done = true
	p := &i.place
	looked := !p.LookAt.IsZero() && !now.Before(p.LookAt)
	if i.record.withdrawal() {
		i.withdrawn(now, looked)
		return
	}
	if i.goal.lookOnly && !sees(i.seen, i.goal.want) {
		if looked {
			p.Doubt, p.LookAt = "", time.Time{}
		}
		return
	}
	p.Fault = Fault{}
	p.State, p.Standing, p.Intent = Published, i.goal.want, i.goal.want
	if looked || p.Doubt == i.goal.want {
		p.Doubt, p.LookAt = "", time.Time{}
	}
}

// withdrawn is what a value that is not there makes of its place: it is looked
// for once more, and gone when it is absent then too.
func (i *item) withdrawn(now time.Time, looked bool) {
	p := &i.place
	switch {
	case p.State == Withdrawn && i.action == ActionUnchanged && looked:
		i.ended = true
	case p.State == Withdrawn && i.action == ActionUnchanged:
	default:
		p.State, p.Standing, p.Intent, p.LookAt, p.Fault = Withdrawn, "", "", now.Add(SecondLook), Fault{}
	}
}
