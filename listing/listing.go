// Package listing is the list of usages as it leaves the database, a page in one
// text, and as it is written in JSON: a list may have millions of entries.
package listing

import (
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

// AppendAll writes entries, a line each.
func AppendAll(to []byte, entries []Usage) []byte {
	for i := range entries {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(Append(to, &entries[i]), '\n')
	}
	return to
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

// A page is a text in which these two of ASCII stand between the fields of a row
// and between the rows.
const (
	betweenFields = "\x1f"
	betweenRows   = "\x1e"
)

// fields are those of a row: seq, id, provider_id, prefix_mode, record_prefix,
// description, is_exclusive, network_id, domain, "=" and the service's name.
const fields = 10

// Parse reads a page of so many usages with TXT records, but for their full names. It
// is not ok when a text has one of the two characters itself, for then there are more
// of them than between the rows and fields: the rows have to be read one by one.
func Parse(page string, rows int) (usages []Usage, ok bool) {
	if rows == 0 {
		return nil, true
	}
	if strings.Count(page, betweenRows) != rows-1 {
		return nil, false
	}
	usages = make([]Usage, rows)
	networks, providers := make([]sqlrow.NetworkID, rows), make([]Provider, rows)
	for i := range usages {
		row, rest, _ := strings.Cut(page, betweenRows)
		if page = rest; strings.Count(row, betweenFields) != fields-1 {
			return nil, false
		}
		u := &usages[i]
		field := func() (text string) {
			text, row, _ = strings.Cut(row, betweenFields)
			return text
		}
		u.Seq, ok = integer(field())
		u.ID, u.ProviderID, u.Mode, u.Prefix, u.RecordType = field(), field(), field(), field(), "TXT"
		u.Description, u.IsOccupied = field(), field() == "1"
		if network, bound := integer(field()); bound {
			networks[i] = sqlrow.NetworkID(network)
			u.NetworkID = &networks[i]
		}
		u.Domain = field()
		if name, there := strings.CutPrefix(field(), "="); there {
			providers[i] = Provider{ID: u.ProviderID, Name: name}
			u.Provider = &providers[i]
		}
		if !ok {
			return nil, false
		}
	}
	return usages, true
}

// integer reads a number of the database, of which NULL is no text.
func integer(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}
