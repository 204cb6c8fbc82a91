package reconcile

import (
	"cmp"
	"slices"
	"strings"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// Sibling is a record of a name in another format: of any type, with several values, at an
// owner name of its own. Its values have no mark. So a value is ours exactly if a place of
// the name knows it, and every other value there is foreign.
type Sibling struct {
	Owner string        // owner name
	Type  provider.Type // of the record
}

// marked reports whether it is the TXT record with our mark.
func (s Sibling) marked() bool { return s == (Sibling{}) }

// Of returns the owner name and the type of a record of a name as people read them: only the name
// for the TXT record with our mark.
func (s Sibling) Of(name string) string {
	if s.marked() {
		return name
	}
	return s.Owner + " " + string(s.Type)
}

// Shown returns a value of the record as people read it.
func (s Sibling) Shown(value string) string {
	if s.marked() {
		return value
	}
	return strings.Join(SiblingValues(value), ", ")
}

// siblingText returns the values of a sibling record as one text, "" for none. It is the
// value of its place: the network, then one value in each line, sorted.
func siblingText(network string, values []string) string {
	if len(values) == 0 {
		return ""
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(values)))
	return "n=" + network + "\n" + strings.Join(sorted, "\n")
}

// SiblingValues returns the values in a text of a sibling record.
func SiblingValues(text string) []string {
	_, values, _ := strings.Cut(text, "\n")
	if values == "" {
		return nil
	}
	return strings.Split(values, "\n")
}

// united returns the text of the values of two sibling records; the network is that of the
// second one.
func united(a, b string) string {
	return siblingText(mesh.Network(cmp.Or(b, a)), slices.Concat(SiblingValues(a), SiblingValues(b)))
}

// without returns the text of the values of a sibling record that another text lacks.
func without(text, other string) string {
	others := SiblingValues(other)
	return siblingText(mesh.Network(text), slices.DeleteFunc(SiblingValues(text), func(v string) bool { return slices.Contains(others, v) }))
}

// knows reports whether a value of a sibling record is ours: a place of the zone knows it, and it is not
// the place of the wanted value, for a withdrawal. After owners were adopted, a value counts as ours too
// if it is wanted, because the places of the lost database are not known; but not in an open record, whose values
// nodes choose.
func (g goal) knows(value string) bool {
	return slices.Contains(g.known, value) && !slices.Contains(g.beside, value) || len(g.adopted) > 0 && !g.open && slices.Contains(SiblingValues(g.want), value)
}

// planSibling is plan for a sibling record.
func (g goal) planSibling(seen provider.RRset) (change provider.Change, conflict error) {
	change = provider.Change{Seen: seen, TTL: recordTTL}
	want := SiblingValues(g.want)
	for _, value := range want {
		if !sees(seen, value) {
			change.Add = append(change.Add, provider.Value{value})
		}
	}
	network := mesh.Network(cmp.Or(g.standing, g.doubt.Value, g.gone))
	if g.mode == LookOnly && len(change.Add) > 0 {
		if change.Add = nil; !slices.Contains(g.released, network) {
			return change, g.foreign(seen)
		}
	}
	conflict = g.foreign(seen)
	if excluded := conflict != nil && (!g.open || g.unseen(seen) != nil); excluded && !slices.ContainsFunc(seen.Values, func(v provider.Value) bool { return g.knows(v.Text()) }) {
		change.Add = nil // nothing of ours stands there, and a client would read both
	}
	keeps := g.mode == UpsertOnly && g.want == "" || g.spared != nil && network == *g.spared
	for _, v := range seen.Values {
		if text := v.Text(); !keeps && g.knows(text) && !slices.Contains(want, text) {
			change.Remove = append(change.Remove, v)
		}
	}
	if g.open && len(seen.Values) > len(change.Remove) {
		change.TTL = seen.TTL // as in plan
	}
	for _, v := range seen.Copies {
		if g.mode != UpsertOnly && slices.Contains(want, v.Text()) {
			change.Copies = append(change.Copies, v)
		}
	}
	return change, conflict
}

// foreign returns an error if a sibling record is wanted, and an alias or a value that is
// not ours stands there, because a client would read it as ours. A value with our mark is of
// another name of ours, which withdraws it. In an open record only a wanted value that is not ours is an error,
// because it would be withdrawn as ours later.
func (g goal) foreign(seen provider.RRset) error {
	if g.want == "" {
		return nil
	}
	if err := g.unseen(seen); err != nil {
		return err
	}
	beside := func(v provider.Value) bool { return g.open && !slices.Contains(SiblingValues(g.want), v.Text()) }
	for _, v := range seen.Values {
		if ours, _ := g.ours(v.Text()); !ours && !g.knows(v.Text()) && !beside(v) {
			return &provider.Error{Kind: provider.Conflict, Detail: msg.Textf("%q is not of this usage: it is another usage's, or not from this program", v.Text())}
		}
	}
	for _, v := range slices.DeleteFunc(slices.Clone(seen.Off), beside) {
		return &provider.Error{Kind: provider.Conflict, Detail: msg.Textf("disabled, or for some resolvers only: %q", v.Text())}
	}
	return nil
}

// added returns the value that a change adds. Of a sibling record it has only those values that do not stand already,
// because these may be of others.
func (g goal) added(change provider.Change) string {
	if !g.sibling {
		return g.want
	}
	var added []string
	for _, v := range change.Add {
		added = append(added, v.Text())
	}
	return siblingText(mesh.Network(g.want), added)
}

// siblingRemains is remains for a sibling record: the values of ours that stand after a change. Their
// network is that of the wanted value only if they are a part of it.
func (g goal) siblingRemains(change provider.Change) string {
	var left []string
	for _, v := range slices.Concat(change.Add, change.Seen.Values, change.Seen.Off) {
		added := slices.ContainsFunc(change.Add, v.Equal)
		if (added || g.knows(v.Text())) && !slices.ContainsFunc(change.Remove, v.Equal) {
			left = append(left, v.Text())
		}
	}
	network := cmp.Or(g.standing, g.doubt.Value, g.gone, g.want)
	if without(siblingText("", left), g.want) == "" {
		network = cmp.Or(g.want, network)
	}
	return siblingText(mesh.Network(network), left)
}
