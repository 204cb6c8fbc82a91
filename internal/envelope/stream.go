package envelope

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

// Next is the last entry of a page of a list: the cursor of the next page.
type Next int64

// Stream makes a handler from a function that yields the entries of a list, and Next after
// them when there is another page. Only a part of the answer is in memory at a time. An error after
// the first part aborts the answer.
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
					panic(err) // a type that JSON cannot encode: a bug of this program
				}
				if !yield(bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil) {
					return
				}
			}
			yield([]byte(strings.TrimPrefix(begin, ",")+"]"+next+"}\n"), nil)
		}
	})
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
				w.Header().Set("Content-Type", MediaType)
				out.WriteTo(w)
				sent = true
			}
		}
		w.Header().Set("Content-Type", MediaType)
		out.WriteTo(w)
	})
}
