package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"meshddns/guard"
	"meshddns/masked"
	"meshddns/meshtxt"
	"meshddns/metrics"
	"meshddns/msg"
	"meshddns/provider"
	"meshddns/strictjson"
)

// server answers the HTTP contract.
type server struct {
	store      *store
	sync       *syncer
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
		s.refuse(counted, r, fail(http.StatusNotFound, msg.NotFound))
	case pattern != "":
		s.mux.ServeHTTP(counted, r)
	default:
		var verdict statusWriter
		handler.ServeHTTP(&verdict, r)
		allow := verdict.Header().Get("Allow")
		if verdict.status != http.StatusMethodNotAllowed {
			s.refuse(counted, r, fail(http.StatusNotFound, msg.NotFound))
			return
		}
		counted.Header().Set("Allow", allow)
		s.refuse(counted, r, fail(http.StatusMethodNotAllowed, msg.MethodNotAllowed, allow))
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

func fail(status int, id msg.ID, args ...any) *failure {
	return &failure{status: status, id: id, args: args}
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
		case fault:
			words[i] = word.text(language)
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
	}{Data: result.data}
	if result.message != "" {
		body.Message = result.message.In(language(r))
	}
	writeJSON(w, max(result.status, http.StatusOK), body)
}

// asFailure gives the failure that an error is. What no handler made a failure
// of is a fault of the program, of which the client is told no more.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{status: http.StatusInternalServerError, id: msg.InternalError, cause: err}
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
	s.refuse(w, r, fail(refusal.Status, msg.ID(refusal.Code)))
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

var tooLarge = fail(http.StatusRequestEntityTooLarge, msg.BodyTooLarge, maxBody>>10)

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
		return fail(http.StatusBadRequest, msg.ParameterError, bodyFault(err))
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
func (s *server) badEndpoints(ctx context.Context, network string, endpoints []string) error {
	owner, err := s.store.Owner(ctx)
	if err != nil {
		return err
	}
	err = meshtxt.Check(network, owner, endpoints)
	switch {
	case errors.Is(err, meshtxt.ErrTooLong):
		return fail(http.StatusBadRequest, msg.ValueTooLong, err.Error())
	case err != nil:
		return fail(http.StatusBadRequest, msg.EndpointInvalid, err.Error())
	}
	return nil
}

// anyNetwork is the longest network id: endpoints that fit beside it fit
// beside every other.
const anyNetwork = "18446744073709551615"

func (s *server) configuration(r *http.Request) (reply, error) {
	c, err := s.store.Configuration(r.Context())
	if err != nil && !errors.Is(err, errNotFound) {
		return reply{}, err
	}
	secret := ""
	if c.AccessKeySecret != "" {
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
		c.Provider, c.AccessKeyID, secret, c.Endpoint, c.Domain, c.TXTRecordName, append([]string{}, c.Endpoints...),
		c.SyncMode, c.mode(), c.RetryInterval, c.MaxRetries, c.Enabled, c.UpdatedAt,
	}}, nil
}

func (s *server) putConfiguration(r *http.Request) (reply, error) {
	var body struct {
		Provider        string   `json:"provider"`
		AccessKeyID     string   `json:"access_key_id"`
		AccessKeySecret string   `json:"access_key_secret"`
		Endpoint        string   `json:"endpoint"`
		Domain          string   `json:"domain"`
		TXTRecordName   string   `json:"txt_record_name"`
		TXTEndpoints    []string `json:"txt_endpoints"`
		SyncMode        string   `json:"sync_mode"`
		RetryInterval   *int64   `json:"retry_interval"`
		MaxRetries      *int64   `json:"max_retries"`
		Enabled         bool     `json:"enabled"`
	}
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	switch {
	case body.Provider == "":
		return reply{}, fail(http.StatusBadRequest, msg.ProviderEmpty)
	case body.AccessKeyID == "" || body.AccessKeySecret == "":
		return reply{}, fail(http.StatusBadRequest, msg.AccessKeyEmpty)
	case body.Domain == "":
		return reply{}, fail(http.StatusBadRequest, msg.DomainEmpty)
	case body.TXTRecordName == "":
		return reply{}, fail(http.StatusBadRequest, msg.TXTRecordNameEmpty)
	}
	if err := s.badEndpoints(r.Context(), anyNetwork, body.TXTEndpoints); err != nil {
		return reply{}, err
	}
	err := s.store.PutConfiguration(r.Context(), configuration{
		Provider: body.Provider, AccessKeyID: body.AccessKeyID, AccessKeySecret: body.AccessKeySecret, Endpoint: body.Endpoint,
		Domain: body.Domain, TXTRecordName: body.TXTRecordName, Endpoints: body.TXTEndpoints, SyncMode: body.SyncMode,
		RetryInterval: body.RetryInterval, MaxRetries: body.MaxRetries, Enabled: body.Enabled,
	}, body.AccessKeySecret == masked.Mask)
	if errors.Is(err, errNoSecret) {
		return reply{}, fail(http.StatusBadRequest, msg.SecretNotStored)
	}
	if err != nil {
		return reply{}, err
	}
	s.sync.Changed(triggerChange)
	return reply{message: msg.ConfigurationSaved}, nil
}

func (s *server) testConnection(r *http.Request) (reply, error) {
	var body struct {
		Provider        string `json:"provider"`
		AccessKeyID     string `json:"access_key_id"`
		AccessKeySecret string `json:"access_key_secret"`
		Endpoint        string `json:"endpoint"`
		Domain          string `json:"domain"`
		TXTRecordName   string `json:"txt_record_name"`
		WriteTest       bool   `json:"write_test"`
	}
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	c := configuration{
		Provider: body.Provider, AccessKeyID: body.AccessKeyID, AccessKeySecret: body.AccessKeySecret, Endpoint: body.Endpoint,
		Domain: body.Domain, TXTRecordName: body.TXTRecordName,
	}
	if c.AccessKeySecret == masked.Mask {
		stored, err := s.store.Configuration(r.Context())
		if err != nil && !errors.Is(err, errNotFound) {
			return reply{}, err
		}
		if !stored.sameCredentials(c) {
			return reply{}, fail(http.StatusBadRequest, msg.SecretNotStored)
		}
		c.AccessKeySecret = stored.AccessKeySecret
	}
	limit := testTime
	if body.WriteTest {
		limit = writeTestTime
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	items := s.sync.Test(ctx, c.target(), c, body.WriteTest)
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
		code := item.fault.code
		switch {
		case code == "" && item.skipped:
			code = msg.TestSkipped
		case code == "":
			code = msg.TestOK
		}
		text := fault{code, item.fault.detail}.text(language)
		answer = append(answer, testItemAnswer{item.name, item.ok, item.skipped, string(code), text, item.duration.Milliseconds()})
	}
	return answer
}

func (s *server) synchronise(r *http.Request) (reply, error) {
	ctx, cancel := context.WithTimeout(r.Context(), syncTime)
	defer cancel()
	work, done := s.sync.Preview, msg.SyncPlanned
	if r.URL.Query().Get("dry_run") != "1" {
		work = func(ctx context.Context) (report, error) { return s.sync.Sync(ctx, triggerManual) }
		done = msg.SyncDone
	}
	result, err := work(ctx)
	switch {
	case errors.Is(err, errNotConfigured):
		return reply{}, fail(http.StatusInternalServerError, msg.SyncNotConfigured)
	case errors.Is(err, errDisabled):
		return reply{}, fail(http.StatusInternalServerError, msg.SyncDisabled)
	case errors.Is(err, errInterrupted):
		return reply{}, fail(http.StatusInternalServerError, msg.SyncInterrupted)
	case err != nil:
		return reply{}, err
	}
	if bad, first := result.bad(); bad > 0 {
		return reply{}, fail(http.StatusInternalServerError, msg.SyncFailed, bad, len(result.outcomes), first.name, first.fault)
	}
	return reply{message: done, data: reportAnswer(result, time.Time{}, language(r))}, nil
}

func (s *server) lastReport(r *http.Request) (reply, error) {
	last, next := s.sync.Last()
	if last == nil {
		return reply{data: json.RawMessage("null")}, nil
	}
	return reply{data: reportAnswer(*last, next, language(r))}, nil
}

type recordAnswer struct {
	Name       string `json:"name"`
	Action     string `json:"action"`
	Value      string `json:"value"`
	Error      string `json:"error"`
	Attempts   int    `json:"attempts"`
	DurationMS int64  `json:"duration_ms"`
}

func reportAnswer(r report, next time.Time, language msg.Language) any {
	bad, _ := r.bad()
	answer := struct {
		StartedAt  time.Time      `json:"started_at"`
		FinishedAt time.Time      `json:"finished_at"`
		Trigger    string         `json:"trigger"`
		OK         bool           `json:"ok"`
		Records    []recordAnswer `json:"records"`
		NextAt     time.Time      `json:"next_at,omitzero"`
	}{milliseconds(r.startedAt), milliseconds(r.finishedAt), r.trigger, bad == 0, []recordAnswer{}, milliseconds(next)}
	for _, o := range r.outcomes {
		answer.Records = append(answer.Records, recordAnswer{o.name, o.action, o.value, o.fault.text(language), o.attempts, o.duration.Milliseconds()})
	}
	return answer
}

func milliseconds(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

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
		list = append(list, entry{p.name, in.Title, in.AccessKeyID, in.AccessKeySecret, in.Endpoint, p.minTTL})
	}
	return reply{data: list}, nil
}

func (s *server) createUsage(r *http.Request) (reply, error) {
	var body struct {
		ServiceID    string     `json:"service_id"`
		PrefixMode   string     `json:"prefix_mode"`
		CustomPrefix string     `json:"custom_prefix"`
		NetworkID    *networkID `json:"network_id"`
		NetworkName  string     `json:"network_name"`
	}
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	switch {
	case body.ServiceID == "":
		return reply{}, fail(http.StatusBadRequest, msg.ServiceIDEmpty)
	case body.PrefixMode != modeAutomatic && body.PrefixMode != modeCustom:
		return reply{}, fail(http.StatusBadRequest, msg.PrefixModeInvalid)
	}
	domain, err := s.serviceDomain(r.Context(), body.ServiceID)
	if err != nil {
		return reply{}, err
	}
	if body.NetworkID == nil {
		return reply{}, fail(http.StatusBadRequest, msg.NetworkIDMissing)
	}
	prefix, err := choosePrefix(body.PrefixMode, body.CustomPrefix, *body.NetworkID, domain)
	if err != nil {
		return reply{}, err
	}
	id, err := s.store.CreateUsage(r.Context(), usage{
		ServiceID: body.ServiceID, Mode: body.PrefixMode, Prefix: prefix, Description: "mesh sync - " + body.NetworkName,
	}, *body.NetworkID)
	switch {
	case errors.Is(err, errPrefixTaken):
		return reply{}, fail(http.StatusBadRequest, msg.PrefixTaken)
	case errors.Is(err, errNotFound):
		return reply{}, fail(http.StatusNotFound, msg.UnknownService)
	case err != nil:
		return reply{}, err
	}
	s.sync.Changed(triggerChange)
	return reply{message: msg.UsageCreated, id: id, data: struct {
		ID         string    `json:"id"`
		ProviderID string    `json:"provider_id"`
		Mode       string    `json:"prefix_mode"`
		Prefix     string    `json:"record_prefix"`
		FullDomain string    `json:"full_domain"`
		NetworkID  networkID `json:"network_id"`
	}{id, body.ServiceID, body.PrefixMode, prefix, fullName(prefix, domain), *body.NetworkID}}, nil
}

// choosePrefix gives the prefix to reserve: the network's automatic one, or
// the custom one if it is allowed.
func choosePrefix(mode, custom string, network networkID, domain string) (prefix string, err error) {
	prefix = custom
	if mode == modeAutomatic {
		prefix = automaticPrefix(network)
	} else if fault := prefixFault(custom); fault != "" {
		return "", fail(http.StatusBadRequest, fault)
	}
	if !nameFits(dnsName(fullName(prefix, domain))) {
		return "", fail(http.StatusBadRequest, msg.NameTooLong)
	}
	return prefix, nil
}

// serviceDomain gives the domain under which a service's prefixes are.
func (s *server) serviceDomain(ctx context.Context, id string) (string, error) {
	v, err := s.store.Service(ctx, id)
	if errors.Is(err, errNotFound) {
		return "", fail(http.StatusNotFound, msg.UnknownService)
	}
	if err != nil {
		return "", err
	}
	config, err := parseServiceConfig(v.Config)
	switch {
	case err != nil:
		return "", &failure{status: http.StatusInternalServerError, id: msg.ServiceConfigInvalid, cause: fmt.Errorf("config of service %s is not a JSON object", id)}
	case config.Domain == "":
		return "", fail(http.StatusBadRequest, msg.ServiceDomainMissing)
	}
	return config.Domain, nil
}

func (s *server) checkPrefix(r *http.Request) (reply, error) {
	query, err := parseQuery(r)
	if err != nil {
		return reply{}, err
	}
	for _, name := range []string{"service_id", "prefix"} {
		if query.Get(name) == "" {
			return reply{}, fail(http.StatusBadRequest, msg.QueryMissing, name)
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
	ID          string          `json:"id"`
	ProviderID  string          `json:"provider_id"`
	Mode        string          `json:"prefix_mode"`
	Prefix      string          `json:"record_prefix"`
	RecordType  string          `json:"record_type"`
	Description string          `json:"description"`
	IsOccupied  bool            `json:"is_occupied"`
	NetworkID   *networkID      `json:"network_id,omitempty"`
	FullDomain  string          `json:"full_domain"`
	Provider    *providerAnswer `json:"provider,omitempty"`
}

func listed(u usage) usageAnswer {
	answer := usageAnswer{
		ID: u.ID, ProviderID: u.ServiceID, Mode: u.Mode, Prefix: u.Prefix, RecordType: u.RecordType,
		Description: u.Description, IsOccupied: u.Exclusive, NetworkID: u.Network, FullDomain: fullName(u.Prefix, u.domain()),
	}
	if u.ServiceName != nil {
		answer.Provider = &providerAnswer{u.ServiceID, *u.ServiceName}
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
	usages, err := s.store.Usages(r.Context(), filter, page+1)
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
		filter.after = usages[page-1].ID
		if usages, err = s.store.Usages(r.Context(), filter, page+1); err != nil {
			s.log.Error("listing broken off", "error", err)
			panic(http.ErrAbortHandler) // the status is sent: a cut answer must not look whole
		}
	}
	io.WriteString(w, "]")
	if len(usages) > page {
		io.WriteString(w, `,"next_cursor":`)
		out.Encode(usages[page-1].ID)
	}
	io.WriteString(w, "}\n")
}

// parseQuery reads the query. A broken part would otherwise be dropped, and a
// filter with it.
func parseQuery(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fail(http.StatusBadRequest, msg.ParameterError, err.Error())
	}
	return query, nil
}

func listingQuery(r *http.Request) (filter usageFilter, limit int, err error) {
	query, err := parseQuery(r)
	if err != nil {
		return filter, 0, err
	}
	filter = usageFilter{serviceID: query.Get("service_id"), after: query.Get("cursor")}
	if text := query.Get("network_id"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return filter, 0, fail(http.StatusBadRequest, msg.QueryInvalid, "network_id")
		}
		network := networkID(n)
		filter.network = &network
	}
	if text := query.Get("limit"); text != "" {
		limit, err = strconv.Atoi(text)
		if err != nil || limit < 1 || limit > maxPage {
			return filter, 0, fail(http.StatusBadRequest, msg.QueryInvalid, "limit")
		}
	}
	if filter.after != "" && len(filter.after) > maxServiceID {
		return filter, 0, fail(http.StatusBadRequest, msg.QueryInvalid, "cursor")
	}
	return filter, limit, nil
}

type publishAnswer struct {
	State    string `json:"state"`
	Value    string `json:"value"`
	Error    string `json:"error"`
	Attempts int    `json:"attempts"`
	At       string `json:"at"`
}

func (s *server) usage(r *http.Request) (reply, error) {
	u, err := s.findUsage(r)
	if err != nil {
		return reply{}, err
	}
	published, err := s.published(r, u)
	if err != nil {
		return reply{}, err
	}
	return reply{data: struct {
		usageAnswer
		Status       string        `json:"status"`
		TXTEndpoints []string      `json:"txt_endpoints"`
		Publish      publishAnswer `json:"publish"`
		CreatedAt    string        `json:"created_at"`
	}{listed(u), u.Status, append([]string{}, u.Endpoints...), published, u.CreatedAt}}, nil
}

func (s *server) findUsage(r *http.Request) (usage, error) {
	u, err := s.store.Usage(r.Context(), r.PathValue("id"))
	if errors.Is(err, errNotFound) {
		return u, fail(http.StatusNotFound, msg.UnknownUsage)
	}
	return u, err
}

// published says how far a usage's record is.
func (s *server) published(r *http.Request, u usage) (publishAnswer, error) {
	none := publishAnswer{State: "none"}
	if u.Network == nil || u.ServiceConfig == nil {
		return none, nil
	}
	rows, err := s.store.Publications(r.Context(), u.recordName())
	if err != nil {
		return none, err
	}
	mine := slices.IndexFunc(rows, func(p publication) bool { return p.Network != nil && *p.Network == *u.Network })
	switch {
	case mine >= 0:
		p := rows[mine]
		if u.Status == statusReleasing {
			p.State = stateWithdrawing
		}
		return publishAnswer{p.State, p.Value, fault{msg.ID(p.Code), p.Detail}.text(language(r)), p.Attempts, p.At}, nil
	case len(rows) > 0:
		return publishAnswer{State: stateConflict, Error: msg.NetworkConflict.In(language(r)), At: rows[0].At}, nil
	}
	c, err := s.store.Configuration(r.Context())
	if err != nil && !errors.Is(err, errNotFound) {
		return none, err
	}
	config, _ := parseServiceConfig(*u.ServiceConfig)
	configured := &c
	if err != nil {
		configured = nil
	}
	if _, ok := config.target(configured); ok {
		return publishAnswer{State: statePending}, nil
	}
	return none, nil
}

func (s *server) changeUsage(r *http.Request) (reply, error) {
	u, err := s.findUsage(r)
	if err != nil {
		return reply{}, err
	}
	var body struct {
		TXTEndpoints textList `json:"txt_endpoints"`
		Description  *string  `json:"description"`
	}
	if err := decode(r, &body); err != nil {
		return reply{}, err
	}
	network := anyNetwork
	if u.Network != nil {
		network = strconv.FormatUint(uint64(*u.Network), 10)
	}
	if body.TXTEndpoints != nil {
		if err := s.badEndpoints(r.Context(), network, body.TXTEndpoints); err != nil {
			return reply{}, err
		}
	}
	err = s.store.ChangeUsage(r.Context(), u.ID, body.TXTEndpoints, body.Description)
	if errors.Is(err, errNotFound) {
		return reply{}, fail(http.StatusNotFound, msg.UnknownUsage)
	}
	if err != nil {
		return reply{}, err
	}
	s.sync.Changed(triggerChange)
	return reply{message: msg.UsageChanged}, nil
}

func (s *server) releaseUsage(r *http.Request) (reply, error) {
	u, err := s.findUsage(r)
	if err != nil {
		return reply{}, err
	}
	defer s.sync.Changed(triggerChange)
	if r.URL.Query().Get("force") == "1" {
		if err := s.store.DeleteUsage(r.Context(), u.ID); errors.Is(err, errNotFound) {
			return reply{}, fail(http.StatusNotFound, msg.UnknownUsage)
		} else if err != nil {
			return reply{}, err
		}
		return reply{message: msg.UsageReleased}, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), releaseTime)
	defer cancel()
	freed, err := s.sync.Release(ctx, u)
	if err != nil {
		return reply{}, err
	}
	if !freed {
		return reply{status: http.StatusAccepted, message: msg.UsageReleasing, data: map[string]string{"status": statusReleasing}}, nil
	}
	return reply{message: msg.UsageReleased}, nil
}

type serviceBody struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Config json.RawMessage `json:"config"`
}

// checkedService checks a body and makes the service of it. Masked secrets are still
// masked.
func (s *server) checkedService(ctx context.Context, body serviceBody) (v service, err error) {
	if body.Name == "" {
		return v, fail(http.StatusBadRequest, msg.ServiceNameEmpty)
	}
	v = service{ID: body.ID, Name: body.Name, Config: string(body.Config)}
	if json.Unmarshal(body.Config, &v.Config) != nil {
		var compact bytes.Buffer
		if json.Compact(&compact, body.Config) == nil {
			v.Config = compact.String()
		}
	}
	entries, err := strictjson.Object([]byte(v.Config))
	if err != nil {
		return v, fail(http.StatusBadRequest, msg.ServiceConfigShape, bodyFault(err))
	}
	var typed struct {
		Provider        string   `json:"provider"`
		AccessKeyID     string   `json:"access_key_id"`
		AccessKeySecret string   `json:"access_key_secret"`
		Endpoint        string   `json:"endpoint"`
		TXTEndpoints    []string `json:"txt_endpoints"`
	}
	if err := strictjson.Decode([]byte(v.Config), &typed); err != nil {
		e, _ := errors.AsType[*strictjson.Error](err)
		return v, fail(http.StatusBadRequest, msg.ServiceEntryType, e.Field, typeText[e.Want])
	}
	var domain string
	json.Unmarshal(entries["domain"], &domain)
	v.Zone, v.Provider = dnsName(domain), typed.Provider
	return v, s.badEndpoints(ctx, anyNetwork, typed.TXTEndpoints)
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
		return reply{}, fail(http.StatusBadRequest, msg.ServiceIDInvalid)
	}
	v, err := s.checkedService(r.Context(), body)
	if err != nil {
		return reply{}, err
	}
	if _, _, err := masked.Restore(v.Config, "{}"); err != nil {
		return reply{}, fail(http.StatusBadRequest, msg.SecretNotStored)
	}
	err = s.store.CreateService(r.Context(), v)
	if errors.Is(err, errExists) {
		return reply{}, fail(http.StatusConflict, msg.ServiceExists)
	}
	if err != nil {
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
		return reply{}, fail(http.StatusBadRequest, msg.ServiceIDInvalid)
	}
	v, err := s.checkedService(r.Context(), body)
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
	switch {
	case errors.Is(err, errNoSecret):
		return reply{}, fail(http.StatusBadRequest, msg.SecretNotStored)
	case errors.Is(err, errInUse):
		return reply{}, fail(http.StatusConflict, msg.ServiceDomainInUse)
	case err != nil:
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
	s.sync.Changed(triggerChange)
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
	return serviceAnswer{v.ID, v.Name, masked.Hide(v.Config), v.UsageCount, v.CreatedAt, v.UpdatedAt}
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
	if errors.Is(err, errNotFound) {
		return reply{}, fail(http.StatusNotFound, msg.UnknownService)
	}
	return reply{data: shownService(v)}, err
}

func (s *server) deleteService(r *http.Request) (reply, error) {
	err := s.store.DeleteService(r.Context(), r.PathValue("id"))
	switch {
	case errors.Is(err, errNotFound):
		return reply{}, fail(http.StatusNotFound, msg.UnknownService)
	case errors.Is(err, errInUse):
		return reply{}, fail(http.StatusConflict, msg.ServiceInUse)
	case err != nil:
		return reply{}, err
	}
	s.sync.Changed(triggerChange)
	return reply{message: msg.ServiceDeleted}, nil
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
	page.Figure(totals.services)
	page.Family("meshddns_usages", "gauge", "Reserved prefixes.")
	page.Figure(totals.usages)
	page.Family("meshddns_records", "gauge", "Published names by state.")
	for _, state := range slices.Sorted(maps.Keys(totals.publications)) {
		page.Figure(totals.publications[state], metrics.Label{Name: "state", Value: state})
	}
	s.requests.Write(page, "meshddns_http_requests_total", "Answered HTTP requests.")
	s.sync.runs.Write(page, "meshddns_sync_runs_total", "Ended synchronisations of all names.")
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
