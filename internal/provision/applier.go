package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"net/http"
	"strings"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/rights"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// Forms implements Checks. Of the parts whose entries depend on no other it has the checks.
type Forms map[string]func(body []byte) error

// Check checks an entry as the request does that makes it.
func (f Forms) Check(part string, body []byte) error {
	switch part {
	case Owner:
		_, err := decodeOwner(body)
		return err
	case Configuration:
		c, err := decode[mesh.Configuration](body)
		return cmp.Or(err, c.Check())
	case Services:
		b, err := decode[mesh.ServiceBody](body)
		return cmp.Or(err, b.Service().Check())
	case Usages:
		b, want, err := decodeUsage(body)
		changed, _ := b.Over(want)
		return errors.Join(err, changed.CheckEndpoints(), f[Leases](body))
	}
	return f[part](body)
}

// Blame returns the member that a refusal is about, and the reason.
func (Forms) Blame(err error) (member, reason string, ok bool) {
	f := web.FailureOf(err, nil)
	member, reason = Blamed(f.ID, f.Error())
	if part, ok := err.(msg.Inside); ok {
		member = strings.TrimSuffix(part.At+"."+member, ".")
	}
	return member, reason, f.Cause == nil
}

func decodeOwner(body []byte) (owner string, err error) {
	err = json.Unmarshal(body, &owner)
	return owner, cmp.Or(err, mesh.CheckOwner(owner))
}

// decode reads a body.
func decode[T any](body []byte) (v T, err error) {
	err = web.ParseBody(body, &v)
	return v, err
}

// usageBody is a usage of a document: the members of POST usages and of PATCH.
type usageBody struct {
	mesh.NewUsage
	Tenant bool         `json:"tenant"` // it is reserved with the rights of a token of its service
	Leases []mesh.Lease `json:"leases"`
}

// decodeUsage reads a usage of a document, and checks it except for its endpoints. want has the members that identify it.
func decodeUsage(body []byte) (b usageBody, want mesh.Usage, err error) {
	if b, err = decode[usageBody](body); err != nil {
		return b, want, err
	}
	prefix, _ := b.Prefix()
	want = mesh.Usage{ServiceID: b.ServiceID, Prefix: prefix, Network: sqlite.Given(b.NetworkID)}
	fault := mesh.PrefixFault(b.CustomPrefix)
	return b, want, errors.Join(b.Complete(), msg.RefuseIf(b.NetworkID == nil, msg.NetworkIDMissing),
		msg.RefuseIf(b.PrefixMode == mesh.CustomMode && fault != "", fault), b.Normalize())
}

// Operations are the operations of requests, and the questions, with which an Applier works: all in one transaction.
type Operations interface {
	Owner() string
	TakeOwner(ctx context.Context, owner string) (taken bool, err error)
	Adopted(ctx context.Context, owner string) (bool, error)
	Adopt(ctx context.Context, owner string) error

	Configuration(ctx context.Context) (mesh.Configuration, error)
	SaveConfiguration(ctx context.Context, c mesh.Configuration) ([]msg.Phrase, error)

	Service(ctx context.Context, id string) (mesh.Service, error)
	AllServices(ctx context.Context) iter.Seq2[mesh.Service, error]
	SaveService(ctx context.Context, v mesh.Service) ([]msg.Phrase, error)
	DeleteService(ctx context.Context, id string) error

	AllUsages(ctx context.Context, last int64) iter.Seq2[mesh.Usage, error]
	// SameUsages returns the usages of the same service, prefix and network; those that are being released come last.
	SameUsages(ctx context.Context, u mesh.Usage) ([]mesh.Usage, error)
	Reserve(ctx context.Context, want mesh.NewUsage) (mesh.Usage, []msg.Phrase, error)
	SaveUsage(ctx context.Context, u mesh.Usage, c mesh.UsageChange) error
	KeepUsage(ctx context.Context, id string) error
	ReleaseUsage(ctx context.Context, id string, force bool) (freed bool, version int64, err error)
	// SaveLeases brings the leases of a usage to those in its body. It keeps others, unless prune is true.
	SaveLeases(ctx context.Context, usage string, body []byte, prune bool) (changed bool, err error)
}

// Part is the stored entries of a part whose entries depend on no other.
type Part interface {
	// Apply saves an entry if it differs from the stored one.
	Apply(ctx context.Context, body []byte) (id string, changed bool, err error)
	IDs(ctx context.Context) ([]string, error)
	Delete(ctx context.Context, id string) error
}

// Applier implements Appliance by operations. It changes only entries that differ.
type Applier struct {
	Forms
	Operations
	parts map[string]Part

	Taken    string   // the owner that the database has taken, "" for none
	Warnings []string // about stored entries that cannot work, in English
	InUse    []string // services that cannot be deleted yet
}

// NewApplier returns an Applier.
func NewApplier(f Forms, o Operations, parts map[string]Part) *Applier {
	return &Applier{Forms: f, Operations: o, parts: parts}
}

var unchanged Change

// warn keeps the texts of warnings for the log.
func (a *Applier) warn(all []msg.Phrase) {
	a.Warnings = append(a.Warnings, msg.Texts(all, msg.English)...)
}

// Save stores an entry of a part if it differs.
func (a *Applier) Save(ctx context.Context, part string, e Entry) (Change, error) {
	body := e.Body
	switch part {
	case Owner:
		return a.saveOwner(ctx, body)
	case Configuration:
		return a.saveConfiguration(ctx, body)
	case Services:
		return a.saveService(ctx, body)
	case Usages:
		return a.saveUsage(ctx, e)
	}
	id, changed, err := a.parts[part].Apply(ctx, body)
	if err != nil || !changed {
		return unchanged, err
	}
	return Did("PUT "+part+"/{id}", id, nil)
}

// saveOwner makes an owner that of a database that has published nothing; any other database adopts it.
func (a *Applier) saveOwner(ctx context.Context, body []byte) (Change, error) {
	owner, err := decodeOwner(body)
	if err != nil || owner == a.Owner() {
		return unchanged, err
	}
	taken, err := a.TakeOwner(ctx, owner)
	if err != nil || taken {
		a.Taken = owner
		return Change{What: "owner", ID: owner, Status: http.StatusOK}, err
	}
	adopted, err := a.Adopted(ctx, owner)
	if err != nil || adopted {
		return unchanged, err
	}
	return Did("POST adopt", owner, a.Adopt(ctx, owner))
}

func (a *Applier) saveConfiguration(ctx context.Context, body []byte) (Change, error) {
	c, err := decode[mesh.Configuration](body)
	if err != nil {
		return unchanged, err
	}
	stored, err := a.Configuration(ctx)
	if err == nil && c.SameAs(stored) || err != nil && !errors.Is(err, sqlite.Refusal(msg.UnknownConfiguration)) {
		return unchanged, err
	}
	warnings, err := a.SaveConfiguration(ctx, c)
	a.warn(warnings)
	return Did("PUT config", "", err)
}

func (a *Applier) saveService(ctx context.Context, body []byte) (Change, error) {
	b, err := decode[mesh.ServiceBody](body)
	if err != nil {
		return unchanged, err
	}
	v := b.Service()
	stored, err := a.Service(ctx, v.ID)
	if err == nil && v.SameAs(stored) || err != nil && !errors.Is(err, sqlite.Refusal(msg.UnknownService)) {
		return unchanged, err
	}
	warnings, err := a.SaveService(ctx, v)
	a.warn(warnings)
	return Did("PUT services/{id}", v.ID, err)
}

// saveUsage reserves a usage, or changes the members and leases that differ in a reserved one. The leases that are not refused
// are saved.
func (a *Applier) saveUsage(ctx context.Context, e Entry) (c Change, err error) {
	b, want, err := decodeUsage(e.Body)
	if err != nil {
		return unchanged, err
	}
	same, err := a.Operations.SameUsages(ctx, want)
	var u mesh.Usage
	var request string
	switch {
	case err != nil:
	case e.number < len(same):
		u = same[e.number]
		if u.Status == mesh.Releasing {
			request, err = "POST usages", a.KeepUsage(ctx, u.ID)
		}
		if _, differs := b.Over(u); err == nil && differs {
			request, err = cmp.Or(request, "PATCH usages/{id}"), a.SaveUsage(ctx, u, b.UsageChange)
		}
	default:
		var warnings []msg.Phrase
		request = "POST usages"
		caller := ctx
		if b.Tenant {
			caller = rights.With(ctx, rights.Caller{Service: b.ServiceID})
		}
		if u, warnings, err = a.Reserve(caller, b.NewUsage); err == nil {
			a.warn(warnings)
		}
	}
	if err != nil {
		return unchanged, err
	}
	if b.Leases != nil {
		var changed bool
		if changed, err = a.SaveLeases(ctx, u.ID, e.Body, e.prune); changed {
			request = cmp.Or(request, "POST usages/{id}/leases")
		}
	}
	if request != "" {
		c, _ = Did(request, u.ID, nil)
	}
	return c, err
}

// SameUsages returns the ids of the stored usages that match a body; none where they are refused, which Save reports.
func (a *Applier) SameUsages(ctx context.Context, body []byte) (ids []string, err error) {
	_, want, err := decodeUsage(body)
	var same []mesh.Usage
	if err == nil {
		same, err = a.Operations.SameUsages(ctx, want)
	}
	for _, u := range same {
		ids = append(ids, u.ID)
	}
	if _, _, refused := a.Blame(err); refused {
		err = nil
	}
	return ids, err
}

// Held returns the ids of the stored entries of a part that a document can have.
func (a *Applier) Held(ctx context.Context, part string) iter.Seq2[string, error] {
	switch part {
	case Usages:
		return sqlite.Made(a.AllUsages(ctx, math.MaxInt64), func(u mesh.Usage) (string, bool) { return u.ID, u.Documented() })
	case Services:
		return sqlite.Made(a.AllServices(ctx), func(v mesh.Service) (string, bool) { return v.ID, v.Documented() })
	}
	return func(yield func(string, error) bool) {
		ids, err := a.parts[part].IDs(ctx)
		for i := 0; i < len(ids) && yield(ids[i], nil); i++ {
		}
		if err != nil {
			yield("", err)
		}
	}
}

// Remove removes a stored entry: a usage without waiting until its value is withdrawn, and a service unless it has
// usages.
func (a *Applier) Remove(ctx context.Context, part, id string) (c Change, err error) {
	request, status := "DELETE "+part+"/{id}", http.StatusOK
	switch part {
	case Usages:
		var freed bool
		if freed, _, err = a.ReleaseUsage(ctx, id, false); !freed {
			status = http.StatusAccepted
		}
	case Services:
		if err = a.DeleteService(ctx, id); errors.Is(err, sqlite.Refusal(msg.ServiceInUse)) {
			a.InUse = append(a.InUse, id)
			return unchanged, nil
		}
	default:
		err = a.parts[part].Delete(ctx, id)
	}
	c, err = Did(request, id, err)
	c.Status = status
	return c, err
}
