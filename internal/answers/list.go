// Package listing is the list of usages as it leaves the database, a page in one
// text, and as it is written in JSON: a list may have millions of entries.
package answers

import "meshddns/internal/mesh"

// ListedUsage is an entry of the list.
type ListedUsage struct {
	Seq         int64           `json:"-"` // the list goes on after it
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

// ListedProvider is the service of a usage.
type ListedProvider struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// ListedPublish is how far the record of a usage is.
type ListedPublish struct {
	State    string `json:"state"`
	Value    string `json:"value"`
	Error    string `json:"error"` // in the language of the client
	Attempts int    `json:"attempts"`
	At       string `json:"at"`
}

// ListPage is a part of the list, or why there is none.
type ListPage struct {
	Size   int
	Last   int64                                                   // seq of the last entry
	Append func(to []byte, first int) (written []byte, last int64) // writes the first of them, a line each
	Err    error
}
