// Warnings about stored data that cannot work: a misspelt member, provider or mode, or an address that
// cannot be reached from outside.

package answers

import (
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/hostaddr"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/strictjson"
)

// Warning is a text in each language.
type Warning struct {
	ID   msg.ID
	Args []any
}

// In returns the warning in a language. It translates arguments that are texts themselves.
func (w Warning) In(language msg.Language) string {
	words := slices.Clone(w.Args)
	for i, word := range words {
		if text, ok := word.(interface{ In(msg.Language) string }); ok {
			words[i] = text.In(language)
		}
	}
	return w.ID.In(language, words...)
}

// WarningTexts returns warnings in a language.
func WarningTexts(all []Warning, language msg.Language) (texts []string) {
	for _, w := range all {
		texts = append(texts, w.In(language))
	}
	return texts
}

// The members of a configuration, a service, a service's config and a usage, and members that only
// answers have: a client that edits an answer and sends it back gets no warning.
var (
	ConfigurationMembers = strictjson.Fields[Configuration]()
	ServiceMembers       = append(strictjson.Fields[Service](), "zone", "warnings")
	ServiceConfigMembers = strictjson.Fields[mesh.ServiceConfig]()
	UsageMembers         = append(strictjson.Fields[ListedUsage](), "status", "txt_endpoints", "formats", "check", "peer_id", "created_at")
)

// Members of a usage that its reservation does not set, and members that no change sets.
var (
	NotReservedMembers = []string{"txt_endpoints", "description"}
	NotChangedMembers  = []string{"service_id", "custom_prefix"}
)

// WarnNotSet warns of given members that the call ignores.
func WarnNotSet(given, not []string) (all []Warning) {
	for _, name := range given {
		if slices.Contains(not, name) {
			all = append(all, Warning{msg.WarnNotSet, []any{name}})
		}
	}
	return all
}

// WarnMembers warns of given members that are unknown and resemble a known member that is not given.
func WarnMembers(given, known []string) (all []Warning) {
	for _, name := range given {
		if slices.Contains(known, name) {
			continue
		}
		missing := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return slices.Contains(given, k) })
		if meant, ok := msg.Closest(name, missing); ok {
			all = append(all, Warning{msg.WarnMember, []any{name, meant}})
		}
	}
	return all
}

// WarnProvider warns of an unknown provider.
func WarnProvider(name string, known []string) []Warning {
	if slices.Contains(known, name) {
		return nil
	}
	if meant, ok := msg.Closest(name, known); ok {
		return []Warning{{msg.WarnProviderLike, []any{name, meant}}}
	}
	return []Warning{{msg.WarnProvider, []any{name}}}
}

// WarnMode warns of an unknown mode, which means manual.
func WarnMode(mode mesh.SyncMode) []Warning {
	if mode == "" || slices.Contains(mesh.SyncModes, mode) {
		return nil
	}
	return []Warning{{msg.WarnMode, []any{mode}}}
}

// WarnDomain warns of a domain that is no DNS name.
func WarnDomain(domain string) []Warning {
	if dns.NameFault(dns.Parse(domain)) == "" {
		return nil
	}
	return []Warning{{msg.WarnDomain, []any{domain, LabelFault(domain)}}}
}

// LabelFault returns the reason why a label that is not ASCII has no form in DNS, "" without one.
func LabelFault(domain string) any {
	if _, err := dns.ToASCII(domain); err != nil {
		return msg.Phrase{ID: msg.Because, Args: []any{msg.TextOf(err)}}
	}
	return ""
}

// WarnRecordName warns of a record name that is no DNS name, such as a wildcard, and of one that has the domain twice.
func WarnRecordName(c mesh.Configuration) []Warning {
	name := c.RecordName()
	switch {
	case dns.Within(dns.Parse(c.TXTRecordName), dns.Parse(c.Domain)):
		return []Warning{{msg.WarnNameTwice, []any{c.TXTRecordName, name}}}
	case dns.NameFault(name) != "":
		return []Warning{{msg.WarnRecordName, []any{name}}}
	}
	return nil
}

// WarnBlanks warns of a credential with white space around it, such as the end of the line that it was copied from.
func WarnBlanks(member, credential string) []Warning {
	if strings.TrimSpace(credential) == credential {
		return nil
	}
	return []Warning{{msg.WarnBlanks, []any{member}}}
}

// WarnNumber warns of a number that the program replaces by another one.
func WarnNumber(member string, given, used int64) []Warning {
	if given == used {
		return nil
	}
	return []Warning{{msg.WarnNumber, []any{member, given, used}}}
}

// WarnEnabled warns of a configuration without the member enabled, which means false.
func WarnEnabled(members []string) []Warning {
	if members == nil || slices.Contains(members, "enabled") {
		return nil
	}
	return []Warning{{ID: msg.WarnEnabled}}
}

// WarnEndpoints warns of a record value without endpoints.
func WarnEndpoints(endpoints []string) []Warning {
	if len(endpoints) > 0 {
		return nil
	}
	return []Warning{{ID: msg.WarnEndpoints}}
}

// WarnAddresses warns of placeholders whose source is unknown, or whose address cannot be reached from outside.
func WarnAddresses(endpoints []string, last mesh.Addresses) (all []Warning) {
	for _, p := range mesh.Placeholders(endpoints) {
		switch a := p.Of(last); {
		case !p.Known(last):
			all = append(all, Warning{msg.WarnSource, []any{p.Source, p.Text}})
		case hostaddr.Hidden(a):
			all = append(all, Warning{msg.WarnPrivate, []any{p.Text, a.String()}})
		}
	}
	return all
}
