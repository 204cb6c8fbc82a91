package answers

import (
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
)

// PublishedFormat is one record of a usage in an answer.
type PublishedFormat struct {
	Format  string    `json:"format"`
	Name    string    `json:"name"`
	Type    string    `json:"type"`
	Values  []string  `json:"values"`
	State   string    `json:"state"`
	LeftOut []leftOut `json:"left_out"`
	Error   string    `json:"error"`
}

// leftOut is an endpoint that a format does not have.
type leftOut struct {
	Endpoint string `json:"endpoint"`
	Slot     string `json:"slot,omitempty"`
	Reason   string `json:"reason"`
}

// Formats returns the records of a usage with their texts in a language.
func Formats(all []reconcile.FormatState, language msg.Language) []PublishedFormat {
	shown := []PublishedFormat{}
	for _, f := range all {
		p := PublishedFormat{
			Format: f.Format, Name: f.Name, Type: string(f.Type), Values: append([]string{}, f.Values...), State: string(f.State),
			LeftOut: []leftOut{}, Error: f.Fault.In(language),
		}
		for _, l := range f.LeftOut {
			p.LeftOut = append(p.LeftOut, leftOut{l.Endpoint.Text, l.Endpoint.Slot, l.Reason.In(language)})
		}
		shown = append(shown, p)
	}
	return shown
}
