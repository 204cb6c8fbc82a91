package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
)

// streamPart is the number of octets of an answer that are buffered.
const streamPart = 64 << 10

// AppendJSON appends the JSON of a value, in one line. It leaves <, > and & as they are.
func AppendJSON(to []byte, value any) []byte {
	out := bytes.NewBuffer(to)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // a type that JSON cannot encode: a bug of this program
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// Next is the last entry of a page of a list: the cursor of the next page.
type Next int64

// Stream makes a handler from a function that yields the entries of a list, and Next after
// them when there is another page. Only a part of the answer is in memory at a time. An error after
// the first part aborts the answer.
func (a Adapter) Stream(list func(*http.Request) iter.Seq2[any, error]) http.Handler {
	return a.Pieces(func(r *http.Request) iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) {
			var out []byte
			begin, next := `{"data":[`, ""
			for entry, err := range list(r) {
				if err != nil {
					yield(nil, err)
					return
				}
				if after, ok := entry.(Next); ok {
					next = fmt.Sprintf(`,"next_cursor":"%d"`, after)
					break
				}
				out = AppendJSON(append(out[:0], begin...), entry)
				begin = ","
				if !yield(out, nil) {
					return
				}
			}
			yield([]byte(strings.TrimPrefix(begin, ",")+"]"+next+"}\n"), nil)
		}
	})
}

// ListPage is the number of rows that List reads at a time without a limit.
const ListPage = 100

// List yields the entries of a listing after an id, for Stream: with a limit at most so many, and Next
// when there are more. page reads at most size rows after an id; entry returns the id of a row, and
// the row in the form of the answer.
func List[T any](limit int, after int64, page func(after int64, size int) ([]T, error), entry func(T) (id int64, shown any, err error)) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		size := ListPage
		if limit > 0 {
			size = limit + 1 // one more tells whether there are more
		}
		for count := 0; ; {
			rows, err := page(after, size)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, row := range rows {
				if limit > 0 && count == limit {
					yield(Next(after), nil)
					return
				}
				id, shown, err := entry(row)
				if !yield(shown, err) || err != nil {
					return
				}
				after = id
				count++
			}
			if len(rows) < size {
				return
			}
		}
	}
}

// Refused yields an error in place of a list.
func Refused(err error) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) { yield(nil, err) }
}

// Pieces makes a handler from a function that yields an answer piece by piece. Only a part of
// the answer is in memory at a time. The function may overwrite a piece when the next one is requested.
func (a Adapter) Pieces(give func(*http.Request) iter.Seq2[[]byte, error]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var out bytes.Buffer
		sent := false
		for piece, err := range give(r) {
			switch {
			case err != nil && sent:
				a.BreakOff(r, err)
			case err != nil:
				a.Refuse(w, r, err)
				return
			}
			if out.Write(piece); out.Len() > streamPart {
				Private(w.Header(), MediaType)
				out.WriteTo(w)
				sent = true
			}
		}
		Private(w.Header(), MediaType)
		out.WriteTo(w)
	})
}

// StreamType is the media type of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
const StreamType = "text/event-stream"

// EventStream is an answer of server-sent events.
type EventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// NewEventStream begins the answer.
func NewEventStream(w http.ResponseWriter) EventStream {
	Private(w.Header(), StreamType)
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back
	return EventStream{w, http.NewResponseController(w)}
}

// Send sends an event with its data in JSON. It returns an error when the client does not take it.
func (s EventStream) Send(id int64, kind string, data any) error {
	text := AppendJSON(fmt.Appendf(nil, "id: %d\nevent: %s\ndata: ", id, kind), data)
	return s.send(append(text, "\n\n"...))
}

// Pulse sends a comment, so that both ends see whether the connection lives.
func (s EventStream) Pulse() error { return s.send([]byte(":\n\n")) }

func (s EventStream) send(text []byte) error {
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.control.Flush()
}
