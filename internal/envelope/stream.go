package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
)

// streamPart is how much of an answer is kept until it is sent.
const streamPart = 64 << 10

// Next is the last entry of a page of a list: the cursor of the page behind it.
type Next int64

// Stream makes a handler of a function that gives the entries of a list, and Next behind
// them when the list goes on. Only a part is kept at a time. An error after the first part
// cuts the answer.
func (a Adapter) Stream(list func(*http.Request) iter.Seq2[any, error]) http.Handler {
	return a.Pieces(func(r *http.Request) iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) {
			var out bytes.Buffer
			encoder := json.NewEncoder(&out)
			encoder.SetEscapeHTML(false)
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
				out.Reset()
				out.WriteString(begin)
				begin = ","
				if err := encoder.Encode(entry); err != nil {
					panic(err) // a type that JSON cannot hold: a mistake of this program
				}
				if !yield(bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil) {
					return
				}
			}
			yield([]byte(strings.TrimPrefix(begin, ",")+"]"+next+"}\n"), nil)
		}
	})
}

// Pieces makes a handler of a function that gives an answer piece by piece, of which
// only a part is kept at a time. A piece may be written over when the next is asked for.
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
				w.Header().Set("Content-Type", MediaType)
				out.WriteTo(w)
				sent = true
			}
		}
		w.Header().Set("Content-Type", MediaType)
		out.WriteTo(w)
	})
}
