package provision

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sort"
	"strings"

	"meshddns/internal/secrets"
)

// Checks are the checks of the API's operations that need no database. A refusal is an error. Blame
// returns the reason of a refusal and the member of the body that it is about: "" for the whole body,
// secrets.Mask for all masked members. ok is false for other errors.
type Checks interface {
	CheckOwner(owner string) error
	CheckConfiguration(body []byte) error
	CheckService(body []byte) error
	CheckUsage(body []byte) error
	// CheckOther checks an entry of another part: notifications or secondaries.
	CheckOther(part string, body []byte) error
	Blame(err error) (member, reason string, ok bool)
}

// Check finds all mistakes that can be found without a database. The error is Mistakes, in the order of
// files and lines.
func (d *Document) Check(c Checks) error {
	w := work{Document: d, checks: c, mistakes: slices.Clone(d.mistakes)}
	check := func(e Entry, check func([]byte) error) error {
		if e.bad {
			return nil
		}
		return w.done(e, Change{}, check(e.Body))
	}
	var err error
	if d.Owner != nil {
		err = check(*d.Owner, func([]byte) error { return c.CheckOwner(d.Owner.value().Text) })
	}
	if d.Configuration != nil && err == nil {
		err = check(*d.Configuration, c.CheckConfiguration)
	}
	for i := 0; i < len(d.Services) && err == nil; i++ {
		err = check(d.Services[i], c.CheckService)
	}
	for i := 0; i < len(d.Usages) && err == nil; i++ {
		err = check(d.Usages[i], c.CheckUsage)
	}
	for _, part := range otherParts {
		for i := 0; i < len(d.Others[part]) && err == nil; i++ {
			err = check(d.Others[part][i], func(body []byte) error { return c.CheckOther(part, body) })
		}
	}
	return cmp.Or(err, w.result())
}

// Appliance is the operations of the API that Apply uses, all in one transaction. Each returns the
// change that it made; the zero Change means that nothing had to change.
type Appliance interface {
	Checks
	SaveOwner(ctx context.Context, owner string) (Change, error)
	SaveConfiguration(ctx context.Context, body []byte) (Change, error)
	SaveService(ctx context.Context, body []byte) (Change, error)
	SaveUsage(ctx context.Context, body []byte) (Change, error)

	// SameUsages returns the seqs of the usages that match a body.
	SameUsages(ctx context.Context, body []byte) ([]int64, error)
	// HeldUsages returns the usages that can appear in a document: those that are not released.
	HeldUsages(ctx context.Context) iter.Seq2[Held, error]
	ReleaseUsage(ctx context.Context, id string) (Change, error)
	// HeldServices returns the ids of the services that can appear in a document.
	HeldServices(ctx context.Context) iter.Seq2[string, error]
	DeleteService(ctx context.Context, id string) (Change, error)

	// SaveOther saves an entry of another part.
	SaveOther(ctx context.Context, part string, body []byte) (Change, error)
	// HeldOthers returns the ids of the stored entries of another part.
	HeldOthers(ctx context.Context, part string) ([]string, error)
	DeleteOther(ctx context.Context, part, id string) (Change, error)
}

// Held is a stored usage.
type Held struct {
	Seq int64
	ID  string
}

// Change is a change that was made, described as the equivalent request. Without What there was no
// change.
type Change struct {
	What, ID string
	Status   int    // HTTP status of the answer
	File     string // file that asks for the change
}

// Did returns the change of a request of the API, such as "POST adopt", and its error.
func Did(request, id string, err error) (Change, error) {
	method, path, _ := strings.Cut(request, " ")
	return Change{What: method + " /api/v1/ddns/" + path, ID: id, Status: http.StatusOK}, err
}

// Applied is the result of applying a document.
type Applied struct {
	Changes []Change
	// Faults are about entries that the stored state does not allow, such as a prefix that another
	// network still has. The rest of the document is applied.
	Faults Mistakes
	// Waits has the entries that can be applied when the stored state allows them; nil for none.
	Waits *Document

	Warnings []string // about changed entries that cannot work, in English
	InUse    []string // ids of services that are not in the document and still have usages
}

// Apply changes an appliance to the state in the document, except for entries that the stored state
// does not allow. After an error the caller must undo all changes. The error is Mistakes if the
// document itself is wrong.
func (d *Document) Apply(ctx context.Context, a Appliance) (Applied, error) {
	if err := d.Check(a); err != nil {
		return Applied{}, err
	}
	w := &work{Document: d, checks: a, mistakes: slices.Clone(d.lasting), broken: map[string]bool{}}
	w.waits.lasting = slices.Clone(d.lasting)
	var usages, services []string
	others := map[string][]string{}
	for _, step := range []func() error{
		func() (err error) { usages, err = w.lackingUsages(ctx, a); return err },
		func() (err error) { services, err = w.lackingServices(ctx, a); return err },
		func() error {
			return w.eachOther(func(part string) (err error) { others[part], err = w.lackingOthers(ctx, a, part); return err })
		},
		func() error { return w.saveOwner(ctx, a) },
		// Before the usages are saved, because another network may get a released prefix.
		func() error {
			return w.remove(usages, func(id string) (Change, error) { return a.ReleaseUsage(ctx, id) })
		},
		func() error { return w.saveConfiguration(ctx, a) },
		func() error { return w.saveServices(ctx, a) },
		func() error { return w.saveUsages(ctx, a) },
		func() error {
			return w.remove(services, func(id string) (Change, error) { return a.DeleteService(ctx, id) })
		},
		func() error {
			return w.eachOther(func(part string) error {
				// Before others are saved, because their number is limited.
				err := w.remove(others[part], func(id string) (Change, error) { return a.DeleteOther(ctx, part, id) })
				if err != nil {
					return err
				}
				return w.saveOthers(ctx, a, part)
			})
		},
	} {
		if err := step(); err != nil {
			return Applied{}, err // the transaction may have ended, so nothing more may be done in it
		}
	}
	w.sort()
	return Applied{Changes: w.changes, Faults: w.mistakes, Waits: w.rest()}, nil
}

// rest returns the waiting entries as a document that prunes nothing, nil without any.
func (w *work) rest() *Document {
	if w.waits.Owner == nil && w.waits.Configuration == nil && len(w.waits.Services)+len(w.waits.Usages)+len(w.waits.Others) == 0 {
		return nil
	}
	return &w.waits
}

// work is the progress of applying a document.
type work struct {
	*Document
	checks   Checks
	changes  []Change
	mistakes Mistakes
	broken   map[string]bool // refused services
	waits    Document        // refused entries
}

func (w *work) sort() {
	sort.SliceStable(w.mistakes, func(i, j int) bool {
		a, b := w.mistakes[i], w.mistakes[j]
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) < 0
	})
}

func (w *work) result() error {
	if len(w.mistakes) == 0 {
		return nil
	}
	w.sort()
	return w.mistakes
}

// saved records the result of an entry. It adds a refused entry to waiting.
func (w *work) saved(e Entry, c Change, err error, waiting *[]Entry) error {
	if err != nil {
		*waiting = append(*waiting, e)
	}
	return w.done(e, c, err)
}

// done records the result of an entry. A refusal is a mistake; done returns every other error.
func (w *work) done(e Entry, c Change, err error) error {
	if err == nil {
		if c.File = e.file; c.What != "" {
			w.changes = append(w.changes, c)
		}
		return nil
	}
	member, reason, ok := w.checks.Blame(err)
	switch {
	case !ok:
		return fmt.Errorf("%s: %w", e.Mistake("", "").where(), err)
	case member == secrets.Mask:
		w.mistakes = append(w.mistakes, e.Masked(reason)...)
	default:
		v, inConfig := e.value(), path{"config", member}
		if v.Member(member) == nil && v.At(inConfig) != nil {
			member = inConfig.String() // the member is in the config of a service
		}
		w.mistakes = append(w.mistakes, e.Mistake(member, reason))
	}
	return nil
}

func (w *work) saveOwner(ctx context.Context, a Appliance) error {
	if w.Owner == nil {
		return nil
	}
	c, err := a.SaveOwner(ctx, w.Owner.value().Text)
	if err != nil {
		w.waits.Owner = w.Owner
	}
	return w.done(*w.Owner, c, err)
}

func (w *work) saveConfiguration(ctx context.Context, a Appliance) error {
	if w.Configuration == nil {
		return nil
	}
	c, err := a.SaveConfiguration(ctx, w.Configuration.Body)
	if err != nil {
		w.waits.Configuration = w.Configuration
	}
	return w.done(*w.Configuration, c, err)
}

func (w *work) saveServices(ctx context.Context, a Appliance) error {
	for _, e := range w.Services {
		c, err := a.SaveService(ctx, e.Body)
		if err != nil {
			w.broken[e.text("id")] = true
		}
		if err := w.saved(e, c, err, &w.waits.Services); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) saveUsages(ctx context.Context, a Appliance) error {
	for _, e := range w.Usages {
		if w.broken[e.text("service_id")] {
			w.waits.Usages = append(w.waits.Usages, e)
			continue // the usage waits until its service is saved
		}
		c, err := a.SaveUsage(ctx, e.Body)
		if err := w.saved(e, c, err, &w.waits.Usages); err != nil {
			return err
		}
	}
	return nil
}

// eachOther calls do for each other part, until one fails.
func (w *work) eachOther(do func(part string) error) error {
	for _, part := range otherParts {
		if err := do(part); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) saveOthers(ctx context.Context, a Appliance, part string) error {
	var waits []Entry
	for _, e := range w.Others[part] {
		c, err := a.SaveOther(ctx, part, e.Body)
		if err := w.saved(e, c, err, &waits); err != nil {
			return err
		}
	}
	if len(waits) > 0 {
		if w.waits.Others == nil {
			w.waits.Others = map[string][]Entry{}
		}
		w.waits.Others[part] = waits
	}
	return nil
}

// lackingOthers returns the stored entries of another part to delete: those that the document lacks.
func (w *work) lackingOthers(ctx context.Context, a Appliance, part string) (lacking []string, err error) {
	if w.Prune == PruneNone || !w.hasOther[part] {
		return nil, nil
	}
	held, err := a.HeldOthers(ctx, part)
	for _, id := range held {
		if !slices.ContainsFunc(w.Others[part], func(e Entry) bool { return e.text("id") == id }) {
			lacking = append(lacking, id)
		}
	}
	return w.few(part, lacking, len(held)), err
}

// lackingUsages returns the usages to release: those that the document lacks.
func (w *work) lackingUsages(ctx context.Context, a Appliance) (lacking []string, err error) {
	if w.Prune == PruneNone || !w.hasUsages {
		return nil, nil
	}
	kept := map[int64]bool{}
	for _, e := range w.Usages {
		same, err := a.SameUsages(ctx, e.Body)
		if err != nil {
			return nil, err
		}
		for _, seq := range same {
			kept[seq] = true
		}
	}
	total := 0
	for held, err := range a.HeldUsages(ctx) {
		if err != nil {
			return nil, err
		}
		if total++; !kept[held.Seq] {
			lacking = append(lacking, held.ID)
		}
	}
	return w.few("usages", lacking, total), nil
}

// lackingServices returns the services to delete: those that neither the document nor one of its
// usages names.
func (w *work) lackingServices(ctx context.Context, a Appliance) (lacking []string, err error) {
	if w.Prune == PruneNone || !w.hasServices {
		return nil, nil
	}
	kept := map[string]bool{}
	for _, e := range w.Services {
		kept[e.text("id")] = true
	}
	for _, e := range w.Usages {
		kept[e.text("service_id")] = true
	}
	total := 0
	for id, err := range a.HeldServices(ctx) {
		if err != nil {
			return nil, err
		}
		if total++; !kept[id] {
			lacking = append(lacking, id)
		}
	}
	return w.few("services", lacking, total), nil
}

// fewAtMost is the number of removals that PruneFew always allows.
const fewAtMost = 3

// few returns the ids that the document lacks, or none and a mistake if PruneFew does not allow so many.
func (w *work) few(what string, lacking []string, total int) []string {
	if n := len(lacking); w.Prune != PruneAll && n > fewAtMost && 3*n > total {
		m := w.pruneAt.Mistake("", fmt.Sprintf(`%d of %d %s are not in the document, more than a third: only "all" removes so many`, n, total, what))
		w.mistakes, w.waits.lasting = append(w.mistakes, m), append(w.waits.lasting, m)
		return nil
	}
	return lacking
}

// remove removes usages or services, unless the prune is refused.
func (w *work) remove(ids []string, remove func(id string) (Change, error)) error {
	if len(w.waits.lasting) > 0 {
		return nil
	}
	for _, id := range ids {
		c, err := remove(id)
		if err := w.done(*w.pruneAt, c, err); err != nil {
			return err
		}
	}
	return nil
}
