package envelope

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/msg"
	"meshddns/internal/strictjson"
)

// MaxBody bounds the body of a request in octets.
const MaxBody = 64 << 10

// MaxPage bounds the entries of a page of a listing.
const MaxPage = 1000

// TooLarge is the failure of a body over MaxBody.
var TooLarge = Fail(msg.BodyTooLarge, MaxBody>>10)

// Decode reads the body into a struct.
func Decode(r *http.Request, into any) error {
	body, err := io.ReadAll(r.Body)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return TooLarge
	}
	if err != nil {
		return Fail(msg.ParameterError, strictjson.Phrase(err))
	}
	return Parse(body, into)
}

// Parse reads a body that has been read into a struct.
func Parse(body []byte, into any) error {
	if err := strictjson.Decode(body, into); err != nil {
		return Fail(msg.ParameterError, strictjson.Phrase(err))
	}
	return nil
}

// DecodeMembers is Decode, and gives the names of all members, also of those that
// the struct does not have.
func DecodeMembers(r *http.Request, into any) (names []string, err error) {
	var body bytes.Buffer
	r.Body = io.NopCloser(io.TeeReader(r.Body, &body))
	err = Decode(r, into)
	return strictjson.Names(body.Bytes()), err
}

// queryFlag reads a flag of the query: absent is false.
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

// invalid refuses a member of the query, and says what is wanted.
func invalid(name string, want any) error { return Fail(msg.QueryInvalid, name, want) }

// maxShownName bounds what is repeated of the name of an unknown member.
const maxShownName = 64

// known refuses the query of a request that may change something when it has a member that is not
// among the flags: a mistyped flag must not do what the right one prevents.
func known(r *http.Request, flags []string) error {
	if r.URL.RawQuery == "" || !changes(r) {
		return nil
	}
	query, err := ParseQuery(r)
	if err != nil {
		return err
	}
	want := msg.Phrase{ID: msg.WantNoMember}
	if len(flags) > 0 {
		want = msg.Phrase{ID: msg.WantMembers, Args: []any{strings.Join(flags, ", ")}}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(flags, name) {
			return invalid(strconv.Quote(name[:min(len(name), maxShownName)]), want)
		}
	}
	return nil
}

// Flags reads flags of the query.
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

// ParseQuery reads the query. A broken part would otherwise be dropped, and a
// filter with it.
func ParseQuery(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, Fail(msg.ParameterError, msg.Phrase{ID: msg.QuerySyntax})
	}
	return query, nil
}

// PageQuery reads the limit, 0 without one, and the cursor of a listing.
func PageQuery(query url.Values) (limit int, after int64, err error) {
	if query.Has("limit") && query.Get("limit") != "" {
		limit, err = strconv.Atoi(query.Get("limit"))
		if err != nil || limit < 1 || limit > MaxPage || strconv.Itoa(limit) != query.Get("limit") {
			return 0, 0, invalid("limit", msg.Phrase{ID: msg.WantLimit, Args: []any{MaxPage}})
		}
	}
	if cursor := query.Get("cursor"); cursor != "" {
		after, err = strconv.ParseInt(cursor, 10, 64)
		if err != nil || after < 0 || strconv.FormatInt(after, 10) != cursor {
			return 0, 0, invalid("cursor", msg.Phrase{ID: msg.WantCursor})
		}
	}
	return limit, after, nil
}
