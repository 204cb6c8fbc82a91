// Domain names in text: when two texts are the same name, when a name is within a zone, and which names fit
// into DNS.

package dns

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/msg"
)

// Greatest lengths in octets (RFC 1035, section 2.3.4).
const (
	MaxLabel = 63
	MaxName  = 253 // of a name in text without the final dot: 255 in wire form
)

// LabelAlphabet is the characters that a published label may have.
const LabelAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// Fold returns the normal form of a name, in which equal names are equal texts: A-Z in lower case
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

// Parse returns a domain name in DNS form: A-labels (RFC 5890), folded. It only folds a name that has no
// such form; Fault returns the reason.
func Parse(name string) string {
	if ascii, err := ToASCII(name); err == nil {
		name = ascii
	}
	return Fold(name)
}

// Fits reports whether the name is short enough for DNS.
func Fits(name string) bool {
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > MaxLabel {
			return false
		}
	}
	return len(name) <= MaxName
}

// NameFault returns the reason why a name that Parse returned cannot be published, "" if it can. A name may
// have letters, digits, "_" and "-", and no empty label.
func NameFault(name string) msg.Text {
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

// IsHost reports whether a published name is a host's: no label has a "_", or a "-" at its begin or end
// (RFC 1123, section 2.1).
func IsHost(name string) bool {
	name = "." + name + "."
	return !strings.Contains(name, "_") && !strings.Contains(name, ".-") && !strings.Contains(name, "-.")
}

// Within reports whether a folded name is the folded zone or below it.
func Within(name, zone string) bool {
	return strings.HasSuffix(name, zone) &&
		(len(name) == len(zone) || len(zone) > 0 && name[len(name)-len(zone)-1] == '.')
}

// Parent returns the name without its first label, "" for a single label.
func Parent(name string) string {
	_, parent, _ := strings.Cut(name, ".")
	return parent
}

// Reverse returns a name with its labels from the root ("com.example.office"), so that the names below
// one name are adjacent in sorted order.
func Reverse(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// Ancestors yields a name and all names above it except the root, the longest first.
func Ancestors(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for at := name; at != "" && yield(at); {
			at = Parent(at)
		}
	}
}
