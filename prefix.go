package main

import (
	"encoding/base64"
	"strings"

	"meshddns/dnsname"
	"meshddns/msg"
	"meshddns/sqlrow"
)

const (
	meshLabel  = "_mesh"  // the first label of every record name, and the reserved beginning of prefixes
	autoPrefix = "_mesh-" // the beginning of every automatic prefix
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

// fullName is the record name of a usage.
func fullName(prefix, domain string) string {
	return meshLabel + "." + prefix + "." + domain
}
