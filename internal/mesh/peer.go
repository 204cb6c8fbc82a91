// Ids of peers.

package mesh

import (
	"encoding/base32"
	"encoding/hex"
	"math/big"
	"strings"
)

// maxPeerID is the greatest length of an id of libp2p in characters; those that are valid have at most 75.
// The time to decode base58 grows with the square of the length.
const maxPeerID = 80

// cidEncoding is multibase "b" (RFC 4648 in lower case, without padding).
var cidEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// IsPeerID reports whether a text is the id of a peer of libp2p or of an endpoint of iroh.
func IsPeerID(id string) bool {
	_, iroh := irohLabel(id)
	return iroh || isLibp2pID(id)
}

// isLibp2pID reports whether libp2p reads a text as a peer id: a multihash in base58, or a CID of codec
// libp2p-key (libp2p/specs, peer-ids).
func isLibp2pID(id string) bool {
	if len(id) > maxPeerID {
		return false
	}
	if strings.HasPrefix(id, "Qm") || strings.HasPrefix(id, "1") {
		return isMultihash(decodeBase58(id))
	}
	text, ok := strings.CutPrefix(id, "b")
	cid, err := cidEncoding.DecodeString(text)
	return ok && err == nil && len(cid) > 2 && cid[0] == 1 && cid[1] == 0x72 && isMultihash(cid[2:])
}

// isMultihash reports whether the octets are a hash of a key by SHA-256, or a key of at most 42 octets
// itself.
func isMultihash(octets []byte) bool {
	if len(octets) < 3 || int(octets[1]) != len(octets)-2 {
		return false
	}
	return octets[0] == 0x12 && octets[1] == 32 || octets[0] == 0 && octets[1] <= 42
}

// decodeBase58 returns the octets of a text in Bitcoin's base58, nil if it is none.
func decodeBase58(text string) []byte {
	const digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	number, base := new(big.Int), big.NewInt(58)
	for _, c := range []byte(text) {
		digit := strings.IndexByte(digits, c)
		if digit < 0 {
			return nil
		}
		number.Add(number.Mul(number, base), big.NewInt(int64(digit)))
	}
	zeros := len(text) - len(strings.TrimLeft(text, "1"))
	return append(make([]byte, zeros), number.Bytes()...)
}

// irohEncoding is z-base-32, in which iroh writes a key as a label.
var irohEncoding = base32.NewEncoding("ybndrfg8ejkmcpqxot1uwisza345h769").WithPadding(base32.NoPadding)

// irohLabel returns the label of an endpoint id of iroh: 64 hex digits, as iroh shows it, or the label
// itself. ok is false if the id is neither.
func irohLabel(id string) (label string, ok bool) {
	id = strings.ToLower(id)
	key, err := hex.DecodeString(id)
	if err != nil {
		key, err = irohEncoding.DecodeString(id)
		if err != nil || irohEncoding.EncodeToString(key) != id {
			return "", false
		}
	}
	return irohEncoding.EncodeToString(key), len(key) == 32
}
