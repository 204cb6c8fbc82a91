package daemon

import (
	"context"
	"net/http"
	"strconv"
)

// Requests counts answered HTTP requests by route (never by path) and status, and answers from 500 up
// also by error code. The zero value is ready. It is safe for concurrent use.
type Requests struct{ answered Counter }

// refusals has the statuses of requests that reach no route.
var refusals = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests,
}

// Count counts an answer. The route is "" for a request that reached none. The reason is the
// error code, "" for none; it distinguishes a failed pass from a fault of the program.
func (r *Requests) Count(route string, status int, reason string) {
	if status < http.StatusInternalServerError || reason == "" {
		r.add(1, route, status)
		return
	}
	r.answered.Add(1, Label{"route", route}, Label{"code", strconv.Itoa(status)}, Label{"error", reason})
}

// add counts without reason. It runs for every request; labels returned by a function would
// escape to the heap.
func (r *Requests) add(n uint64, route string, status int) {
	r.answered.Add(n, Label{"route", route}, Label{"code", strconv.Itoa(status)})
}

// Write writes the family.
func (r *Requests) Write(p *Page) {
	r.answered.Write(p, "meshddns_http_requests_total", "Answered HTTP requests.")
}

// Mux is a mux whose routes are in the metrics before their first request.
type Mux struct {
	Routes   *http.ServeMux
	requests *Requests
	refuse   http.HandlerFunc
}

// Mux returns an empty mux, and makes the refusals of requests without a route appear with 0. refuse answers the requests
// that the rule of a route does not permit.
func (r *Requests) Mux(refuse http.HandlerFunc) Mux {
	for _, status := range refusals {
		r.add(0, "", status)
	}
	return Mux{Routes: http.NewServeMux(), requests: r, refuse: refuse}
}

// Handle registers a handler, as http.ServeMux does, for the requests that a rule of the route permits.
func (m Mux) Handle(route string, may func(context.Context) bool, handler http.Handler) {
	m.requests.add(0, route, http.StatusOK)
	m.Routes.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
		if !may(r.Context()) {
			m.refuse(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
