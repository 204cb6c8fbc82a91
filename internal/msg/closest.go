package msg

import "strings"

const (
	leastPart = 5 // octets of a name that may be only a part of the known name
	perSlip   = 4 // octets of a name that allow one slip
	mostSlips = 2
)

// Closest returns the known name that resembles a name most. Letter case and separators of words do not
// count. The name may have one slip in four octets, at most two, or lack words at the beginning or the
// end: -tokens matches -token-file. ok is false if no known name is similar enough.
func Closest(name string, known []string) (meant string, ok bool) {
	given, least := joined(name), mostSlips+1
	begin := strings.TrimSuffix(given, "s")
	for _, k := range known {
		full := joined(k)
		isPart := len(begin) >= leastPart && (strings.HasPrefix(full, begin) || strings.HasSuffix(full, given))
		slips := distance(given, full)
		if isPart {
			slips = min(slips, mostSlips)
		}
		if slips < least && (isPart || slips <= len(given)/perSlip) {
			meant, least = k, slips
		}
	}
	return meant, least <= mostSlips
}

// joined returns a name in lower case and without separators.
func joined(name string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(name))
}

// distance returns the number of octets to insert, drop, change, or swap with the next one, to turn a
// into b. It stops counting at mostSlips+1, because a client's name may be very long.
func distance(a, b string) int {
	if len(a) > len(b)+mostSlips || len(b) > len(a)+mostSlips {
		return mostSlips + 1
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
		for j := range b {
			if i == 0 {
				rows[0][j+1] = j + 1
				continue
			}
			change := 1
			if a[i-1] == b[j] {
				change = 0
			}
			rows[i][j+1] = min(rows[i-1][j+1]+1, rows[i][j]+1, rows[i-1][j]+change)
			if i > 1 && j > 0 && a[i-1] == b[j-1] && a[i-2] == b[j] {
				rows[i][j+1] = min(rows[i][j+1], rows[i-2][j-1]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
