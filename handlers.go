package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/conntest"
	"meshddns/guard"
	"meshddns/ledger"
	"meshddns/masked"
	"meshddns/meshtxt"
	"meshddns/metrics"
	"meshddns/msg"
	"meshddns/provider"
	"meshddns/reconcile"
	"meshddns/sqlrow"
	"meshddns/strictjson"
)

// server answers the HTTP contract.
type server struct {
	store      *store
	engine     *reconcile.Engine
	clients    clients
	public     conntest.Public // how the world sees the zones
	log        *slog.Logger
	version    string
	dnsAnswers func() map[string]uint64 // of the built-in DNS server, by rcode
	mux        *http.ServeMux
	requests   metrics.Counter
}

const (
	maxBody        = 64 << 10
	syncTime       = 60 * time.Second
	releaseTime    = 30 * time.Second
	testTime       = 30 * time.Second
	writeTestTime  = 60*time.Second - provider.WriteTime // for the clean-up has that time for itself
	maxPage        = 1000
	streamPage     = 500
	jsonMediaType  = "application/json; charset=utf-8"
	maxServiceID   = 128
	serviceIDRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-"
)

// routes is the whole API.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /api/v1/ddns/config", s.api(s.configuration))
	mux.Handle("PUT /api/v1/ddns/config", s.api(s.putConfiguration))
	mux.Handle("POST /api/v1/ddns/test", s.api(s.testConnection))
	mux.Handle("POST /api/v1/ddns/sync", s.api(s.synchronise))
	mux.Handle("GET /api/v1/ddns/sync", s.api(s.lastReport))
	mux.Handle("GET /api/v1/ddns/leftovers", s.api(s.leftovers))
	mux.Handle("DELETE /api/v1/ddns/leftovers/{id}", s.api(s.forgetLeftover))
	mux.Handle("POST /api/v1/ddns/adopt", s.api(s.adopt))
	mux.Handle("GET /api/v1/ddns/providers", s.api(s.providers))

	mux.Handle("POST /api/v1/ddns/usages", s.api(s.createUsage))
	mux.Handle("GET /api/v1/ddns/check-prefix", s.api(s.checkPrefix))
	mux.HandleFunc("GET /api/v1/ddns/usages/available", s.availableUsages)
	mux.Handle("GET /api/v1/ddns/usages/{id}", s.api(s.usage))
	mux.Handle("PATCH /api/v1/ddns/usages/{id}", s.api(s.changeUsage))
	mux.Handle("DELETE /api/v1/ddns/usages/{id}", s.api(s.releaseUsage))

	mux.Handle("POST /api/v1/ddns/services", s.api(s.createService))
	mux.Handle("GET /api/v1/ddns/services", s.api(s.services))
	mux.Handle("GET /api/v1/ddns/services/{id}", s.api(s.service))
	mux.Handle("PUT /api/v1/ddns/services/{id}", s.api(s.putService))
	mux.Handle("DELETE /api/v1/ddns/services/{id}", s.api(s.deleteService))

	mux.HandleFunc("GET /api/v1/ddns/backup", s.backup)
	mux.Handle("GET /healthz", s.api(s.health))
	mux.HandleFunc("GET /metrics", s.metrics)
	s.mux = mux
	return http.HandlerFunc(s.route)
}

// route sends a request to its handler. The mux would answer unknown paths
// and methods in plain text, and an unclean path with a redirect.
func (s *server) route(w http.ResponseWriter, r *http.Request) {
	counted := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	defer func() { s.countRequest(r.Pattern, counted.status) }()
	handler, pattern := s.mux.Handler(r)
	switch {
	case strings.TrimSuffix(r.URL.Path, "/") != strings.TrimSuffix(path.Clean(r.URL.Path), "/"):
		s.refuse(counted, r, fail(msg.NotFound))
	case pattern != "":
		s.mux.ServeHTTP(counted, r)
	default:
		var verdict statusWriter
		handler.ServeHTTP(&verdict, r)
		allow := verdict.Header().Get("Allow")
		if verdict.status != http.StatusMethodNotAllowed {
			s.refuse(counted, r, fail(msg.NotFound))
			return
		}
		counted.Header().Set("Allow", allow)
		s.refuse(counted, r, fail(msg.MethodNotAllowed, allow))
	}
}

// statusWriter remembers the status. Without a ResponseWriter it drops the
// answer and keeps its header.
type statusWriter struct {
	http.ResponseWriter
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header {
	if w.ResponseWriter != nil {
		return w.ResponseWriter.Header()
	}
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	if w.ResponseWriter != nil {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *statusWriter) Write(data []byte) (int, error) {
	if w.ResponseWriter == nil {
		return len(data), nil
	}
	return w.ResponseWriter.Write(data)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// reply is a successful answer.
type reply struct {
	status  int    // 200 when it is 0
	message msg.ID // "" for none
	data    any
	next    string // cursor of the next page, "" without one
	id      string // of what was made, for the audit line
}

// failure is an answer that refuses. The error behind it, if any, is logged.
type failure struct {
	status int
	id     msg.ID
	args   []any
	cause  error
}

func (f *failure) Error() string { return f.id.In(msg.English, f.words(msg.English)...) }

// fail refuses what the client asked for: 400, where the table of statuses does
// not say otherwise.
func fail(id msg.ID, args ...any) *failure {
	return &failure{status: cmp.Or(statuses[id], http.StatusBadRequest), id: id, args: args}
}

// statuses are those that are not 400.
var statuses = map[msg.ID]int{
	msg.NotFound: http.StatusNotFound, msg.UnknownService: http.StatusNotFound, msg.UnknownUsage: http.StatusNotFound,
	msg.UnknownLeftover: http.StatusNotFound, msg.MethodNotAllowed: http.StatusMethodNotAllowed,
	msg.BodyTooLarge: http.StatusRequestEntityTooLarge, msg.ServiceExists: http.StatusConflict,
	msg.ServiceInUse: http.StatusConflict, msg.ServiceDomainInUse: http.StatusConflict,
	msg.ServiceConfigInvalid: http.StatusInternalServerError, msg.SyncNotConfigured: http.StatusInternalServerError,
	msg.SyncDisabled: http.StatusInternalServerError, msg.SyncUnfinished: http.StatusInternalServerError,
	msg.SyncFailed: http.StatusInternalServerError, msg.StoreFailed: http.StatusInternalServerError,
	msg.InternalError: http.StatusInternalServerError, msg.DatabaseDown: http.StatusServiceUnavailable,
}

// answers are what the errors of the store and the engine are to a client.
var answers = []struct {
	err error
	id  msg.ID
}{
	{errNoService, msg.UnknownService},
	{errNoUsage, msg.UnknownUsage},
	{ledger.ErrNoLeftover, msg.UnknownLeftover},
	{errServiceExists, msg.ServiceExists},
	{errServiceInUse, msg.ServiceInUse},
	{errDomainInUse, msg.ServiceDomainInUse},
	{errPrefixTaken, msg.PrefixTaken},
	{errNameTooLong, msg.NameTooLong},
	{errServiceConfig, msg.ServiceConfigInvalid},
	{errNoDomain, msg.ServiceDomainMissing},
	{errNoSecret, msg.SecretNotStored},
	{masked.ErrNoSecret, msg.SecretNotStored},
	{ledger.ErrOwnOwner, msg.OwnerIsOwn},
	{reconcile.ErrNotConfigured, msg.SyncNotConfigured},
	{reconcile.ErrDisabled, msg.SyncDisabled},
}

// phrase is an argument of a text that is itself a text.
type phrase struct {
	id   msg.ID
	args []any
}

func (f *failure) words(language msg.Language) []any { return inLanguage(f.args, language) }

// inLanguage turns the arguments that are texts themselves into words.
func inLanguage(args []any, language msg.Language) []any {
	words := slices.Clone(args)
	for i, word := range words {
		switch word := word.(type) {
		case phrase:
			words[i] = word.id.In(language, inLanguage(word.args, language)...)
		case reconcile.Fault:
			words[i] = faultText(word, language)
		}
	}
	return words
}

// api makes a handler of a function that answers or fails. Every answer, and
// before it the audit line of every change, is written here.
func (s *server) api(answer func(*http.Request) (reply, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		result, err := reply{}, error(tooLarge)
		if r.ContentLength <= maxBody {
			result, err = answer(r)
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			s.audit(r, result, err)
		}
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		s.write(w, r, result)
	})
}

// audit logs who has changed what, or tried to.
func (s *server) audit(r *http.Request, result reply, err error) {
	status, code := max(result.status, http.StatusOK), msg.ID("")
	if err != nil {
		f := asFailure(err)
		status, code = f.status, f.id
	}
	s.log.Info("change", "who", guard.Caller(r), "what", r.Pattern, "id", max(r.PathValue("id"), result.id), "status", status, "code", code)
}

func language(r *http.Request) msg.Language {
	return msg.Preferred(strings.Join(r.Header.Values("Accept-Language"), ","))
}

func (s *server) write(w http.ResponseWriter, r *http.Request, result reply) {
	body := struct {
		Message string `json:"message,omitempty"`
		Data    any    `json:"data,omitzero"`
		Next    string `json:"next_cursor,omitempty"`
	}{Data: result.data, Next: result.next}
	if result.message != "" {
		body.Message = result.message.In(language(r))
	}
	writeJSON(w, max(result.status, http.StatusOK), body)
}

// asFailure gives the failure that an error is. What is in no table is a fault of
// the program, of which the client is told no more.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	for _, a := range answers {
		if errors.Is(err, a.err) {
			return fail(a.id)
		}
	}
	return &failure{status: http.StatusInternalServerError, id: msg.InternalError, cause: err}
}

// faultText says in a language why a record is not as it should be.
func faultText(f reconcile.Fault, language msg.Language) string {
	switch {
	case f.Code == "":
		return ""
	case f.Detail == "":
		return msg.ID(f.Code).In(language)
	}
	return msg.ID(f.Code).In(language) + ": " + f.Detail
}

// refuse writes a failed answer. Its cause is logged here, once.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	f := asFailure(err)
	if f.cause != nil {
		s.log.Error("request failed", "method", r.Method, "route", r.Pattern, "error", f.cause)
	}
	w.Header().Set("X-Error-Code", string(f.id))
	spoken := language(r)
	writeJSON(w, f.status, map[string]string{"error": f.id.In(spoken, f.words(spoken)...)})
}

// deny answers for the guard, which stops a request before it gets here.
func (s *server) deny(w http.ResponseWriter, r *http.Request, refusal guard.Refusal) {
	s.refuse(w, r, &failure{status: refusal.Status, id: msg.ID(refusal.Code)})
	s.countRequest("", refusal.Status)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		panic(err) // a type that JSON cannot hold: a mistake of this program
	}
	w.Header().Set("Content-Type", jsonMediaType)
	w.Header().Set("Content-Length", strconv.Itoa(buffer.Len()))
	w.WriteHeader(status)
	w.Write(buffer.Bytes())
}

var tooLarge = fail(msg.BodyTooLarge, maxBody>>10)

// decode reads the body into a struct.
func decode(r *http.Request, into any) error {
	body, err := io.ReadAll(r.Body)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	if err == nil {
		err = strictjson.Decode(body, into)
	}
	if err != nil {
		return fail(msg.ParameterError, bodyFault(err))
	}
	return nil
}

// typeText has a text for each type that a member can miss.
var typeText = map[string]phrase{
	strictjson.Bool: {id: msg.TypeBool}, strictjson.Int64: {id: msg.TypeInt64}, strictjson.Uint64: {id: msg.TypeUint64},
	strictjson.Strings: {id: msg.TypeStrings}, strictjson.String: {id: msg.TypeString},
}

func bodyFault(err error) any {
	e, ok := errors.AsType[*strictjson.Error](err)
	if !ok {
		return err.Error()
	}
	switch e.Fault {
	case strictjson.Empty:
		return phrase{id: msg.BodyEmpty}
	case strictjson.NotUTF8:
		return phrase{id: msg.BodyNotUTF8}
	case strictjson.NotObject:
		return phrase{id: msg.BodyNotObject}
	case strictjson.Duplicate:
		return phrase{msg.BodyDuplicate, []any{e.Field}}
	case strictjson.WrongType:
		return phrase{msg.BodyWrongType, []any{e.Field, typeText[e.Want]}}
	}
	return phrase{id: msg.BodySyntax}
}

// badEndpoints refuses endpoints that cannot be published for a network.
func (s *server) badEndpoints(network string, endpoints []string) error {
	err := meshtxt.Check(network, s.store.owner, endpoints)
	switch {
	case errors.Is(err, meshtxt.ErrTooLong):
		return fail(msg.ValueTooLong, err.Error())
	case err != nil:
		return fail(msg.EndpointInvalid, err.Error())
	}
	return nil
}

// anyNetwork is the longest network id: endpoints that fit beside it fit
// beside every other.
const anyNetwork = "18446744073709551615"

// configurationBody is the configuration as clients write it.
type configurationBody struct {
	Provider        string          `json:"provider"`
	AccessKeyID     string          `json:"access_key_id"`
	AccessKeySecret provider.Secret `json:"access_key_secret"`
	Endpoint        string          `json:"endpoint"`
	Domain          string          `json:"domain"`
	TXTRecordName   string          `json:"txt_record_name"`
	TXTEndpoints    []string        `json:"txt_endpoints"`
	SyncMode        string          `json:"sync_mode"`
	RetryInterval   *int64          `json:"retry_interval"`
	MaxRetries      *int64          `json:"max_retries"`
	Enabled         bool            `json:"enabled"`
}

func (b configurationBody) configuration() configuration {
	return configuration{
		Provider: b.Provider, AccessKeyID: b.AccessKeyID, Secret: b.AccessKeySecret, Endpoint: b.Endpoint,
		Domain: b.Domain, TXTRecordName: b.TXTRecordName, Endpoints: b.TXTEndpoints, SyncMode: b.SyncMode,
		RetryInterval: optional(b.RetryInterval), MaxRetries: optional(b.MaxRetries), Enabled: b.Enabled,
	}
}

// optional is a number that may not have been given.
func optional(n *int64) sql.Null[int64] {
	if n == nil {
		return sql.Null[int64]{}
	}
	return sql.Null[int64]{V: *n, Valid: true}
}

func shownNumber(n sql.Null[int64]) *int64 {
	if !n.Valid {
		return nil
	}
	return &n.V
}

func (s *server) configuration(r *http.Request) (reply, error) {
	c, err := s.store.Configuration(r.Context())
	if err != nil && !errors.Is(err, errNoConfiguration) {
		return reply{}, err
	}
	secret := ""
	if c.Secret != "" {
		secret = masked.Mask
	}
	return reply{data: struct {
		Provider        string   `json:"provider"`
		AccessKeyID     string   `json:"access_key_id"`
		AccessKeySecret string   `json:"access_key_secret"`
		Endpoint        string   `json:"endpoint"`
		Domain          string   `json:"domain"`
		TXTRecordName   string   `json:"txt_record_name"`
		TXTEndpoints    []string `json:"txt_endpoints"`
		SyncMode        string   `json:"sync_mode"`
		EffectiveMode   string   `json:"effective_sync_mode"`
		RetryInterval   *int64   `json:"retry_interval"`
		MaxRetries      *int64   `json:"max_retries"`
		Enabled         bool     `json:"enabled"`
		UpdatedAt       string   `json:"updated_at,omitempty"`
	}{
		Provider: c.Provider, AccessKeyID: c.AccessKeyID, AccessKeySecret: secret, Endpoint: c.Endpoint,
		Domain: c.Domain, TXTRecordName: c.TXTRecordName, TXTEndpoints: append([]string{}, c.Endpoints...),
		SyncMode: c.SyncMode, EffectiveMode: c.mode(), RetryInterval: shownNumber(c.RetryInterval),
		MaxRetries: shownNumber(c.MaxRetries), Enabled: c.Enabled, UpdatedAt: c.UpdatedAt,
	}}, nil
}

func (s *server) putConfiguration(r *http.Request) (reply, error) {
	var body configurationBody
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	return reply{message: msg.ConfigurationSaved}, s.saveConfiguration(r.Context(), body.configuration())
}

// saveConfiguration checks a configuration and stores it.
func (s *server) saveConfiguration(ctx context.Context, c configuration) error {
	switch {
	case c.Provider == "":
		return fail(msg.ProviderEmpty)
	case c.AccessKeyID == "" || c.Secret == "":
		return fail(msg.AccessKeyEmpty)
	case c.Domain == "":
		return fail(msg.DomainEmpty)
	case c.TXTRecordName == "":
		return fail(msg.TXTRecordNameEmpty)
	}
	if err := s.badEndpoints(anyNetwork, c.Endpoints); err != nil {
		return err
	}
	return s.store.PutConfiguration(ctx, c, c.Secret == masked.Mask)
}

func (s *server) testConnection(r *http.Request) (reply, error) {
	var body struct {
		Provider        string          `json:"provider"`
		AccessKeyID     string          `json:"access_key_id"`
		AccessKeySecret provider.Secret `json:"access_key_secret"`
		Endpoint        string          `json:"endpoint"`
		Domain          string          `json:"domain"`
		TXTRecordName   string          `json:"txt_record_name"`
		WriteTest       bool            `json:"write_test"`
	}
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	c := configuration{
		Provider: body.Provider, AccessKeyID: body.AccessKeyID, Secret: body.AccessKeySecret, Endpoint: body.Endpoint,
		Domain: body.Domain, TXTRecordName: body.TXTRecordName,
	}
	if c.Secret == masked.Mask {
		stored, err := s.store.Configuration(r.Context())
		if err != nil && !errors.Is(err, errNoConfiguration) {
			return reply{}, err
		}
		if !stored.sameCredentials(c) {
			return reply{}, errNoSecret
		}
		c.Secret = stored.Secret
	}
	limit := testTime
	if body.WriteTest {
		limit = writeTestTime
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	items := s.clients.test(ctx, s.public, c, body.WriteTest)
	return reply{data: map[string]any{"results": testAnswer(items, language(r))}}, nil
}

type testItemAnswer struct {
	Name       string `json:"name"`
	OK         bool   `json:"ok"`
	Skipped    bool   `json:"skipped"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	DurationMS int64  `json:"duration_ms"`
}

func testAnswer(items []testItem, language msg.Language) []testItemAnswer {
	var answer []testItemAnswer
	for _, item := range items {
		shown := item.fault
		switch {
		case shown.Code == "" && item.skipped:
			shown.Code = string(msg.TestSkipped)
		case shown.Code == "":
			shown.Code = string(msg.TestOK)
		}
		answer = append(answer, testItemAnswer{
			Name: item.name, OK: item.ok, Skipped: item.skipped, Code: shown.Code,
			Message: faultText(shown, language), DurationMS: item.duration.Milliseconds(),
		})
	}
	return answer
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
	return false, fail(msg.QueryInvalid, name)
}

// flags reads flags of the query.
func flags(r *http.Request, names ...string) (set map[string]bool, err error) {
	query, err := parseQuery(r)
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

func (s *server) synchronise(r *http.Request) (reply, error) {
	flag, err := flags(r, "dry_run", "sweep")
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), syncTime)
	defer cancel()
	var result reconcile.Report
	done := msg.SyncDone
	if flag["dry_run"] {
		done = msg.SyncPlanned
		result, err = s.engine.Preview(ctx)
	} else {
		result, err = s.engine.Sync(ctx, flag["sweep"])
	}
	if errors.Is(err, reconcile.ErrUnfinished) {
		return reply{}, fail(msg.SyncUnfinished, result.Names)
	}
	if err != nil {
		return reply{}, err
	}
	if result.Bad > 0 {
		first := result.FirstBad()
		return reply{}, fail(msg.SyncFailed, result.Bad, result.Names, first.Name, first.Fault)
	}
	return reply{message: done, data: reportAnswer(result, time.Time{}, language(r))}, nil
}

func (s *server) lastReport(r *http.Request) (reply, error) {
	last, next, err := s.engine.Last(r.Context())
	if last == nil {
		return reply{data: json.RawMessage("null")}, err
	}
	return reply{data: reportAnswer(*last, next, language(r))}, err
}

type recordAnswer struct {
	Name       string      `json:"name"`
	Provider   string      `json:"provider"`
	Zone       string      `json:"zone"`
	NetworkID  json.Number `json:"network_id,omitempty"`
	Action     string      `json:"action"`
	Value      string      `json:"value"`
	Error      string      `json:"error"`
	Attempts   int         `json:"attempts"`
	DurationMS int64       `json:"duration_ms"`
}

func reportAnswer(r reconcile.Report, next time.Time, language msg.Language) any {
	answer := struct {
		StartedAt  time.Time      `json:"started_at"`
		FinishedAt time.Time      `json:"finished_at"`
		Trigger    string         `json:"trigger"`
		OK         bool           `json:"ok"`
		Complete   bool           `json:"complete"`
		Counts     map[string]int `json:"counts"`
		Records    []recordAnswer `json:"records"`
		NextAt     time.Time      `json:"next_at,omitzero"`
	}{
		StartedAt: milliseconds(r.StartedAt), FinishedAt: milliseconds(r.FinishedAt), Trigger: r.Trigger, OK: r.OK(),
		Complete: r.Complete, Counts: map[string]int{}, Records: []recordAnswer{}, NextAt: milliseconds(next),
	}
	for _, action := range reconcile.CountedActions {
		answer.Counts[action] = r.Counts[action]
	}
	for _, o := range r.Records {
		answer.Records = append(answer.Records, recordAnswer{
			Name: o.Name, Provider: o.Provider, Zone: o.Zone, NetworkID: json.Number(o.Network), Action: o.Action, Value: o.Value,
			Error: faultText(o.Fault, language), Attempts: o.Attempts, DurationMS: o.Duration.Milliseconds(),
		})
	}
	return answer
}

type leftoverAnswer struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Zone        string    `json:"zone"`
	Provider    string    `json:"provider"`
	Endpoint    string    `json:"endpoint"`
	AccessKeyID string    `json:"access_key_id"`
	Value       string    `json:"value"`
	Error       string    `json:"error"`
	Attempts    int       `json:"attempts"`
	Since       string    `json:"since"`
	NextAt      time.Time `json:"next_at,omitzero"`
}

func (s *server) leftovers(r *http.Request) (reply, error) {
	query, err := parseQuery(r)
	if err != nil {
		return reply{}, err
	}
	limit, after, err := pageQuery(query)
	if err != nil {
		return reply{}, err
	}
	size := cmp.Or(limit, maxPage)
	answer, next := []leftoverAnswer{}, ""
	for more := true; more; {
		places, err := s.store.ledger.Leftovers(r.Context(), after, size+1)
		if err != nil {
			return reply{}, err
		}
		more = len(places) > size
		for _, stored := range places[:min(size, len(places))] {
			p := stored.Place
			due, err := s.store.ledger.NameDue(r.Context(), p.Name)
			if err != nil {
				return reply{}, err
			}
			after = p.ID
			answer = append(answer, leftoverAnswer{
				ID: strconv.FormatInt(p.ID, 10), Name: p.Name, Zone: p.Zone, Provider: p.Account.Provider, Endpoint: p.Account.Endpoint,
				AccessKeyID: p.Account.AccessKeyID, Value: cmp.Or(p.Standing, p.Intent), Error: faultText(p.Fault, language(r)),
				Attempts: p.Attempts, Since: stored.Since, NextAt: milliseconds(due),
			})
		}
		if more && limit > 0 {
			next, more = strconv.FormatInt(after, 10), false
		}
	}
	return reply{data: answer, next: next}, nil
}

func (s *server) forgetLeftover(r *http.Request) (reply, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return reply{}, ledger.ErrNoLeftover
	}
	return reply{message: msg.LeftoverForgotten}, s.store.ledger.ForgetLeftover(r.Context(), id)
}

// ownerDigits are those of an owner, which has twelve.
const ownerDigits = "0123456789abcdef"

func (s *server) adopt(r *http.Request) (reply, error) {
	var body struct {
		Owner string `json:"owner"`
	}
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	flag, err := flags(r, "dry_run")
	if err != nil {
		return reply{}, err
	}
	switch {
	case len(body.Owner) != 12 || strings.Trim(body.Owner, ownerDigits) != "":
		return reply{}, fail(msg.OwnerInvalid)
	case body.Owner == s.store.owner:
		return reply{}, ledger.ErrOwnOwner
	}
	ctx, cancel := context.WithTimeout(r.Context(), syncTime)
	defer cancel()
	names, err := s.engine.Held(ctx, body.Owner)
	if errors.Is(err, reconcile.ErrUnfinished) {
		return reply{}, fail(msg.SyncUnfinished, len(names))
	}
	if err != nil {
		return reply{}, err
	}
	done := msg.SyncPlanned
	if !flag["dry_run"] {
		done = msg.OwnerAdopted
		err = s.store.ledger.Adopt(ctx, body.Owner)
	}
	return reply{message: done, data: map[string]any{"records": append([]string{}, names...)}}, err
}

func milliseconds(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

func (s *server) providers(r *http.Request) (reply, error) {
	type entry struct {
		Name            string `json:"name"`
		Title           string `json:"title"`
		AccessKeyID     string `json:"access_key_id"`
		AccessKeySecret string `json:"access_key_secret"`
		Endpoint        string `json:"endpoint"`
		MinTTL          uint32 `json:"min_ttl"`
	}
	var list []entry
	for _, p := range providers {
		in := msg.ProviderIn(language(r), p.name)
		list = append(list, entry{
			Name: p.name, Title: in.Title, AccessKeyID: in.AccessKeyID, AccessKeySecret: in.AccessKeySecret,
			Endpoint: in.Endpoint, MinTTL: p.minTTL,
		})
	}
	return reply{data: list}, nil
}

func (s *server) createUsage(r *http.Request) (reply, error) {
	var body struct {
		ServiceID    string            `json:"service_id"`
		PrefixMode   string            `json:"prefix_mode"`
		CustomPrefix string            `json:"custom_prefix"`
		NetworkID    *sqlrow.NetworkID `json:"network_id"`
		NetworkName  string            `json:"network_name"`
	}
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	u, err := s.reserve(r.Context(), reservation{
		service: body.ServiceID, mode: body.PrefixMode, custom: body.CustomPrefix, network: body.NetworkID, networkName: body.NetworkName,
	})
	if err != nil {
		return reply{}, err
	}
	return reply{message: msg.UsageCreated, id: u.ID, data: struct {
		ID         string           `json:"id"`
		ProviderID string           `json:"provider_id"`
		Mode       string           `json:"prefix_mode"`
		Prefix     string           `json:"record_prefix"`
		FullDomain string           `json:"full_domain"`
		NetworkID  sqlrow.NetworkID `json:"network_id"`
	}{
		ID: u.ID, ProviderID: u.ServiceID, Mode: u.Mode, Prefix: u.Prefix,
		FullDomain: fullName(u.Prefix, u.Domain.V), NetworkID: u.Network.V,
	}}, nil
}

// reservation is what a client wants to reserve.
type reservation struct {
	service, mode, custom string
	network               *sqlrow.NetworkID // nil when it is not given
	networkName           string
}

// reserve checks a reservation in the order of the contract, and stores it.
func (s *server) reserve(ctx context.Context, want reservation) (usage, error) {
	switch {
	case want.service == "":
		return usage{}, fail(msg.ServiceIDEmpty)
	case want.mode != modeAutomatic && want.mode != modeCustom:
		return usage{}, fail(msg.PrefixModeInvalid)
	}
	v, err := s.store.Service(ctx, want.service)
	switch {
	case err != nil:
		return usage{}, err
	case !v.Domain.Valid:
		return usage{}, errServiceConfig
	case v.Domain.V == "":
		return usage{}, errNoDomain
	case want.network == nil:
		return usage{}, fail(msg.NetworkIDMissing)
	}
	prefix := want.custom
	if want.mode == modeAutomatic {
		prefix = automaticPrefix(*want.network)
	} else if fault := prefixFault(prefix); fault != "" {
		return usage{}, fail(fault)
	}
	u, err := s.store.CreateUsage(ctx, usage{
		ServiceID: want.service, Mode: want.mode, Prefix: prefix, Description: "mesh sync - " + want.networkName,
		Network: sql.Null[sqlrow.NetworkID]{V: *want.network, Valid: true},
	})
	if err != nil && asFailure(err).cause != nil {
		return u, &failure{status: http.StatusInternalServerError, id: msg.StoreFailed, args: []any{err.Error()}, cause: err}
	}
	return u, err
}

func (s *server) checkPrefix(r *http.Request) (reply, error) {
	query, err := parseQuery(r)
	if err != nil {
		return reply{}, err
	}
	for _, name := range []string{"service_id", "prefix"} {
		if query.Get(name) == "" {
			return reply{}, fail(msg.QueryMissing, name)
		}
	}
	count, err := s.store.CountUsages(r.Context(), query.Get("service_id"), query.Get("prefix"))
	if err != nil {
		return reply{}, err
	}
	return reply{data: map[string]any{"occupied": count > 0, "count": count}}, nil
}

type providerAnswer struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// usageAnswer is an entry of the listing.
type usageAnswer struct {
	ID          string            `json:"id"`
	ProviderID  string            `json:"provider_id"`
	Mode        string            `json:"prefix_mode"`
	Prefix      string            `json:"record_prefix"`
	RecordType  string            `json:"record_type"`
	Description string            `json:"description"`
	IsOccupied  bool              `json:"is_occupied"`
	NetworkID   *sqlrow.NetworkID `json:"network_id,omitempty"`
	FullDomain  string            `json:"full_domain"`
	Provider    *providerAnswer   `json:"provider,omitempty"`
}

func listed(u usage) usageAnswer {
	answer := usageAnswer{
		ID: u.ID, ProviderID: u.ServiceID, Mode: u.Mode, Prefix: u.Prefix, RecordType: u.RecordType,
		Description: u.Description, IsOccupied: u.Exclusive, FullDomain: fullName(u.Prefix, u.Domain.V),
	}
	if u.Network.Valid {
		answer.NetworkID = &u.Network.V
	}
	if u.ServiceName.Valid {
		answer.Provider = &providerAnswer{ID: u.ServiceID, Name: u.ServiceName.V}
	}
	return answer
}

// availableUsages lists usages: a page when a limit is given, else all of
// them, streamed. It reads page by page, so a slow client holds no connection
// of the database.
func (s *server) availableUsages(w http.ResponseWriter, r *http.Request) {
	filter, limit, err := listingQuery(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	page := streamPage
	if limit > 0 {
		page = limit
	}
	usages, err := s.page(r.Context(), &filter, page+1)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", jsonMediaType)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	io.WriteString(w, `{"data":[`)
	for separator := ""; ; separator = "," {
		more := len(usages) > page
		for _, u := range usages[:min(page, len(usages))] {
			io.WriteString(w, separator)
			out.Encode(listed(u))
			separator = ","
		}
		if !more || limit > 0 {
			break
		}
		filter.after = usages[page-1].Seq
		if usages, err = s.page(r.Context(), &filter, page+1); err != nil {
			s.log.Error("listing broken off", "error", err)
			panic(http.ErrAbortHandler) // the status is sent: a cut answer must not look whole
		}
	}
	io.WriteString(w, "]")
	if len(usages) > page {
		io.WriteString(w, `,"next_cursor":`)
		out.Encode(strconv.FormatInt(usages[page-1].Seq, 10))
	}
	io.WriteString(w, "}\n")
}

// page gives at most limit usages that the filter selects. Those of one state are
// looked for page by page.
func (s *server) page(ctx context.Context, filter *usageFilter, limit int) (found []usage, err error) {
	f := *filter
	for {
		usages, err := s.store.Usages(ctx, f, limit)
		if err != nil || f.state == "" {
			return usages, err
		}
		states, err := s.publishing(ctx, usages)
		if err != nil {
			return nil, err
		}
		for i, u := range usages {
			if states[i].state == f.state {
				found = append(found, u)
			}
			f.after = u.Seq
		}
		if len(usages) < limit || len(found) >= limit {
			return found[:min(limit, len(found))], nil
		}
	}
}

// publishing says how far the records of some usages are.
func (s *server) publishing(ctx context.Context, usages []usage) ([]publishing, error) {
	names := map[string]int{}
	var list []string
	for _, u := range usages {
		if _, ok := names[u.Name]; !ok {
			names[u.Name] = len(list)
			list = append(list, u.Name)
		}
	}
	state, err := s.store.ledger.State(ctx, list)
	if err != nil {
		return nil, err
	}
	var all []publishing
	for _, u := range usages {
		places, err := s.store.ledger.Places(ctx, u.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, publishingOf(u, state.Names[names[u.Name]], places))
	}
	return all, nil
}

// parseQuery reads the query. A broken part would otherwise be dropped, and a
// filter with it.
func parseQuery(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fail(msg.ParameterError, err.Error())
	}
	return query, nil
}

// pageQuery reads the limit, 0 without one, and the cursor of a listing.
func pageQuery(query url.Values) (limit int, after int64, err error) {
	if query.Has("limit") && query.Get("limit") != "" {
		limit, err = strconv.Atoi(query.Get("limit"))
		if err != nil || limit < 1 || limit > maxPage {
			return 0, 0, fail(msg.QueryInvalid, "limit")
		}
	}
	if cursor := query.Get("cursor"); cursor != "" {
		after, err = strconv.ParseInt(cursor, 10, 64)
		if err != nil || after < 0 || strconv.FormatInt(after, 10) != cursor {
			return 0, 0, fail(msg.QueryInvalid, "cursor")
		}
	}
	return limit, after, nil
}

// publishStates are those that a listing can be about.
var publishStates = []string{stateNone, reconcile.Pending, reconcile.Published, reconcile.Failed, reconcile.Conflict, reconcile.Withdrawing}

func listingQuery(r *http.Request) (filter usageFilter, limit int, err error) {
	query, err := parseQuery(r)
	if err != nil {
		return filter, 0, err
	}
	filter = usageFilter{serviceID: query.Get("service_id"), state: query.Get("state")}
	if filter.state != "" && !slices.Contains(publishStates, filter.state) {
		return filter, 0, fail(msg.QueryInvalid, "state")
	}
	if text := query.Get("network_id"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return filter, 0, fail(msg.QueryInvalid, "network_id")
		}
		filter.network = sql.Null[sqlrow.NetworkID]{V: sqlrow.NetworkID(n), Valid: true}
	}
	limit, filter.after, err = pageQuery(query)
	return filter, limit, err
}

type publishAnswer struct {
	State    string `json:"state"`
	Value    string `json:"value"`
	Error    string `json:"error"`
	Attempts int    `json:"attempts"`
	At       string `json:"at"`
}

func (s *server) usage(r *http.Request) (reply, error) {
	u, err := s.store.Usage(r.Context(), r.PathValue("id"))
	if err != nil {
		return reply{}, err
	}
	states, err := s.publishing(r.Context(), []usage{u})
	if err != nil {
		return reply{}, err
	}
	p := states[0]
	return reply{data: struct {
		usageAnswer
		Status       string        `json:"status"`
		TXTEndpoints []string      `json:"txt_endpoints"`
		Publish      publishAnswer `json:"publish"`
		CreatedAt    string        `json:"created_at"`
	}{
		usageAnswer: listed(u), Status: u.Status, TXTEndpoints: append([]string{}, u.Endpoints...), CreatedAt: u.CreatedAt,
		Publish: publishAnswer{State: p.state, Value: p.value, Error: faultText(p.fault, language(r)), Attempts: p.attempts, At: p.at},
	}}, nil
}

func (s *server) changeUsage(r *http.Request) (reply, error) {
	u, err := s.store.Usage(r.Context(), r.PathValue("id"))
	if err != nil {
		return reply{}, err
	}
	var body struct {
		TXTEndpoints sqlrow.TextList `json:"txt_endpoints"`
		Description  *string         `json:"description"`
	}
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	network := anyNetwork
	if u.Network.Valid {
		network = u.Network.V.String()
	}
	if body.TXTEndpoints != nil {
		if err := s.badEndpoints(network, body.TXTEndpoints); err != nil {
			return reply{}, err
		}
	}
	return reply{message: msg.UsageChanged}, s.store.ChangeUsage(r.Context(), u.ID, body.TXTEndpoints, body.Description)
}

func (s *server) releaseUsage(r *http.Request) (reply, error) {
	flag, err := flags(r, "force")
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), releaseTime)
	defer cancel()
	freed, err := s.release(ctx, r.PathValue("id"), flag["force"])
	if err != nil {
		return reply{}, err
	}
	if !freed {
		return reply{status: http.StatusAccepted, message: msg.UsageReleasing, data: map[string]string{"status": statusReleasing}}, nil
	}
	return reply{message: msg.UsageReleased}, nil
}

// release gives a prefix free. What it has published is withdrawn first: it waits
// until that was tried, and reports whether the prefix is free by then.
func (s *server) release(ctx context.Context, id string, force bool) (freed bool, err error) {
	u, err := s.store.Usage(ctx, id)
	if err != nil {
		return false, err
	}
	waiter := s.engine.Expect(u.Name)
	defer waiter.Close()
	done, err := s.store.ReleaseUsage(ctx, id, force)
	if err != nil || done.freed {
		return done.freed, err
	}
	waiter.Wait(ctx, done.version)
	_, err = s.store.Usage(context.WithoutCancel(ctx), id)
	if errors.Is(err, errNoUsage) {
		return true, nil
	}
	return false, err
}

type serviceBody struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Config json.RawMessage `json:"config"`
}

// checkedService checks a body and makes the service of it. Masked secrets are still
// masked.
func (s *server) checkedService(body serviceBody) (v service, err error) {
	if body.Name == "" {
		return v, fail(msg.ServiceNameEmpty)
	}
	v = service{ID: body.ID, Name: body.Name, Config: string(body.Config)}
	if json.Unmarshal(body.Config, &v.Config) != nil {
		var compact bytes.Buffer
		if json.Compact(&compact, body.Config) == nil {
			v.Config = compact.String()
		}
	}
	if _, err := strictjson.Object([]byte(v.Config)); err != nil {
		return v, fail(msg.ServiceConfigShape, bodyFault(err))
	}
	var typed struct {
		Provider        string          `json:"provider"`
		AccessKeyID     string          `json:"access_key_id"`
		AccessKeySecret provider.Secret `json:"access_key_secret"`
		Endpoint        string          `json:"endpoint"`
		TXTEndpoints    []string        `json:"txt_endpoints"`
	}
	if err := strictjson.Decode([]byte(v.Config), &typed); err != nil {
		e, _ := errors.AsType[*strictjson.Error](err)
		return v, fail(msg.ServiceEntryType, e.Field, typeText[e.Want])
	}
	return v, s.badEndpoints(anyNetwork, typed.TXTEndpoints)
}

func goodServiceID(id string) bool {
	return id != "" && len(id) <= maxServiceID && strings.Trim(id, serviceIDRunes) == "" && id != "." && id != ".."
}

func (s *server) createService(r *http.Request) (reply, error) {
	var body serviceBody
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	if body.ID == "" {
		id, err := s.store.newID()
		if err != nil {
			return reply{}, err
		}
		body.ID = id
	}
	if !goodServiceID(body.ID) {
		return reply{}, fail(msg.ServiceIDInvalid)
	}
	v, err := s.checkedService(body)
	if err != nil {
		return reply{}, err
	}
	if _, _, err := masked.Restore(v.Config, "{}"); err != nil {
		return reply{}, err
	}
	if err := s.store.CreateService(r.Context(), v); err != nil {
		return reply{}, err
	}
	return s.savedService(r, v.ID)
}

func (s *server) putService(r *http.Request) (reply, error) {
	var body serviceBody
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	if body.ID = r.PathValue("id"); !goodServiceID(body.ID) {
		return reply{}, fail(msg.ServiceIDInvalid)
	}
	v, err := s.checkedService(body)
	if err != nil {
		return reply{}, err
	}
	err = s.store.PutService(r.Context(), body.ID, func(stored service) (service, error) {
		config, used, err := masked.Restore(v.Config, stored.Config)
		if err != nil || used && !sameAccount(v.Config, stored.Config) {
			return service{}, errNoSecret
		}
		changed := v
		changed.Config = config
		return changed, nil
	})
	if err != nil {
		return reply{}, err
	}
	return s.savedService(r, body.ID)
}

// sameAccount reports whether two configs are for one account at one address:
// else a stored key could be sent to a stranger's.
func sameAccount(a, b string) bool {
	x, errX := parseServiceConfig(a)
	y, errY := parseServiceConfig(b)
	return errX == nil && errY == nil && x.Provider == y.Provider && x.AccessKeyID == y.AccessKeyID && x.Endpoint == y.Endpoint
}

func (s *server) savedService(r *http.Request, id string) (reply, error) {
	v, err := s.store.Service(r.Context(), id)
	if err != nil {
		return reply{}, err
	}
	return reply{message: msg.ServiceSaved, id: id, data: shownService(v)}, nil
}

type serviceAnswer struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Config     string `json:"config"`
	UsageCount int    `json:"usage_count"`
	CreatedAt  string `json:"created_at"`
	UpdatedAt  string `json:"updated_at"`
}

func shownService(v service) serviceAnswer {
	return serviceAnswer{
		ID: v.ID, Name: v.Name, Config: masked.Hide(v.Config), UsageCount: v.UsageCount, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt,
	}
}

func (s *server) services(r *http.Request) (reply, error) {
	all, err := s.store.Services(r.Context())
	if err != nil {
		return reply{}, err
	}
	answer := []serviceAnswer{}
	for _, v := range all {
		answer = append(answer, shownService(v))
	}
	return reply{data: answer}, nil
}

func (s *server) service(r *http.Request) (reply, error) {
	v, err := s.store.Service(r.Context(), r.PathValue("id"))
	return reply{data: shownService(v)}, err
}

func (s *server) deleteService(r *http.Request) (reply, error) {
	return reply{message: msg.ServiceDeleted}, s.store.DeleteService(r.Context(), r.PathValue("id"))
}

// backup sends a consistent copy of the live database.
func (s *server) backup(w http.ResponseWriter, r *http.Request) {
	file, err := s.store.Backup(r.Context())
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	}
	w.Header().Set("Content-Type", "application/vnd.sqlite3")
	w.Header().Set("Content-Disposition", `attachment; filename="meshddns.db"`)
	w.Header().Set("Cache-Control", "no-store")
	if _, err := io.Copy(w, file); err != nil && r.Context().Err() == nil {
		s.log.Error("send backup", "error", err)
		panic(http.ErrAbortHandler) // a cut copy must not look whole
	}
}

func (s *server) health(r *http.Request) (reply, error) {
	if err := s.store.Ping(r.Context()); err != nil {
		return reply{}, &failure{status: http.StatusServiceUnavailable, id: msg.DatabaseDown, cause: err}
	}
	return reply{message: msg.TestOK}, nil
}

// metrics is the page that Prometheus reads.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	totals, err := s.store.Totals(r.Context())
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	var out bytes.Buffer
	page := metrics.NewPage(&out)
	page.Family("meshddns_build_info", "gauge", "Version of the program.")
	page.Figure(1, metrics.Label{Name: "version", Value: s.version})
	page.Family("meshddns_services", "gauge", "Registered services.")
	page.Figure(totals["services"])
	page.Family("meshddns_usages", "gauge", "Reserved prefixes.")
	page.Figure(totals["usages"])
	page.Family("meshddns_records", "gauge", "Places of published names by state.")
	for _, state := range reconcile.PlaceStates {
		page.Figure(totals[state], metrics.Label{Name: "state", Value: state})
	}
	s.requests.Write(page, "meshddns_http_requests_total", "Answered HTTP requests.")
	s.engine.Passes().Write(page, "meshddns_sync_runs_total", "Ended passes over all names.")
	page.Family("meshddns_dns_answers_total", "counter", "Answers of the built-in DNS server.")
	answers := s.dnsAnswers()
	for _, rcode := range slices.Sorted(maps.Keys(answers)) {
		page.Figure(answers[rcode], metrics.Label{Name: "rcode", Value: rcode})
	}
	w.Header().Set("Content-Type", metrics.ContentType)
	w.Write(out.Bytes())
}

// countRequest counts an answer. The label is the route, never the path.
func (s *server) countRequest(route string, status int) {
	s.requests.Add(metrics.Label{Name: "route", Value: route}, metrics.Label{Name: "code", Value: strconv.Itoa(status)})
}
