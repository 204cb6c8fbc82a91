// Panics as errors, so that one request, connection or task cannot end the program.

package daemon

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Panic is a recovered panic as an error. Its text has the value only; LogValue adds the stack.
type Panic struct {
	Value any
	Stack []byte
}

func (e *Panic) Error() string { return fmt.Sprint("panic: ", e.Value) }

// LogValue returns the text and the stack.
func (e *Panic) LogValue() slog.Value {
	return slog.GroupValue(slog.String("text", e.Error()), slog.String("stack", string(e.Stack)))
}

// Catch stores a panic in *err as a *Panic. Call it with defer.
func Catch(err *error) {
	if value := recover(); value != nil {
		*err = &Panic{Value: value, Stack: debug.Stack()}
	}
}

// Call calls f and returns its error, or its panic as a *Panic.
func Call(f func() error) (err error) {
	defer Catch(&err)
	return f()
}
