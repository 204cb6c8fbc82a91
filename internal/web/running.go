package web

import (
	"io"
	"net"
	"net/http"
	"time"

	"meshddns/internal/connlimit"
)

// serve waits for the request's turn and calls the handler of its socket.
func (s *Server) serve(h Handlers, w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*connlimit.Conn)
	var begun time.Time
	if r.ContentLength != 0 {
		begun = time.Now()
	}
	changes := r.Method != http.MethodGet && r.Method != http.MethodHead
	if !c.Work(changes) {
		panic(http.ErrAbortHandler)
	}
	defer c.Rest()
	a := &response{ResponseWriter: w, server: s}
	if r.ContentLength != 0 {
		// A copy, because net/http checks the type of its own request's body to know how
		// the request ends.
		a.body = &body{ReadCloser: r.Body, conn: c, changes: changes, since: begun}
		r = r.WithContext(r.Context())
		r.Body = a.body
	}
	handler := h.TCP
	if _, ok := c.Conn.(*net.UnixConn); ok {
		handler = h.Unix
	}
	handler.ServeHTTP(a, r)
	a.begin()
}

// response sets "Connection: close" where needed before the header is written.
type response struct {
	http.ResponseWriter
	server *Server
	body   *body // of the request, nil without one
	begun  bool
}

func (a *response) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *response) WriteHeader(status int) {
	if status >= http.StatusOK {
		a.begin()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *response) Write(p []byte) (int, error) {
	a.begin()
	return a.ResponseWriter.Write(p)
}

// begin decides before the header is written whether the connection stays open. It bounds the time
// in which net/http reads the rest of an unread body.
func (a *response) begin() {
	if a.begun {
		return
	}
	a.begun = true
	unread := a.body != nil && !a.body.ended
	if unread || a.server.stopping.Load() {
		a.Header().Set("Connection", "close")
	}
	if unread {
		http.NewResponseController(a.ResponseWriter).SetReadDeadline(time.Now().Add(lingerTime))
	}
}

// body is a request's body. While the handler reads it, the request does not count as in work,
// and the limiter may close the connection.
type body struct {
	io.ReadCloser
	conn    *connlimit.Conn
	changes bool      // the request is not GET or HEAD
	since   time.Time // when the header was complete
	begun   bool
	ended   bool // read to its end
}

func (b *body) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.conn.Await(b.since)
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && !b.ended {
		b.ended = true
		if !b.conn.Work(b.changes) {
			return n, net.ErrClosed
		}
	}
	return n, err
}
