package sqlite

import (
	"errors"
	"slices"
	"testing"
)

// TestTextList: a list is stored as JSON; a text that is no list counts as empty.
func TestTextList(t *testing.T) {
	for stored, want := range map[string][]string{
		"[]": nil, `["a","b c"]`: {"a", "b c"}, `["a",1]`: nil, `{}`: nil, "": nil, "null": nil,
	} {
		list := TextList{"before"}
		if err := list.Scan(stored); err != nil || !slices.Equal(list, want) {
			t.Errorf("%s: %q, %v, want %q", stored, list, err, want)
		}
		if value, err := list.Value(); len(want) > 0 && (value != stored || err != nil) {
			t.Errorf("%q is stored as %v, %v", list, value, err)
		}
	}
	if value, err := TextList(nil).Value(); value != "[]" || err != nil {
		t.Errorf("no list is stored as %v, %v", value, err)
	}
	if err := new(TextList).Scan(int64(1)); err == nil {
		t.Error("a number is read as a list")
	}
}

// TestPages: Pages asks for the rows after the last one until a page is short, after an error, or until
// its caller stops.
func TestPages(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		rows, stop, fails int
		want              []int
		asked             int
	}{
		{rows: 0, want: nil, asked: 1},
		{rows: 5, want: []int{1, 2, 3, 4, 5}, asked: 3},
		{rows: 4, want: []int{1, 2, 3, 4}, asked: 3},
		{rows: 9, stop: 3, want: []int{1, 2, 3}, asked: 2},
		{rows: 9, fails: 2, want: []int{1, 2}, asked: 2},
	} {
		asked, got := 0, []int(nil)
		var last error
		for row, err := range Pages(2, func(behind int) (page []int, err error) {
			if asked++; asked == test.fails {
				return nil, broken
			}
			for n := behind + 1; n <= test.rows && len(page) < 2; n++ {
				page = append(page, n)
			}
			return page, nil
		}) {
			if last = err; err != nil {
				break
			}
			if got = append(got, row); row == test.stop {
				break
			}
		}
		if !slices.Equal(got, test.want) || asked != test.asked || (last != nil) != (test.fails > 0) {
			t.Errorf("%+v: %v, %v, asked %d times", test, got, last, asked)
		}
	}
}
