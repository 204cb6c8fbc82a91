package events

import (
	"encoding/json"
	"net/netip"

	"meshddns/internal/mesh"
	"meshddns/internal/sqlite"
)

// configuration is a configuration as events show it, without its secret.
type configuration struct {
	Provider      string        `json:"provider"`
	AccessKeyID   string        `json:"access_key_id"`
	Endpoint      string        `json:"endpoint"`
	Domain        string        `json:"domain"`
	TXTRecordName string        `json:"txt_record_name"`
	TXTEndpoints  []string      `json:"txt_endpoints"`
	SyncMode      mesh.SyncMode `json:"sync_mode"`
	RetryInterval *int64        `json:"retry_interval,omitempty"`
	MaxRetries    *int64        `json:"max_retries,omitempty"`
	Enabled       bool          `json:"enabled"`
}

// OfConfiguration returns the event of a configuration that replaces another one; the zero
// Configuration stands for none.
func OfConfiguration(before, after mesh.Configuration) Event {
	return Event{Kind: ConfigurationChanged, Detail: Detail{Before: shownConfiguration(before), After: shownConfiguration(after)}}
}

func shownConfiguration(c mesh.Configuration) json.RawMessage {
	if c.Provider == "" {
		return nil
	}
	return JSON(configuration{
		Provider: c.Provider, AccessKeyID: c.AccessKeyID, Endpoint: c.Endpoint, Domain: c.Domain, TXTRecordName: c.TXTRecordName,
		TXTEndpoints: append([]string{}, c.Endpoints...), SyncMode: c.SyncMode, RetryInterval: sqlite.Pointer(c.RetryInterval),
		MaxRetries: sqlite.Pointer(c.MaxRetries), Enabled: c.Enabled,
	})
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
	return JSON(struct {
		Name         string          `json:"name"`
		Domain       string          `json:"domain"`
		Provider     string          `json:"provider"`
		AccessKeyID  string          `json:"access_key_id"`
		Endpoint     string          `json:"endpoint"`
		TXTEndpoints []string        `json:"txt_endpoints"`
		Formats      []string        `json:"formats,omitempty"`
		Check        json.RawMessage `json:"check,omitempty"`
	}{v.Name, c.Domain, c.Provider, c.AccessKeyID, c.Endpoint, append([]string{}, c.Endpoints...), c.Formats, json.RawMessage(checking.Text())})
}

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
		Formats      []string           `json:"formats,omitempty"`
		Check        json.RawMessage    `json:"check,omitempty"`
		PeerID       string             `json:"peer_id,omitempty"`
	}{append([]string{}, u.Endpoints...), u.Description, u.Status, u.Options.Formats, json.RawMessage(u.Options.Check), u.Options.PeerID})
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
