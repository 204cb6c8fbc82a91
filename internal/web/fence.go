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

// take takes the flag out of the query of a change, and reports whether it was set.
func (f Fence) take(r *http.Request) (_ *http.Request, waits bool, err error) {
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

// wait waits for Durable after a change, which stays also if wait returns an error.
func (f Fence) wait(ctx context.Context) error {
	limit, cancel := WithPatience(ctx, time.Now().Add(durableTime))
	defer cancel()
	err := f.Durable(limit)
	switch {
	case err != nil && context.Cause(limit) == ErrCrowded:
		return Fail(msg.TooManyWaiting)
	case err != nil && !f.over():
		return &Failure{Status: http.StatusGatewayTimeout, ID: msg.NotReplicated, Cause: err}
	}
	return nil // else the answer says that the term is over
}

// fenced replaces an answer whose header comes after the end of the term.
type fenced struct {
	http.ResponseWriter
	adapter Adapter
	request *http.Request
	begun   bool
	refused bool // the answer is dropped
}

func (w *fenced) WriteHeader(status int) {
	if !w.begun && status >= http.StatusOK { // the header of the answer itself
		w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat)) // before the look at the clock, so it is within the term
		if w.begun, w.refused = true, w.adapter.Fence.over(); w.refused {
			clear(w.Header())
			w.adapter.Refuse(w.ResponseWriter, w.request, Fail(msg.TermOver))
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
