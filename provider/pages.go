package provider

import (
	"encoding/json"
	"fmt"
)

const maxPages = 1000 // of any list

// pageOf gives the items of one page of a list; given is how many there were
// on the pages before, total how many there are on all, nil where the answer
// does not say that.
type pageOf[T any] func(page, given int) (items []T, total *int, err error)

// paged collects the items of all pages. Where an answer does not say how many
// there are, an empty page is the last. An answer with neither, or a list that
// ends too early, is not to be believed: what it lacks would be written again.
func paged[T any](fetch pageOf[T]) ([]T, error) {
	var all []T
	for page := 1; page <= maxPages; page++ {
		items, total, err := fetch(page, len(all))
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		switch {
		case total == nil && items == nil && page == 1:
			return nil, &Error{Kind: BadAnswer, Detail: "neither a list nor its length", Err: errNotTheirs}
		case total == nil && len(items) == 0, total != nil && len(all) >= *total:
			return all, nil
		case len(items) == 0:
			return nil, &Error{Kind: BadAnswer, Detail: fmt.Sprintf("the list ends after %d items of %d", len(all), *total)}
		}
	}
	return nil, &Error{Kind: BadAnswer, Detail: fmt.Sprintf("the list has over %d pages", maxPages)}
}

// wholePages collects a list of which nothing may be missing, although others
// may write while it is read: its length stays the same on all pages, and no
// item comes twice.
func wholePages[T any](id func(T) string, fetch pageOf[T]) ([]T, error) {
	length, seen := -1, map[string]bool{}
	return paged(func(page, given int) ([]T, *int, error) {
		items, total, err := fetch(page, given)
		if err != nil {
			return nil, nil, err
		}
		if total != nil && length >= 0 && length != *total {
			return nil, nil, &Error{Kind: Changed, Detail: fmt.Sprintf("the list had %d items, and has %d while it is read", length, *total)}
		}
		if total != nil {
			length = *total
		}
		for _, item := range items {
			if seen[id(item)] {
				return nil, nil, &Error{Kind: Changed, Detail: "the list changes while it is read: an item is on two pages"}
			}
			seen[id(item)] = true
		}
		return items, total, nil
	})
}

// zonesPaged collects the list of an account's zones, unless that has too
// many pages. A page that comes twice hides another, whose zones would seem to be
// missing.
func zonesPaged[T any](fetch pageOf[T]) ([]T, error) {
	seen := map[string]bool{}
	return paged(func(page, given int) ([]T, *int, error) {
		if page > zonePages {
			return nil, nil, &Error{Kind: tooMany, Detail: fmt.Sprintf("the account's zones are on over %d pages", zonePages)}
		}
		items, total, err := fetch(page, given)
		if text, err := json.Marshal(items); err == nil && len(items) > 0 {
			if seen[string(text)] {
				return nil, nil, &Error{Kind: Changed, Detail: fmt.Sprintf("page %d of the account's zones is one of those before it", page)}
			}
			seen[string(text)] = true
		}
		return items, total, err
	})
}
