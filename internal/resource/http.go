// The requests about the entries of a table.

package resource

import (
	"net/http"
	"slices"

	"meshddns/internal/msg"
	"meshddns/internal/web"
)

// Form makes the data of an answer about an entry. warnings are about the request that wrote it.
type Form[T any] func(entry T, warnings []string, language msg.Language) any

// List reads the entries of the table for an answer.
func (t *Table[T]) List(r *http.Request, form Form[T]) web.PartReader[string] {
	return func(after string, size int) (web.Part[string], error) {
		all, err := t.All(r.Context())
		all = slices.DeleteFunc(all, func(entry T) bool { return *t.kind.ID(&entry) <= after })
		return web.Rows(all[:min(len(all), size)], err, func(entry T) (string, any, error) {
			return *t.kind.ID(&entry), form(entry, nil, web.Language(r)), nil
		})
	}
}

// Show answers with one entry.
func (t *Table[T]) Show(r *http.Request, form Form[T]) (web.Reply, error) {
	entry, err := t.One(r.Context(), r.PathValue("id"))
	return web.Reply{Data: form(entry, nil, web.Language(r))}, err
}

// Put creates or replaces an entry.
func (t *Table[T]) Put(r *http.Request, form Form[T]) (web.Reply, error) {
	var entry T
	given, err := web.DecodeMembers(r, &entry)
	if err != nil {
		return web.Reply{}, err
	}
	*t.kind.ID(&entry) = r.PathValue("id")
	language := web.Language(r)
	if entry, err = entry.Check(language); err != nil {
		return web.Reply{}, err
	}
	if entry, err = t.Save(r.Context(), entry); err != nil {
		return web.Reply{}, err
	}
	warnings := msg.Texts(web.WarnMembers(given, t.kind.Shown), language)
	return web.Reply{Message: t.kind.Saved, Data: form(entry, warnings, language)}, nil
}

// Remove deletes an entry.
func (t *Table[T]) Remove(r *http.Request) (web.Reply, error) {
	return web.Reply{Message: t.kind.Deleted}, t.Delete(r.Context(), r.PathValue("id"))
}
