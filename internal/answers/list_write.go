package answers

import (
	"io"
	"strconv"
)

// Pages of a list that is written as a whole: what a client does not read is kept, so
// they grow as it reads on.
const (
	firstSize   = 20
	growth      = 20
	largestSize = 250
)

// FirstSize is how many entries the first page for Write has to be read with. A limit of 0
// is none.
func FirstSize(limit int) int {
	if limit == 0 {
		return firstSize
	}
	return limit + 1 // one more tells whether there are more
}

// WriteList writes the list as an answer in JSON: with a limit the first page of it, and the
// cursor of the next where there is one, else all pages. It reads one page, of at most
// size entries after a seq, while that before is written, so a slow client holds no
// connection of the database. The error is that of a page, and the answer ends in the
// middle; that a client has gone is none.
func WriteList(w io.Writer, limit int, page ListPage, read func(after int64, size int) ListPage) error {
	out, last := []byte(`{"data":[`), int64(0)
	if limit > 0 {
		out, last = page.Append(out, min(page.Size, limit))
		out = append(out, ']')
		if page.Size > limit {
			out = append(strconv.AppendInt(append(out, `,"next_cursor":"`...), last, 10), "\"\n"...)
		}
		w.Write(append(out, "}\n"...))
		return nil
	}
	stop := make(chan struct{})
	defer close(stop)
	following := readOn(page, read, stop)
	out, _ = page.Append(out, page.Size)
	w.Write(out)
	for page := range following {
		if page.Err != nil {
			return page.Err
		}
		if page.Size > 0 {
			out, _ = page.Append(append(out[:0], ','), page.Size)
			w.Write(out)
		}
	}
	w.Write([]byte("]}\n"))
	return nil
}

// readOn reads the pages behind the first, and one ahead of the last that was taken.
func readOn(page ListPage, read func(after int64, size int) ListPage, stop <-chan struct{}) <-chan ListPage {
	pages := make(chan ListPage)
	go func() {
		defer close(pages)
		for size := firstSize; page.Size == size; {
			size = min(size+growth, largestSize)
			page = read(page.Last, size)
			select {
			case pages <- page:
			case <-stop:
				return
			}
		}
	}()
	return pages
}
