package dnswire

import "encoding/binary"

// SRV is the content of an SRV record (RFC 2782).
type SRV struct {
	Priority, Weight, Port uint16
	Target                 Name
}

// Data returns the RDATA. The target is not compressed.
func (s SRV) Data() []byte {
	data := binary.BigEndian.AppendUint16(nil, s.Priority)
	data = binary.BigEndian.AppendUint16(data, s.Weight)
	data = binary.BigEndian.AppendUint16(data, s.Port)
	return append(data, s.Target...)
}

// ParseSRV returns the content of an SRV record's RDATA. An error is ErrFormat.
func ParseSRV(data []byte) (SRV, error) {
	r := reader{data: data}
	s := SRV{Priority: r.uint16(), Weight: r.uint16(), Port: r.uint16(), Target: r.name()}
	if r.failed || r.at != len(data) {
		return SRV{}, ErrFormat
	}
	return s, nil
}
