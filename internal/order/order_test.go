package order

import (
	"cmp"
	"slices"
	"testing"
)

func TestBy(t *testing.T) {
	type pair struct{ key, place int }
	var got []pair
	for i := range 1000 {
		got = append(got, pair{i * 7 % 10, i})
	}
	want := slices.Clone(got)
	compare := func(a, b pair) int { return cmp.Compare(a.key, b.key) }
	slices.SortStableFunc(want, compare)
	By(got, compare)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got[:20], want[:20])
	}
}
