package main

import (
	"encoding/base64"
	"strconv"
	"strings"

	"meshddns/idna"
	"meshddns/msg"
)

const (
	meshLabel      = "_mesh"  // the first label of every record name, and the reserved beginning of prefixes
	autoPrefix     = "_mesh-" // the beginning of every automatic prefix
	maxPrefix      = 63       // octets of one DNS label, RFC 1035, section 2.3.4
	maxLabel       = 63
	maxNameLength  = 253 // octets of a name in text without the final dot: 255 in wire form
	prefixAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)

// prefixFault says what a custom prefix fails on, "" when it is fine. The
// rules are in the order of the contract.
func prefixFault(prefix string) msg.ID {
	switch {
	case prefix == "":
		return msg.PrefixEmpty
	case len([]rune(prefix)) > maxPrefix:
		return msg.PrefixTooLong
	case strings.Trim(prefix, prefixAlphabet) != "":
		return msg.PrefixCharacters
	case strings.HasPrefix(foldName(prefix), meshLabel):
		return msg.PrefixReserved
	}
	return ""
}

// automaticPrefix derives a network's prefix. It encodes the decimal text and
// not the number's bytes: DNS folds letter case, and over decimal digits no
// two encodings differ by case alone.
func automaticPrefix(network networkID) string {
	decimal := strconv.FormatUint(uint64(network), 10)
	return autoPrefix + base64.RawURLEncoding.EncodeToString([]byte(decimal))
}

// fullName is the record name of a usage.
func fullName(prefix, domain string) string {
	return meshLabel + "." + prefix + "." + domain
}

// nameFits reports whether DNS has room for the name.
func nameFits(name string) bool {
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > maxLabel {
			return false
		}
	}
	return len(name) <= maxNameLength
}

// nameFault says why a name as dnsName gives it cannot be published, "" when
// it can: letters, digits, "_" and "-", and no empty label.
func nameFault(name string) string {
	if _, err := idna.ToASCII(name); err != nil {
		return err.Error()
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.Trim(label, prefixAlphabet) != "" {
			return strconv.Quote(name)
		}
	}
	if !nameFits(name) {
		return strconv.Quote(name)
	}
	return ""
}

// dnsName gives a domain name as DNS has it: A-labels (RFC 5890), lower case,
// no final dot. A name that cannot be written so stays as it is.
func dnsName(name string) string {
	if ascii, err := idna.ToASCII(name); err == nil {
		name = ascii
	}
	return foldName(name)
}

// foldName gives the form in which equal names are equal texts: A-Z in lower
// case (RFC 4343), no final dot.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, strings.TrimSuffix(name, "."))
}

// within reports whether a folded name is the folded zone or lies below it.
func within(name, zone string) bool {
	return name == zone || strings.HasSuffix(name, "."+zone)
}
