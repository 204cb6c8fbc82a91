// Panics as errors, so that one request, connection or task cannot end the program.

package tasks

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Panic is a panic. Its text is short; the stack is for the log.
type Panic struct {
	Value any
	Stack []byte
}

func (e *Panic) Error() string { return fmt.Sprint("panic: ", e.Value) }

// LogValue has the stack beside the text, in one line.
func (e *Panic) LogValue() slog.Value {
	return slog.GroupValue(slog.String("text", e.Error()), slog.String("stack", string(e.Stack)))
}

// Catch is deferred: it makes a panic the error of the function that defers it.
func Catch(err *error) {
	if value := recover(); value != nil {
		*err = &Panic{Value: value, Stack: debug.Stack()}
	}
}

// Call calls a function whose panic is its error.
func Call(f func() error) (err error) {
	defer Catch(&err)
	return f()
}
