//go:build !cgo

package sqlite

// SQLite is C. A build without cgo would compile and then not open its database, so
// this constant, which cannot be, ends it with a sentence.
const _ bool = "meshddns needs cgo for SQLite: install a C compiler and libc headers (Debian: gcc libc6-dev), then build with CGO_ENABLED=1; for another architecture use deploy/build"
