package answers

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// ListedUsage is a usage in the list and in the answer about one usage.
type ListedUsage struct {
	ID          string          `json:"id"`
	ProviderID  string          `json:"provider_id"`
	Mode        mesh.PrefixMode `json:"prefix_mode"`
	Prefix      string          `json:"record_prefix"`
	RecordType  string          `json:"record_type"`
	Description string          `json:"description"`
	IsOccupied  bool            `json:"is_occupied"`
	NetworkID   *mesh.NetworkID `json:"network_id,omitempty"`
	FullDomain  string          `json:"full_domain"`
	Provider    *ListedProvider `json:"provider,omitempty"`
	NetworkName string          `json:"network_name"`
	Publish     ListedPublish   `json:"publish"`
}

// Usage is the answer about one usage.
type Usage struct {
	ListedUsage
	Status       mesh.BindingStatus `json:"status"`
	TXTEndpoints []string           `json:"txt_endpoints"`
	Formats      []string           `json:"formats"` // always there, unlike that of the options
	mesh.Options
	CreatedAt string `json:"created_at"`
}

// Created is the answer about a usage that was reserved.
type Created struct {
	ID         string          `json:"id"`
	ProviderID string          `json:"provider_id"`
	Mode       mesh.PrefixMode `json:"prefix_mode"`
	Prefix     string          `json:"record_prefix"`
	FullDomain string          `json:"full_domain"`
	NetworkID  mesh.NetworkID  `json:"network_id"`
	Warnings   []string        `json:"warnings,omitempty"`
	Publish    *ListedPublish  `json:"publish,omitempty"`
}

// NewCreated makes the answer about a usage that was reserved; publish is nil where the request has not waited.
func NewCreated(u mesh.Usage, warnings []msg.Phrase, publish *ListedPublish, language msg.Language) Created {
	return Created{
		ID: u.ID, ProviderID: u.ServiceID, Mode: u.Mode, Prefix: u.Prefix, FullDomain: mesh.FullName(u.Prefix, u.Domain.V),
		NetworkID: u.Network.V, Warnings: msg.Texts(warnings, language), Publish: publish,
	}
}

// NewListedUsage makes an entry of the list.
func NewListedUsage(u mesh.Usage, language msg.Language) ListedUsage {
	e := ListedUsage{
		ID: u.ID, ProviderID: u.ServiceID, Mode: u.Mode, Prefix: u.Prefix, RecordType: u.RecordType,
		Description: u.Description, IsOccupied: u.Exclusive, FullDomain: mesh.FullName(u.Prefix, u.Domain.V),
		NetworkID: sqlite.Pointer(u.Network), NetworkName: mesh.NetworkName(u.Description),
		Publish: NewPublish(u.Publish, language),
	}
	if u.ServiceName.Valid {
		e.Provider = &ListedProvider{ID: u.ServiceID, Name: u.ServiceName.V}
	}
	return e
}

// NewUsage makes the answer about a usage, with the state of its publishing.
func NewUsage(u mesh.Usage, publish ListedPublish, language msg.Language) Usage {
	shown := Usage{
		ListedUsage: NewListedUsage(u, language), Status: u.Status, TXTEndpoints: append([]string{}, u.Endpoints...),
		Formats: append([]string{}, u.Options.Formats...), Options: u.Options, CreatedAt: u.CreatedAt,
	}
	shown.Publish = publish
	return shown
}

// NewPublish returns the state of publishing in the form of the list.
func NewPublish(p mesh.Publishing, language msg.Language) ListedPublish {
	return ListedPublish{State: p.State, Value: p.Value, Error: p.Fault.In(language), Attempts: p.Attempts, At: p.At}
}

// ListedProvider is the service of a usage.
type ListedProvider struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// ListedPublish is the publishing state of a usage's record.
type ListedPublish struct {
	State     string                 `json:"state"`
	Value     string                 `json:"value"`
	Error     string                 `json:"error"` // in the client's language
	Attempts  int                    `json:"attempts"`
	At        string                 `json:"at"`
	Formats   []PublishedFormat      `json:"formats,omitzero"`    // only of a single usage
	Endpoints []mesh.CheckedEndpoint `json:"endpoints,omitempty"` // of a usage with a check; not in lists
}

// ListEntries turns entries that SQLite wrote into the JSON that encoding/json would write of
// ListedUsage. SQLite writes null members, and an error as an array of its code, detail and key;
// fault returns the text of such an error. No text in the entries can look like this, because its
// quotes would be escaped.
func ListEntries(written string, fault func(code, detail, key string) string) string {
	for _, member := range []string{"network_id", "provider"} {
		written = strings.ReplaceAll(written, `"`+member+`":null,`, "")
	}
	const begin = `"error":`
	var out strings.Builder
	for last, text := "[", ""; ; { // many entries in a row have the same error
		at := strings.Index(written, begin+"[")
		if at < 0 {
			out.WriteString(written)
			return asEncodingJSON(out.String())
		}
		out.WriteString(written[:at+len(begin)])
		if written = written[at+len(begin):]; text == "" || !strings.HasPrefix(written, last) {
			var e [3]string
			decoder := json.NewDecoder(strings.NewReader(written))
			if err := decoder.Decode(&e); err != nil {
				panic(err) // SQLite wrote valid JSON
			}
			last, text = written[:decoder.InputOffset()], quoted(fault(e[0], e[1], e[2]))
		}
		out.WriteString(text)
		written = written[len(last):]
	}
}

// quoted returns a text as a JSON string.
func quoted(text string) string { return string(web.AppendJSON(nil, text)) }

// asEncodingJSON escapes what encoding/json escapes and SQLite does not: octets that are not UTF-8,
// and the two line separators of Unicode.
func asEncodingJSON(text string) string {
	if utf8.ValidString(text) && !strings.Contains(text, "\u2028") && !strings.Contains(text, "\u2029") {
		return text
	}
	var out strings.Builder
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out.WriteString(`\ufffd`)
		case r == '\u2028' || r == '\u2029':
			out.WriteString(strings.Trim(quoted(text[:size]), `"`))
		default:
			out.WriteString(text[:size])
		}
		text = text[size:]
	}
	return out.String()
}
