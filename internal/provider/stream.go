package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"meshddns/internal/msg"
)

// list is a member of an answer whose array may be long: its elements are read one by one, and the
// rest of the answer has "[]" in its place.
type list struct {
	member string
	take   func(d *json.Decoder) error // reads the next element
}

// stream reads an answer with a list. It holds one element of the list at a time, of at most maxAnswer
// octets. It calls long once over maxAnswer octets have come. A list so long that does not arrive in
// time counts as too long.
func (a *api) stream(ctx context.Context, c call, response *http.Response, long func()) (answer, error) {
	ans := answer{status: response.StatusCode, header: response.Header}
	body := &bounded{from: response.Body, long: sync.OnceFunc(long)}
	d := json.NewDecoder(body)
	body.used = d.InputOffset
	rest, err := c.list.read(d)
	switch {
	case errors.Is(body.err, errTooLong) || errors.Is(err, errTooLong) || body.err != nil && body.octets > maxAnswer:
		err = msg.Errorf("the answer, or a part of it, broke off after %d octets: %w", body.octets, errTooLong)
		return ans, &Error{Kind: BadAnswer, Detail: a.asked(c), Err: err}
	case body.err != nil:
		return ans, a.unreached(ctx, c, body.err)
	case err != nil:
		return ans, a.unreadable(c, ans, err)
	}
	ans.body = rest
	return ans, nil
}

// bounded ends a stream that is too long, or of which too much is in memory.
type bounded struct {
	from   io.Reader
	used   func() int64 // octets that are no longer in memory
	long   func()       // is called when there are over maxAnswer octets
	octets int64
	err    error // except io.EOF
}

func (b *bounded) Read(p []byte) (n int, err error) {
	n, err = b.from.Read(p)
	if b.octets += int64(n); b.octets > maxAnswer {
		b.long()
	}
	if b.octets > maxStream || b.octets-b.used() > maxAnswer {
		err = errTooLong
	}
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// read reads one object, and returns it with an empty list.
func (l list) read(d *json.Decoder) ([]byte, error) {
	if err := expect(d, json.Delim('{')); err != nil {
		return nil, err
	}
	rest, octets := map[string]json.RawMessage{}, 0
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, value := fmt.Sprint(token), json.RawMessage("[]")
		if strings.EqualFold(name, l.member) {
			err = l.elements(d, &value)
		} else {
			err = d.Decode(&value)
		}
		if err != nil {
			return nil, err
		}
		if octets += len(name) + len(value); octets > maxAnswer {
			return nil, errTooLong
		}
		rest[name] = value
	}
	if err := expect(d, json.Delim('}')); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, cmp.Or(err, errNotTheirs)
	}
	return json.Marshal(rest)
}

// elements reads the list. null is a missing list.
func (l list) elements(d *json.Decoder, value *json.RawMessage) error {
	begin, err := d.Token()
	if begin == nil && err == nil {
		*value = json.RawMessage("null")
		return nil
	}
	if err != nil || begin != json.Delim('[') {
		return cmp.Or(err, errNotTheirs)
	}
	for d.More() {
		if err := l.take(d); err != nil {
			return err
		}
	}
	return expect(d, json.Delim(']'))
}

// expect reads a delimiter.
func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = errNotTheirs
	}
	return err
}
