//go:build !race

package e2e

const (
	buildFlag = "-race=false"
	sequences = 200 // at each provider
)
