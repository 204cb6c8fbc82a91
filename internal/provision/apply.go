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

	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// Checks are the checks of the API's operations that need no database. A refusal is an error. Blame
// returns the reason of a refusal and the member of the body that it is about: "" for the whole body,
// secrets.Mask for all masked members. ok is false for other errors.
type Checks interface {
	Check(part string, body []byte) error
	Blame(err error) (member, reason string, ok bool)
}

// Check finds all mistakes that can be found without a database. The error is Mistakes, in the order of
// files and lines.
func (d *Document) Check(c Checks) error {
	w := work{Document: d, checks: c, mistakes: slices.Clone(d.mistakes)}
	for _, part := range parts {
		for i, e := range d.Entries[part] {
			if e.bad {
				continue
			}
			before := len(w.mistakes)
			if err := w.done(e, Change{}, c.Check(part, e.Body)); err != nil {
				return err
			}
			d.Entries[part][i].bad = len(w.mistakes) > before
		}
	}
	return w.result()
}

// Warnings returns what warn says, by part, of the configuration, then of each service and of each usage, unless Check has found a
// mistake in it.
func (d *Document) Warnings(warn map[string]func(body []byte) []msg.Phrase) (all Mistakes) {
	for _, part := range []string{Configuration, Services, Usages} {
		for i := range d.Entries[part] {
			e := &d.Entries[part][i]
			if e.bad {
				continue
			}
			for _, w := range warn[part](e.Body) {
				all = append(all, e.Mistake("", w.In(msg.English)))
			}
		}
	}
	return all
}

// Appliance is the operations of the API that Apply uses, all in one transaction. The zero Change means that nothing
// had to change.
type Appliance interface {
	Checks
	Save(ctx context.Context, part string, e Entry) (Change, error)
	// Held returns the ids of the stored entries of a part that can appear in a document.
	Held(ctx context.Context, part string) iter.Seq2[string, error]
	// SameUsages returns the ids of the stored usages that match a body.
	SameUsages(ctx context.Context, body []byte) ([]string, error)
	Remove(ctx context.Context, part, id string) (Change, error)
}

// Change is a change that was made, described as the equivalent request. Without What there was no
// change.
type Change struct {
	What, ID string
	Status   int    // HTTP status of the answer
	File     string // file that asks for the change
}

// Did returns the change of a request of the API, such as "POST adopt", or its error.
func Did(request, id string, err error) (Change, error) {
	if err != nil {
		return unchanged, err
	}
	method, path, _ := strings.Cut(request, " ")
	return Change{What: method + " /api/v1/ddns/" + path, ID: id, Status: http.StatusOK}, nil
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
	w := &work{Document: d, checks: a, mistakes: slices.Clone(d.lasting), broken: map[string]bool{}, lacking: map[string][]string{}}
	w.waits = Document{Entries: map[string][]Entry{}, lasting: slices.Clone(d.lasting)}
	for _, part := range slices.Concat([]string{Usages, Services}, otherParts) {
		if err := w.compare(ctx, a, part); err != nil {
			return Applied{}, err
		}
	}
	for _, step := range []struct {
		do   func(ctx context.Context, a Appliance, part string) error
		part string
	}{
		{w.save, Owner},
		{w.remove, Usages}, // before usages are saved, because another network may get a released prefix
		{w.save, Configuration}, {w.save, Services}, {w.save, Usages}, {w.remove, Services},
		{w.remove, Notifications}, {w.save, Notifications}, // in this order, because their number is limited
		{w.remove, Secondaries}, {w.save, Secondaries},
	} {
		if err := step.do(ctx, a, step.part); err != nil {
			return Applied{}, err // the transaction may have ended, so nothing more may be done in it
		}
	}
	w.sort()
	applied := Applied{Changes: w.changes, Faults: w.mistakes}
	if len(w.waits.Entries) > 0 {
		applied.Waits = &w.waits
	}
	return applied, nil
}

// work is the progress of applying a document.
type work struct {
	*Document
	checks   Checks
	changes  []Change
	mistakes Mistakes
	broken   map[string]bool     // refused services
	waits    Document            // refused entries; it prunes nothing
	lacking  map[string][]string // by part: ids of the stored entries to remove
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

// done records the result of an entry. Each refusal is a mistake; done returns every other error.
func (w *work) done(e Entry, c Change, err error) error {
	if c.File = e.file; c.What != "" {
		w.changes = append(w.changes, c)
	}
	for _, err := range msg.Faults("", err) {
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
	}
	return nil
}

// save saves the entries of a part. A refused entry waits, and so do the usages of a refused service.
func (w *work) save(ctx context.Context, a Appliance, part string) error {
	for _, e := range w.Entries[part] {
		if part == Usages && w.broken[e.text("service_id")] {
			w.waits.Entries[part] = append(w.waits.Entries[part], e)
			continue
		}
		e.prune = w.Prune != PruneNone && len(w.waits.lasting) == 0
		c, err := a.Save(ctx, part, e)
		if err != nil {
			w.waits.Entries[part] = append(w.waits.Entries[part], e)
			if part == Services {
				w.broken[e.text("id")] = true
			}
		}
		if err := w.done(e, c, err); err != nil {
			return err
		}
	}
	return nil
}

// compare finds the stored entries of a part that the document lacks. A usage keeps its service.
func (w *work) compare(ctx context.Context, a Appliance, part string) error {
	if w.Prune == PruneNone || w.Entries[part] == nil {
		return nil
	}
	kept := map[string]bool{}
	for _, e := range w.Entries[part] {
		same := []string{e.text("id")}
		if part == Usages {
			var err error
			if same, err = a.SameUsages(ctx, e.Body); err != nil {
				return err
			}
		}
		for _, id := range same {
			kept[id] = true
		}
	}
	if part == Services {
		for _, e := range w.Entries[Usages] {
			kept[e.text("service_id")] = true
		}
	}
	total := 0
	for id, err := range a.Held(ctx, part) {
		if err != nil {
			return err
		}
		if total++; !kept[id] {
			w.lacking[part] = append(w.lacking[part], id)
		}
	}
	w.lacking[part] = w.few(part, w.lacking[part], total)
	return nil
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

// remove removes the entries of a part that the document lacks, unless the prune is refused.
func (w *work) remove(ctx context.Context, a Appliance, part string) error {
	if len(w.waits.lasting) > 0 {
		return nil
	}
	for _, id := range w.lacking[part] {
		c, err := a.Remove(ctx, part, id)
		if err := w.done(*w.pruneAt, c, err); err != nil {
			return err
		}
	}
	return nil
}
