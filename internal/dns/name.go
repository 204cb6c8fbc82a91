package dns

import (
	"fmt"
	"strings"

	"meshddns/internal/msg"
)

// Name is a domain name in wire form (RFC 1035, section 3.1): each label after its length
// octet, then the root's zero octet, without compression. It has at most 255 octets.
type Name string

// Root is the name of the root zone.
const Root Name = "\x00"

const (
	maxName = 255 // octets of a name in wire form (RFC 1035, section 2.3.4)
)

// ErrName is the error for a text that is not a domain name.
var ErrName = msg.Errorf("not a domain name")

// ParseName reads the presentation form of a name, with or without the final dot. "\." and
// "\DDD" stand for any octet (RFC 1035, section 5.1). Its errors wrap ErrName.
func ParseName(text string) (Name, error) {
	if text == "." {
		return Root, nil
	}
	var wire, label []byte
	for rest := text; len(rest) > 0; {
		octet, size, err := octetAt(rest)
		if err != nil {
			return "", msg.Errorf("%w: %.255q has a broken escape", ErrName, text)
		}
		dot := size == 1 && octet == '.'
		if !dot {
			label = append(label, octet)
		}
		rest = rest[size:]
		if !dot && len(rest) > 0 {
			continue
		}
		if len(label) == 0 || len(label) > maxLabel {
			return "", msg.Errorf("%w: %.255q has a label of %d octets, 1 to %d are allowed", ErrName, text, len(label), maxLabel)
		}
		wire = append(append(wire, byte(len(label))), label...)
		label = label[:0]
	}
	if len(wire) == 0 {
		return "", msg.Errorf("%w: it is empty", ErrName)
	}
	if len(wire)+1 > maxName {
		return "", msg.Errorf("%w: %.255q is longer than %d octets", ErrName, text, maxName)
	}
	return Name(wire) + Root, nil
}

// octetAt reads one octet of a presentation form. size is the number of characters that it takes.
func octetAt(text string) (octet byte, size int, err error) {
	if text[0] != '\\' {
		return text[0], 1, nil
	}
	if len(text) < 2 {
		return 0, 0, ErrName
	}
	if text[1] < '0' || text[1] > '9' {
		return text[1], 2, nil
	}
	if len(text) < 4 {
		return 0, 0, ErrName
	}
	value := 0
	for _, digit := range []byte(text[1:4]) {
		if digit < '0' || digit > '9' {
			return 0, 0, ErrName
		}
		value = value*10 + int(digit-'0')
	}
	if value > 255 {
		return 0, 0, ErrName
	}
	return byte(value), 4, nil
}

// String returns the presentation form with the final dot.
func (n Name) String() string {
	if n == Root {
		return "."
	}
	var text strings.Builder
	for label := range n.Labels() {
		for _, octet := range []byte(label) {
			switch {
			case octet == '.' || octet == '\\' || octet == '"':
				text.WriteByte('\\')
				text.WriteByte(octet)
			case octet <= ' ' || octet > '~':
				fmt.Fprintf(&text, `\%03d`, octet)
			default:
				text.WriteByte(octet)
			}
		}
		text.WriteByte('.')
	}
	return text.String()
}

// Bare returns the name without the final dot; "" for the root and for no name.
func (n Name) Bare() string { return strings.TrimSuffix(n.String(), ".") }

// Labels yields the labels from the left, without the root's empty label.
func (n Name) Labels() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for len(n) > 1 {
			end := 1 + int(n[0])
			if !yield(string(n[1:end])) {
				return
			}
			n = n[end:]
		}
	}
}

// Parent returns the name without its leftmost label. The root is its own parent.
func (n Name) Parent() Name {
	if len(n) <= 1 {
		return n
	}
	return n[1+n[0]:]
}

// Child returns the name with one more label on the left. ok is false if the label is
// empty, or the label or the name is too long.
func (n Name) Child(label string) (child Name, ok bool) {
	if label == "" || len(label) > maxLabel || 1+len(label)+len(n) > maxName {
		return "", false
	}
	return Name([]byte{byte(len(label))}) + Name(label) + n, true
}

// Fold returns the name with ASCII letters in lower case. Two names are the same name if
// their folded forms are equal (RFC 4343). Length octets do not change, because none of
// them is a letter.
func (n Name) Fold() Name {
	return Name(foldASCII(string(n)))
}

// Within reports whether n is zone or lies below it, in any letter case.
func (n Name) Within(zone Name) bool {
	for len(n) > len(zone) && n != Root {
		n = n.Parent()
	}
	return len(n) == len(zone) && n.Fold() == zone.Fold()
}

// foldASCII folds octets, not characters, because a label may hold any octet.
func foldASCII(text string) string {
	folded := []byte(text)
	for i, octet := range folded {
		if 'A' <= octet && octet <= 'Z' {
			folded[i] = octet + 'a' - 'A'
		}
	}
	return string(folded)
}
