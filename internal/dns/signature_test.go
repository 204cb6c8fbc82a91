package dns

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
	"time"
)

const signatureSecret = "c2VjcmV0IG9mIHRoZSBrZXk="

// request returns a query for a transfer, signed with a key at a time, and its MAC.
func signedRequest(key Key, at time.Time) (request, mac []byte) {
	zone, _ := ParseName("example.com")
	q := Message{ID: 4711, Questions: []Question{{Name: zone, Type: TypeAXFR, Class: ClassIN}}}
	return key.Sign(q.Pack(), at)
}

// TestSignature: what the server says of a request, and what its answer is to the client that asked.
func TestSignature(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ours := parseKey(t, "hmac-sha512:Peer.example.", signatureSecret)
	find := func(name Name) (Key, bool) { return ours, name == ours.Name }
	tampered := func(request []byte) []byte { request[2] |= 1; return request } // RD
	cut := func(octets int) func([]byte) []byte {
		return func(request []byte) []byte { return withMAC(t, request, octets) }
	}
	for name, test := range map[string]struct {
		key    Key
		at     time.Time
		change func([]byte) []byte
		want   Rcode
	}{
		"right":           {ours, now, nil, RcodeSuccess},
		"a little late":   {ours, now.Add(-300 * time.Second), nil, RcodeSuccess},
		"unknown name":    {parseKey(t, "hmac-sha512:other.example.", signatureSecret), now, nil, RcodeBadKey},
		"other algorithm": {parseKey(t, "hmac-sha256:peer.example.", signatureSecret), now, nil, RcodeBadKey},
		"other secret":    {parseKey(t, "hmac-sha512:peer.example.", "b3RoZXI="), now, nil, RcodeBadSig},
		"tampered":        {ours, now, tampered, RcodeBadSig},
		"too late":        {ours, now.Add(-301 * time.Second), nil, RcodeBadTime},
		"too early":       {ours, now.Add(301 * time.Second), nil, RcodeBadTime},
		"half a MAC":      {ours, now, cut(32), RcodeBadTrunc},
		"no octet more":   {ours, now, cut(63), RcodeBadTrunc},
	} {
		request, mac := signedRequest(test.key, test.at)
		if test.change != nil {
			request = test.change(request)
		}
		s, err := CheckSignature(request, find, now)
		if err != nil || s == nil || s.Error != test.want {
			t.Errorf("%s: %+v, %v", name, s, err)
			continue
		}
		answer := Message{ID: 4711, Response: true}
		if s.Error != RcodeSuccess {
			answer.Rcode = RcodeNotAuth
		}
		plain := answer.Pack()
		signed := s.Sign(plain, now)
		if len(signed)-len(plain) > s.Size() {
			t.Errorf("%s: %d octets of TSIG, said %d", name, len(signed)-len(plain), s.Size())
		}
		if test.want == RcodeBadTrunc {
			continue // the client has another MAC than it has sent
		}
		err = test.key.Verify(signed, mac, test.at)
		told, _ := errors.AsType[*TSIGError](err)
		switch {
		case test.want == RcodeSuccess && err != nil, test.want != RcodeSuccess && (told == nil || told.Code != test.want):
			t.Errorf("%s: the client reads %v", name, err)
		case test.want == RcodeBadTime && (!told.Signed || !told.ServerTime.Equal(now)):
			t.Errorf("%s: %+v", name, told)
		}
	}
}

// withMAC returns a signed request with a part of its MAC.
func withMAC(t *testing.T, request []byte, octets int) []byte {
	t.Helper()
	rr, start, err := lastTSIG(request)
	if err != nil {
		t.Fatal(err)
	}
	algorithm, sig, err := parseTSIG(rr.Data)
	if err != nil {
		t.Fatal(err)
	}
	sig.mac = sig.mac[:octets]
	plain := bytes.Clone(request[:start])
	binary.BigEndian.PutUint16(plain[10:], 0)
	return Key{Name: rr.Name, algorithm: algorithm}.seal(plain, sig)
}

// TestSignatureRefuses: a MAC of a size that no honest client sends, and a record that is not the last.
func TestSignatureRefuses(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	key := parseKey(t, "hmac-sha256:k", signatureSecret)
	find := func(Name) (Key, bool) { return key, true }
	request, _ := signedRequest(key, now)
	for _, octets := range []int{0, 9, 15} {
		if s, err := CheckSignature(withMAC(t, request, octets), find, now); err != ErrFormat {
			t.Errorf("%d octets: %+v, %v", octets, s, err)
		}
	}
	twice, _ := key.Sign(request, now)
	if s, err := CheckSignature(twice, find, now); err != ErrFormat {
		t.Errorf("two records: %+v, %v", s, err)
	}
	plain := (&Message{ID: 1}).Pack()
	if s, err := CheckSignature(plain, find, now); s != nil || err != nil {
		t.Errorf("no record: %+v, %v", s, err)
	}
}

// TestSignStream: an answer of many messages is proven by the client's own code, and a lost message is not.
func TestSignStream(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	key := parseKey(t, "hmac-sha256:k", base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")))
	request, mac := signedRequest(key, now)
	s, err := CheckSignature(request, func(Name) (Key, bool) { return key, true }, now)
	if err != nil {
		t.Fatal(err)
	}
	var messages [][]byte
	for i := range 5 {
		messages = append(messages, s.Sign((&Message{ID: 4711, Response: true, Rcode: Rcode(i)}).Pack(), now))
	}
	whole, lossy := key.Stream(mac), key.Stream(mac)
	for i, message := range messages {
		if proven, err := whole.Verify(message, now); err != nil || !proven {
			t.Errorf("message %d: %v, %v", i, proven, err)
		}
		if i == 2 {
			continue
		}
		if _, err := lossy.Verify(message, now); (err != nil) != (i > 2) {
			t.Errorf("message %d after a lost one: %v", i, err)
		}
		if i > 2 {
			break
		}
	}
}

// FuzzCheckSignature: only what was signed is proven, and the answer fits into the room that Size tells.
func FuzzCheckSignature(f *testing.F) {
	key := parseKey(f, "mesh-key", "bm90IHRoZSByZWNvcmRlZCBvbmU=")
	at := time.Unix(1795227944, 0)
	for _, e := range exchanges(f) {
		f.Add(e.query)
	}
	mine, mac := signedRequest(key, at)
	f.Add(mine)
	f.Fuzz(func(t *testing.T, request []byte) {
		s, err := CheckSignature(request, func(name Name) (Key, bool) { return key, name == key.Name }, at)
		if err != nil || s == nil {
			return
		}
		answer := s.Sign([]byte("\x12\x34\x84\x00\x00\x00\x00\x00\x00\x00\x00\x00"), at)
		if len(answer) > HeaderSize+s.Size() {
			t.Fatalf("%d octets of TSIG, %d were told", len(answer)-HeaderSize, s.Size())
		}
		if s.Error == RcodeSuccess && !bytes.Contains(request, mac) {
			t.Fatal("a request is proven that was not signed")
		}
		if _, err := ParseMessage(answer); err != nil {
			t.Fatalf("the answer is broken: %v", err)
		}
	})
}

// FuzzParseRRs: records that were read are written as they were.
func FuzzParseRRs(f *testing.F) {
	name, _ := ParseName("_mesh.office.example.com")
	rr := RR{Name: name, Type: TypeTXT, Class: ClassIN, TTL: 60, Data: TXTData([]string{"v=mesh1 n=1"})}
	f.Add(AppendRR(AppendRR(nil, rr), rr))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := ParseRRs(data)
		if err != nil {
			return
		}
		var again []byte
		for _, rr := range all {
			again = AppendRR(again, rr)
		}
		if read, err := ParseRRs(again); err != nil || !reflect.DeepEqual(all, read) {
			t.Fatalf("%+v, then %+v, %v", all, read, err)
		}
	})
}
