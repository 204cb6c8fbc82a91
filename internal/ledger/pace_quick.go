//go:build quick

package ledger

import "time"

// ChangeEvery is short, for tests of the built program.
const ChangeEvery = time.Second
