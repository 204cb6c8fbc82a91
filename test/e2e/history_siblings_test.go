package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"meshddns/internal/provider"
)

// Records in other formats have no mark. What the program has written is in the book of the host; every
// other value is one of others.

// sibling is what is wanted at an owner name and type.
type sibling struct {
	wish *wish // of the name that it belongs to
	open bool  // the contract leaves open whether it is wanted
	at   []siblingAt
}

// siblingAt is where the values of one option are wanted.
type siblingAt struct {
	account   *account // nil at the built-in server, and where nothing is reachable
	zone      string
	values    []string
	reachable bool
	untyped   bool // the provider has no such type, or takes no such value
	blocked   bool // so, or by a value of others
}

// wantedSiblings gives what is wanted, by the names of spots.
func (w *history) wantedSiblings(wishes map[string]*wish) map[string]*sibling {
	all := map[string]*sibling{}
	for _, wish := range wishes {
		for _, o := range wish.options {
			values := map[string][]string{}
			for line := range strings.Lines(o.siblings) {
				name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
				values[name] = append(values[name], text)
			}
			for name, texts := range values {
				if all[name] == nil {
					all[name] = &sibling{wish: wish, open: wish.optional || slices.ContainsFunc(wish.options, func(p option) bool { return !p.has(name) })}
				}
				all[name].at = append(all[name].at, w.locateSibling(o, name, texts))
			}
		}
	}
	return all
}

func (w *history) locateSibling(o option, name string, values []string) siblingAt {
	f, reachable := w.locate(o, name)
	at := siblingAt{account: f.account, zone: f.zone, values: values, reachable: reachable}
	if f.account != nil {
		at.untyped = o.provider == podFront.provider && kindOf(name) != "TXT" || slices.ContainsFunc(values, func(text string) bool {
			return provider.RefusedAlways(o.provider, provider.Type(kindOf(name)), text) != ""
		})
		at.blocked = at.untyped || slices.ContainsFunc(w.foreign[spot{f.account, f.zone, name}], func(text string) bool {
			return !isChallenge(name) || slices.Contains(values, text)
		})
	}
	return at
}

// wants says that a value is wanted where it stands.
func (x *sibling) wants(f found) bool {
	return x != nil && slices.ContainsFunc(x.at, func(at siblingAt) bool {
		return at.reachable && at.account == f.account && at.zone == f.zone && slices.Contains(at.values, f.text)
	})
}

// ourSibling says that the program has written a value without a mark.
func (w *history) ourSibling(at spot, text string) bool {
	owner, _ := marks(text)
	return owner == "" && w.host.book[at][text] && !slices.Contains(w.foreign[at], text)
}

// siblings gives every value of ours without a mark, in every zone.
func (w *history) siblings() (all []found) {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	for _, at := range w.host.all() {
		for _, value := range w.host.values(at) {
			if w.ourSibling(at, value.text) {
				all = append(all, found{account: at.account, zone: at.zone, name: at.name, text: value.text})
			}
		}
	}
	for _, f := range w.builtin() {
		if owner, _ := marks(f.text); owner == "" {
			all = append(all, f)
		}
	}
	return all
}

// checkSiblings wants every value that can stand, and no other of ours.
func (w *history) checkSiblings(s *spotted) {
	w.t.Helper()
	wanted, standing := w.wantedSiblings(s.wishes), w.siblings()
	for _, f := range standing {
		if x := wanted[f.name]; !x.wants(f) {
			w.checkExtraSibling(s, f, x, standing)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		x := wanted[name]
		if !x.open {
			for _, at := range x.at {
				w.checkSibling(s, name, x, at, standing)
			}
		}
	}
	w.tally.add("records without a mark", len(wanted))
}

// stands says that the values of an option stand.
func (at siblingAt) stands(name string, standing []found) bool {
	return at.reachable && !slices.ContainsFunc(at.values, func(text string) bool {
		return !slices.Contains(standing, found{account: at.account, zone: at.zone, name: name, text: text})
	})
}

// checkSibling wants the values of an option, or of another one at the same account.
func (w *history) checkSibling(s *spotted, name string, x *sibling, at siblingAt, standing []found) {
	stands := slices.ContainsFunc(x.at, func(o siblingAt) bool {
		return o.account == at.account && o.zone == at.zone && o.reachable == at.reachable && o.stands(name, standing)
	})
	if at.reachable && !at.blocked && !stands {
		there := slices.DeleteFunc(slices.Clone(standing), func(f found) bool { return f.name != name })
		s.say("%q is missing at %s; there stand %v", at.values, found{account: at.account, zone: at.zone, name: name}, there)
	}
}

// kept says that a value may stand where it stood, because a new one cannot stand elsewhere.
func (x *sibling) kept(f found, standing []found) bool {
	return x != nil && slices.ContainsFunc(x.at, func(at siblingAt) bool {
		elsewhere := !at.reachable || at.untyped || at.account != f.account || at.zone != f.zone
		return elsewhere && (at.blocked || !at.stands(f.name, standing))
	})
}

// checkExtraSibling looks at a value of ours that is not wanted where it stands.
func (w *history) checkExtraSibling(s *spotted, f found, x *sibling, standing []found) {
	leftover := slices.IndexFunc(s.leftovers, func(l leftover) bool {
		return strings.EqualFold(spotName(l.Name), f.name) && (f.account == nil || l.Zone == f.zone) &&
			(w.model.config.mode == "upsert-only" || slices.Contains(strings.Split(l.Value, ", "), f.text))
	})
	stood := slices.Contains(w.before, f) || w.cameLate(f.name)
	optional := slices.ContainsFunc(slices.Collect(maps.Values(s.wishes)), func(o *wish) bool {
		return o.name != "" && o.optional && within(bare(f.name), below(o.name))
	})
	switch {
	case w.shadowed(f.account, f.zone, f.name):
		w.tally.add("values in the shadow of another zone", 1)
	case stood && (optional || x.kept(f, standing)):
		w.tally.add("values that stay while the new place fails", 1)
	case leftover < 0:
		s.say("%s has no mark, is not wanted, and is no leftover", f)
	case (w.model.config.mode != "upsert-only" || isChallenge(f.name)) && (f.account == nil || w.open(f.account)):
		s.say("%s has no mark and is a leftover, though nothing hinders its withdrawal", f)
	default:
		w.tally.add("leftovers", 1)
	}
}

// spotName gives the name of a spot for a record as the program shows it.
func spotName(shown string) string {
	name, kind, _ := strings.Cut(shown, " ")
	return typed(strings.ToLower(name), kind)
}

// excused says that a record without a mark has a reason to be reported, and whether it must be.
func (w *history) excused(s *spotted, name string) (excused, must bool) {
	x := w.wantedSiblings(s.wishes)[name]
	if x != nil {
		must = len(x.at) == 1 && (x.at[0].blocked || !x.at[0].reachable) && !x.open && !x.wish.perhaps
		excused = x.open || x.wish.perhaps || slices.ContainsFunc(x.at, func(at siblingAt) bool { return at.blocked || !at.reachable })
	}
	for _, a := range w.host.accounts {
		excused = excused || !w.open(a)
	}
	return excused || slices.ContainsFunc(w.siblings(), func(f found) bool {
		return f.name == name && w.shadowed(f.account, f.zone, name)
	}), must
}

// freed wants nothing of a usage that was just freed, at any name and at any time to come. Others may
// want the same name. A prefix is free after the first look, which may have shown an old view: then the
// second look withdraws the value.
func (w *history) freed(u modelUsage, name string) {
	w.t.Helper()
	if w.model.config.mode == "upsert-only" || !w.openAll() {
		return
	}
	wishes := w.model.wishes(w.host.owner)
	if slices.ContainsFunc(w.model.usages, func(o modelUsage) bool { return w.model.name(o) == name }) {
		return // what stands may be theirs
	}
	of := func(at string) bool { return at == name || ownerOf(at, below(name)) }
	for _, f := range slices.Concat(w.scan(w.mine), w.siblings()) {
		if of(f.name) && !w.shownOld(f) && !w.planted[f.text] && !(w.mine(f.text) && f.network == "") && !w.shadowed(f.account, f.zone, f.name) && !w.wantedHere(f, wishes) {
			w.fail("the prefix of %s is free, and %s stands", name, f)
		}
	}
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	for _, l := range w.host.late {
		if time.Since(l.sent) >= secondLook { // the program has looked, or would have
			continue
		}
		for at, values := range l.puts {
			stands := slices.DeleteFunc(slices.Clone(values), func(text string) bool {
				_, network := marks(text)
				return w.foreignAt(at, text) || network == "" && w.mine(text)
			})
			if of(at.name) && len(stands) > 0 && !w.shadowed(at.account, at.zone, at.name) && at.account.zones[at.zone] != nil {
				w.broke("the prefix of %s is free, and a write of %q at %s may still arrive", name, stands, at)
			}
		}
	}
}

// ownerOf says that a name may be that of a record of a usage whose records are below a parent, and of no
// usage or zone that is nested there.
func ownerOf(at, parent string) bool {
	rest, inside := strings.CutSuffix(bare(at), "."+parent)
	labels := strings.Split(rest, ".")
	nested := slices.Contains([]string{"a", "b", "c", "mesh", "_config"}, labels[len(labels)-1]) || strings.HasPrefix(labels[len(labels)-1], "_mesh")
	return bare(at) == parent || inside && !nested
}

func (w *history) broke(format string, args ...any) {
	w.host.broken = append(w.host.broken, fmt.Sprintf(format, args...))
}

func (w *history) foreignAt(at spot, text string) bool { return slices.Contains(w.foreign[at], text) }

// wantedHere says that another usage wants a value without a mark.
func (w *history) wantedHere(f found, wishes map[string]*wish) bool {
	return w.wantedSiblings(wishes)[f.name].wants(f)
}

// shownOld says that a look of this step has shown an old view of a name: the program believes it until its next look.
func (w *history) shownOld(f found) bool {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	return w.host.hidden[spot{f.account, f.zone, f.name}]
}

// publishedFormat is what a usage says of one record.
type publishedFormat struct {
	Format, Name, Type, State, Error string
	Values                           []string
	LeftOut                          []struct{ Endpoint string } `json:"left_out"`
}

// shownUsage is what a usage says of its records.
type shownUsage struct {
	Publish struct{ Formats []publishedFormat }
}

// formatsOf gives what a usage says of its records. If it alone has its name, it says what has no room in them; an
// endpoint that was dead and is not checked any more is left out for a moment.
func (w *history) formatsOf(u modelUsage) (got shownUsage) {
	w.t.Helper()
	alone := !slices.ContainsFunc(w.model.usages, func(o modelUsage) bool { return o.id != u.id && w.model.name(o) == w.model.name(u) })
	w.until("what records leave out", func() string {
		got = shownUsage{}
		w.get(usagesPath+"/"+u.id, &got)
		for _, f := range got.Publish.Formats {
			if wrong := w.leftOut(u, f); alone && wrong != "" {
				return wrong
			}
		}
		return ""
	})
	return got
}

// checkFormats compares what is said of the records without a mark with what stands.
func (w *history) checkFormats() {
	w.t.Helper()
	wishes, standing := w.model.wishes(w.host.owner), w.siblings()
	wanted := w.wantedSiblings(wishes)
	for _, u := range w.model.usages {
		wish := wishes[w.model.name(u)]
		if _, single := wish.only(); u.releasing || !single || wish.bad || !wish.members[u.id] {
			continue
		}
		got := w.formatsOf(u)
		for _, f := range got.Publish.Formats {
			if f.Format == "mesh1" || len(f.Values) == 0 {
				continue
			}
			name := typed(f.Name, f.Type)
			x := wanted[name]
			if x == nil {
				w.fail("the usage %s has a record %s, which is not wanted", u.id, name)
			}
			stands := x.at[0].reachable && x.at[0].stands(name, standing)
			shown := spotName(strings.ToLower(f.Name) + " " + f.Type)
			old := w.shownOld(found{account: x.at[0].account, zone: x.at[0].zone, name: name})
			if (f.State == "published") != stands && !(stands && (x.at[0].blocked || w.unseen[shown] || old)) {
				w.fail("the record %s is %q (%s), and that %q stands is: %s", name, f.State, f.Error, x.at[0].values, yes(stands))
			}
			w.tally.add("states of records without a mark", 1)
		}
	}
}
