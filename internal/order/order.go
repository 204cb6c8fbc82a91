// Package order sorts slices with code that the binary has once.
package order

import "sort"

// By sorts s by compare and keeps the order of equal elements, like slices.SortStableFunc. The compiler
// repeats the code of that function and of slices.SortFunc for each type of element: 20 KB for a struct.
func By[T any](s []T, compare func(a, b T) int) {
	sort.SliceStable(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}
