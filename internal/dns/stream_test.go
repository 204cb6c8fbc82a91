package dns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

var streamTime = time.Unix(1772600767, 0)

// signStream signs those messages of an answer for which signed says so.
func signStream(k Key, requestMAC []byte, messages [][]byte, signed func(i int) bool) [][]byte {
	h, first := k.digest(requestMAC), true
	var stream [][]byte
	for i, message := range messages {
		h.Write(message)
		if signed(i) {
			t := tsig{time: uint64(streamTime.Unix()), fudge: 300, originalID: binary.BigEndian.Uint16(message)}
			if first {
				h.Write(k.variables(t))
			} else {
				h.Write(appendTime(nil, t))
			}
			t.mac = h.Sum(nil)
			h, first = k.digest(t.mac), false
			message = appendTSIG(message, k, t)
		}
		stream = append(stream, message)
	}
	return stream
}

func appendTSIG(message []byte, k Key, t tsig) []byte {
	message = (&Message{}).appendRR(bytes.Clone(message), RR{Name: k.Name, Type: TypeTSIG, Class: ClassANY, Data: k.data(t)})
	binary.BigEndian.PutUint16(message[10:], binary.BigEndian.Uint16(message[10:])+1)
	return message
}

func streamOf(t *testing.T, count int) (messages [][]byte) {
	for i := range count {
		m := answerTo(query(t))
		m.Answers[0].Data = TXTData([]string{fmt.Sprint(i)})
		messages = append(messages, m.Pack())
	}
	return messages
}

func always(int) bool { return true }

// verifyStream gives which messages are proven, and the first error.
func verifyStream(s *Stream, stream [][]byte, now time.Time) (proven []int, err error) {
	for i, message := range stream {
		ok, err := s.Verify(message, now)
		if err != nil {
			return proven, err
		}
		if ok {
			proven = append(proven, i)
		}
	}
	return proven, nil
}

func TestStream(t *testing.T) {
	key, mac := parseKey(t, "mesh-key", "c2VjcmV0"), []byte("the request's")
	for _, test := range []struct {
		name   string
		count  int
		signed func(i int) bool
		proven int
		err    error
	}{
		{"each", 3, always, 3, nil},
		{"first and last", 101, func(i int) bool { return i%100 == 0 }, 2, nil},
		{"99 between", 201, func(i int) bool { return i%100 == 0 }, 3, nil},
		{"100 between", 102, func(i int) bool { return i%101 == 0 }, 1, ErrUnsigned},
		{"not the first", 2, func(i int) bool { return i == 1 }, 0, ErrUnsigned},
		{"not the last", 3, func(i int) bool { return i < 2 }, 2, nil},
		{"none", 1, func(int) bool { return false }, 0, ErrUnsigned},
	} {
		t.Run(test.name, func(t *testing.T) {
			stream := signStream(key, mac, streamOf(t, test.count), test.signed)
			proven, err := verifyStream(key.Stream(mac), stream, streamTime)
			if len(proven) != test.proven || !errors.Is(err, test.err) {
				t.Errorf("proven %v, %v; want %d, %v", proven, err, test.proven, test.err)
			}
			for _, i := range proven {
				if !test.signed(i) {
					t.Errorf("message %d is proven and carries no TSIG", i)
				}
			}
		})
	}
}

func TestStreamNoticesChanges(t *testing.T) {
	key, mac := parseKey(t, "mesh-key", "c2VjcmV0"), []byte("the request's")
	stream := func(signed func(i int) bool) [][]byte { return signStream(key, mac, streamOf(t, 6), signed) }
	ends := func(i int) bool { return i == 0 || i == 5 }
	flipped := stream(ends)
	flipped[2][len(flipped[2])-1] ^= 1
	for name, changed := range map[string][][]byte{
		"a flipped bit":       flipped,
		"one lost":            slices.Delete(stream(ends), 2, 3),
		"one lost, signed":    slices.Delete(stream(always), 2, 3),
		"one twice":           slices.Insert(stream(ends), 2, stream(ends)[2]),
		"one twice, signed":   slices.Insert(stream(always), 2, stream(always)[2]),
		"two the other way":   {stream(ends)[0], stream(ends)[2], stream(ends)[1], stream(ends)[3], stream(ends)[4], stream(ends)[5]},
		"the first is lost":   stream(always)[1:],
		"of another request":  signStream(key, []byte("another"), streamOf(t, 6), always),
		"of another key":      signStream(parseKey(t, "mesh-key", "b3RoZXI="), mac, streamOf(t, 6), always),
		"signed each by each": {signStream(key, mac, streamOf(t, 1), always)[0], signStream(key, mac, streamOf(t, 1), always)[0]},
	} {
		if _, err := verifyStream(key.Stream(mac), changed, streamTime); !errors.Is(err, ErrBadMAC) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := verifyStream(key.Stream(mac), stream(always), streamTime.Add(301*time.Second)); !isReport(err, RcodeBadTime) {
		t.Errorf("too late: %v", err)
	}
	refusal := appendTSIG(streamOf(t, 1)[0], key, tsig{error: RcodeBadKey})
	if _, err := verifyStream(key.Stream(mac), append(stream(always), refusal), streamTime); !isReport(err, RcodeBadKey) {
		t.Errorf("BADKEY at the end: %v", err)
	}
}

func isReport(err error, code Rcode) bool {
	report, ok := errors.AsType[*TSIGError](err)
	return ok && report.Code == code
}

func TestTransfer(t *testing.T) {
	q := query(t)
	bare, foreign := answerTo(q), answerTo(q)
	bare.Questions = nil
	foreign.ID++
	for name, test := range map[string]struct {
		messages []Message
		taken    int
		err      error
	}{
		"one":                     {[]Message{answerTo(q)}, 1, io.ErrUnexpectedEOF},
		"three are wanted":        {[]Message{answerTo(q), bare, answerTo(q), bare}, 3, nil},
		"the first without query": {[]Message{bare}, 0, ErrFormat},
		"another ID":              {[]Message{answerTo(q), foreign}, 1, ErrFormat},
		"none":                    {nil, 0, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			_, tcp := sockets(t)
			address := serveTCP(t, tcp, func(conn net.Conn) {
				if _, err := ReadTCP(conn); err != nil {
					t.Error(err)
				}
				for _, m := range test.messages {
					WriteTCP(conn, m.Pack())
				}
			})
			taken := 0
			err := Transfer(testContext(t), address, q.Pack(), func([]byte) (bool, error) {
				taken++
				return taken == 3, nil
			})
			if taken != test.taken || !errors.Is(err, test.err) {
				t.Errorf("%d taken, %v; want %d, %v", taken, err, test.taken, test.err)
			}
		})
	}
}
