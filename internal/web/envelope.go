// Package web is what stands between a socket of HTTP and the function of a route: the server that limits
// the clients and stops without losing a request, the guard that refuses requests before the routes, and
// the envelope of answers. It knows no operation.
//
// A success is a JSON object with data and a message. A failure is an object with an error, and its code
// is in a header.
package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/msg"
)

// MediaType is the media type of every answer except the metrics and the backup.
const MediaType = "application/json; charset=utf-8"

// Reply is a successful answer.
type Reply struct {
	Status  int    // 200 when it is 0
	Message msg.ID // "" for none
	Data    any    // a json.RawMessage is written without encoding
	Bare    bool   // the answer is Data alone, as another program's protocol has it
	ID      string // of the created object, also when creating failed, for the audit line

	Replayed bool // it is the answer to an earlier request, and nothing was changed

	Audit Audit
}

// Audit says whether a successful request gets an audit line.
type Audit int

// By default all methods except GET and HEAD get one.
const (
	AuditByMethod Audit = iota
	Audited
	NotAudited
)

// Public returns a copy of the failure without the text of its cause, which may have paths. It
// keeps the code and the advice.
func (f *Failure) Public() *Failure {
	shown := *f
	for i, word := range shown.Args {
		if phrase, ok := word.(msg.Phrase); ok && phrase.ID == msg.Because {
			shown.Args = slices.Clone(shown.Args)
			shown.Args[i] = ""
		}
	}
	return &shown
}

// Failure is an answer that refuses a request. Refuse logs its Cause, if it has one.
type Failure struct {
	Status int
	ID     msg.ID
	Args   []any
	Cause  error

	RetryAfter time.Duration // 0: the answer does not say
}

func (f *Failure) Error() string { return f.in(msg.English) }

func (f *Failure) in(language msg.Language) string {
	return msg.Phrase{ID: f.ID, Args: f.Args}.In(language)
}

// Fail returns a failure with the status of statuses, or 400.
func Fail(id msg.ID, args ...any) *Failure {
	return &Failure{Status: cmp.Or(statuses[id], http.StatusBadRequest), ID: id, Args: args}
}

// statuses has the status of each failure that is not 400.
var statuses = map[msg.ID]int{
	msg.NotFound: http.StatusNotFound, msg.UnknownName: http.StatusNotFound, msg.UnknownService: http.StatusNotFound, msg.UnknownUsage: http.StatusNotFound,
	msg.UnknownConfiguration: http.StatusNotFound, msg.UnknownLeftover: http.StatusNotFound, msg.MethodNotAllowed: http.StatusMethodNotAllowed,
	msg.BodyTooLarge: http.StatusRequestEntityTooLarge, msg.ServiceExists: http.StatusConflict,
	msg.UnknownNotification: http.StatusNotFound, msg.TooManyNotifications: http.StatusConflict,
	msg.UnknownSecondary: http.StatusNotFound, msg.TooManySecondaries: http.StatusConflict,
	msg.UnknownLease: http.StatusNotFound, msg.LeaseExists: http.StatusConflict, msg.TooManyLeases: http.StatusConflict,
	msg.LeaseReleased: http.StatusConflict, msg.LeaseTooSoon: http.StatusTooManyRequests,
	msg.ServiceInUse: http.StatusConflict, msg.ServiceDomainInUse: http.StatusConflict, msg.BackupRuns: http.StatusConflict,
	msg.ServiceConfigInvalid: http.StatusInternalServerError, msg.SyncNotConfigured: http.StatusInternalServerError,
	msg.SyncDisabled: http.StatusInternalServerError, msg.SyncUnfinished: http.StatusInternalServerError,
	msg.SyncFailed: http.StatusInternalServerError, msg.StoreFailed: http.StatusInternalServerError,
	msg.IdempotencyKeyReused: http.StatusConflict, msg.TooManyStreams: http.StatusServiceUnavailable, msg.TooManyWaiting: http.StatusServiceUnavailable, msg.TooManyRequests: http.StatusTooManyRequests,
	msg.ACMEFull: http.StatusConflict, msg.ACMEName: http.StatusForbidden, msg.ACMEUnseen: http.StatusGatewayTimeout, msg.Conflict: http.StatusConflict, msg.Paused: http.StatusConflict,
	msg.NotPermitted: http.StatusForbidden, msg.NameNotAllowed: http.StatusForbidden, msg.InternalError: http.StatusInternalServerError, msg.DatabaseDown: http.StatusServiceUnavailable,
	msg.Standby: http.StatusServiceUnavailable, msg.TermOver: http.StatusServiceUnavailable, msg.NotReplicated: http.StatusGatewayTimeout,
	msg.DiskFull: http.StatusInternalServerError, msg.DatabaseLocked: http.StatusInternalServerError,
	msg.DatabaseDamaged: http.StatusInternalServerError, msg.DatabaseGone: http.StatusInternalServerError,
	msg.BackupNoRoom: http.StatusInternalServerError,
}

// Adapter makes handlers from functions that answer or fail. It writes every answer, and
// before it the audit line of every change.
type Adapter struct {
	Log     *slog.Logger
	Counted func(route string, status int, reason string) // reason is the error code, "" for none

	// Broken returns the code for a fault of the database, "" for other errors; nil: there is no database.
	Broken func(error) msg.ID

	// Faults logs the causes of failures, and what rights do not permit; nil: Log has each cause.
	Faults *RefusalLines

	// Missing answers a request for an unknown path in another form than JSON, and reports whether it has; nil: it never does.
	Missing func(http.ResponseWriter, *http.Request, *Failure) bool

	Fence Fence

	// Refused is called for each failure of a handler in place of the audit line; nil: it has one.
	Refused func(*http.Request, error)
}

// Handle makes a handler from a function that answers or fails. It refuses a request as Only does, with the audit line of a
// change.
func (a Adapter) Handle(answer func(*http.Request) (Reply, error), members ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			// A copy, because net/http checks the type of its own request's body to know
			// whether the client waits for "100 Continue".
			r = r.WithContext(r.Context())
			r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		}
		result, waits, err := Reply{}, false, error(TooLarge)
		if r.ContentLength <= MaxBody {
			if err = known(r, members); err == nil {
				waits, err = a.Fence.waits(r)
			}
			if err == nil {
				result, err = Attempt(answer, r)
			}
		}
		if err == nil && waits {
			err = a.Fence.wait(r.Context())
		}
		if out, ok := w.(*statusWriter); ok && out.over() {
			err = Fail(msg.TermOver)
		}
		switch {
		case err != nil && a.Refused != nil:
			a.Refused(r, err)
		case result.Audit == Audited, result.Audit == AuditByMethod && changes(r):
			a.audit(r, result, err)
		}
		if err != nil {
			a.Refuse(w, r, err)
			return
		}
		a.write(w, r, result)
	})
}

// changes reports whether a request may change something.
func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

// Attempt turns a panic of a function that answers a request into an error, so that it gets an audit line and an answer.
func Attempt[T any](answer func(*http.Request) (T, error), r *http.Request) (result T, err error) {
	defer daemon.Catch(&err)
	return answer(r)
}

// Audit writes the audit line of a request that changes nothing, such as a backup.
func (a Adapter) Audit(r *http.Request, err error) { a.audit(r, Reply{}, err) }

// audit logs the caller, the route and the result.
func (a Adapter) audit(r *http.Request, result Reply, err error) {
	status, code := max(result.Status, http.StatusOK), msg.ID("")
	if err != nil {
		f := FailureOf(err, a.Broken)
		status, code = f.Status, f.ID
	}
	a.Log.LogAttrs(r.Context(), slog.LevelInfo, "change", slog.String("who", Caller(r)), slog.String("what", r.Pattern+raised(r)),
		slog.String("id", auditedID(r, result)), slog.Int("status", status), slog.String("code", string(code)))
}

// raised returns the set flags of a query ("?force"). Nothing else of a query gets into the
// log, because a client can put anything there.
func raised(r *http.Request) (text string) {
	query := r.URL.Query()
	for _, name := range []string{"dry_run", "force", "sweep"} {
		if on, err := queryFlag(query, name); on && err == nil {
			text += "?" + name
		}
	}
	return text
}

// maxAuditedID bounds the octets of a path's id in the log. No valid id is longer.
const maxAuditedID = 128

func auditedID(r *http.Request, result Reply) string {
	id := cmp.Or(r.PathValue("id"), result.ID)
	return id[:min(len(id), maxAuditedID)]
}

// Language returns the language that a request prefers.
func Language(r *http.Request) msg.Language {
	return msg.Preferred(strings.Join(r.Header.Values("Accept-Language"), ","))
}

// Speaking makes next answer requests without Accept-Language in language.
func Speaking(language msg.Language, next http.Handler) http.Handler {
	if language == msg.Chinese { // the default
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["Accept-Language"]) == 0 {
			r.Header.Set("Accept-Language", "en")
		}
		next.ServeHTTP(w, r)
	})
}

func (a Adapter) write(w http.ResponseWriter, r *http.Request, result Reply) {
	status := max(result.Status, http.StatusOK)
	if result.Replayed {
		w.Header().Set("Idempotent-Replay", "true")
	}
	if result.Bare {
		writeJSON(w, status, result.Data)
		return
	}
	if data, ok := result.Data.(json.RawMessage); ok && result.Message == "" {
		send(w, status, slices.Concat([]byte(`{"data":`), data, []byte("}\n")))
		return
	}
	body := struct {
		Message string `json:"message,omitempty"`
		Data    any    `json:"data,omitzero"`
	}{Data: result.Data}
	if result.Message != "" {
		body.Message = result.Message.In(Language(r))
	}
	writeJSON(w, status, body)
}

// coded is an error with the code that a client gets, such as sqlite.Refusal. This package knows no database.
type coded interface {
	error
	Code() string
}

// FailureOf returns the failure for an error. An error that is no refusal is a fault of the database or of the
// program: its cause is logged, and the client gets the code that broken returns, else msg.InternalError.
func FailureOf(err error, broken func(error) msg.ID) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if refusal, ok := errors.AsType[*msg.Refusal](err); ok {
		return Fail(refusal.ID, refusal.Args...)
	}
	if refusal, ok := errors.AsType[coded](err); ok {
		return Fail(msg.ID(refusal.Code()))
	}
	f := &Failure{Status: http.StatusInternalServerError, ID: msg.InternalError, Cause: err}
	if broken != nil {
		if id := broken(err); id != "" {
			f.ID, f.Args = id, []any{msg.Phrase{ID: msg.Because, Args: []any{err.Error()}}}
		}
	}
	return f
}

// Refuse writes a failed answer, and logs its cause.
func (a Adapter) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	f := FailureOf(err, a.Broken)
	if f.Status == http.StatusRequestEntityTooLarge {
		w.Header().Set("Connection", "close") // the rest of the body is not read
	}
	a.logCause(r, f)
	if f.ID == msg.NotPermitted {
		a.Faults.Refused(r, Denial{Status: f.Status, Code: string(f.ID)})
	}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((f.RetryAfter+time.Second-1)/time.Second)))
	}
	w.Header().Set("X-Error-Code", string(f.ID))
	writeJSON(w, f.Status, map[string]string{"error": f.in(Language(r))})
}

// Blame returns the failure for an error of a page that people read, without paths, and logs its
// cause.
func (a Adapter) Blame(r *http.Request, err error) *Failure {
	f := FailureOf(err, a.Broken)
	a.logCause(r, f)
	return f.Public()
}

// logCause logs the cause of a failure, unless it is that the client has gone.
func (a Adapter) logCause(r *http.Request, f *Failure) {
	if f.Cause != nil && !(r.Context().Err() != nil && errors.Is(f.Cause, context.Canceled)) {
		a.fault("request failed", string(f.ID), "method", r.Method, "route", r.Pattern, "error", f.Cause)
	}
}

// fault logs a fault of a kind.
func (a Adapter) fault(text, kind string, attrs ...any) {
	if a.Faults == nil {
		a.Log.Error(text, attrs...)
		return
	}
	a.Faults.Log(slog.LevelError, text, kind, attrs...)
}

// BreakOff aborts an answer whose status is sent, so that it does not look complete. It logs
// err and panics with http.ErrAbortHandler.
func (a Adapter) BreakOff(r *http.Request, err error) {
	if r.Context().Err() == nil { // else the client has gone
		a.fault("answer broken off", "broken_off", "route", r.Pattern, "error", err)
	}
	panic(http.ErrAbortHandler)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		panic(err) // a type that JSON cannot encode: a bug of this program
	}
	send(w, status, buffer.Bytes())
}

// Private sets the media type of an answer that no browser guesses another type of, and no cache keeps.
func Private(h http.Header, mediaType string) {
	h.Set("Content-Type", mediaType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

// Attachment sets the header of a file that clients store and caches do not.
func Attachment(h http.Header, mediaType, name string) {
	Private(h, mediaType)
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

func send(w http.ResponseWriter, status int, text []byte) {
	Private(w.Header(), MediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	w.Write(text)
}

var notFound = Fail(msg.NotFound, "")

// Route passes a request to its handler in mux. It answers unknown paths and methods, and unclean
// paths, in JSON, because the mux would answer in plain text or with a redirect.
func (a Adapter) Route(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	if a.Fence.Context != nil {
		ctx, cancel := a.Fence.Context(r.Context())
		defer cancel()
		r = r.WithContext(ctx)
	}
	counted := &statusWriter{ResponseWriter: w, adapter: a, request: r, status: http.StatusOK}
	defer func() { a.Counted(r.Pattern, counted.status, w.Header().Get("X-Error-Code")) }()
	defer a.rescue(counted, r)
	if a.Fence.over() {
		counted.status = http.StatusServiceUnavailable
		a.Refuse(w, r, Fail(msg.TermOver))
		return
	}
	f := notFound
	if strings.TrimSuffix(r.URL.Path, "/") == strings.TrimSuffix(path.Clean(r.URL.Path), "/") {
		if mux.ServeHTTP(counted, r); r.Pattern != "" {
			return
		}
		allow := w.Header().Get("Allow")
		clear(w.Header())
		if counted.status == http.StatusMethodNotAllowed && !IsPage(r.URL.Path) {
			w.Header().Set("Allow", allow)
			f = Fail(msg.MethodNotAllowed, allow)
		}
	}
	if counted.status = f.Status; f != notFound || a.Missing == nil || !a.Missing(w, r, f) {
		a.Refuse(w, r, f)
	}
}

// Safe answers a request when a handler before the routes panics.
func (a Adapter) Safe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := &statusWriter{ResponseWriter: w}
		defer a.rescue(begun, r)
		next.ServeHTTP(begun, r)
	})
}

// rescue answers a request whose handler panics; call it with defer. It aborts an answer that has
// begun, so that it does not look complete.
func (a Adapter) rescue(w *statusWriter, r *http.Request) {
	value := recover()
	if value == nil {
		return
	}
	fault := &daemon.Panic{Value: value, Stack: debug.Stack()}
	switch {
	case value == http.ErrAbortHandler:
		panic(value) // BreakOff has logged the reason
	case w.begun:
		a.Log.Error("answer broken off", "method", r.Method, "route", r.Pattern, "error", fault)
		panic(http.ErrAbortHandler)
	}
	clear(w.Header())
	w.status = http.StatusInternalServerError
	a.Refuse(w.ResponseWriter, r, fault)
}

// statusWriter records the status. It drops the body of the mux's own answers, which it recognises because a request
// without a handler has no pattern, and replaces an answer that begins after the end of the term.
type statusWriter struct {
	http.ResponseWriter
	adapter Adapter
	request *http.Request // nil: drop nothing
	status  int
	begun   bool
	intime  bool // the term was not over when the answer was decided
}

// dropped reports whether the answer is the mux's own.
func (w *statusWriter) dropped() bool { return w.request != nil && w.request.Pattern == "" }

// over reports whether the term is over, and decides what the answer is: once it is not, it stays so.
func (w *statusWriter) over() bool {
	if !w.intime {
		w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat)) // before the look at the clock, so it is within the term
		w.intime = !w.adapter.Fence.over()
	}
	return !w.intime
}

func (w *statusWriter) WriteHeader(status int) {
	switch {
	case w.dropped():
		w.status = status
	case status < http.StatusOK:
		w.ResponseWriter.WriteHeader(status)
	case !w.over():
		w.begun, w.status = true, status
		w.ResponseWriter.WriteHeader(status)
	case !w.begun:
		w.begun, w.status = true, http.StatusServiceUnavailable
		clear(w.Header())
		w.adapter.Refuse(w.ResponseWriter, w.request, Fail(msg.TermOver))
	}
}

func (w *statusWriter) Write(data []byte) (int, error) {
	if !w.begun && !w.dropped() {
		w.WriteHeader(http.StatusOK)
	}
	if w.dropped() || w.over() {
		return len(data), nil
	}
	return w.ResponseWriter.Write(data)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
