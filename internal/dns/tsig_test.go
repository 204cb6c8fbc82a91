package dns

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// exchange is an update and its answer, recorded from BIND 9.18 and Knot 3.2.
type exchange struct {
	Server, Case, Key, Secret string
	RequestMAC                string `json:"request_mac"`
	Time                      int64
	TSIGError                 string `json:"tsig_error"`
	Rcode, Query, Answer      string
	query, answer, mac        []byte
}

func exchanges(t testing.TB) []exchange {
	t.Helper()
	var all []exchange
	readJSON(t, "testdata/exchanges.json", &all)
	for i, e := range all {
		all[i].query, all[i].answer, all[i].mac = unhex(t, e.Query), unhex(t, e.Answer), unhex(t, e.RequestMAC)
	}
	return all
}

func readJSON(t testing.TB, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parseKey(t testing.TB, name, secret string) Key {
	t.Helper()
	key, err := ParseKey(name, secret)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSignVectors(t *testing.T) {
	var vectors []struct {
		Name, Key, Secret, Unsigned, MAC string
		Time                             int64
	}
	readJSON(t, "testdata/vectors.json", &vectors)
	for _, v := range vectors {
		message := unhex(t, v.Unsigned)
		signed, mac := parseKey(t, v.Key, v.Secret).Sign(message, time.Unix(v.Time, 0))
		if got := hex.EncodeToString(mac); got != v.MAC {
			t.Errorf("%s: MAC %s, want %s", v.Name, got, v.MAC)
		}
		if m, err := ParseMessage(signed); err != nil || len(m.Additional) != 1 || !bytes.Contains(m.Additional[0].Data, mac) {
			t.Errorf("%s: signed %+v, %v", v.Name, m, err)
		}
	}
}

// The recorded queries are signed again, octet for octet.
func TestSignRecordedQueries(t *testing.T) {
	for _, e := range exchanges(t) {
		if e.RequestMAC == "" {
			continue
		}
		rr, start, err := lastTSIG(e.query)
		if err != nil {
			t.Fatalf("%s, %s: %v", e.Server, e.Case, err)
		}
		unsigned := bytes.Clone(e.query[:start])
		binary.BigEndian.PutUint16(unsigned[10:], binary.BigEndian.Uint16(unsigned[10:])-1)
		_, mac := parseKey(t, e.Key, e.Secret).Sign(unsigned, signingTime(t, rr))
		if !bytes.Equal(mac, e.mac) {
			t.Errorf("%s, %s: MAC %x, want %x", e.Server, e.Case, mac, e.mac)
		}
	}
}

func signingTime(t *testing.T, rr RR) time.Time {
	t.Helper()
	_, fields, err := parseTSIG(rr.Data)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(int64(fields.time), 0)
}

func TestVerifyRecordedAnswers(t *testing.T) {
	verified := 0
	for _, e := range exchanges(t) {
		t.Run(e.Server+"/"+e.Case, func(t *testing.T) {
			key := Key{}
			if e.Key != "" {
				key = parseKey(t, e.Key, e.Secret)
			}
			if header, err := ParseHeader(e.answer); err != nil || header.Rcode.String() != e.Rcode {
				t.Errorf("header %+v, %v; want %s", header, err, e.Rcode)
			}
			err := key.Verify(e.answer, e.mac, time.Unix(e.Time, 0))
			report, reported := errors.AsType[*TSIGError](err)
			switch {
			case e.TSIGError == "":
				if !errors.Is(err, ErrUnsigned) {
					t.Errorf("Verify = %v, want ErrUnsigned", err)
				}
			case e.TSIGError == "NOERROR":
				verified++
				if err != nil {
					t.Errorf("Verify = %v", err)
				}
			case !reported || report.Code.String() != e.TSIGError:
				t.Errorf("Verify = %v, want %s", err, e.TSIGError)
			case report.Signed != (report.Code == RcodeBadTime):
				t.Errorf("%v: signed %t", report, report.Signed)
			case report.Code == RcodeBadTime && report.ServerTime.Sub(time.Unix(e.Time, 0)).Abs() != 1000*time.Second:
				t.Errorf("server's time %v, asked at %v", report.ServerTime, time.Unix(e.Time, 0))
			}
		})
	}
	if verified < 30 {
		t.Errorf("only %d answers verified", verified)
	}
}

// No flipped bit goes unnoticed but two kinds that the MAC leaves out: the
// message's ID, which Exchange compares (RFC 8945 signs the one in the TSIG
// record), and the letter case of the names in the TSIG record.
func TestVerifyNoticesFlippedBits(t *testing.T) {
	for _, e := range exchanges(t) {
		if e.TSIGError != "NOERROR" {
			continue
		}
		key := parseKey(t, e.Key, e.Secret)
		rr, start, err := lastTSIG(e.answer)
		if err != nil {
			t.Fatal(err)
		}
		for bit := 16; bit < 8*len(e.answer); bit++ {
			forged := bytes.Clone(e.answer)
			forged[bit/8] ^= 1 << (bit % 8)
			if start <= bit/8 && sameButCase(forged[start:], e.answer[start:], len(rr.Name)+10+len(key.algorithm)) {
				continue
			}
			if err := key.Verify(forged, e.mac, time.Unix(e.Time, 0)); err == nil {
				t.Errorf("%s, %s: bit %d of octet %d flipped and not noticed", e.Server, e.Case, bit%8, bit/8)
			}
		}
	}
}

// sameButCase reports whether two TSIG records differ only in the case of
// letters of the names, which fill the given number of octets with the fixed
// fields between them.
func sameButCase(a, b []byte, names int) bool {
	return bytes.Equal(a[names:], b[names:]) && foldASCII(string(a[:names])) == foldASCII(string(b[:names]))
}

func TestVerifyTime(t *testing.T) {
	key := parseKey(t, "mesh-key", "c2VjcmV0")
	then := time.Unix(1772600767, 0)
	signed, _ := key.Sign([]byte(header()), then)
	for offset, ok := range map[time.Duration]bool{0: true, 300 * time.Second: true, -300 * time.Second: true, 301 * time.Second: false, -301 * time.Second: false} {
		err := key.Verify(signed, nil, then.Add(offset))
		report, _ := errors.AsType[*TSIGError](err)
		if (err == nil) != ok || !ok && (report == nil || report.Code != RcodeBadTime || !report.Signed || !report.ServerTime.Equal(then)) {
			t.Errorf("%v later: %v", offset, err)
		}
	}
}

func TestVerifyOtherKey(t *testing.T) {
	now := time.Unix(1772600767, 0)
	signed, mac := parseKey(t, "mesh-key", "c2VjcmV0").Sign([]byte(header()), now)
	for _, other := range []string{"other-key", "hmac-sha512:mesh-key", "hmac-sha1:mesh-key"} {
		if err := parseKey(t, other, "c2VjcmV0").Verify(signed, nil, now); !errors.Is(err, ErrBadMAC) {
			t.Errorf("%s: %v", other, err)
		}
	}
	key := parseKey(t, "MESH-key.", "c2VjcmV0")
	if err := key.Verify(signed, nil, now); err != nil {
		t.Errorf("a key's name has no letter case: %v", err)
	}
	if err := key.Verify(signed, mac, now); !errors.Is(err, ErrBadMAC) {
		t.Errorf("a request passed as its own answer: %v", err)
	}
	if err := key.Verify([]byte(header()), mac, now); !errors.Is(err, ErrUnsigned) {
		t.Errorf("no record at all: %v", err)
	}
}

func TestParseKey(t *testing.T) {
	for _, algorithm := range []string{"hmac-sha1", "hmac-sha224", "HMAC-SHA256", "hmac-sha384.", "hmac-sha512"} {
		if key := parseKey(t, algorithm+":Mesh-Key", "c2VjcmV0"); key.Name.String() != "mesh-key." {
			t.Errorf("name %s", key.Name)
		}
	}
	for _, test := range [][2]string{{"md5:k", "c2VjcmV0"}, {"k", ""}, {"k", "s3cr3t!"}, {"", "c2VjcmV0"}, {"a..b", "c2VjcmV0"}} {
		_, err := ParseKey(test[0], test[1])
		if err == nil || test[1] != "" && strings.Contains(err.Error(), test[1]) {
			t.Errorf("ParseKey(%q) = %v", test, err)
		}
	}
}

func TestRefuseKey(t *testing.T) {
	signed, _ := parseKey(t, "hmac-sha512:Some-key", "c2VjcmV0").Sign([]byte(header()), time.Unix(1772600767, 0))
	m, err := ParseMessage(signed)
	if err != nil {
		t.Fatal(err)
	}
	rr, ok, err := m.RefuseKey()
	if err != nil || !ok || rr.Name.String() != "some-key." || rr.Class != ClassANY {
		t.Fatalf("RefuseKey = %+v, %t, %v", rr, ok, err)
	}
	answer := Message{ID: m.ID, Response: true, Rcode: RcodeNotAuth, Additional: []RR{rr}}
	err = Key{}.Verify(answer.Pack(), nil, time.Time{})
	if report, _ := errors.AsType[*TSIGError](err); report == nil || report.Code != RcodeBadKey || report.Signed {
		t.Errorf("a client reads %v", err)
	}
	_, fields, _ := parseTSIG(rr.Data)
	if want := (tsig{time: 1772600767, fudge: 300, originalID: 0x1234, error: RcodeBadKey}); fmt.Sprint(fields) != fmt.Sprint(want) {
		t.Errorf("fields %v, want %v", fields, want)
	}

	if _, ok, err := (&Message{}).RefuseKey(); ok || err != nil {
		t.Errorf("without TSIG: %t, %v", ok, err)
	}
	tsig, opt := m.Additional[0], EDNS{}.RR()
	broken, otherClass, otherTTL := tsig, tsig, tsig
	broken.Data, otherClass.Class, otherTTL.TTL = tsig.Data[1:], ClassIN, 1
	for name, m := range map[string]Message{
		"not last":        {Additional: []RR{tsig, opt}},
		"two":             {Additional: []RR{tsig, tsig}},
		"in the answer":   {Answers: []RR{tsig}},
		"in both":         {Authority: []RR{tsig}, Additional: []RR{tsig}},
		"broken":          {Additional: []RR{broken}},
		"of class IN":     {Additional: []RR{otherClass}},
		"with a lifetime": {Additional: []RR{otherTTL}},
	} {
		if _, _, err := m.RefuseKey(); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	for _, e := range exchanges(f) {
		f.Add(e.answer, e.mac)
	}
	key := parseKey(f, "mesh-key", "bm90IHRoZSByZWNvcmRlZCBvbmU=")
	f.Fuzz(func(t *testing.T, answer, mac []byte) {
		if err := key.Verify(answer, mac, time.Unix(1795227944, 0)); err == nil {
			t.Fatal("verified without the secret")
		}
	})
}
