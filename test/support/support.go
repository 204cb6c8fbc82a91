// Package support has what the tests of several packages need: a log that is read while it is
// written, waits that end, and the rows of a query as text. Only tests import it.
package support

import (
	"bytes"
	"sync"
)

// Log keeps what is written to it. Its methods may run at the same time.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the log and never fails.
func (l *Log) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

// String returns the text of the log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
