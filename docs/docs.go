// Package docs has what the program hands out of its documentation. Its tests
// hold the pages to what they say of each other and of the program.
package docs

import _ "embed"

// OpenAPI is the HTTP contract as an OpenAPI 3.1 document.
//
//go:embed openapi.json
var OpenAPI []byte
