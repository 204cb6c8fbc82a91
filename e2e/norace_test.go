//go:build !race

package e2e

const (
	buildFlag = "-race=false"
	sequences = 50 // at each provider, unless MESHDDNS_SEQUENCES says otherwise
)
