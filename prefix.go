package main

import (
	"database/sql"
	"encoding/base64"
	"slices"
	"strings"

	"meshddns/dnsname"
	"meshddns/envelope"
	"meshddns/meshtxt"
	"meshddns/msg"
	"meshddns/provision"
	"meshddns/sqlrow"
)

const (
	meshLabel  = meshtxt.Label // also the reserved beginning of prefixes
	autoPrefix = "_mesh-"      // the beginning of every automatic prefix
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
func automaticPrefix(network sqlrow.NetworkID) string {
	return autoPrefix + base64.RawURLEncoding.EncodeToString([]byte(network.String()))
}

// describing begins the description of a usage, before its network's name.
const describing = "mesh sync - "

// fullName is the record name of a usage.
func fullName(prefix, domain string) string {
	return meshLabel + "." + prefix + "." + domain
}

// reservation is what a client wants to reserve.
type reservation struct {
	service, mode, custom string
	network               *sqlrow.NetworkID // nil when it is not given
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
	NetworkID    *sqlrow.NetworkID `json:"network_id"`
	NetworkName  *string           `json:"network_name"`
	TXTEndpoints sqlrow.TextList   `json:"txt_endpoints"`
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
	return usage{ServiceID: want.service, Prefix: prefix, Network: sql.Null[sqlrow.NetworkID]{V: *want.network, Valid: true}}, nil
}

// difference is what a body has to change in a usage; nil for nothing.
func (b usageBody) difference(u usage) (endpoints sqlrow.TextList, description *string) {
	if b.TXTEndpoints != nil && !slices.Equal(b.TXTEndpoints, u.Endpoints) {
		endpoints = b.TXTEndpoints
	}
	if description = b.Description; description == nil && b.NetworkName != nil {
		named := describing + *b.NetworkName
		description = &named
	}
	if description != nil && *description == u.Description {
		description = nil
	}
	return endpoints, description
}

func (checks) CheckUsage(body []byte) error {
	var b usageBody
	if err := envelope.Parse(body, &b); err != nil {
		return err
	}
	want, err := b.wanted()
	if err != nil {
		return err
	}
	if _, fault := b.reservation().prefix(); fault != "" {
		return envelope.Fail(fault)
	}
	return badEndpoints(want.Network.V.String(), b.TXTEndpoints)
}

// documented reports whether a document can have the usage: it is not being released,
// and not of the rows that are older than the checks.
func (u usage) documented() bool {
	return u.Network.Valid && u.Status == statusActive && u.Domain.Valid
}

// document is the usage in a document.
func (u usage) document() provision.Usage {
	d := provision.Usage{
		ServiceID: u.ServiceID, Mode: u.Mode, NetworkID: u.Network.V, TXTEndpoints: append([]string{}, u.Endpoints...), Description: u.Description,
	}
	if u.Mode == modeCustom {
		d.CustomPrefix = u.Prefix
	}
	if name, ok := strings.CutPrefix(u.Description, describing); ok {
		d.NetworkName = name
	}
	return d
}
