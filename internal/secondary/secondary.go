// Package secondary keeps the name servers that take the built-in zones from this one: their settings,
// which zones and keys they may use, which version of each zone they have fetched, and the NOTIFY
// messages that tell them of a new one (RFC 1996).
package secondary

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
	"meshddns/internal/strictjson"
	"meshddns/internal/web"
)

const (
	// MaxSecondaries is the largest number of secondaries.
	MaxSecondaries = 64
	maxZones       = 64   // names in the list of zones
	maxSecret      = 1024 // octets of a key in base64
	defaultPort    = 53
	allZones       = "*"
)

// Secondary is a name server that takes zones from this one.
type Secondary struct {
	ID      string
	Address netip.AddrPort
	KeyName string // as typed; "" for none
	Secret  secrets.Secret
	// Algorithm is that of the key: hmac-sha256 or hmac-sha512.
	Algorithm string
	Zones     []string // names, or "*" for all

	key      dns.Key   // zero if there is none
	follower *follower // of a secondary in memory
}

// algorithms are the algorithms of keys. The first one is usual.
var algorithms = []string{dns.DefaultAlgorithm, "hmac-sha512"}

// Body is a secondary as clients and provision files write it.
type Body struct {
	ID        string         `json:"id"`
	Address   string         `json:"address"`
	KeyName   string         `json:"key_name"`
	Secret    secrets.Secret `json:"key_secret"`
	Algorithm string         `json:"key_algorithm"`
	Zones     []string       `json:"zones"`
}

// Check checks a body, and returns its secondary, which may still have a mask in place of the secret.
func (b Body) Check() (s Secondary, err error) {
	s = Secondary{ID: b.ID, KeyName: b.KeyName, Secret: b.Secret, Algorithm: b.Algorithm, Zones: []string{allZones}}
	if s.Algorithm == "" {
		s.Algorithm = algorithms[0]
	}
	if !mesh.GoodServiceID(b.ID) {
		return s, msg.Refuse(msg.ServiceIDInvalid)
	}
	if s.Address, err = parseAddress(b.Address); err != nil {
		return s, msg.Refuse(msg.SecondaryAddress)
	}
	if !slices.Contains(algorithms, s.Algorithm) {
		return s, msg.Refuse(msg.SecondaryAlgorithm, strings.Join(algorithms, ", "))
	}
	if (b.KeyName == "") != (b.Secret == "") || strings.Contains(b.KeyName, ":") {
		return s, msg.Refuse(msg.SecondaryKey)
	}
	if b.KeyName != "" && b.Secret != secrets.Mask {
		if s, err = s.withKey(); err != nil {
			return s, err
		}
	}
	if len(b.Zones) > maxZones {
		return s, msg.Refuse(msg.SecondaryZones, secrets.ScrubLine(b.Zones[maxZones], 64), maxZones)
	}
	if b.Zones != nil {
		s.Zones = nil
	}
	for _, text := range b.Zones {
		name := dns.Parse(text)
		if text == allZones {
			name = allZones
		} else if name == "" || dns.NameFault(name) != "" {
			return s, msg.Refuse(msg.SecondaryZones, secrets.ScrubLine(text, 64), maxZones)
		}
		s.Zones = append(s.Zones, name)
	}
	return s, nil
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
		err = web.Fail(msg.SecondaryAddress)
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

// Parse reads a secondary of a provision file.
func Parse(body []byte) (Secondary, error) {
	var b Body
	if err := web.ParseBody(body, &b); err != nil {
		return Secondary{}, err
	}
	return b.Check()
}

// unmasked returns the secondary with the stored secret in place of a mask.
func (s Secondary) unmasked(stored Secondary) (Secondary, error) {
	if s.Secret != secrets.Mask {
		return s, nil
	}
	if stored.Secret == "" || !strings.EqualFold(s.KeyName, stored.KeyName) || s.Algorithm != stored.Algorithm {
		return s, ErrSecretMasked
	}
	s.Secret = stored.Secret
	return s.withKey()
}

// sameAs reports whether the settings equal those of the stored secondary.
func (s Secondary) sameAs(stored Secondary) bool {
	s, err := s.unmasked(stored)
	return err == nil && s.ID == stored.ID && s.Address == stored.Address && s.KeyName == stored.KeyName && s.Secret == stored.Secret &&
		s.Algorithm == stored.Algorithm && slices.Equal(s.Zones, stored.Zones)
}

// takes reports whether a secondary takes a zone, given in the form of the table of zones.
func (s Secondary) takes(zone string) bool {
	return slices.Contains(s.Zones, allZones) || slices.Contains(s.Zones, zone)
}

// near reports whether an address may transfer without a key: loopback and private addresses.
func near(address netip.Addr) bool {
	return address.IsLoopback() || address.IsPrivate()
}

// Settings are the settings of a secondary in an answer and in a document, with a mask.
type Settings struct {
	ID        string   `json:"id"`
	Address   string   `json:"address"`
	KeyName   string   `json:"key_name"`
	Secret    string   `json:"key_secret"`
	Algorithm string   `json:"key_algorithm"`
	Zones     []string `json:"zones"`
}

// settings returns the settings of a secondary.
func (s Secondary) settings() Settings {
	shown := Settings{ID: s.ID, Address: s.Address.String(), KeyName: s.KeyName, Algorithm: s.Algorithm, Zones: append([]string{}, s.Zones...)}
	if s.Secret != "" {
		shown.Secret = secrets.Mask
	}
	return shown
}

// Documents returns secondaries in the form of a document.
func Documents(all []Secondary) []Settings {
	shown := []Settings{}
	for _, s := range all {
		shown = append(shown, s.settings())
	}
	return shown
}

// members are the members of a secondary that requests and answers have.
var members = strictjson.Fields[shown]()
