package mesh

import (
	"encoding/base64"
	"strings"

	"meshddns/internal/dnsname"
	"meshddns/internal/msg"
)

// autoPrefix begins every automatic prefix.
const autoPrefix = Label + "-"

// PrefixMode is the way in which a usage comes by its prefix.
type PrefixMode string

const (
	AutomaticMode PrefixMode = "auto"
	CustomMode    PrefixMode = "custom"
)

// PrefixFault says what is wrong with a custom prefix, "" when it is fine. The rules are in the
// order of the contract.
func PrefixFault(prefix string) msg.ID {
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

// isReserved reports whether a prefix begins as automatic prefixes do, which a custom one must
// not. The indexes of the database tell them apart in the same way.
func isReserved(prefix string) bool { return strings.HasPrefix(dnsname.Fold(prefix), Label) }

// AutomaticPrefix gives the prefix of a network. It encodes the decimal text and not the octets
// of the number: DNS ignores letter case, and the encodings of two decimal texts never differ by
// case alone.
func AutomaticPrefix(network NetworkID) string {
	return autoPrefix + base64.RawURLEncoding.EncodeToString([]byte(network.String()))
}

// FullName gives the record name of a prefix below a domain.
func FullName(prefix, domain string) string { return Label + "." + prefix + "." + domain }
