package reconcile

import (
	"slices"

	"meshddns/internal/format"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// FormatState is a record of a usage as clients are told: one for each owner name and type.
type FormatState struct {
	Format  string // the formats that the record serves, with commas
	Name    string // owner name
	Type    provider.Type
	Values  []string // the wanted ones
	State   PlaceState
	Fault   Fault
	LeftOut []format.LeftOut // endpoints that the format does not have
}

// FormatStates returns the records of a network at a name, none if no value of it is wanted
// there. The state has that name only.
func FormatStates(state State, network string, addresses Addresses) (all []FormatState) {
	n := state.Names[0]
	w := wantedAt(n)
	if len(w.accounts) == 0 || w.network != network {
		return nil
	}
	t := desired(state, n, addresses)
	own, leased := w.living(addresses)
	value, leftOut := w.marked(state.Owner, own, leased)
	first := FormatState{Format: format.Mesh1, Name: n.Name, Type: provider.TXT, Values: []string{value}}
	for _, e := range leftOut {
		first.LeftOut = append(first.LeftOut, format.LeftOut{Endpoint: e, Reason: msg.TextOf(&mesh.TooLongError{Octets: len(value) + len(" ") + len(e.Text), Most: mesh.MaxValue})})
	}
	all = append(all, t.stated(first, Sibling{}))
	for _, set := range format.Sets(w.formats, below(n.Name), slices.Concat(own, leased)) {
		s := siblingOf(set)
		f := t.stated(FormatState{Format: set.Format, Name: s.Owner, Type: s.Type, Values: set.Values, LeftOut: set.LeftOut}, s)
		if set.Fault != "" {
			f.State, f.Fault = Failed, Fault{Code: CodeInvalidName, Detail: set.Fault}
		}
		all = append(all, f)
	}
	return all
}

// stated returns a FormatState with the state of the record's places: of several places that of
// the first where the value does not stand.
func (t Target) stated(f FormatState, s Sibling) FormatState {
	f.State = None
	for _, r := range t.Records {
		if now := r.Now(); r.Sibling == s && !r.withdraws() && (f.State == None || f.State == Published) {
			f.State, f.Fault = now.State, now.Fault
			if !s.marked() && r.Fault.Code != "" {
				f.State, f.Fault = Failed, r.Fault
			}
		}
	}
	return f
}

// Listed returns the endpoints of the network that has a name, as the format "urls" lists them;
// ok is false if its usage does not have that format. The state has that name only.
func Listed(state State, addresses Addresses) (endpoints []string, ok bool) {
	w := wantedAt(state.Names[0])
	own, leased := w.living(addresses)
	return mesh.Texts(slices.Concat(own, leased)), w.has(format.URLs)
}
