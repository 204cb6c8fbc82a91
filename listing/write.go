package listing

import (
	"io"
	"strconv"
)

// Pages of a list that is written as a whole: what a client does not read is kept, so
// they grow as it reads on.
const (
	firstSize   = 20
	growth      = 20
	largestSize = 500
)

// FirstSize is how many entries the first page for Write has to be read with. A limit of 0
// is none.
func FirstSize(limit int) int {
	if limit == 0 {
		return firstSize
	}
	return limit + 1 // one more tells whether there are more
}

// Write writes the list as an answer in JSON: with a limit the first page of it, and the
// cursor of the next where there is one, else all pages. It reads one page, of at most
// size entries after a seq, while that before is written, so a slow client holds no
// connection of the database. The error is that of a page, and the answer ends in the
// middle; that a client has gone is none.
func Write(w io.Writer, limit int, page Page, read func(after int64, size int) Page) error {
	out := []byte(`{"data":[`)
	for size := FirstSize(limit); limit == 0 && page.Size == size; {
		after := page.Last
		size = min(size+growth, largestSize)
		next := make(chan Page, 1)
		go func() { next <- read(after, size) }()
		out, _ = AppendAll(out, page.Entries(page.Size))
		w.Write(out)
		out = out[:0]
		if page = <-next; page.Err != nil {
			return page.Err
		}
		if page.Size > 0 {
			out = append(out, ',')
		}
	}
	more := limit > 0 && page.Size > limit
	if more {
		page.Size = limit
	}
	out, last := AppendAll(out, page.Entries(page.Size))
	out = append(out, ']')
	if more {
		out = append(strconv.AppendInt(append(out, `,"next_cursor":"`...), last, 10), "\"\n"...)
	}
	w.Write(append(out, "}\n"...))
	return nil
}
