package web

import (
	"context"
	"net/http"
	"slices"
	"time"

	"meshddns/internal/msg"
)

// Fence keeps answers within the term in which the program alone may write, and lets changes wait for a replica. Without a term,
// Term is 0, Over reports false, and Context returns what it gets.
type Fence struct {
	Term    int64
	Over    func() bool                                                 // the term has ended
	Context func(context.Context) (context.Context, context.CancelFunc) // that ends with the term
	Durable func(context.Context) error                                 // waits until all commits are replicated, and the term is known to last; nil: there is no replica
}

func (f Fence) over() bool { return f.Over != nil && f.Over() }

const (
	durable     = "durable" // flag of a change: the answer waits for Fence.Durable
	durableTime = 30 * time.Second
)

// mayWait are the methods with the flag.
var mayWait = []string{http.MethodPost, http.MethodPatch, http.MethodDelete}

// enter refuses a request after the end of the term. It takes the flag out of the query, and reports whether it was set.
func (f Fence) enter(r *http.Request) (_ *http.Request, waits bool, err error) {
	if f.over() {
		return r, false, Fail(msg.TermOver)
	}
	if r.URL.RawQuery == "" || !slices.Contains(mayWait, r.Method) {
		return r, false, nil
	}
	query, err := ParseQuery(r)
	if err != nil || !query.Has(durable) {
		return r, false, err
	}
	if waits, err = queryFlag(query, durable); waits && f.Durable == nil {
		err = invalid(durable, msg.Phrase{ID: msg.WantReplica})
	}
	query.Del(durable)
	bare := *r.URL
	bare.RawQuery = query.Encode()
	r = r.WithContext(r.Context())
	r.URL = &bare
	return r, waits, err
}

// leave returns why a request that was answered with a status gets a refusal instead. What it changed stays.
func (f Fence) leave(ctx context.Context, waits bool, status int) error {
	var err error
	if waits && status < http.StatusMultipleChoices {
		limit, cancel := WithPatience(ctx, time.Now().Add(durableTime))
		defer cancel()
		if err = f.Durable(limit); err != nil {
			err = &Failure{Status: http.StatusGatewayTimeout, ID: msg.NotReplicated, Cause: err}
			if context.Cause(limit) == ErrCrowded {
				err = Fail(msg.TooManyWaiting)
			}
		}
	}
	if f.over() {
		err = Fail(msg.TermOver)
	}
	return err
}

// fenced asks Fence.leave before the header of an answer.
type fenced struct {
	http.ResponseWriter
	adapter Adapter
	request *http.Request
	waits   bool
	begun   bool
	refused bool // the answer is dropped
}

func (w *fenced) WriteHeader(status int) {
	if !w.begun && status >= http.StatusOK { // the header of the answer itself
		w.begun = true
		if err := w.adapter.Fence.leave(w.request.Context(), w.waits, status); err != nil {
			w.refused = true
			clear(w.Header())
			w.adapter.Refuse(w.ResponseWriter, w.request, err)
		}
	}
	if !w.refused {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *fenced) Write(data []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	if w.refused {
		return len(data), nil
	}
	return w.ResponseWriter.Write(data)
}

func (w *fenced) Unwrap() http.ResponseWriter { return w.ResponseWriter }
