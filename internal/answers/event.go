package answers

import (
	"encoding/json"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
)

// Event is an event in an answer and in a message.
type Event struct {
	Seq       int64           `json:"seq"`
	At        string          `json:"at"`
	Kind      events.Kind     `json:"kind"`
	Name      string          `json:"name,omitempty"`
	UsageID   string          `json:"usage_id,omitempty"`
	ServiceID string          `json:"service_id,omitempty"`
	NetworkID *mesh.NetworkID `json:"network_id,omitempty"`
	By        string          `json:"by,omitempty"`
	Detail    EventDetail     `json:"detail"`
}

// EventDetail is what an event says about its change.
type EventDetail struct {
	Before      json.RawMessage `json:"before,omitempty"`
	After       json.RawMessage `json:"after,omitempty"`
	Record      string          `json:"record,omitempty"`
	Zone        string          `json:"zone,omitempty"`
	Provider    string          `json:"provider,omitempty"`
	Code        string          `json:"code,omitempty"`
	Error       string          `json:"error,omitempty"` // in the client's language
	Count       int             `json:"count,omitempty"`
	MissingFrom int64           `json:"missing_from,omitempty"`
	MissingTo   int64           `json:"missing_to,omitempty"`
}

// NewEvent makes an Event with its texts in a language. Names and zones come from the provider, and
// may be no valid text.
func NewEvent(e events.Event, language msg.Language) Event {
	fault := e.Detail.Fault
	return Event{
		Seq: e.Seq, At: sqlite.Shown(e.At), Kind: e.Kind, Name: msg.Printable(e.Name), UsageID: e.UsageID, ServiceID: e.ServiceID,
		NetworkID: sqlite.Pointer(e.Network), By: e.By,
		Detail: EventDetail{
			Before: e.Detail.Before, After: e.Detail.After, Record: e.Detail.Record, Zone: msg.Printable(e.Detail.Zone), Provider: e.Detail.Provider,
			Code: fault.Code, Error: fault.In(language), Count: e.Detail.Count, MissingFrom: e.Detail.From, MissingTo: e.Detail.To,
		},
	}
}
