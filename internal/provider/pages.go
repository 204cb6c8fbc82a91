package provider

import (
	"fmt"
	"hash/maphash"

	"meshddns/internal/msg"
)

const maxPages = 1000 // of any list

// pageOf gives the items of one page of a list; given is how many there were
// on the pages before, total how many there are on all, nil where the answer
// does not say that.
type pageOf[T any] func(page, given int) (items []T, total *int, err error)

// paged collects the items of all pages.
func paged[T any](fetch pageOf[T]) (all []T, err error) {
	err = eachPage(fetch, func(items []T) { all = append(all, items...) })
	if err != nil {
		return nil, err
	}
	return all, nil
}

// eachPage hands the items of all pages on. Where an answer does not say how many
// there are, an empty page is the last. An answer with neither, or a list that
// ends too early, is not to be believed: what it lacks would be written again.
func eachPage[T any](fetch pageOf[T], take func(items []T)) error {
	given := 0
	for page := 1; page <= maxPages; page++ {
		items, total, err := fetch(page, given)
		if err != nil {
			return err
		}
		take(items)
		given += len(items)
		switch {
		case total == nil && items == nil && page == 1:
			return &Error{Kind: BadAnswer, Detail: msg.Say("neither a list nor its length"), Err: errNotTheirs}
		case total == nil && len(items) == 0, total != nil && given >= *total:
			return nil
		case len(items) == 0:
			return &Error{Kind: BadAnswer, Detail: msg.Textf("the list ends after %d items of %d", given, *total)}
		}
	}
	return &Error{Kind: BadAnswer, Detail: msg.Textf("the list has over %d pages", maxPages)}
}

// wholePages hands a list on of which nothing may be missing, although others may
// write while it is read: its length stays the same on all pages, and no item
// comes twice. One of too many pages is not begun.
func wholePages[T any](id func(T) string, fetch pageOf[T], take func(T)) error {
	length, seen := -1, newMarks()
	return eachPage(func(page, given int) ([]T, *int, error) {
		items, total, err := fetch(page, given)
		if err != nil {
			return nil, nil, err
		}
		if total != nil && length >= 0 && length != *total {
			return nil, nil, &Error{Kind: Changed, Detail: msg.Textf("the list had %d items, and has %d while it is read", length, *total)}
		}
		if page == 1 && total != nil && *total > maxPages*max(1, len(items)) {
			return nil, nil, &Error{Kind: Invalid, Detail: msg.Textf("the list has %d items, on over %d pages", *total, maxPages), Err: ErrNotListed}
		}
		if total != nil {
			length = *total
		}
		for _, item := range items {
			if seen.again(id(item)) {
				return nil, nil, &Error{Kind: Changed, Detail: msg.Say("the list changes while it is read: an item is on two pages")}
			}
		}
		return items, total, nil
	}, func(items []T) {
		for _, item := range items {
			take(item)
		}
	})
}

// marks tells what has come before, by hashes: of a million ids, eight octets each.
type marks struct {
	seed maphash.Seed
	seen map[uint64]struct{}
}

func newMarks() marks { return marks{maphash.MakeSeed(), map[uint64]struct{}{}} }

// again notes an id, or whatever tells items apart, and reports whether it was noted
// before.
func (m marks) again(id any) bool {
	before := len(m.seen)
	m.seen[maphash.Comparable(m.seed, id)] = struct{}{}
	return len(m.seen) == before
}

// zonesPaged collects the list of an account's zones, unless that has too
// many pages. A page that comes twice hides another, whose zones would seem to be
// missing.
func zonesPaged[T any](fetch pageOf[T]) ([]T, error) {
	seen := newMarks()
	return paged(func(page, given int) ([]T, *int, error) {
		if page > zonePages {
			return nil, nil, &Error{Kind: tooMany, Detail: msg.Textf("the list has over %d pages", zonePages)}
		}
		items, total, err := fetch(page, given)
		if len(items) > 0 && seen.again(fmt.Sprint(items)) {
			return nil, nil, &Error{Kind: Changed, Detail: msg.Textf("page %d of the account's zones is one of those before it", page)}
		}
		return items, total, err
	})
}

// as converts each item of a list. A nil list stays nil: it means that there is no list.
func as[T, U any](items []T, form func(T) U) (formed []U) {
	for _, item := range items {
		formed = append(formed, form(item))
	}
	if items != nil && formed == nil {
		return []U{}
	}
	return formed
}
