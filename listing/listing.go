// Package listing is the list of usages as it leaves the database, a page in one
// text, and as it is written in JSON: a list may have millions of entries.
package listing

import (
	"iter"
	"slices"
	"strconv"
	"strings"

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
	Domain      string            `json:"-"` // of the service
	Provider    *Provider         `json:"provider,omitempty"`
}

// Provider is the service of a usage.
type Provider struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Page is a part of the list, or why there is none.
type Page struct {
	Size    int
	Last    int64                            // seq of the last entry
	Entries func(first int) iter.Seq[*Usage] // gives the first of them, each good until the next
	Err     error
}

// PageOf is a page of entries that are read already, or an error.
func PageOf(entries []*Usage, err error) Page {
	p := Page{Size: len(entries), Err: err}
	p.Entries = func(first int) iter.Seq[*Usage] { return slices.Values(entries[:first]) }
	if p.Size > 0 {
		p.Last = entries[p.Size-1].Seq
	}
	return p
}

// AppendAll writes entries, a line each, and gives the seq of the last.
func AppendAll(to []byte, entries iter.Seq[*Usage]) (all []byte, last int64) {
	for u := range entries {
		if last != 0 {
			to = append(to, ',')
		}
		to, last = append(Append(to, u), '\n'), u.Seq
	}
	return to, last
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

// Between the fields of a row, and between the rows, of a page stand these two of ASCII.
const (
	BetweenFields = "\x1f"
	BetweenRows   = "\x1e"
)

// fields are those of a row: seq, id, provider_id, prefix_mode, record_prefix,
// description, is_exclusive, network_id, domain, "=" and the service's name.
const fields = 10

// Whole reports whether a page is one of so many rows. It is not when a text has one
// of the two characters itself, for then there are more of them than between the
// rows and fields: the rows have to be read one by one.
func Whole(page string, rows int) bool {
	return strings.Count(page, BetweenRows) == max(rows-1, 0) && strings.Count(page, BetweenFields) == rows*(fields-1)
}

// All reads the first rows of a whole page, which are usages with TXT records, but for
// their full names. Each entry is good until the next.
func All(page string, rows int) iter.Seq[*Usage] {
	return func(yield func(*Usage) bool) {
		var network sqlrow.NetworkID
		var provider Provider
		for range rows {
			var row string
			row, page, _ = strings.Cut(page, BetweenRows)
			field := func() (text string) {
				text, row, _ = strings.Cut(row, BetweenFields)
				return text
			}
			u := Usage{RecordType: "TXT"}
			u.Seq, _ = integer(field())
			u.ID, u.ProviderID, u.Mode, u.Prefix = field(), field(), field(), field()
			u.Description, u.IsOccupied = field(), field() == "1"
			if n, bound := integer(field()); bound {
				network = sqlrow.NetworkID(n)
				u.NetworkID = &network
			}
			u.Domain = field()
			if name, there := strings.CutPrefix(field(), "="); there {
				provider = Provider{ID: u.ProviderID, Name: name}
				u.Provider = &provider
			}
			if !yield(&u) {
				return
			}
		}
	}
}

// integer reads a number of the database, of which NULL is no text.
func integer(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}
