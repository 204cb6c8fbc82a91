package provision

import (
	"fmt"
	"strings"

	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// Mistake is a mistake in a file and its position.
type Mistake struct {
	File   string
	Line   int    // 0 for the file as a whole
	Member string // such as services[2].config.domain, "" for none
	Reason string
}

func (m Mistake) String() string { return m.where() + ": " + m.Reason }

// where returns the file, line and member.
func (m Mistake) where() string {
	text := m.File
	if m.Line > 0 {
		text += fmt.Sprintf(":%d", m.Line)
	}
	if m.Member != "" {
		text += ": " + printable(m.Member)
	}
	return text
}

// printable returns a text without characters that could end a line or control a terminal.
func printable(text string) string {
	quoted := fmt.Sprintf("%+q", text)
	if quoted = quoted[1 : len(quoted)-1]; quoted != text {
		return strings.ToValidUTF8(quoted, "")
	}
	return text
}

// Mistakes is all mistakes, in the order of files and lines. The error text has one line for each.
type Mistakes []Mistake

func (all Mistakes) Error() string {
	lines := make([]string, len(all))
	for i, m := range all {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// blamed are the members that cause refusals.
var blamed = map[msg.ID]string{
	msg.ProviderEmpty: "provider", msg.AccessKeyEmpty: "access_key_secret", msg.DomainEmpty: "domain",
	msg.TXTRecordNameEmpty: "txt_record_name", msg.EndpointInvalid: "txt_endpoints",
	msg.FormatInvalid: "formats", msg.PeerIDInvalid: "peer_id", msg.CheckInvalid: "check", msg.ValueTooLong: "txt_endpoints", msg.ServiceIDEmpty: "service_id", msg.PrefixModeInvalid: "prefix_mode",
	msg.UnknownService: "service_id", msg.ServiceConfigInvalid: "service_id", msg.ServiceDomainMissing: "service_id",
	msg.NetworkIDMissing: "network_id", msg.PrefixEmpty: "custom_prefix", msg.PrefixTooLong: "custom_prefix",
	msg.PrefixCharacters: "custom_prefix", msg.PrefixReserved: "custom_prefix", msg.PrefixTaken: "custom_prefix",
	msg.NameTooLong: "custom_prefix", msg.ServiceNameEmpty: "name", msg.ServiceConfigShape: "config",
	msg.NotificationKind: "kind", msg.NotificationURL: "url", msg.NotificationURLMasked: "url", msg.NotificationSecret: "secret",
	msg.NotificationSecretMasked: "secret", msg.NotificationEvents: "events", msg.NotificationLanguage: "language",
	msg.SecondaryAddress: "address", msg.SecondaryKey: "key_name", msg.SecondarySecret: "key_secret", msg.SecondarySecretMasked: "key_secret",
	msg.SecondaryAlgorithm: "key_algorithm", msg.SecondaryZones: "zones", msg.SecondaryKeyDiffers: "key_name", msg.SecondaryFrom: "from", msg.SecondaryFromUnsigned: "from", msg.SecondaryFromShared: "key_name",
	msg.LeaseSlot: "slot", msg.LeaseTTL: "ttl", msg.LeaseSchemes: "schemes", msg.LeaseCIDRs: "cidrs", msg.LeaseTemplate: "template",
	msg.LeaseScheme: "template", msg.LeasePeerID: "peer_id", msg.LeaseToken: "token", msg.LeaseTokenTaken: "token",
	msg.ServiceIDInvalid: "id", msg.ServiceDomainInUse: "domain", msg.ServiceDomainInvalid: "domain", msg.DomainIsCatalog: "domain",
}

// Blamed implements Blame of Checks: it returns the member of a body that a refusal of the API is about,
// and the reason. text is the text of the refusal.
func Blamed(refusal msg.ID, text string) (member, reason string) {
	if refusal == msg.SecretNotStored {
		return secrets.Mask, "is masked, and no secret for this provider, access_key_id and endpoint is stored: put the secret itself here"
	}
	return blamed[refusal], text
}
