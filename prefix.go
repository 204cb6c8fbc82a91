// Usages as clients and documents write them, and the operations on usages, which requests and
// provision files share.

package main

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"meshddns/internal/answers"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// describe returns the description to store, nil for none: the given one, else one with the name
// of the network.
func describe(description, networkName *string) *string {
	if description == nil && networkName != nil {
		return new(mesh.Describe(*networkName))
	}
	return description
}

// reservation is a request for a prefix.
type reservation struct {
	service, custom string
	mode            mesh.PrefixMode
	network         *mesh.NetworkID // nil when it is not given
	networkName     string
}

// check checks a reservation without looking at its service.
func (want reservation) check() error {
	switch {
	case want.service == "":
		return msg.Refuse(msg.ServiceIDEmpty)
	case want.mode != mesh.AutomaticMode && want.mode != mesh.CustomMode:
		return msg.Refuse(msg.PrefixModeInvalid)
	}
	return nil
}

// prefix returns the prefix to reserve, or the fault of the prefix itself.
func (want reservation) prefix() (prefix string, fault msg.ID) {
	switch {
	case want.network == nil:
		return "", msg.NetworkIDMissing
	case want.mode == mesh.AutomaticMode:
		return mesh.AutomaticPrefix(*want.network), ""
	}
	return want.custom, mesh.PrefixFault(want.custom)
}

// usageBody is a usage of a document: the members of POST usages and of PATCH.
type usageBody struct {
	ServiceID    string          `json:"service_id"`
	PrefixMode   mesh.PrefixMode `json:"prefix_mode"`
	CustomPrefix string          `json:"custom_prefix"`
	NetworkID    *mesh.NetworkID `json:"network_id"`
	NetworkName  *string         `json:"network_name"`
	TXTEndpoints sqlite.TextList `json:"txt_endpoints"`
	Description  *string         `json:"description"`
}

func (b usageBody) reservation() reservation {
	want := reservation{service: b.ServiceID, mode: b.PrefixMode, custom: b.CustomPrefix, network: b.NetworkID}
	if b.NetworkName != nil {
		want.networkName = *b.NetworkName
	}
	return want
}

// wanted returns the members of a usage that identify it.
func (b usageBody) wanted() (mesh.Usage, error) {
	want := b.reservation()
	if err := want.check(); err != nil {
		return mesh.Usage{}, err
	}
	prefix, fault := want.prefix()
	if want.network == nil {
		return mesh.Usage{}, msg.Refuse(fault)
	}
	return mesh.Usage{
		ServiceID: want.service, Prefix: prefix,
		Network: sqlite.Given(want.network),
	}, nil
}

// difference returns the members of a usage that a body changes; nil for an unchanged one.
func (b usageBody) difference(u mesh.Usage) (endpoints sqlite.TextList, description *string) {
	if b.TXTEndpoints != nil && !slices.Equal(b.TXTEndpoints, u.Endpoints) {
		endpoints = b.TXTEndpoints
	}
	if description = describe(b.Description, b.NetworkName); description != nil && *description == u.Description {
		description = nil
	}
	return endpoints, description
}

// listed returns a usage in the form of the list.
func listed(u mesh.Usage, language msg.Language) answers.ListedUsage {
	p := u.Publish
	e := answers.ListedUsage{
		ID: u.ID, ProviderID: u.ServiceID, Mode: u.Mode, Prefix: u.Prefix, RecordType: u.RecordType,
		Description: u.Description, IsOccupied: u.Exclusive, FullDomain: mesh.FullName(u.Prefix, u.Domain.V),
		NetworkID: sqlite.Pointer(u.Network), NetworkName: mesh.NetworkName(u.Description),
		Publish: answers.ListedPublish{State: string(p.State), Value: p.Value, Error: answers.FaultText(reconcile.Fault(p.Fault), language), Attempts: p.Attempts, At: p.At},
	}
	if u.ServiceName.Valid {
		e.Provider = &answers.ListedProvider{ID: u.ServiceID, Name: u.ServiceName.V}
	}
	return e
}

// reserve checks a reservation in the order of the contract, and stores it.
func (o *operations) reserve(ctx context.Context, want reservation) (mesh.Usage, error) {
	if err := want.check(); err != nil {
		return mesh.Usage{}, err
	}
	prefix, fault := want.prefix()
	if fault != "" {
		return mesh.Usage{}, o.afterService(ctx, want.service, msg.Refuse(fault))
	}
	u, err := o.store.CreateUsage(ctx, mesh.Usage{
		ServiceID: want.service, Mode: want.mode, Prefix: prefix, Description: mesh.Describe(want.networkName),
		Network: sqlite.Given(want.network),
	})
	switch {
	case err == nil:
		return u, nil
	case errors.Is(err, errPrefixTaken):
		return u, refuseTaken(u)
	}
	if _, refused := errors.AsType[sqlite.Refusal](err); !refused {
		err = o.afterService(ctx, want.service, &notReserved{err})
	}
	return u, err
}

// notReserved is a fault of the database that kept a reservation from being stored.
type notReserved struct{ error }

func (e *notReserved) Unwrap() error { return e.error }

// refuseTaken returns the refusal of a usage whose prefix another usage has.
func refuseTaken(u mesh.Usage) error {
	if !u.HeldBy.Valid {
		return msg.Refuse(msg.PrefixTaken, "")
	}
	return msg.Refuse(msg.PrefixTaken, msg.Phrase{ID: msg.TakenByNetwork, Args: []any{u.HeldBy.V}})
}

// usageWarnings returns warnings about a usage that was just reserved.
func usageWarnings(u mesh.Usage) []answers.Warning {
	if u.HeldBy == u.Network {
		return nil
	}
	return []answers.Warning{{ID: msg.WarnNameHeld, Args: []any{u.Name, u.HeldBy.V}}}
}

// afterService returns the fault of the service of a reservation, else the fault that comes later
// in the contract's order.
func (o *operations) afterService(ctx context.Context, service string, fault error) error {
	return cmp.Or(o.store.CheckService(ctx, service), fault)
}

// saveUsage checks and stores the endpoints and the description of a usage; nil keeps the stored one.
func (o *operations) saveUsage(ctx context.Context, u mesh.Usage, endpoints sqlite.TextList, description *string) error {
	network := mesh.AnyNetwork
	if u.Network.Valid {
		network = u.Network.V
	}
	if endpoints != nil {
		if err := badEndpoints(network, endpoints); err != nil {
			return err
		}
	}
	return o.store.ChangeUsage(ctx, u.ID, endpoints, description)
}

// releaseAndWait releases a usage, and waits until the engine has tried to withdraw its value. It
// reports whether the prefix is free.
func (o *operations) releaseAndWait(ctx context.Context, id string, force bool) (freed bool, err error) {
	u, err := o.store.Usage(ctx, id)
	if err != nil {
		return false, err
	}
	waiter := o.engine.Expect(u.Name)
	defer waiter.Close()
	done, err := o.store.ReleaseUsage(ctx, id, force)
	if err != nil {
		return false, err
	}
	if waiter.Wait(ctx, done.version); done.freed {
		return true, nil
	}
	_, err = o.store.Usage(context.WithoutCancel(ctx), id)
	if errors.Is(err, errNoUsage) {
		return true, nil
	}
	return false, err
}
