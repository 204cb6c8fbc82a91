package reconcile

import (
	"slices"
	"strconv"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// Actions of a report.
const (
	ActionCreate    = "create"    // a value was added
	ActionUpdate    = "update"    // a value was replaced
	ActionDelete    = "delete"    // a value was withdrawn
	ActionUnchanged = "unchanged" // the wanted value stands
	ActionConflict  = "conflict"  // another owner or another network has the name
	ActionFailed    = "failed"    // the work failed
	ActionSkipped   = "skipped"   // there is no account to publish at, or the zone was not searched
	ActionLeftover  = "leftover"  // the value cannot be withdrawn
	ActionOrphan    = "orphan"    // the value is an orphan
)

// recordTTL is in seconds. It is short, so a changed address is seen soon.
const recordTTL = 60

// goal is the wanted value at a name, and the rules for the other values there.
type goal struct {
	owner    string
	adopted  []string
	want     string // the wanted value, "" for none
	standing string // the value of ours that is known to stand, which a new one replaces
	doubt    Doubt  // values of ours that may stand
	mode     Mode
	spared   *string  // the network whose values stay in any case; nil for none
	released []string // networks whose values only a released usage had: in mode LookOnly they go, too
	sibling  bool     // the values are those of a sibling record
	open     bool     // of a sibling record: values that are not ours may stand beside
	gone     string   // of a sibling record: values of ours that stood and may come back
	known    []string // the values of a sibling record that places of its zone know
	beside   []string // those of them, for a withdrawal, that the place of the wanted value knows
	cut      string   // the name at which the zone delegates the part with the record, so that no resolver sees it; "" for none
}

// ours reports whether a value has our mark, or that of an adopted owner if a value is
// wanted, and whether it has the mark of another owner.
func (g goal) ours(value string) (ours, theirs bool) {
	owner, marked := mesh.Owner(value)
	ours = marked && (owner == g.owner || g.want != "" && slices.Contains(g.adopted, owner))
	return ours, marked && !ours
}

// plan works out the change from the seen values to the goal. It is a pure function. The
// change never adds or removes values that are not ours. The conflict is the one of excluded:
// beside it, only a value of ours that stands is replaced or removed.
func (g goal) plan(seen provider.RRset) (change provider.Change, conflict error) {
	if g.sibling {
		return g.planSibling(seen)
	}
	change, conflict = provider.Change{Seen: seen, TTL: recordTTL}, g.excluded(seen)
	there := sees(seen, g.want)
	switch {
	case g.want == "" || there:
	case g.mode == LookOnly:
		for _, v := range seen.Values {
			if ours, _ := g.ours(v.Text()); ours && slices.Contains(g.released, mesh.Network(v.Text())) {
				change.Remove = append(change.Remove, v)
			}
		}
		return change, conflict
	case conflict == nil || slices.ContainsFunc(seen.Values, func(v provider.Value) bool { ours, _ := g.ours(v.Text()); return ours }):
		change.Add = []provider.Value{{g.want}}
	}
	if !sees(seen, g.standing) {
		g.standing = "" // then a new value replaces every value of ours
	}
	for _, v := range seen.Values {
		if ours, _ := g.ours(v.Text()); ours && g.removes(v.Text(), len(change.Add) > 0) {
			change.Remove = append(change.Remove, v)
		}
	}
	if there && g.mode != UpsertOnly && slices.ContainsFunc(seen.Copies, func(v provider.Value) bool { return v.Text() == g.want }) {
		change.Copies = []provider.Value{{g.want}}
	}
	if len(seen.Values) > len(change.Remove) {
		change.TTL = seen.TTL // one TTL for a whole RRset (RFC 2181, section 5.2), and it is not ours alone
	}
	return change, conflict
}

// removes reports whether a value of ours is removed. replaced means that the wanted value
// is being added. In mode upsert-only a value is removed only if the wanted value replaces
// it.
func (g goal) removes(value string, replaced bool) bool {
	if g.spared != nil && mesh.Network(value) == *g.spared {
		return false
	}
	if g.mode == UpsertOnly {
		replaces := value == g.standing || value == g.doubt.Value || g.doubt.More || replaced && g.standing == ""
		return g.want != "" && value != g.want && replaces
	}
	return value != g.want
}

// remains returns the value of ours that stands after a change: the wanted one, else the
// one that stood before, else any, "" for none. more reports whether there are others.
func (g goal) remains(change provider.Change) (value string, more bool) {
	if g.sibling {
		return g.siblingRemains(change), false
	}
	var left []string
	for _, v := range slices.Concat(change.Add, change.Seen.Values, change.Seen.Off) {
		if ours, _ := g.ours(v.Text()); ours && !slices.ContainsFunc(change.Remove, v.Equal) {
			left = append(left, v.Text())
		}
	}
	for _, first := range []string{g.want, g.standing} {
		if slices.Contains(left, first) {
			value = first
			break
		}
	}
	if value == "" && len(left) > 0 {
		value = left[0]
	}
	return value, slices.ContainsFunc(left, func(v string) bool { return v != value })
}

// excluded returns an error if no value of ours may stand beside the seen values.
func (g goal) excluded(seen provider.RRset) error {
	if err := g.unseen(seen); g.want != "" && err != nil {
		return err
	}
	for _, v := range seen.Values {
		if _, theirs := g.ours(v.Text()); theirs && g.want != "" {
			owner, _ := mesh.Owner(v.Text())
			if mesh.CheckOwner(owner) != nil {
				return &provider.Error{Kind: provider.Conflict, Detail: msg.Say(strconv.Quote(v.Text()))}
			}
			return &provider.Error{Kind: provider.Conflict, Detail: msg.Textf(`%q, of owner %s: if that was this appliance before a reset, POST /api/v1/ddns/adopt {"owner":"%[2]s"}`, v.Text(), owner)}
		}
	}
	for _, v := range seen.Off {
		if ours, theirs := g.ours(v.Text()); ours || theirs && g.want != "" {
			return &provider.Error{Kind: provider.Conflict, Detail: msg.Textf("disabled, or for some resolvers only: %q", v.Text())}
		}
	}
	return nil
}

// unseen returns an error if resolvers see no values at the name, because it is an alias or below a delegation.
func (g goal) unseen(seen provider.RRset) error {
	switch {
	case seen.Alias != "":
		return &provider.Error{Kind: provider.Conflict, Detail: msg.Textf("an alias: it points to %s", seen.Alias)}
	case g.cut != "":
		return provider.Delegated(g.cut)
	}
	return nil
}

// shared returns a warning if values without a mark stand beside the wanted one: a client that
// reads only one value at the name may get one of them.
func (g goal) shared(seen provider.RRset) Fault {
	for _, v := range seen.Values {
		if _, marked := mesh.Owner(v.Text()); !marked && !g.sibling {
			return Fault{Code: CodeSharedName, Detail: msg.Say(strconv.Quote(v.Text()))}
		}
	}
	return Fault{}
}

// action returns the action that a report has for a change.
func (g goal) action(change provider.Change) string {
	switch {
	case len(change.Add) == 0 && len(change.Remove) == 0 && len(change.Copies) == 0:
		return ActionUnchanged
	case g.want == "":
		return ActionDelete
	case len(change.Add) > 0 && len(change.Remove) == 0:
		return ActionCreate
	}
	return ActionUpdate
}

// sees reports whether a value is among the seen values.
func sees(seen provider.RRset, value string) bool {
	return slices.ContainsFunc(seen.Values, func(v provider.Value) bool { return v.Text() == value })
}

// disturbed reports whether another writer with our mark has replaced the published value:
// another value of the same owner and network stands instead, although no write is in
// doubt.
func (g goal) disturbed(seen provider.RRset, p Place) bool {
	if g.sibling || p.State != Published || p.Standing != g.want || !p.Doubt.None() || sees(seen, g.want) {
		return false
	}
	return slices.ContainsFunc(seen.Values, func(v provider.Value) bool {
		owner, ours := mesh.Owner(v.Text())
		return ours && owner == g.owner && mesh.Network(v.Text()) == mesh.Network(g.want)
	})
}
