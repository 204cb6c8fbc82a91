// The feed answers requests about the log of events: a list, the history of a usage, and a stream.

package answers

import (
	"net/http"
	"strconv"

	"meshddns/internal/dns"
	"meshddns/internal/events"
	"meshddns/internal/msg"
	"meshddns/internal/web"
)

// MaxStreams bounds the streams that are open at once.
const MaxStreams = 64

// Feed answers requests about a log.
type Feed struct {
	log     *events.Log
	adapter web.Adapter
	streams chan struct{} // a place for each stream
}

// NewFeed returns a feed of a log.
func NewFeed(log *events.Log, a web.Adapter) *Feed {
	return &Feed{log: log, adapter: a, streams: make(chan struct{}, MaxStreams)}
}

// filters are the members of a query that select events.
var filters = []string{"kind", "usage_id", "name"}

// Events returns the handler that lists events, or streams them to a client that accepts web.StreamType.
func (f *Feed) Events() http.Handler {
	list := web.List(f.adapter, func(r *http.Request) (web.PartReader[int64], error) {
		filter, err := query(r)
		return f.reader(r, filter), err
	}, filters...)
	stream := f.adapter.Only(f.stream, append(filters, "limit", "cursor", "after")...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web.Accepts(r, web.StreamType) {
			stream.ServeHTTP(w, r)
			return
		}
		list.ServeHTTP(w, r)
	})
}

// Usage reads the events of a usage and of its name for an answer. The usage may be released by now.
func (f *Feed) Usage(r *http.Request) (web.PartReader[int64], error) {
	filter, err := query(r)
	if err != nil {
		return nil, err
	}
	filter.About, filter.Service = r.PathValue("id"), web.Rights(r).Service
	known, err := f.log.Knows(r.Context(), filter.About, filter.Service)
	if err == nil && !known {
		err = msg.Refuse(msg.UnknownUsage)
	}
	return f.reader(r, filter), err
}

// reader reads the events of a filter for an answer.
func (f *Feed) reader(r *http.Request, filter events.Filter) web.PartReader[int64] {
	return func(after int64, size int) (web.Part[int64], error) {
		filter.After = after
		page, err := f.log.Page(r.Context(), filter, size)
		return web.Rows(page, err, func(e events.Event) (int64, any, error) {
			e.Detail.Fault = e.Detail.Fault.For(filter.Service)
			return e.Seq, NewEvent(e, web.Language(r)), nil
		})
	}
}

// query reads a filter.
func query(r *http.Request) (filter events.Filter, err error) {
	members, err := web.ParseQuery(r)
	if err != nil {
		return filter, err
	}
	_, filter.After, err = web.PageQuery[int64](members)
	filter.Kind, filter.UsageID, filter.Name = members.Get("kind"), members.Get("usage_id"), dns.Parse(members.Get("name"))
	if err == nil && filter.Kind != "" && !events.GoodPattern(filter.Kind) {
		err = web.Fail(msg.QueryInvalid, "kind", msg.Phrase{ID: msg.WantEventKind})
	}
	return filter, err
}

// stream sends events as they are committed, until the client goes or the server stops. The client
// resumes with Last-Event-ID.
func (f *Feed) stream(w http.ResponseWriter, r *http.Request) {
	filter, err := query(r)
	if err == nil {
		filter.After, err = f.start(r, filter.After)
	}
	if err != nil {
		f.adapter.Refuse(w, r, err)
		return
	}
	select {
	case f.streams <- struct{}{}:
		defer func() { <-f.streams }()
	default:
		w.Header().Set("Retry-After", "60")
		f.adapter.Refuse(w, r, web.Fail(msg.TooManyStreams, MaxStreams))
		return
	}
	ctx, cancel := web.Running(r.Context())
	defer cancel()
	if err := web.Crowded(ctx); err != nil {
		f.adapter.Refuse(w, r, err)
		return
	}
	out := web.NewEventStream(w)
	if r.Method == http.MethodHead {
		return
	}
	err = f.log.Follow(ctx, filter, out.Pulse, func(e events.Event) error {
		return out.Send(e.Seq, string(e.Kind), NewEvent(e, web.Language(r)))
	})
	if ctx.Err() == nil {
		f.adapter.BreakOff(r, err)
	}
}

// start returns the seq after which a stream begins: that of Last-Event-ID, else the query's, else
// the last one.
func (f *Feed) start(r *http.Request, after int64) (int64, error) {
	query := r.URL.Query()
	switch id := r.Header.Get("Last-Event-ID"); {
	case id != "":
		seq, err := strconv.ParseInt(id, 10, 64)
		if err != nil || seq < 0 {
			return 0, web.Fail(msg.LastEventInvalid, id[:min(len(id), 64)])
		}
		return seq, nil
	case query.Has("after"), query.Has("cursor"):
		return after, nil
	}
	return f.log.Last(r.Context())
}
