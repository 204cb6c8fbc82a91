package reconcile

import (
	"slices"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// FormatState is a record of a usage as answers show it: one for each owner name and type.
type FormatState struct {
	Format  string // the formats that the record serves, with commas
	Name    string // owner name
	Type    provider.Type
	Values  []string // the wanted ones
	State   PlaceState
	Fault   Fault
	LeftOut []mesh.LeftOut // endpoints that the format does not have
	Takes   bool           // the name from the configuration's record
}

// FormatStates returns the records of a usage's name, none if the usage does not have it. The state has that name only.
func FormatStates(state State, usage string, addresses Addresses) (all []FormatState) {
	n := state.Names[0]
	w := wantedAt(n)
	at := slices.IndexFunc(n.Usages, func(u Usage) bool { return u.ID == usage })
	if len(w.accounts) == 0 || at < 0 || !n.owners().has(at) {
		return nil
	}
	t := desired(state, n, addresses)
	for i, f := range w.formatted(n.Name, state.Owner, addresses) {
		s := Sibling{}
		if i > 0 {
			s = Sibling{Owner: f.Name, Type: f.Type}
		}
		if f.Fault.Code == "" {
			f = t.stated(f, s)
		}
		if f.State == Pending && f.Fault.Code == "" {
			f.Fault = state.Paused
		}
		if f.State == Pending && f.Fault.Code == "" && n.Lane == LaneLater && !n.Due.IsZero() {
			f.Fault = Fault{Code: CodeWritesUsedUp, Detail: msg.Say(n.Due.UTC().Format(time.RFC3339))}
		}
		all = append(all, f)
	}
	return all
}

// formatted returns the records of a name in all formats, the one with our mark first, without their
// states except where a record cannot have values.
func (w wanted) formatted(name, owner string, addresses Addresses) []FormatState {
	own, leased := w.living(addresses)
	value, leftOut := w.marked(owner, own, leased)
	first := FormatState{Format: mesh.Mesh1, Name: name, Type: provider.TXT, Values: []string{value}}
	for _, e := range leftOut {
		first.LeftOut = append(first.LeftOut, mesh.LeftOut{Endpoint: e, Reason: msg.TextOf(&mesh.TooLongError{Octets: len(value) + len(" ") + len(e.Text), Most: mesh.MaxValue})})
	}
	all := []FormatState{first}
	for _, set := range mesh.FormatSets(w.formats, below(name), slices.Concat(own, leased)) {
		f := FormatState{Format: set.Format, Name: set.Name, Type: provider.Type(set.Type), Values: set.Values, LeftOut: set.LeftOut}
		if set.Fault != "" {
			f.State, f.Fault = Failed, Fault{Code: CodeInvalidName, Detail: set.Fault}
		} else if denial := w.denial(siblingOf(set)); denial.Code != "" {
			f.State, f.Values, f.Fault = Failed, nil, denial
		}
		f.Takes = f.Fault.Code == "" && f.Type == provider.TXT && f.Name == w.ownName
		all = append(all, f)
	}
	if s := challengeOf(name); len(w.acme) > 0 {
		all = append(all, FormatState{Format: mesh.ACME, Name: s.Owner, Type: s.Type, Values: SiblingValues(siblingText(w.network, w.acme))})
	}
	return all
}

// LeftOut is an endpoint that a format leaves out, and the reason.
type LeftOut struct {
	Format, Endpoint string
	Reason           msg.Text
}

// LeftOutOf returns what the formats leave out of the endpoints of a slot, if its usage has the name.
// The state has that name only.
func LeftOutOf(state State, usage, slot string, addresses Addresses) (all []LeftOut) {
	w := wantedAt(state.Names[0])
	if w.usage != usage {
		return nil
	}
	for _, f := range w.formatted(state.Names[0].Name, state.Owner, addresses) {
		for _, l := range f.LeftOut {
			if l.Endpoint.Slot == slot {
				all = append(all, LeftOut{f.Format, l.Endpoint.Text, l.Reason})
			}
		}
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
	return mesh.Once(mesh.Texts(slices.Concat(own, leased))), w.has(mesh.URLs)
}
