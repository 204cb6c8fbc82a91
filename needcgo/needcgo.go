// Package needcgo ends a build without cgo with a sentence. Who uses SQLite imports it,
// so that nothing is compiled, and complained about, before that.
package needcgo
