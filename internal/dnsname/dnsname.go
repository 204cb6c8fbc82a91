// Package dnsname has what every part of the program knows of domain names in
// text: which texts are one name, what lies within what, and what fits.
package dnsname

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/msg"
)

// Octets that DNS has room for (RFC 1035, section 2.3.4).
const (
	MaxLabel = 63
	MaxName  = 253 // of a name in text without the final dot: 255 in wire form
)

// LabelAlphabet holds the characters of a label that is published.
const LabelAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// Fold gives the form in which equal names are equal texts: A-Z in lower case
// (RFC 4343), no final dot.
func Fold(name string) string {
	name = strings.TrimSuffix(name, ".")
	if strings.IndexFunc(name, isUpper) < 0 {
		return name
	}
	return strings.Map(func(r rune) rune {
		if isUpper(r) {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

func isUpper(r rune) bool { return 'A' <= r && r <= 'Z' }

// Parse gives a domain name as DNS has it: A-labels (RFC 5890), folded. A name
// that cannot be written so is only folded; Fault tells why.
func Parse(name string) string {
	if ascii, err := ToASCII(name); err == nil {
		name = ascii
	}
	return Fold(name)
}

// Fits reports whether DNS has room for the name.
func Fits(name string) bool {
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > MaxLabel {
			return false
		}
	}
	return len(name) <= MaxName
}

// Fault says why a name as Parse gives it cannot be published, "" when it can:
// letters, digits, "_" and "-", and no empty label.
func Fault(name string) msg.Text {
	if _, err := ToASCII(name); err != nil {
		return msg.TextOf(err)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.Trim(label, LabelAlphabet) != "" {
			return msg.Say(strconv.Quote(name))
		}
	}
	if !Fits(name) {
		return msg.Say(strconv.Quote(name))
	}
	return ""
}

// Within reports whether a folded name is the folded zone or lies below it.
func Within(name, zone string) bool {
	return strings.HasSuffix(name, zone) &&
		(len(name) == len(zone) || len(zone) > 0 && name[len(name)-len(zone)-1] == '.')
}

// Parent drops the first label; a single label has no parent, "".
func Parent(name string) string {
	_, parent, _ := strings.Cut(name, ".")
	return parent
}

// Reverse gives a name with its labels from the root ("com.example.office"), so
// that the names below one name stand together in order.
func Reverse(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// Ancestors yields a name and all above it but the root, the longest first.
func Ancestors(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for at := name; at != "" && yield(at); {
			at = Parent(at)
		}
	}
}
