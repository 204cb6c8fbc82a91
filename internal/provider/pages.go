package provider

import (
	"fmt"
	"hash/maphash"

	"meshddns/internal/msg"
)

const maxPages = 1000 // of any list

// pageOf returns the items of one page of a list. given is the number of items on the pages before.
// total is the number on all pages, nil if the answer does not tell, or less than 0 if it tells only that
// more pages follow.
type pageOf[T any] func(page, given int) (items []T, total *int, err error)

// paged returns the items of all pages.
func paged[T any](fetch pageOf[T]) (all []T, err error) {
	err = eachPage(fetch, func(items []T) { all = append(all, items...) })
	if err != nil {
		return nil, err
	}
	return all, nil
}

// eachPage calls take with the items of each page. If an answer does not tell the total, an empty page
// is the last. An answer with neither items nor total, and a list that ends too early, are errors:
// the program would write the missing records again.
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
		case total != nil && *total < 0:
		case total == nil && items == nil && page == 1:
			return &Error{Kind: BadAnswer, Detail: msg.Say("neither a list nor its length"), Err: errNotTheirs}
		case total == nil && len(items) == 0, total != nil && given >= *total:
			return nil
		case len(items) == 0:
			return &Error{Kind: BadAnswer, Detail: msg.Textf("the list ends after %d items of %d", given, *total)}
		}
	}
	return manyPages(BadAnswer, maxPages)
}

// manyPages returns the error of a list with over so many pages. Client.listZone then has the names read one by one.
func manyPages(kind Kind, pages int) error {
	return &Error{Kind: kind, Detail: msg.Textf("the list has over %d pages", pages), Err: errTooLong}
}

// wholePages reads a list that must be complete, although others may write meanwhile. Its length must
// be the same on all pages, and no item may come twice. A list of too many pages fails at once.
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

// marks is a set of ids that have come before. It keeps hashes of eight octets, because there may be a
// million ids.
type marks struct {
	seed maphash.Seed
	seen map[uint64]struct{}
}

func newMarks() marks { return marks{maphash.MakeSeed(), map[uint64]struct{}{}} }

// again adds an id, or another comparable key, and reports whether it was in the set before.
func (m marks) again(id any) bool {
	before := len(m.seen)
	m.seen[maphash.Comparable(m.seed, id)] = struct{}{}
	return len(m.seen) == before
}

// zonesPaged returns all zones of an account, or tooMany if there are too many pages. A repeated page
// is an error, because it hides another one, whose zones would seem to be missing.
func zonesPaged[T any](fetch pageOf[T]) ([]T, error) {
	seen := newMarks()
	return paged(upTo(zonePages, func(page, given int) ([]T, *int, error) {
		items, total, err := fetch(page, given)
		if len(items) > 0 && seen.again(fmt.Sprint(items)) {
			return nil, nil, &Error{Kind: Changed, Detail: msg.Textf("page %d of the account's zones is one of those before it", page)}
		}
		return items, total, err
	}))
}

// upTo fails with tooMany after so many pages.
func upTo[T any](pages int, fetch pageOf[T]) pageOf[T] {
	return func(page, given int) ([]T, *int, error) {
		if page > pages {
			return nil, nil, manyPages(tooMany, pages)
		}
		return fetch(page, given)
	}
}

// formed converts each item of a page.
func formed[T, U any](fetch pageOf[T], form func(T) U) pageOf[U] {
	return func(page, given int) ([]U, *int, error) {
		items, total, err := fetch(page, given)
		return as(items, form), total, err
	}
}

// as converts each item of a list. A nil list stays nil, because nil means that there is no list.
func as[T, U any](items []T, form func(T) U) (formed []U) {
	for _, item := range items {
		formed = append(formed, form(item))
	}
	if items != nil && formed == nil {
		return []U{}
	}
	return formed
}
