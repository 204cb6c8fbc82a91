package cloudtest

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// number reads a parameter; what is none is 0.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

func sha256Hex(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// requestText is what most signatures are over: method, path, sorted query,
// the headers in the order of their names, these names, and the body's hash.
func requestText(r Request, path string, names []string) string {
	text := r.Method + "\n" + path + "\n" + sortedQuery(r.RawQuery) + "\n"
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.Itoa(len(r.Body))
		}
		text += name + ":" + strings.TrimSpace(value) + "\n"
	}
	return text + "\n" + strings.Join(names, ";") + "\n" + sha256Hex(string(r.Body))
}

// sortedQuery decodes a query as it came, and writes it in the one form that
// is signed: every octet escaped but A-Z a-z 0-9 - _ . ~
func sortedQuery(raw string) string {
	if raw == "" {
		return ""
	}
	var pairs []string
	for part := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(part, "=")
		pairs = append(pairs, reescape(name)+"="+reescape(value))
	}
	slices.SortFunc(pairs, func(a, b string) int {
		an, av, _ := strings.Cut(a, "=")
		bn, bv, _ := strings.Cut(b, "=")
		return cmp.Or(strings.Compare(an, bn), strings.Compare(av, bv))
	})
	return strings.Join(pairs, "&")
}

func reescape(text string) string {
	decoded, err := url.QueryUnescape(text)
	if err != nil {
		return text
	}
	var escaped strings.Builder
	for _, octet := range []byte(decoded) {
		if strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~", octet) >= 0 {
			escaped.WriteByte(octet)
		} else {
			fmt.Fprintf(&escaped, "%%%02X", octet)
		}
	}
	return escaped.String()
}
