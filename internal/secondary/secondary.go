// Package secondary keeps the name servers that take the built-in zones from this one: their settings,
// which zones and keys they may use, which version of each zone they have fetched, and the NOTIFY
// messages that tell them of a new one (RFC 1996).
package secondary

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/resource"
	"meshddns/internal/secrets"
)

const (
	// MaxSecondaries is the largest number of secondaries.
	MaxSecondaries = 64
	maxZones       = 64   // names in the list of zones
	maxRanges      = 16   // of addresses
	maxSecret      = 1024 // octets of a key in base64
	defaultPort    = 53
	allZones       = "*"
)

// Secondary is a name server that takes zones from this one.
type Secondary struct {
	ID        string         `json:"id"`
	Address   string         `json:"address"`  // of one host, with a port after Check; NOTIFY goes there
	From      []string       `json:"from"`     // ranges of addresses that it asks from, too
	KeyName   string         `json:"key_name"` // as typed; "" for none
	Secret    secrets.Masked `json:"key_secret"`
	Algorithm string         `json:"key_algorithm"` // of the key: one of algorithms
	Zones     []string       `json:"zones"`         // names, or "*" for all
	Notify    *bool          `json:"notify"`        // it serves the zones, and is told of changes; not nil after Check

	at       netip.AddrPort // is Address
	ranges   []netip.Prefix // are From
	key      dns.Key        // zero if there is none
	follower *follower      // of a secondary in memory
}

// algorithms are the algorithms of keys. The first one is usual.
var algorithms = []string{dns.DefaultAlgorithm, "hmac-sha512"}

// Check implements resource.Entry.
func (s Secondary) Check(msg.Language) (Secondary, error) {
	s.Algorithm = cmp.Or(s.Algorithm, algorithms[0])
	given := s.Address
	at, unread := parseAddress(given)
	s.at, s.Address = at, at.String()
	known, paired := slices.Contains(algorithms, s.Algorithm), (s.KeyName == "") == (s.Secret == "") && !strings.Contains(s.KeyName, ":")
	var wrong error
	if known && paired && s.Secret != secrets.Mask {
		s, wrong = s.withKey()
	}
	faults := []error{
		msg.RefuseIf(!mesh.GoodServiceID(s.ID), msg.ServiceIDInvalid),
		msg.RefuseIf(unread != nil, msg.SecondaryAddress, secrets.ScrubLine(given, 64)),
		msg.RefuseIf(!known, msg.SecondaryAlgorithm, strings.Join(algorithms, ", ")),
		msg.RefuseIf(!paired, msg.SecondaryKey),
		wrong,
		msg.RefuseIf(len(s.From) > 0 && s.KeyName == "", msg.SecondaryFromUnsigned),
		s.readRanges(),
	}
	if s.Notify == nil {
		s.Notify = new(true)
	}
	if s.Zones == nil {
		s.Zones = []string{allZones}
	}
	s.Zones = slices.Clone(s.Zones)
	for i, text := range s.Zones {
		zone := dns.Parse(text)
		if text == allZones {
			zone = text
		}
		bad := i == maxZones || text != allZones && (zone == "" || dns.NameFault(zone) != "")
		s.Zones[i], faults = zone, append(faults, msg.RefuseIf(bad, msg.SecondaryZones, secrets.ScrubLine(text, 64), maxZones))
	}
	return s, errors.Join(faults...)
}

// readRanges reads From, and gives each range its normal form.
func (s *Secondary) readRanges() error {
	given := s.From
	s.From, s.ranges = []string{}, nil
	for i, text := range given {
		r, err := mesh.ParseRange(text)
		if err != nil || i == maxRanges || slices.ContainsFunc(s.ranges, r.Overlaps) {
			return msg.Refuse(msg.SecondaryFrom, secrets.ScrubLine(text, 64), maxRanges)
		}
		s.From, s.ranges = append(s.From, r.String()), append(s.ranges, r)
	}
	return nil
}

// parseAddress reads the IP address of one host, with or without a port.
func parseAddress(text string) (netip.AddrPort, error) {
	address, err := netip.ParseAddr(text)
	at := netip.AddrPortFrom(address, defaultPort)
	for _, whole := range []string{text, fmt.Sprintf("%s:%d", text, defaultPort)} { // the second: an IPv6 address in brackets
		if err != nil {
			at, err = netip.ParseAddrPort(whole)
		}
	}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if err == nil && (at.Port() == 0 || at.Addr().IsUnspecified() || at.Addr().IsMulticast() || at.Addr() == broadcast) {
		err = errors.New("not the address of one host")
	}
	return at, err
}

// withKey returns the secondary with its key, or a refusal.
func (s Secondary) withKey() (Secondary, error) {
	if s.KeyName == "" {
		return s, nil
	}
	key, err := dns.ParseKey(s.Algorithm+":"+s.KeyName, string(s.Secret))
	switch {
	case len(s.Secret) > maxSecret:
		return s, msg.Refuse(msg.SecondarySecret, maxSecret)
	case err != nil && dns.Parse(s.KeyName) == "":
		return s, msg.Refuse(msg.SecondaryKey)
	case err != nil:
		return s, msg.Refuse(msg.SecondarySecret, maxSecret)
	}
	s.key = key
	return s, nil
}

// Unmask implements resource.Entry: the secret stays with the name and the algorithm of its key.
func (s Secondary) Unmask(stored Secondary) (_ Secondary, err error) {
	same := strings.EqualFold(s.KeyName, stored.KeyName) && s.Algorithm == stored.Algorithm
	if s.Secret, err = resource.Keep(s.Secret, stored.Secret, s.Secret == secrets.Mask, same, ErrSecretMasked); err != nil {
		return s, err
	}
	return s.withKey()
}

// takes reports whether a secondary takes a zone, given in the form of the table of zones.
func (s Secondary) takes(zone string) bool {
	return slices.Contains(s.Zones, allZones) || slices.Contains(s.Zones, zone)
}

// asksFrom reports whether an address is in a range.
func (s Secondary) asksFrom(a netip.Addr) bool { return len(s.ranges) > 0 && mesh.Permits(s.ranges, a) }

// matches reports whether a request comes from the secondary. Without a key only loopback and private addresses may ask.
func (s Secondary) matches(from netip.Addr, key dns.Name) bool {
	from = from.Unmap()
	own, near := s.at.Addr() == from, from.IsLoopback() || from.IsPrivate()
	return s.key.Name == key && (own && near || key != "" && (own || s.asksFrom(from)))
}
