package web

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/rights"
	"meshddns/internal/strictjson"
)

// MaxBody bounds the body of a request in octets.
const MaxBody = 64 << 10

// MaxPage bounds the entries of a page of a listing.
const MaxPage = 1000

// TooLarge is the failure of a body over MaxBody.
var TooLarge = Fail(msg.BodyTooLarge, MaxBody>>10)

// Decode reads the body into a struct. Its errors are failures for the client.
func Decode(r *http.Request, into any) error {
	_, err := DecodeMembers(r, into)
	return err
}

// DecodeMembers is Decode, and returns the names of all members, also of unknown ones.
func DecodeMembers(r *http.Request, into any) (names []string, err error) {
	return decode(r, into, false)
}

// DecodeChange is DecodeMembers for a change. It refuses null, because a client may expect that null deletes.
func DecodeChange(r *http.Request, into any) (names []string, err error) {
	return decode(r, into, true)
}

func decode(r *http.Request, into any, noNull bool) (names []string, err error) {
	body, err := io.ReadAll(r.Body)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, TooLarge
	}
	if err == nil {
		names, err = strictjson.DecodeMembers(body, into, noNull)
	}
	return names, unparsed(err)
}

// WarnMembers warns of given members that are unknown and resemble a known member that is not given. Known are the
// members of the answer and some more: a client that edits an answer and sends it back gets no warning.
func WarnMembers(given []string, answer any, more ...string) (all []msg.Phrase) {
	known := append(strictjson.Fields(answer), more...)
	missing := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return slices.Contains(given, k) })
	for _, name := range given {
		if slices.Contains(known, name) {
			continue
		}
		if meant, ok := msg.Closest(name, missing); ok {
			all = append(all, msg.Phrase{ID: msg.WarnMember, Args: []any{name, meant}})
		}
	}
	return all
}

// ParseBody is Decode for a body that is already read.
func ParseBody(body []byte, into any) error { return unparsed(strictjson.Decode(body, into)) }

// unparsed returns the failure for a body that cannot be read.
func unparsed(err error) error {
	if err == nil {
		return nil
	}
	return Fail(msg.ParameterError, strictjson.Phrase(err))
}

// queryFlag reads a flag of the query. An absent flag is false.
func queryFlag(query url.Values, name string) (bool, error) {
	switch values := query[name]; {
	case len(values) == 0:
		return false, nil
	case len(values) == 1 && (values[0] == "1" || values[0] == "true"):
		return true, nil
	case len(values) == 1 && (values[0] == "0" || values[0] == "false"):
		return false, nil
	}
	return false, invalid(name, msg.Phrase{ID: msg.WantFlag})
}

// invalid returns the failure for a member of the query, with the allowed values.
func invalid(name string, want any) error { return Fail(msg.QueryInvalid, name, want) }

// maxShownName bounds the octets of an unknown member's name in an error.
const maxShownName = 64

// AnyMember among the members of a route lets the query of its requests have unknown members. A web interface and a
// monitor may add one against caches.
const AnyMember = "*"

// known returns a failure when the query has a member that is neither durable nor among those of the route. A misspelled
// flag (dry-run) must not cause a change, nor a misspelled filter list everything.
func known(r *http.Request, members []string) error {
	if r.URL.RawQuery == "" || slices.Contains(members, AnyMember) {
		return nil
	}
	query, err := ParseQuery(r)
	if err != nil {
		return err
	}
	want := msg.Phrase{ID: msg.WantNoMember}
	if len(members) > 0 {
		want = msg.Phrase{ID: msg.WantMembers, Args: []any{strings.Join(members, ", ")}}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(members, name) && !(name == durable && slices.Contains(mayWait, r.Method)) {
			return invalid(strconv.Quote(name[:min(len(name), maxShownName)]), want)
		}
	}
	return nil
}

// Only makes a handler that refuses a request whose query has a member that is not among those of the route.
func (a Adapter) Only(next http.HandlerFunc, members ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := known(r, members); err != nil {
			a.Refuse(w, r, err)
			return
		}
		next(w, r)
	})
}

// Flags reads flags of the query: 1, true, 0 or false. An absent flag is false.
func Flags(r *http.Request, names ...string) (set map[string]bool, err error) {
	query, err := ParseQuery(r)
	if err != nil {
		return nil, err
	}
	set = map[string]bool{}
	for _, name := range names {
		if set[name], err = queryFlag(query, name); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// Seconds reads a number of whole seconds of the query, from 1 to most. An absent member is 0.
func Seconds(r *http.Request, name string, most int) (int, error) {
	query, err := ParseQuery(r)
	if err != nil || !query.Has(name) {
		return 0, err
	}
	text := query.Get(name)
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most || strconv.Itoa(n) != text || len(query[name]) > 1 {
		return 0, invalid(name, msg.Phrase{ID: msg.WantSeconds, Args: []any{most}})
	}
	return n, nil
}

// ParseQuery reads the query. It refuses a malformed part, because url.URL.Query would drop it, and a
// filter with it, a member that is given twice, and a service that the caller may not use.
func ParseQuery(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, Fail(msg.ParameterError, msg.Phrase{ID: msg.QuerySyntax})
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if len(query[name]) > 1 {
			return nil, invalid(strconv.Quote(name[:min(len(name), maxShownName)]), msg.Phrase{ID: msg.WantOnce})
		}
	}
	if _, permitted := rights.Narrow(r.Context(), query.Get("service_id")); !permitted {
		return nil, Fail(msg.NotPermitted)
	}
	return query, nil
}

// pageMembers returns the members of the query that PageQuery reads. after is another name of a cursor that is a number.
func pageMembers[C Cursor]() []string {
	if _, number := any(*new(C)).(int64); number {
		return []string{"limit", "cursor", "after"}
	}
	return []string{"limit", "cursor"}
}

// PageQuery reads the limit (0 if absent) and the cursor of a listing. Of cursor and after the later one counts.
func PageQuery[C Cursor](query url.Values) (limit int, after C, err error) {
	if query.Get("limit") != "" {
		limit, err = strconv.Atoi(query.Get("limit"))
		if err != nil || limit < 1 || limit > MaxPage || strconv.Itoa(limit) != query.Get("limit") {
			return 0, after, invalid("limit", msg.Phrase{ID: msg.WantLimit, Args: []any{MaxPage}})
		}
	}
	at, number := any(&after).(*int64)
	if !number {
		return limit, any(query.Get("cursor")).(C), nil
	}
	for i, want := range []msg.ID{msg.WantCursor, msg.WantSeq} {
		name := []string{"cursor", "after"}[i]
		text := cmp.Or(query.Get(name), "0")
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
			return 0, after, invalid(name, msg.Phrase{ID: want})
		}
		*at = max(*at, n)
	}
	return limit, after, nil
}

// maxWait bounds the query member wait, in seconds.
const maxWait = 30

// Patience begins a wait. The context that it returns ends with the wait, at once where too many
// requests wait.
type Patience func(context.Context) (context.Context, context.CancelFunc)

// Waiting returns how long a request waits once its change is stored: for the seconds of its query
// member wait, else for a usual time, both from now on. waits reports whether the member is given.
func Waiting(r *http.Request, usual time.Duration) (patience Patience, waits bool, err error) {
	seconds, err := Seconds(r, "wait", maxWait)
	return Until(time.Now().Add(cmp.Or(time.Duration(seconds)*time.Second, usual))), seconds > 0, err
}

// Until returns the patience to wait until a time.
func Until(end time.Time) Patience {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return WithPatience(ctx, end) }
}

// crowdedPause is the time after which a client tries again where too many requests wait.
const crowdedPause = time.Second

// Wait begins the wait of a request that does nothing else. The error refuses the request where too
// many requests wait.
func Wait(r *http.Request, limit time.Duration) (context.Context, context.CancelFunc, error) {
	ctx, cancel := WithPatience(r.Context(), time.Now().Add(limit))
	return ctx, cancel, Crowded(ctx)
}

// Crowded returns the refusal of a request whose wait has ended at once, because too many requests wait.
func Crowded(ctx context.Context) error {
	if !errors.Is(context.Cause(ctx), ErrCrowded) {
		return nil
	}
	return TooManyWaiting()
}

// TooManyWaiting returns the refusal of a request for whose wait there is no place or no time.
func TooManyWaiting() *Failure {
	failure := Fail(msg.TooManyWaiting)
	failure.RetryAfter = crowdedPause
	return failure
}
