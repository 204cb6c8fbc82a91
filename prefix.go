// Prefixes and full names, and what may be published, as pure functions; usages as they are
// asked for, listed and documented; the operations on them that requests and provision
// files share.

package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"meshddns/internal/answers"
	"meshddns/internal/dnsname"
	"meshddns/internal/envelope"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provision"
	"meshddns/internal/sqlite"
)

const (
	meshLabel  = mesh.Label // also the reserved beginning of prefixes
	autoPrefix = "_mesh-"   // the beginning of every automatic prefix
)

// Ways to come by a prefix.
const (
	modeAutomatic = "auto"
	modeCustom    = "custom"
)

// prefixFault says what a custom prefix fails on, "" when it is fine. The
// rules are in the order of the contract.
func prefixFault(prefix string) msg.ID {
	switch {
	case prefix == "":
		return msg.PrefixEmpty
	case len([]rune(prefix)) > dnsname.MaxLabel:
		return msg.PrefixTooLong
	case strings.Trim(prefix, dnsname.LabelAlphabet) != "":
		return msg.PrefixCharacters
	case isReserved(prefix):
		return msg.PrefixReserved
	}
	return ""
}

// isReserved reports whether a prefix begins as automatic ones do, and custom ones
// never. The indexes of the database tell them apart the same way.
func isReserved(prefix string) bool { return strings.HasPrefix(dnsname.Fold(prefix), meshLabel) }

// automaticPrefix derives a network's prefix. It encodes the decimal text and
// not the number's bytes: DNS folds letter case, and over decimal digits no
// two encodings differ by case alone.
func automaticPrefix(network sqlite.NetworkID) string {
	return autoPrefix + base64.RawURLEncoding.EncodeToString([]byte(network.String()))
}

// describe gives the description that is asked for, nil for none: the description itself, else
// the one that names the network.
func describe(description, networkName *string) *string {
	if description == nil && networkName != nil {
		return new(answers.Describing + *networkName)
	}
	return description
}

// fullName is the record name of a usage.
func fullName(prefix, domain string) string {
	return meshLabel + "." + prefix + "." + domain
}

// badEndpoints refuses endpoints that cannot be published for a network.
func badEndpoints(network string, endpoints []string) error {
	err := mesh.Check(network, anyOwner, endpoints)
	if long, ok := errors.AsType[*mesh.TooLongError](err); ok {
		return envelope.Fail(msg.ValueTooLong, long.Octets, mesh.MaxValue)
	}
	if bad, ok := errors.AsType[*mesh.EndpointError](err); ok {
		return envelope.Fail(msg.EndpointInvalid, bad.Text)
	}
	return err
}

// Endpoints that fit beside the longest network id fit beside every other. All owners
// have one length.
const (
	anyNetwork = "18446744073709551615"
	anyOwner   = "000000000000"
)

// reservation is what a client wants to reserve.
type reservation struct {
	service, mode, custom string
	network               *sqlite.NetworkID // nil when it is not given
	networkName           string
}

// check refuses what is not asked for rightly, whatever the service is.
func (want reservation) check() error {
	switch {
	case want.service == "":
		return envelope.Fail(msg.ServiceIDEmpty)
	case want.mode != modeAutomatic && want.mode != modeCustom:
		return envelope.Fail(msg.PrefixModeInvalid)
	}
	return nil
}

// prefix gives what is to be reserved, or what is wrong with it by itself.
func (want reservation) prefix() (prefix string, fault msg.ID) {
	switch {
	case want.network == nil:
		return "", msg.NetworkIDMissing
	case want.mode == modeAutomatic:
		return automaticPrefix(*want.network), ""
	}
	return want.custom, prefixFault(want.custom)
}

// usageBody is a usage of a document: what POST usages takes, and PATCH.
type usageBody struct {
	ServiceID    string            `json:"service_id"`
	PrefixMode   string            `json:"prefix_mode"`
	CustomPrefix string            `json:"custom_prefix"`
	NetworkID    *sqlite.NetworkID `json:"network_id"`
	NetworkName  *string           `json:"network_name"`
	TXTEndpoints sqlite.TextList   `json:"txt_endpoints"`
	Description  *string           `json:"description"`
}

func (b usageBody) reservation() reservation {
	want := reservation{service: b.ServiceID, mode: b.PrefixMode, custom: b.CustomPrefix, network: b.NetworkID}
	if b.NetworkName != nil {
		want.networkName = *b.NetworkName
	}
	return want
}

// wanted is the usage of a body, as far as it can be told from others.
func (b usageBody) wanted() (usage, error) {
	want := b.reservation()
	if err := want.check(); err != nil {
		return usage{}, err
	}
	prefix, fault := want.prefix()
	if want.network == nil {
		return usage{}, envelope.Fail(fault)
	}
	return usage{
		ServiceID: want.service, Prefix: prefix,
		Network: sqlite.Given(want.network),
	}, nil
}

// sameUsages reads a usage of a document, and gives those that there are of it.
func (s *server) sameUsages(ctx context.Context, body []byte) (b usageBody, want usage, same []usage, err error) {
	if err = envelope.Parse(body, &b); err != nil {
		return b, want, nil, err
	}
	if want, err = b.wanted(); err != nil {
		return b, want, nil, err
	}
	same, err = s.store.SameUsages(ctx, want)
	return b, want, same, err
}

// difference is what a body has to change in a usage; nil for nothing.
func (b usageBody) difference(u usage) (endpoints sqlite.TextList, description *string) {
	if b.TXTEndpoints != nil && !slices.Equal(b.TXTEndpoints, u.Endpoints) {
		endpoints = b.TXTEndpoints
	}
	if description = describe(b.Description, b.NetworkName); description != nil && *description == u.Description {
		description = nil
	}
	return endpoints, description
}

// documented reports whether a document can have the usage: it is not being released,
// and not of the rows that are older than the checks.
func (u usage) documented() bool {
	return u.Network.Valid && u.Status == statusActive && u.Domain.Valid
}

// networkName is the name of the network that the usage was reserved with, "" when another
// description was given since.
func (u usage) networkName() string {
	name, named := strings.CutPrefix(u.Description, answers.Describing)
	if !named {
		return ""
	}
	return name
}

// entry is the usage in the list.
func (u usage) entry(language msg.Language) answers.ListedUsage {
	p := u.Publish
	e := answers.ListedUsage{
		ID: u.ID, ProviderID: u.ServiceID, Mode: u.Mode, Prefix: u.Prefix, RecordType: u.RecordType,
		Description: u.Description, IsOccupied: u.Exclusive, FullDomain: fullName(u.Prefix, u.Domain.V),
		NetworkID: sqlite.Pointer(u.Network), NetworkName: u.networkName(),
		Publish: answers.ListedPublish{State: string(p.State), Value: p.Value, Error: answers.FaultText(p.Fault, language), Attempts: p.Attempts, At: p.At},
	}
	if u.ServiceName.Valid {
		e.Provider = &answers.ListedProvider{ID: u.ServiceID, Name: u.ServiceName.V}
	}
	return e
}

// document is the usage in a document, if that can have it.
func (u usage) document() (d provision.Usage, ok bool) {
	d = provision.Usage{
		ServiceID: u.ServiceID, Mode: u.Mode, NetworkID: u.Network.V,
		TXTEndpoints: append([]string{}, u.Endpoints...), Description: u.Description,
	}
	if u.Mode == modeCustom {
		d.CustomPrefix = u.Prefix
	}
	d.NetworkName = u.networkName()
	return d, u.documented()
}

// reserve checks a reservation in the order of the contract, and stores it.
func (s *server) reserve(ctx context.Context, want reservation) (usage, error) {
	if err := want.check(); err != nil {
		return usage{}, err
	}
	prefix, fault := want.prefix()
	if fault != "" {
		return usage{}, s.afterService(ctx, want.service, envelope.Fail(fault))
	}
	u, err := s.store.CreateUsage(ctx, usage{
		ServiceID: want.service, Mode: want.mode, Prefix: prefix, Description: answers.Describing + want.networkName,
		Network: sqlite.Given(want.network),
	})
	switch {
	case err == nil:
		return u, nil
	case errors.Is(err, errPrefixTaken):
		return u, u.taken()
	}
	if failure := failureOf(err); failure.Cause != nil {
		if failure.ID == msg.InternalError {
			failure.ID, failure.Args = msg.StoreFailed, []any{err.Error()}
		}
		err = s.afterService(ctx, want.service, failure)
	}
	return u, err
}

// taken is the refusal of a usage whose prefix another one has.
func (u usage) taken() error {
	if !u.HeldBy.Valid {
		return envelope.Fail(msg.PrefixTaken, "")
	}
	return envelope.Fail(msg.PrefixTaken, envelope.Phrase{ID: msg.TakenByNetwork, Args: []any{u.HeldBy.V}})
}

// warnings tell what hinders a usage that was just reserved.
func (u usage) warnings() []answers.Warning {
	if u.HeldBy == u.Network {
		return nil
	}
	return []answers.Warning{{ID: msg.WarnNameHeld, Args: []any{u.Name, u.HeldBy.V}}}
}

// afterService gives what is wrong with the service of a reservation, else the
// fault that the contract looks for later.
func (s *server) afterService(ctx context.Context, service string, fault error) error {
	return cmp.Or(s.store.CheckService(ctx, service), fault)
}

// saveUsage checks what a usage is to publish, and stores it with a description; nil
// leaves either as it is.
func (s *server) saveUsage(ctx context.Context, u usage, endpoints sqlite.TextList, description *string) error {
	network := anyNetwork
	if u.Network.Valid {
		network = u.Network.V.String()
	}
	if endpoints != nil {
		if err := badEndpoints(network, endpoints); err != nil {
			return err
		}
	}
	return s.store.ChangeUsage(ctx, u.ID, endpoints, description)
}

// release gives a prefix free. What it has published is withdrawn first: it waits
// until that was tried, and reports whether the prefix is free by then.
func (s *server) release(ctx context.Context, id string, force bool) (freed bool, err error) {
	u, err := s.store.Usage(ctx, id)
	if err != nil {
		return false, err
	}
	waiter := s.engine.Expect(u.Name)
	defer waiter.Close()
	done, err := s.store.ReleaseUsage(ctx, id, force)
	if err != nil {
		return false, err
	}
	if waiter.Wait(ctx, done.version); done.freed {
		return true, nil
	}
	_, err = s.store.Usage(context.WithoutCancel(ctx), id)
	if errors.Is(err, errNoUsage) {
		return true, nil
	}
	return false, err
}
