//go:build race

package e2e

// Under the race detector the program is built with it too, and is slower.
const (
	buildFlag = "-race"
	sequences = 10
)
