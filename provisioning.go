// The provision file, applied by the operations of requests: at start, on a hang-up, and again while
// a part of it waits.

package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"meshddns/advice"
	"meshddns/dnsname"
	"meshddns/envelope"
	"meshddns/metrics"
	"meshddns/msg"
	"meshddns/provision"
	"meshddns/sqlrow"
)

// provisioned is what of the provision file is not applied. One goroutine at a time applies the
// file; any goroutine may read count.
type provisioned struct {
	count   atomic.Int64        // of all faults
	form    int                 // faults of the file as it was read last: nothing of it is applied
	failure string              // of the database; "" for none
	faults  provision.Mistakes  // of entries that the stored state does not allow
	waits   *provision.Document // is applied again; nil for none
	pause   time.Duration       // before that
}

// While a part of the provision file waits, it is tried again after provisionPause, and then after
// twice the time, up to provisionPauseMost.
const (
	provisionPause     = time.Second
	provisionPauseMost = time.Minute
)

// provision reads and applies the files at path, at the start before anything runs. Entries that the
// stored state does not allow are logged, and wait. It returns provision.Mistakes when the files
// are wrong by themselves, and the error of the database; then it has changed nothing.
func (s *server) provision(ctx context.Context, path string, credentials provision.CredentialFolder, start bool) error {
	err := s.applyDocument(ctx, path, provision.Read(path, credentials), start)
	mistakes, _ := errors.AsType[provision.Mistakes](err)
	s.provisioned.form = len(mistakes)
	s.provisioned.pause = provisionPause
	s.countProvisionFaults()
	return err
}

// provisionAgain applies what waits of the provision file.
func (s *server) provisionAgain(ctx context.Context, path string) {
	p := &s.provisioned
	failure, faults := p.failure, len(p.faults)
	err := s.applyDocument(ctx, path, p.waits, false)
	s.countProvisionFaults()
	if err != nil && err.Error() != failure {
		logLines(s.log, slog.LevelError, "the provision file is not applied", err)
	}
	if p.pause = min(2*p.pause, provisionPauseMost); len(p.faults) < faults {
		p.pause = provisionPause
	}
}

func (s *server) countProvisionFaults() {
	p := &s.provisioned
	n := p.form + len(p.faults)
	if p.failure != "" {
		n++
	}
	p.count.Store(int64(n))
}

// provisionPause gives the time until provisionAgain is due, 0 when nothing waits.
func (s *server) provisionPause() time.Duration {
	if s.provisioned.waits == nil {
		return 0
	}
	return s.provisioned.pause
}

// applyDocument applies a document in one transaction, and logs what came of it.
func (s *server) applyDocument(ctx context.Context, path string, document *provision.Document, start bool) error {
	p := &s.provisioned
	var applied provision.Applied
	var a *application
	err := s.store.tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		a = &application{api: s, start: start, seen: map[string]int{}}
		applied, err = document.Apply(ctx, a)
		return err
	})
	if _, ok := errors.AsType[provision.Mistakes](err); ok {
		return err // what waited of an earlier document waits on
	}
	again := document == p.waits
	if err != nil {
		if !again {
			p.faults = nil
		}
		p.waits, p.failure = document, err.Error()
		return err
	}
	if a.owner != "" {
		s.store.UseOwner(a.owner)
	}
	for _, c := range applied.Changes {
		s.log.LogAttrs(ctx, slog.LevelInfo, "change", slog.String("who", "provision"),
			slog.String("what", c.What), slog.String("id", c.ID),
			slog.Int("status", c.Status), slog.String("code", ""), slog.String("file", c.File))
	}
	for _, text := range advice.Texts(a.warnings, msg.English) {
		s.log.Warn("what is stored cannot work", "from", path, "reason", text)
	}
	for _, id := range a.inUse {
		s.log.Info("a service is not in the document, and stays while it has usages", "id", id)
	}
	fresh := slices.DeleteFunc(slices.Clone(applied.Faults), func(m provision.Mistake) bool { return again && slices.Contains(p.faults, m) })
	logLines(s.log, slog.LevelWarn, "a part of the provision file is not applied", fresh)
	if !again || len(applied.Changes) > 0 || p.failure != "" {
		s.log.Info("provisioned", "from", path, "services", len(document.Services), "usages", len(document.Usages),
			"changes", len(applied.Changes), "faults", len(applied.Faults))
	}
	p.waits, p.faults, p.failure = applied.Waits, applied.Faults, ""
	return nil
}

// maxFaultLines bounds the lines that logLines writes.
const maxFaultLines = 100

// logLines logs each line of an error on its own.
func logLines(log *slog.Logger, level slog.Level, message string, err error, attributes ...any) {
	lines := slices.DeleteFunc(strings.Split(err.Error(), "\n"), func(line string) bool { return line == "" })
	for i, line := range lines {
		if i == maxFaultLines {
			log.Log(context.Background(), level, message, append(attributes, "more", len(lines)-i)...)
			return
		}
		log.Log(context.Background(), level, message, append(attributes, "error", line)...)
	}
}

// metrics writes the figure of the provision file.
func (p *provisioned) metrics(page *metrics.Page) {
	page.Family("meshddns_provision_faults", "gauge", "Faults for which the provision file, or an entry of it, is not applied.")
	page.Figure(uint64(p.count.Load()))
}

// checks are those of the operations that need no database.
type checks struct{}

func (checks) CheckOwner(owner string) error { return checkOwner(owner) }

func (checks) CheckConfiguration(body []byte) error {
	var b configurationBody
	return cmp.Or(envelope.Parse(body, &b), b.configuration().check())
}

func (checks) CheckService(body []byte) error {
	var b serviceBody
	if err := envelope.Parse(body, &b); err != nil {
		return err
	}
	_, err := b.checked()
	return err
}

func (checks) CheckUsage(body []byte) error {
	var b usageBody
	if err := envelope.Parse(body, &b); err != nil {
		return err
	}
	want, err := b.wanted()
	if err != nil {
		return err
	}
	if _, fault := b.reservation().prefix(); fault != "" {
		return envelope.Fail(fault)
	}
	return badEndpoints(want.Network.V.String(), b.TXTEndpoints)
}

// Blame tells which member a refusal is about, and why it is refused.
func (checks) Blame(err error) (member, reason string, ok bool) {
	f := failureOf(err)
	member, reason = provision.Blamed(f)
	return member, reason, f.Cause == nil
}

// application applies a document in one transaction, by the operations of requests. It
// leaves alone what is as wanted.
type application struct {
	checks
	api   *server
	start bool           // nothing uses the owner yet
	owner string         // that was taken
	seen  map[string]int // usages of the document so far, by service, network and prefix
	inUse []string       // services that cannot be deleted yet

	warnings []advice.Warning // of what is stored and cannot work
}

var unchanged provision.Change

// SaveOwner takes an owner for a new database; another database adopts it.
func (a *application) SaveOwner(ctx context.Context, owner string) (provision.Change, error) {
	if err := a.CheckOwner(owner); err != nil || owner == a.api.store.owner {
		return unchanged, err
	}
	if a.start {
		taken, err := a.api.store.ledger.TakeOwner(ctx, owner)
		if err != nil || taken {
			a.owner = owner
			return provision.Change{What: "owner", ID: owner, Status: http.StatusOK}, err
		}
	}
	adopted, err := a.api.store.ledger.Adopted(ctx, a.api.store.reading(ctx), owner)
	if err != nil || adopted {
		return unchanged, err
	}
	return provision.Did("POST adopt", owner, a.api.store.ledger.Adopt(ctx, owner))
}

// SaveConfiguration stores a configuration that is another one.
func (a *application) SaveConfiguration(ctx context.Context, body []byte) (provision.Change, error) {
	var b configurationBody
	if err := envelope.Parse(body, &b); err != nil {
		return unchanged, err
	}
	c := b.configuration()
	stored, err := a.api.store.Configuration(ctx)
	if err == nil && c.sameAs(stored) || err != nil && !errors.Is(err, errNoConfiguration) {
		return unchanged, err
	}
	warnings, err := a.api.saveConfiguration(ctx, c, nil)
	a.warnings = append(a.warnings, warnings...)
	return provision.Did("PUT config", "", err)
}

// SaveService stores a service that is another one.
func (a *application) SaveService(ctx context.Context, body []byte) (provision.Change, error) {
	var b serviceBody
	if err := envelope.Parse(body, &b); err != nil {
		return unchanged, err
	}
	stored, err := a.api.store.Service(ctx, b.ID)
	if err == nil && b.service().sameAs(stored) || err != nil && !errors.Is(err, errNoService) {
		return unchanged, err
	}
	v, warnings, err := a.api.replaceService(ctx, b, nil)
	a.warnings = append(a.warnings, warnings...)
	return provision.Did("PUT services/{id}", v.ID, err)
}

// SaveUsage reserves a usage that is not there, and changes what differs in one that is.
func (a *application) SaveUsage(ctx context.Context, body []byte) (provision.Change, error) {
	b, want, same, err := a.api.sameUsages(ctx, body)
	if err != nil {
		return unchanged, err
	}
	key := want.ServiceID + " " + want.Network.V.String() + " " + dnsname.Fold(want.Prefix)
	number := a.seen[key]
	a.seen[key]++
	if number >= len(same) {
		u, err := a.api.reserve(ctx, b.reservation())
		if err == nil {
			_, err = a.changeUsage(ctx, b, u)
		}
		return provision.Did("POST usages", u.ID, err)
	}
	c, err := a.changeUsage(ctx, b, same[number])
	if err == nil && same[number].Status == statusReleasing {
		return provision.Did("POST usages", same[number].ID, a.api.store.KeepUsage(ctx, same[number]))
	}
	return c, err
}

func (a *application) changeUsage(ctx context.Context, b usageBody, u usage) (provision.Change, error) {
	endpoints, description := b.difference(u)
	if endpoints == nil && description == nil {
		return unchanged, nil
	}
	return provision.Did("PATCH usages/{id}", u.ID, a.api.saveUsage(ctx, u, endpoints, description))
}

// SameUsages gives the numbers of the usages that are the one of a body.
func (a *application) SameUsages(ctx context.Context, body []byte) (numbers []int64, err error) {
	_, _, same, err := a.api.sameUsages(ctx, body)
	if failureOf(err).Cause == nil {
		err = nil // a refusal, which is told when it is to be saved
	}
	for _, u := range same {
		numbers = append(numbers, u.Seq)
	}
	return numbers, err
}

// HeldUsages gives the usages that a document can have.
func (a *application) HeldUsages(ctx context.Context) iter.Seq2[provision.Held, error] {
	return sqlrow.Made(a.api.store.AllUsages(ctx, math.MaxInt64), func(u usage) (provision.Held, bool) {
		return provision.Held{Seq: u.Seq, ID: u.ID}, u.documented()
	})
}

// ReleaseUsage releases a usage, and waits for nobody.
func (a *application) ReleaseUsage(ctx context.Context, id string) (provision.Change, error) {
	done, err := a.api.store.ReleaseUsage(ctx, id, false)
	c, err := provision.Did("DELETE usages/{id}", id, err)
	if !done.freed {
		c.Status = http.StatusAccepted
	}
	return c, err
}

// HeldServices gives the ids of the services that a document can have.
func (a *application) HeldServices(ctx context.Context) iter.Seq2[string, error] {
	return sqlrow.Made(a.api.store.AllServices(ctx), func(v service) (string, bool) { return v.ID, v.documented() })
}

// DeleteService deletes a service that has no usages.
func (a *application) DeleteService(ctx context.Context, id string) (provision.Change, error) {
	err := a.api.store.DeleteService(ctx, id)
	if errors.Is(err, errServiceInUse) {
		a.inUse = append(a.inUse, id)
		return unchanged, nil
	}
	return provision.Did("DELETE services/{id}", id, err)
}
