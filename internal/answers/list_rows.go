package answers

import (
	"encoding/json"
	"strconv"
	"strings"

	"meshddns/internal/mesh"
)

// ListRows are a page of usages with TXT records as SQLite writes it, for to call it costs
// more than a row: of each usage an array in JSON, one behind the other, with
//
//	id, prefix_mode, record_prefix, description, is_exclusive, network_id,
//	attempts, state, value, code, detail, key, at, seq
//
// and before the attempts the id, name and domain of its service where that is not Common,
// which most usages of a page have and which is given once, as an array of the three.
type ListRows struct {
	Size   int
	Text   string
	Common string                                // "" for none
	Fault  func(code, detail, key string) string // the text of a fault
}

// Page gives the rows as a page. It is written from what they are in JSON already.
func (r ListRows) Page() ListPage {
	p := ListPage{Size: r.Size}
	if r.Size > 0 {
		p.Last = number(r.Text[strings.LastIndexByte(r.Text, ',')+1 : len(r.Text)-1])
	}
	p.Append = func(to []byte, first int) (written []byte, last int64) {
		rows, head := members(asStandard(r.Text)), members(asStandard(r.Common))
		var common service
		if head != "" {
			common = head.service()
		}
		var seq string
		for i := range first {
			if i > 0 {
				to = append(to, ',')
			}
			to, seq = rows.appendEntry(to, common, r.Fault)
		}
		return to, number(seq)
	}
	return p
}

// number reads an integer of the database.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// members is what is left of arrays in JSON, from the bracket or comma before a member.
type members string

// next takes a member off, as it is in JSON.
func (m *members) next() (member string) {
	text := string((*m)[1:])
	end := 0
	if text[0] == '"' {
		end = quoted(text)
	} else {
		for text[end] != ',' && text[end] != ']' {
			end++
		}
	}
	*m = members(text[end:])
	return text[:end]
}

// quoted gives the length of the string in JSON that a text begins with: to the first quote
// before which the backslashes are pairs, or all when there is none.
func quoted(text string) int {
	for end := 1; ; end++ {
		further := strings.IndexByte(text[end:], '"')
		if further < 0 {
			return len(text)
		}
		end += further
		escapes := 0
		for text[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end + 1
		}
	}
}

// service is that of a usage, its members as they are in JSON.
type service struct{ id, name, domain string }

func (m *members) service() service {
	return service{id: m.next(), name: m.next(), domain: m.next()}
}

// appendEntry writes the next row as Append does, and gives its seq.
func (m *members) appendEntry(to []byte, common service, fault func(code, detail, key string) string) (written []byte, seq string) {
	id, mode, prefix, description := m.next(), m.next(), m.next(), m.next()
	exclusive, network, of := m.next(), m.next(), common
	if (*m)[1] == '"' {
		of = m.service()
	}
	to = append(append(to, `{"id":`...), id...)
	to = append(append(to, `,"provider_id":`...), of.id...)
	to = append(append(to, `,"prefix_mode":`...), mode...)
	to = append(append(to, `,"record_prefix":`...), prefix...)
	to = append(append(to, `,"record_type":"TXT","description":`...), description...)
	to = strconv.AppendBool(append(to, `,"is_occupied":`...), exclusive == "1")
	if network != null {
		to = appendNetwork(append(to, `,"network_id":`...), network)
	}
	to = append(append(to, `,"full_domain":"`+mesh.Label+`.`...), prefix[1:len(prefix)-1]...)
	to = append(to, '.')
	if of.domain != null {
		to = append(to, of.domain[1:len(of.domain)-1]...)
	}
	to = append(to, '"')
	if of.name != null {
		to = append(append(to, `,"provider":{"id":`...), of.id...)
		to = append(append(append(to, `,"name":`...), of.name...), '}')
	}
	to = append(to, `,"network_name":"`...)
	if name, named := strings.CutPrefix(description, `"`+mesh.Describing); named {
		to = append(to, name...)
	} else {
		to = append(to, '"')
	}
	to = append(m.appendPublish(append(to, `,"publish":`...), fault), "}\n"...)
	seq = m.next()
	*m = (*m)[1:] // behind the bracket
	return to, seq
}

// appendPublish writes how far the record of a usage is.
func (m *members) appendPublish(to []byte, fault func(code, detail, key string) string) []byte {
	attempts := m.next()
	to = append(append(to, `{"state":`...), m.next()...)
	to = append(append(to, `,"value":`...), m.next()...)
	code, detail, key := m.next(), m.next(), m.next()
	to = append(to, `,"error":`...)
	if code == `""` {
		to = append(to, code...)
	} else {
		to = appendString(to, fault(text(code), text(detail), text(key)))
	}
	to = append(append(to, `,"attempts":`...), attempts...)
	return append(append(append(to, `,"at":`...), m.next()...), '}')
}

// text is what a string in JSON says.
func text(quoted string) (s string) {
	json.Unmarshal([]byte(quoted), &s)
	return s
}

const null = "null"

// appendNetwork writes a number that is stored as two's complement.
func appendNetwork(to []byte, stored string) []byte {
	if stored[0] == '-' {
		return strconv.AppendUint(to, uint64(number(stored)), 10)
	}
	return append(to, stored...)
}
