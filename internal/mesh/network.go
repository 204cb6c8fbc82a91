package mesh

import (
	"database/sql/driver"
	"fmt"
	"strconv"
)

// NetworkID is an unsigned 64-bit number. SQLite's integers are signed, so it is stored as two's
// complement.
type NetworkID uint64

// Value returns the stored form.
func (n NetworkID) Value() (driver.Value, error) { return int64(n), nil }

// Scan reads the stored form.
func (n *NetworkID) Scan(value any) error {
	stored, ok := value.(int64)
	if !ok {
		return fmt.Errorf("network id is stored as %T", value)
	}
	*n = NetworkID(stored)
	return nil
}

// String returns the number in decimal.
func (n NetworkID) String() string { return strconv.FormatUint(uint64(n), 10) }

// AnyNetwork is the longest network id: endpoints that fit into its value fit into that of every network.
const AnyNetwork NetworkID = 1<<64 - 1
