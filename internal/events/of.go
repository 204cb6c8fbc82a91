package events

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"meshddns/internal/mesh"
	"meshddns/internal/strictjson"
)

// OfConfiguration returns the event of a configuration that replaces another one; the zero
// Configuration stands for none.
func OfConfiguration(before, after mesh.Configuration) Event {
	return Event{Kind: ConfigurationChanged, Detail: Detail{Before: shownConfiguration(before), After: shownConfiguration(after)}}
}

func shownConfiguration(c mesh.Configuration) json.RawMessage {
	if c.Provider == "" {
		return nil
	}
	return without(JSON(c.Listed()), secretMember)
}

const secretMember = "access_key_secret"

// without returns an object without some of its members, and without those that are null.
func without(object json.RawMessage, names ...string) json.RawMessage {
	v, _ := strictjson.Parse(string(object), 1)
	var kept []string
	for _, m := range v.Members {
		if m.Value.Kind != strictjson.KindNull && !slices.Contains(names, m.Name.Text) {
			kept = append(kept, string(object[m.Name.Begin:m.Value.End]))
		}
	}
	return json.RawMessage("{" + strings.Join(kept, ",") + "}")
}

// OfService returns the event of a service that was created, changed or deleted. The zero Service
// stands for none. Of the config an event has the members that the program reads, without the
// secret.
func OfService(before, after mesh.Service) Event {
	e := Event{Kind: ServiceChanged, ServiceID: after.ID, Detail: Detail{Before: shownService(before), After: shownService(after)}}
	switch {
	case before.ID == "":
		e.Kind = ServiceCreated
	case after.ID == "":
		e.Kind, e.ServiceID = ServiceDeleted, before.ID
	}
	return e
}

func shownService(v mesh.Service) json.RawMessage {
	if v.ID == "" {
		return nil
	}
	c, _ := mesh.ParseServiceConfig(v.Config)
	checking, _ := mesh.ParseCheck(c.Check)
	c.Endpoints, c.Check = append([]string{}, c.Endpoints...), json.RawMessage(checking.Text())
	return without(JSON(struct {
		mesh.ServiceMembers
		mesh.ServiceConfig
	}{v.ServiceMembers, c}), "id", secretMember)
}

// Counted returns an event with a number.
func Counted(kind Kind, n int) Event { return Event{Kind: kind, Detail: Detail{Count: n}} }

// OfUsage returns an event of a usage.
func OfUsage(kind Kind, u mesh.Usage) Event {
	return Event{Kind: kind, Name: u.Name, Usage: u.Seq, UsageID: u.ID, ServiceID: u.ServiceID, Network: u.Network}
}

// Reserved returns the event of a new usage.
func Reserved(u mesh.Usage) Event {
	e := OfUsage(UsageReserved, u)
	e.Detail.After = JSON(struct {
		Mode        mesh.PrefixMode `json:"prefix_mode"`
		Prefix      string          `json:"record_prefix"`
		Description string          `json:"description"`
	}{u.Mode, u.Prefix, u.Description})
	return e
}

// Changed returns the event of a usage whose endpoints, description or status were changed.
func Changed(before, after mesh.Usage) Event {
	e := OfUsage(UsageChanged, after)
	e.Detail.Before, e.Detail.After = shownUsage(before), shownUsage(after)
	return e
}

func shownUsage(u mesh.Usage) json.RawMessage {
	return JSON(struct {
		TXTEndpoints []string           `json:"txt_endpoints"`
		Description  string             `json:"description"`
		Status       mesh.BindingStatus `json:"status"`
		mesh.Options
	}{append([]string{}, u.Endpoints...), u.Description, u.Status, u.Options})
}

// OfAddresses returns the event of changed addresses of this host. An address that is not known is
// "". Named sources have a member only if there are any with an address.
func OfAddresses(before, after mesh.Addresses) Event {
	type pair struct {
		IPv4 netip.Addr `json:"ipv4"`
		IPv6 netip.Addr `json:"ipv6"`
	}
	shown := func(a mesh.Addresses) json.RawMessage {
		named := map[string]pair{}
		for name, p := range a.Named {
			if p != (mesh.Pair{}) {
				named[name] = pair(p)
			}
		}
		return JSON(struct {
			pair
			Named map[string]pair `json:"named,omitempty"`
		}{pair{a.IPv4, a.IPv6}, named})
	}
	return Event{Kind: AddressChanged, Detail: Detail{Before: shown(before), After: shown(after)}}
}

// Changes says for people what an event has changed: "domain: a.example → b.example" for each member that
// differs, or the value itself if it is no object. It leaves out what is empty, and keeps the slot of a lease.
func Changes(d Detail) (all []string) {
	var names []string
	before, after := plainMembers(d.Before, &names), plainMembers(d.After, &names)
	for _, name := range names {
		old, now := before[name], after[name]
		text := cmp.Or(old, now)
		switch {
		case name == "id", text == "", old == now && name != "slot":
			continue
		case d.Before != nil && d.After != nil && old != now:
			text = cmp.Or(old, "-") + " → " + cmp.Or(now, "-")
		}
		if name != "" {
			text = name + ": " + text
		}
		all = append(all, text)
	}
	return all
}

// plainMembers returns the members of an object, and adds those of their names that are new. Any other value is the member "".
func plainMembers(text json.RawMessage, names *[]string) map[string]string {
	v, _ := strictjson.Parse(string(text), strictjson.AllLevels)
	members := map[string]string{}
	add := func(name string, value *strictjson.Value) {
		if members[name] = plain(value); !slices.Contains(*names, name) {
			*names = append(*names, name)
		}
	}
	if v.Kind != strictjson.KindObject {
		add("", &v)
	}
	for i := range v.Members {
		add(v.Members[i].Name.Text, &v.Members[i].Value)
	}
	return members
}

// plain returns a JSON value without its signs.
func plain(v *strictjson.Value) string {
	var parts []string
	for i := range v.Items {
		parts = append(parts, plain(&v.Items[i]))
	}
	for i := range v.Members {
		parts = append(parts, v.Members[i].Name.Text+" "+plain(&v.Members[i].Value))
	}
	return v.Text + strings.Join(parts, ", ")
}
