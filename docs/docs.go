// Package docs has what the program hands out of its documentation. Its tests
// hold the pages to what they say of each other and of the program.
package docs

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"sync"
)

// packed is openapi.json, an eighth of its size; go test ./docs -run TestPacked -update packs it again.
//
//go:embed openapi.json.gz
var packed []byte

// OpenAPI returns the HTTP contract as an OpenAPI 3.1 document. It panics if the packed one is damaged, which TestPacked finds.
var OpenAPI = sync.OnceValue(func() []byte {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		panic(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return text
})
