//go:build !race

package e2e

const (
	buildFlag = "-race=false"
	// restMemory is what the collector keeps of what was used, and what SQLite keeps of the
	// file, in KiB.
	restMemory = 48 << 10
)
