package answers

import (
	"fmt"
	"io"
)

// Pages of a list that is written as a whole grow, because a client may not read on.
const (
	firstSize   = 20
	growth      = 20
	largestSize = 250
)

// ListPage is a page of the list, or the error of reading it.
type ListPage struct {
	Size    int
	Last    int64  // seq of the last entry
	Entries string // in JSON, with commas between them
	Err     error
}

// FirstSize is how many entries the first page for WriteList has to be read with. A limit of
// 0 is none.
func FirstSize(limit int) int {
	if limit == 0 {
		return firstSize
	}
	return limit
}

// WriteList writes the list as an answer in JSON. With a limit the answer has the first page,
// and the cursor of the next page if there is one; without a limit it has all pages. read
// gives the page of at most size entries after a seq. WriteList holds no page but the one
// that it writes, and a slow client holds no connection of the database. The error is that of
// a page, after which the answer is cut off; WriteList ignores errors of the client.
func WriteList(w io.Writer, limit int, page ListPage, read func(after int64, size int) ListPage) error {
	entries := func(before string) {
		if page.Size > 0 {
			for _, part := range []string{before, page.Entries, "\n"} { // a copy of a page would be large
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
