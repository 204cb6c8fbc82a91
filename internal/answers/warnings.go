// Warnings about stored data that cannot work: a misspelt provider or mode, or an address that cannot be
// reached from outside.

package answers

import (
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// WarnNotSet warns of given members of a reservation that no change sets.
func WarnNotSet(given []string) (all []msg.Phrase) {
	for _, name := range given {
		if slices.Contains([]string{"service_id", "prefix_mode", "custom_prefix", "network_id"}, name) {
			all = append(all, msg.Phrase{ID: msg.WarnNotSet, Args: []any{name}})
		}
	}
	return all
}

// WarnProvider warns of an unknown provider.
func WarnProvider(name string, known []string) []msg.Phrase {
	if slices.Contains(known, name) {
		return nil
	}
	if meant, ok := msg.Closest(name, known); ok {
		return []msg.Phrase{{ID: msg.WarnProviderLike, Args: []any{name, meant}}}
	}
	return []msg.Phrase{{ID: msg.WarnProvider, Args: []any{name}}}
}

// warnIf returns a warning if something is wrong.
func warnIf(wrong bool, id msg.ID, args ...any) []msg.Phrase {
	if !wrong {
		return nil
	}
	return []msg.Phrase{{ID: id, Args: args}}
}

// WarnMode warns of an unknown mode, which means manual.
func WarnMode(mode mesh.SyncMode) []msg.Phrase {
	return warnIf(mode != "" && !slices.Contains(mesh.SyncModes, mode), msg.WarnMode, mode)
}

// WarnDomain warns of a domain that is no DNS name.
func WarnDomain(domain string) []msg.Phrase {
	return warnIf(dns.NameFault(dns.Parse(domain)) != "", msg.WarnDomain, domain, mesh.LabelFault(domain))
}

// WarnRecordName warns of a record name that is no DNS name, such as a wildcard, and of one that has the domain twice.
func WarnRecordName(c mesh.Configuration) []msg.Phrase {
	name := c.RecordName()
	switch {
	case dns.Within(dns.Parse(c.TXTRecordName), dns.Parse(c.Domain)):
		return []msg.Phrase{{ID: msg.WarnNameTwice, Args: []any{c.TXTRecordName, name}}}
	case dns.NameFault(name) != "":
		return []msg.Phrase{{ID: msg.WarnRecordName, Args: []any{name}}}
	}
	return nil
}

// WarnBlanks warns of a credential with white space around it, such as the end of the line that it was copied from.
func WarnBlanks(member, credential string) []msg.Phrase {
	return warnIf(strings.TrimSpace(credential) != credential, msg.WarnBlanks, member)
}

// WarnNumber warns of a number that the program replaces by another one.
func WarnNumber(member string, given, used int64) []msg.Phrase {
	return warnIf(given != used, msg.WarnNumber, member, given, used)
}

// WarnPaused warns of a paused program.
func WarnPaused(f mesh.Fault) []msg.Phrase {
	return warnIf(f.Code == string(msg.Paused), msg.WarnPaused, f)
}

// WarnEndpoints warns of a record value without endpoints.
func WarnEndpoints(endpoints []string) []msg.Phrase {
	return warnIf(len(endpoints) == 0, msg.WarnEndpoints)
}

// WarnAddresses warns of placeholders whose source is unknown, or whose address cannot be reached from outside.
func WarnAddresses(endpoints []string, last mesh.Addresses) (all []msg.Phrase) {
	for _, p := range mesh.Placeholders(endpoints) {
		switch a := p.Of(last); {
		case !p.Known(last):
			all = append(all, msg.Phrase{ID: msg.WarnSource, Args: []any{p.Source, p.Text}})
		case mesh.Hidden(a):
			all = append(all, msg.Phrase{ID: msg.WarnPrivate, Args: []any{p.Text, a.String()}})
		}
	}
	return all
}
