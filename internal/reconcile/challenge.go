package reconcile

import (
	"cmp"
	"context"
	"slices"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// challengeOf returns the record of the ACME challenges for a name (RFC 8555, section 8.4). It is open: the values of other
// writers may stand beside ours.
func challengeOf(name string) Sibling {
	return Sibling{Owner: mesh.ChallengeName(below(name)), Type: provider.TXT}
}

// Challenge is how far the value of a challenge is.
type Challenge struct {
	Stands bool
	Gone   bool     // no node has it there any more: it was cleaned up, or newer ones have its place
	Zones  []string // the built-in zones where it stands
	Fault  Fault    // why it does not stand yet; with the codes paused and conflict a person has to act first
	Rests  bool     // it has failed, and nothing is tried before a change or a pass
}

// ChallengeOf says how far the value of a challenge is that a node has put for a usage, or, with the value "", whether
// one can be put. The state has that name only.
func ChallengeOf(state State, usage, value string, addresses Addresses) (c Challenge) {
	n := state.Names[0]
	w, s := wantedAt(n), challengeOf(n.Name)
	var own Usage
	title := mesh.Contested
	if at := slices.IndexFunc(n.Usages, func(u Usage) bool { return u.ID == usage }); at >= 0 {
		own, title = n.Usages[at], n.owners().title(at, s)
	}
	reason := dns.NameFault(s.Owner)
	switch {
	case state.Paused.Code != "":
		return Challenge{Fault: state.Paused}
	case title == mesh.Contested:
		return Challenge{Fault: Fault{Code: string(msg.Conflict)}}
	case title == mesh.Barred:
		return Challenge{Fault: barred}
	case own.Account == nil || len(w.accounts) == 0 || !state.Configured:
		return Challenge{Fault: Fault{Code: string(msg.Paused), Detail: msg.Say(CodeNoProvider)}}
	case reason != "":
		return Challenge{Fault: Fault{Code: CodeInvalidName, Detail: reason}}
	}
	c.Stands = slices.Contains(w.acme, value)
	c.Gone = !c.Stands
	for _, r := range desired(state, n, addresses).Records {
		now := r.Now()
		switch known := slices.Contains(SiblingValues(now.Standing), value); {
		case r.withdraws():
		case r.Sibling.marked() && now.State == Conflict: // another owner has the name
			return Challenge{Fault: now.Fault}
		case r.Sibling != s, value == "": // a fault of another value is none of one that is to be put
		case !known && now.Fault.Code == string(provider.Conflict) && (now.State != Conflict || !n.Due.IsZero()): // of another value, perhaps
			c.Stands = false
		case !known:
			c.Stands, c.Fault = false, cmp.Or(r.Fault, now.Fault)
		case r.Account.Builtin():
			c.Zones = append(c.Zones, now.Zone)
		}
	}
	c.Rests = c.Fault.Code != "" && n.Due.IsZero()
	if c.Fault.Code == "" && n.Lane == LaneLater {
		c.Fault = Fault{Code: CodeWritesUsedUp}
	}
	return c
}

// WarnRefused warns, within lookupTime, if no authority may issue a certificate for the name of the challenges of a name.
func (e *Engine) WarnRefused(ctx context.Context, name string) []msg.Phrase {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	state, err := e.config.Database.State(ctx, []string{name})
	if err != nil {
		return nil
	}
	w := wantedAt(state.Names[0])
	for _, account := range w.accounts {
		r := reach{Zone: Zone{Account: account, Domain: w.domain}}
		if e.reach(ctx, &r); r.Apex != "" && provider.KindOf(e.config.Warning(ctx, r.conn.client, r.Apex, below(name))) == CAARefuses {
			return []msg.Phrase{{ID: msg.WarnRefused, Args: []any{below(name)}}}
		}
	}
	return nil
}
