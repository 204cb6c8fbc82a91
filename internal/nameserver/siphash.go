package nameserver

import (
	"encoding/binary"
	"math/bits"
)

// sipHash computes SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed 64-bit hash that is
// fast for short messages and unpredictable without the key.
func sipHash(key *[16]byte, message []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	s := sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(message)) << 56
	for ; len(message) >= 8; message = message[8:] {
		s.compress(binary.LittleEndian.Uint64(message))
	}
	for i, octet := range message {
		last |= uint64(octet) << (8 * i)
	}
	s.compress(last)
	s[2] ^= 0xff
	for range 4 {
		s.round()
	}
	return s[0] ^ s[1] ^ s[2] ^ s[3]
}

type sipState [4]uint64

func (s *sipState) compress(word uint64) {
	s[3] ^= word
	s.round()
	s.round()
	s[0] ^= word
}

func (s *sipState) round() {
	s[0] += s[1]
	s[1] = bits.RotateLeft64(s[1], 13) ^ s[0]
	s[0] = bits.RotateLeft64(s[0], 32)
	s[2] += s[3]
	s[3] = bits.RotateLeft64(s[3], 16) ^ s[2]
	s[0] += s[3]
	s[3] = bits.RotateLeft64(s[3], 21) ^ s[0]
	s[2] += s[1]
	s[1] = bits.RotateLeft64(s[1], 17) ^ s[2]
	s[2] = bits.RotateLeft64(s[2], 32)
}
