package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"os"
	"strconv"
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

// ListPage is the greatest number of entries that List reads at a time, so that a client that stops reading holds no more.
const ListPage = 100

// Cursor is the place of an entry in a list: a number, or its id.
type Cursor interface{ int64 | string }

// Part is a part of a list: the JSON of entries, each on a line, with commas between them, and the cursor of the last one.
type Part[C Cursor] struct {
	Size    int
	Last    C
	Entries []byte
}

// PartReader reads a part of a list: at most size entries behind a cursor.
type PartReader[C Cursor] func(after C, size int) (Part[C], error)

// Rows makes a part of the result of a query. entry returns the cursor of a row, and its form in the answer.
func Rows[T any, C Cursor](rows []T, err error, entry func(T) (at C, shown any, err error)) (p Part[C], _ error) {
	for _, row := range rows {
		at, shown, err := entry(row)
		if err != nil {
			return p, err
		}
		if p.Size++; p.Size > 1 {
			p.Entries = append(p.Entries, "\n,"...)
		}
		p.Last, p.Entries = at, AppendJSON(p.Entries, shown)
	}
	return p, err
}

// List makes a handler of a list, which takes limit and cursor beside other members of the query. With a limit the answer has
// at most so many entries, and next_cursor when there are more. While the client reads, one part is in memory, and no query
// of the database is open. An error after the first part aborts the answer.
func List[C Cursor](a Adapter, list func(*http.Request) (PartReader[C], error), members ...string) http.Handler {
	return a.Pieces(func(r *http.Request) iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) {
			query, err := ParseQuery(r)
			limit, after, misread := PageQuery[C](query)
			read, fault := list(r)
			if err = cmp.Or(err, misread, fault); err == nil {
				err = writeList(limit, after, read, func(piece []byte) bool { return yield(piece, nil) })
			}
			if err != nil {
				yield(nil, err)
			}
		}
	}, append(members, pageMembers[C]()...)...)
}

// writeList writes the answer of List in pieces, until write returns false.
func writeList[C Cursor](limit int, after C, read PartReader[C], write func([]byte) bool) error {
	out, comma, end := []byte(`{"data":[`), "", "]}\n"
	for left := cmp.Or(limit, math.MaxInt); ; {
		size := min(left, ListPage)
		part, err := read(after, size)
		if err != nil {
			return err
		}
		if part.Size > 0 {
			out, comma = append(append(out, comma...), part.Entries...), "\n,"
		}
		if after, left = part.Last, left-part.Size; part.Size < size {
			break
		}
		if left == 0 {
			next, err := read(after, 1)
			if err != nil {
				return err
			}
			if next.Size > 0 {
				end = `],"next_cursor":` + string(AppendJSON(nil, fmt.Sprint(after))) + "}\n"
			}
			break
		}
		if !write(out) {
			return nil
		}
		out = out[:0]
	}
	write(append(out, end...))
	return nil
}

// Pieces makes a handler from a function that yields an answer piece by piece. Only a part of
// the answer is in memory at a time. The function may overwrite a piece when the next one is requested.
func (a Adapter) Pieces(give func(*http.Request) iter.Seq2[[]byte, error], members ...string) http.Handler {
	return a.Only(func(w http.ResponseWriter, r *http.Request) {
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
	}, members...)
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

// SendFile answers with a whole file. It calls atEnd before it sends the last octet, because a client that
// has the whole file may send its next request at once.
func SendFile(w http.ResponseWriter, file *os.File, atEnd func()) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	if _, err := io.CopyN(w, file, max(0, info.Size()-1)); err != nil {
		return err
	}
	atEnd()
	_, err = io.Copy(w, file)
	return err
}
