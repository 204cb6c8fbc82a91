package dns

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash"
	"strings"
	"time"

	"meshddns/internal/msg"
)

// Key is a TSIG key (RFC 8945).
type Key struct {
	Name      Name
	algorithm Name
	hash      func() hash.Hash
	secret    []byte
}

var tsigHashes = map[string]func() hash.Hash{
	"hmac-sha1":   sha1.New,
	"hmac-sha224": sha256.New224,
	"hmac-sha256": sha256.New,
	"hmac-sha384": sha512.New384,
	"hmac-sha512": sha512.New,
}

// DefaultAlgorithm is the algorithm of a key whose name has none.
const DefaultAlgorithm = "hmac-sha256"

// ParseKey reads a key's name and its secret in base64. The name may have an algorithm and
// a colon before it ("hmac-sha512:mesh-key"); without them it means DefaultAlgorithm. No
// error contains the secret.
func ParseKey(name, secret string) (Key, error) {
	algorithm, keyName, ok := strings.Cut(name, ":")
	if !ok {
		algorithm, keyName = DefaultAlgorithm, name
	}
	algorithm = strings.TrimSuffix(foldASCII(algorithm), ".")
	newHash, ok := tsigHashes[algorithm]
	if !ok {
		return Key{}, msg.Errorf("unknown TSIG algorithm %.32q: want hmac-sha1, -sha224, -sha256, -sha384 or -sha512", algorithm)
	}
	owner, err := ParseName(keyName)
	if err != nil {
		return Key{}, msg.Errorf("TSIG key name: %w", err)
	}
	octets, err := base64.StdEncoding.DecodeString(secret)
	if err != nil || len(octets) == 0 {
		return Key{}, msg.Errorf("TSIG secret: not base64")
	}
	algorithmName, err := ParseName(algorithm)
	return Key{Name: owner.Fold(), algorithm: algorithmName, hash: newHash, secret: octets}, err
}

// tsigFudge is the clock difference that a signature allows. RFC 8945, section 10,
// recommends 300 seconds.
const tsigFudge = 300 * time.Second

// Errors of Verify. After either the answer cannot be trusted.
var (
	ErrUnsigned = msg.Errorf("answer carries no TSIG")
	ErrBadMAC   = msg.Errorf("answer's TSIG does not verify")
)

// TSIGError is an error that the server reports in its TSIG record. Signed means that the
// report itself is proven to come from the holder of the key: BADTIME is signed, BADSIG and
// BADKEY cannot be.
type TSIGError struct {
	Code       Rcode
	ServerTime time.Time // with BADTIME
	Signed     bool
}

// Error returns the code's mnemonic after "TSIG ".
func (e *TSIGError) Error() string { return "TSIG " + e.Code.String() }

// tsig is the variable part of a TSIG record (RFC 8945, section 4.2).
type tsig struct {
	time       uint64 // seconds since 1970, 48 bits
	fudge      uint16
	mac        []byte
	originalID uint16
	error      Rcode
	other      []byte
}

// Sign returns a packed message with a TSIG record, and its MAC, which the answer's
// signature covers too.
func (k Key) Sign(message []byte, now time.Time) (signed, mac []byte) {
	t := tsig{
		time:       uint64(now.Unix()),
		fudge:      uint16(tsigFudge / time.Second),
		originalID: binary.BigEndian.Uint16(message),
	}
	h := k.digest(nil)
	h.Write(message)
	h.Write(k.variables(t))
	t.mac = h.Sum(nil)
	return k.seal(message, t), t.mac
}

// seal returns a packed message with a TSIG record at its end.
func (k Key) seal(message []byte, t tsig) []byte {
	rr := RR{Name: k.Name, Type: TypeTSIG, Class: ClassANY, Data: k.data(t)}
	sealed := (&Message{}).appendRR(append([]byte(nil), message...), rr)
	binary.BigEndian.PutUint16(sealed[10:], binary.BigEndian.Uint16(sealed[10:])+1)
	return sealed
}

// Verify checks the TSIG record of the answer to a signed request. It returns nil only if
// the answer is proven to come from the holder of the key. Other errors are ErrFormat,
// ErrUnsigned, ErrBadMAC and *TSIGError.
func (k Key) Verify(answer, requestMAC []byte, now time.Time) error {
	_, err := k.Stream(requestMAC).Verify(answer, now)
	return err
}

// maxUnsigned is the largest number of messages without TSIG between two with it (RFC 8945,
// section 5.3.1).
const maxUnsigned = 99

// Stream checks an answer of several messages, such as a zone transfer (RFC 8945, section
// 5.3.1).
type Stream struct {
	key        Key
	requestMAC []byte
	since      hash.Hash // of the last MAC and the messages since then; nil before the first
	unsigned   int       // messages since the last MAC
}

// Stream returns a Stream for the answer to a signed request.
func (k Key) Stream(requestMAC []byte) *Stream {
	return &Stream{key: k, requestMAC: requestMAC}
}

// Verify checks the next message. If it is proven, so are all messages before it. A message
// without TSIG between two with it is not proven yet, which is not an error. The errors are
// those of Key.Verify; after one the whole answer cannot be trusted.
func (s *Stream) Verify(message []byte, now time.Time) (proven bool, err error) {
	rr, start, err := lastTSIG(message)
	if errors.Is(err, ErrUnsigned) && s.since != nil && s.unsigned < maxUnsigned {
		s.unsigned++
		s.since.Write(message)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	algorithm, t, err := parseTSIG(rr.Data)
	if err != nil {
		return false, err
	}
	if len(t.mac) == 0 && t.error != RcodeSuccess {
		return false, &TSIGError{Code: t.error}
	}
	if rr.Name.Fold() != s.key.Name || algorithm.Fold() != s.key.algorithm || !hmac.Equal(t.mac, s.sum(message[:start], t)) {
		return false, ErrBadMAC
	}
	s.since, s.unsigned = s.key.digest(t.mac), 0
	return true, t.report(now)
}

// sum returns the MAC that a message must have. Its TSIG record is cut off.
func (s *Stream) sum(message []byte, t tsig) []byte {
	message = append([]byte(nil), message...)
	binary.BigEndian.PutUint16(message, t.originalID)
	binary.BigEndian.PutUint16(message[10:], binary.BigEndian.Uint16(message[10:])-1)
	h, variables := s.since, appendTime(nil, t)
	if h == nil {
		h, variables = s.key.digest(s.requestMAC), s.key.variables(t)
	}
	h.Write(message)
	h.Write(variables)
	return h.Sum(nil)
}

// report returns the error in a proven TSIG record, or BADTIME if its time is too far from now.
func (t tsig) report(now time.Time) error {
	if t.error != RcodeSuccess {
		return &TSIGError{Code: t.error, ServerTime: serverTime(t.other), Signed: true}
	}
	if !t.timely(now) {
		return &TSIGError{Code: RcodeBadTime, ServerTime: time.Unix(int64(t.time), 0), Signed: true}
	}
	return nil
}

// timely reports whether a record was signed about now.
func (t tsig) timely(now time.Time) bool {
	return now.Sub(time.Unix(int64(t.time), 0)).Abs() <= time.Duration(t.fudge)*time.Second
}

// RefuseKey returns the TSIG record of the answer to a request with an unknown key: BADKEY,
// without a MAC (RFC 8945, section 5.2.1). ok is false for a request without TSIG.
// ErrFormat means that the request's TSIG record is broken or not its last record.
func (m *Message) RefuseKey() (rr RR, ok bool, err error) {
	found, inAdditional := m.find(TypeTSIG)
	if len(found) == 0 {
		return RR{}, false, nil
	}
	rr = found[0]
	last := inAdditional && m.Additional[len(m.Additional)-1].Type == TypeTSIG
	if len(found) > 1 || !last || rr.Class != ClassANY || rr.TTL != 0 {
		return RR{}, true, ErrFormat
	}
	algorithm, t, err := parseTSIG(rr.Data)
	if err != nil {
		return RR{}, true, err
	}
	t.mac, t.other, t.error = nil, nil, RcodeBadKey
	rr.Data = Key{algorithm: algorithm}.data(t)
	return rr, true, nil
}

// digest begins a MAC. It covers the MAC of the previous message, if there is one (RFC
// 8945, section 4.3).
func (k Key) digest(previousMAC []byte) hash.Hash {
	h := hmac.New(k.hash, k.secret)
	if previousMAC != nil {
		h.Write(binary.BigEndian.AppendUint16(nil, uint16(len(previousMAC))))
		h.Write(previousMAC)
	}
	return h
}

// variables returns the part of the TSIG record that a MAC covers (RFC 8945, section 4.3.3).
func (k Key) variables(t tsig) []byte {
	variables := []byte(k.Name)
	variables = binary.BigEndian.AppendUint16(variables, uint16(ClassANY))
	variables = binary.BigEndian.AppendUint32(variables, 0)
	variables = append(variables, k.algorithm...)
	variables = appendTime(variables, t)
	return appendOther(variables, t)
}

func (k Key) data(t tsig) []byte {
	data := appendTime([]byte(k.algorithm), t)
	data = binary.BigEndian.AppendUint16(data, uint16(len(t.mac)))
	data = append(data, t.mac...)
	data = binary.BigEndian.AppendUint16(data, t.originalID)
	return appendOther(data, t)
}

func appendTime(data []byte, t tsig) []byte {
	data = binary.BigEndian.AppendUint16(data, uint16(t.time>>32))
	data = binary.BigEndian.AppendUint32(data, uint32(t.time))
	return binary.BigEndian.AppendUint16(data, t.fudge)
}

func appendOther(data []byte, t tsig) []byte {
	data = binary.BigEndian.AppendUint16(data, uint16(t.error))
	data = binary.BigEndian.AppendUint16(data, uint16(len(t.other)))
	return append(data, t.other...)
}

// lastTSIG returns the TSIG record, which must be the message's last record, and its offset.
func lastTSIG(data []byte) (rr RR, start int, err error) {
	if len(data) < HeaderSize {
		return RR{}, 0, ErrFormat
	}
	r := reader{data: data, at: HeaderSize}
	for range binary.BigEndian.Uint16(data[4:]) {
		r.name()
		r.bytes(4)
	}
	records := 0
	for i := range 3 {
		records += int(binary.BigEndian.Uint16(data[6+2*i:]))
	}
	for range records {
		start = r.at
		if rr = r.rr(); r.failed {
			return RR{}, 0, ErrFormat
		}
	}
	if r.failed || r.at != len(data) {
		return RR{}, 0, ErrFormat
	}
	if binary.BigEndian.Uint16(data[10:]) == 0 || rr.Type != TypeTSIG {
		return RR{}, 0, ErrUnsigned
	}
	if rr.Class != ClassANY || rr.TTL != 0 {
		return RR{}, 0, ErrFormat // the MAC covers both as constants, not as they were sent
	}
	return rr, start, nil
}

func parseTSIG(data []byte) (algorithm Name, t tsig, err error) {
	r := reader{data: data}
	algorithm = r.name()
	t.time, t.fudge = r.uint48(), r.uint16()
	t.mac = r.bytes(int(r.uint16()))
	t.originalID, t.error = r.uint16(), Rcode(r.uint16())
	t.other = r.bytes(int(r.uint16()))
	if r.failed || r.at != len(data) {
		return "", tsig{}, ErrFormat
	}
	return algorithm, t, nil
}

func serverTime(other []byte) time.Time {
	if len(other) != 6 {
		return time.Time{}
	}
	r := reader{data: other}
	return time.Unix(int64(r.uint48()), 0)
}
