package envelope

import (
	"bytes"
	"encoding/json"
	"iter"
	"net/http"
)

// streamPart is how much of an answer is kept until it is sent.
const streamPart = 64 << 10

// Stream makes a handler of a function that gives the entries of a list, of which
// only a part is kept at a time. An error after the first part cuts the answer.
func (a Adapter) Stream(list func(*http.Request) iter.Seq2[any, error]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		sent, begin := false, `{"data":[`
		for entry, err := range list(r) {
			switch {
			case err != nil && sent:
				a.BreakOff(r, err)
			case err != nil:
				a.Refuse(w, r, err)
				return
			}
			out.WriteString(begin)
			begin = ","
			if err := encoder.Encode(entry); err != nil {
				panic(err) // a type that JSON cannot hold: a mistake of this program
			}
			out.Truncate(out.Len() - len("\n"))
			if out.Len() > streamPart {
				w.Header().Set("Content-Type", MediaType)
				out.WriteTo(w)
				sent = true
			}
		}
		if begin != "," {
			out.WriteString(begin)
		}
		w.Header().Set("Content-Type", MediaType)
		out.WriteString("]}\n")
		out.WriteTo(w)
	})
}
