// The feed answers requests about the log of events: a list, the history of a usage, and a stream.

package answers

import (
	"iter"
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

// Events lists events, or streams them to a client that accepts web.StreamType.
func (f *Feed) Events(w http.ResponseWriter, r *http.Request) {
	if web.Accepts(r, web.StreamType) {
		f.stream(w, r)
		return
	}
	f.adapter.Stream(f.list).ServeHTTP(w, r)
}

func (f *Feed) list(r *http.Request) iter.Seq2[any, error] {
	filter, limit, err := query(r)
	if err != nil {
		return web.Refused(err)
	}
	return f.entries(r, filter, limit)
}

// Usage lists the events of a usage and of its name. The usage may be released by now.
func (f *Feed) Usage(r *http.Request) iter.Seq2[any, error] {
	filter, limit, err := query(r)
	if err != nil {
		return web.Refused(err)
	}
	filter.About, filter.Service = r.PathValue("id"), web.Rights(r).Service
	known, err := f.log.Knows(r.Context(), filter.About, filter.Service)
	if err == nil && !known {
		err = msg.Refuse(msg.UnknownUsage)
	}
	if err != nil {
		return web.Refused(err)
	}
	return f.entries(r, filter, limit)
}

func (f *Feed) entries(r *http.Request, filter events.Filter, limit int) iter.Seq2[any, error] {
	page := func(after int64, size int) ([]events.Event, error) {
		filter.After = after
		return f.log.Page(r.Context(), filter, size)
	}
	return web.List(limit, filter.After, page, func(e events.Event) (int64, any, error) {
		e.Detail.Fault = e.Detail.Fault.For(filter.Service)
		return e.Seq, NewEvent(e, web.Language(r)), nil
	})
}

// query reads a filter and the limit. after is another name of cursor, and wins over it.
func query(r *http.Request) (filter events.Filter, limit int, err error) {
	members, err := web.ParseQuery(r)
	if err != nil {
		return filter, 0, err
	}
	limit, filter.After, err = web.PageQuery(members, "after")
	filter.Kind, filter.UsageID, filter.Name = members.Get("kind"), members.Get("usage_id"), dns.Parse(members.Get("name"))
	if err == nil && filter.Kind != "" && !events.GoodPattern(filter.Kind) {
		err = web.Fail(msg.QueryInvalid, "kind", msg.Phrase{ID: msg.WantEventKind})
	}
	return filter, limit, err
}

// stream sends events as they are committed, until the client goes or the server stops. The client
// resumes with Last-Event-ID.
func (f *Feed) stream(w http.ResponseWriter, r *http.Request) {
	filter, _, err := query(r)
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
