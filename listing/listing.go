// Package listing is the list of usages as it leaves the database, a page in one
// text, and as it is written in JSON: a list may have millions of entries.
package listing

import (
	"strconv"

	"meshddns/sqlrow"
)

// Usage is an entry of the list.
type Usage struct {
	Seq         int64             `json:"-"` // the list goes on after it
	ID          string            `json:"id"`
	ProviderID  string            `json:"provider_id"`
	Mode        string            `json:"prefix_mode"`
	Prefix      string            `json:"record_prefix"`
	RecordType  string            `json:"record_type"`
	Description string            `json:"description"`
	IsOccupied  bool              `json:"is_occupied"`
	NetworkID   *sqlrow.NetworkID `json:"network_id,omitempty"`
	FullDomain  string            `json:"full_domain"`
	Provider    *Provider         `json:"provider,omitempty"`
}

// Provider is the service of a usage.
type Provider struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Page is a part of the list, or why there is none.
type Page struct {
	Size   int
	Last   int64                                                   // seq of the last entry
	Append func(to []byte, first int) (written []byte, last int64) // writes the first of them, a line each
	Err    error
}

// PageOf is a page of entries that are read already, or an error.
func PageOf(entries []*Usage, err error) Page {
	p := Page{Size: len(entries), Err: err}
	p.Append = func(to []byte, first int) (written []byte, last int64) {
		for i, u := range entries[:first] {
			if i > 0 {
				to = append(to, ',')
			}
			to, last = append(Append(to, u), '\n'), u.Seq
		}
		return to, last
	}
	if p.Size > 0 {
		p.Last = entries[p.Size-1].Seq
	}
	return p
}

// Append writes an entry as encoding/json does.
func Append(to []byte, u *Usage) []byte {
	to = appendString(append(to, `{"id":`...), u.ID)
	to = appendString(append(to, `,"provider_id":`...), u.ProviderID)
	to = appendString(append(to, `,"prefix_mode":`...), u.Mode)
	to = appendString(append(to, `,"record_prefix":`...), u.Prefix)
	to = appendString(append(to, `,"record_type":`...), u.RecordType)
	to = appendString(append(to, `,"description":`...), u.Description)
	to = strconv.AppendBool(append(to, `,"is_occupied":`...), u.IsOccupied)
	if u.NetworkID != nil {
		to = strconv.AppendUint(append(to, `,"network_id":`...), uint64(*u.NetworkID), 10)
	}
	to = appendString(append(to, `,"full_domain":`...), u.FullDomain)
	if u.Provider != nil {
		to = appendString(append(to, `,"provider":{"id":`...), u.Provider.ID)
		to = append(appendString(append(to, `,"name":`...), u.Provider.Name), '}')
	}
	return append(to, '}')
}
