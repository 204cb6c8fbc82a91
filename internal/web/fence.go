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

// waits reports whether a request is a change with the flag.
func (f Fence) waits(r *http.Request) (bool, error) {
	if !slices.Contains(mayWait, r.Method) {
		return false, nil
	}
	set, err := Flags(r, durable)
	if set[durable] && f.Durable == nil {
		err = invalid(durable, msg.Phrase{ID: msg.WantReplica})
	}
	return set[durable], err
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
