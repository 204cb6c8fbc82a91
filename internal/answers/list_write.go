package answers

import (
	"fmt"
	"io"
)

// The pages of a list without a limit grow, because a client may stop reading early.
const (
	firstSize   = 20
	growth      = 20
	largestSize = 250
)

// ListPage is a page of the list, or the error of reading it.
type ListPage struct {
	Size    int
	Last    int64  // seq of the last entry
	Entries string // JSON, separated by commas
	Err     error
}

// FirstSize returns the size of the first page for WriteList. A limit of 0 means none.
func FirstSize(limit int) int {
	if limit == 0 {
		return firstSize
	}
	return limit
}

// WriteList writes the list as a JSON answer. With a limit the answer has the first page, and the
// cursor of the next page if there is one; without a limit it has all pages. read returns the page of
// at most size entries after a seq. WriteList holds one page at a time, and a slow client occupies no
// connection of the database. The error is that of a page, after which the answer is cut off;
// WriteList ignores errors of the client.
func WriteList(w io.Writer, limit int, page ListPage, read func(after int64, size int) ListPage) error {
	entries := func(before string) {
		if page.Size > 0 {
			for _, part := range []string{before, page.Entries, "\n"} { // joining them would copy a large page
				io.WriteString(w, part)
			}
		}
	}
	io.WriteString(w, `{"data":[`)
	entries("")
	end := "]}\n"
	for size := FirstSize(limit); page.Size == size; {
		if limit > 0 {
			if next := read(page.Last, 1); next.Err != nil {
				return next.Err
			} else if next.Size > 0 {
				end = fmt.Sprintf("],\"next_cursor\":\"%d\"\n}\n", page.Last)
			}
			break
		}
		size = min(size+growth, largestSize)
		if page = read(page.Last, size); page.Err != nil {
			return page.Err
		}
		entries(",")
	}
	io.WriteString(w, end)
	return nil
}
