package mesh

import (
	"encoding/base64"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// autoPrefix is the beginning of every automatic prefix.
const autoPrefix = Label + "-"

// PrefixMode is the origin of a usage's prefix.
type PrefixMode string

// The modes of a prefix: derived from the network, or chosen by the client.
const (
	AutomaticMode PrefixMode = "auto"
	CustomMode    PrefixMode = "custom"
)

// PrefixFault returns the first rule that a custom prefix breaks, "" for a valid one. The contract
// defines the order of the rules.
func PrefixFault(prefix string) msg.ID {
	switch {
	case prefix == "":
		return msg.PrefixEmpty
	case len([]rune(prefix)) > dns.MaxLabel:
		return msg.PrefixTooLong
	case strings.Trim(prefix, dns.LabelAlphabet) != "":
		return msg.PrefixCharacters
	case isReserved(prefix):
		return msg.PrefixReserved
	}
	return ""
}

// isReserved reports whether a prefix begins with Label, as automatic prefixes do. The indexes of the
// database use the same test.
func isReserved(prefix string) bool { return strings.HasPrefix(dns.Fold(prefix), Label) }

// AutomaticPrefix returns the prefix of a network. It encodes the decimal text and not the octets of
// the number: DNS ignores letter case, and the encodings of two decimal texts never differ in case
// only.
func AutomaticPrefix(network NetworkID) string {
	return autoPrefix + base64.RawURLEncoding.EncodeToString([]byte(network.String()))
}

// FullName returns the record name of a prefix below a domain.
func FullName(prefix, domain string) string { return Label + "." + prefix + "." + domain }

// Meant returns the names that a person may mean with a text: the name itself, and the record name below it.
func Meant(text string) []string {
	name := dns.Parse(text)
	return []string{name, Label + "." + name}
}
