package msg

import (
	"strings"
	"testing"
)

// Whatever a browser prefers, the answer is in one of the two languages, in which one does not
// depend on letter case, space or what else is preferred.
func FuzzPreferred(f *testing.F) {
	for _, header := range []string{"", "en", "zh-CN,zh;q=0.9,en;q=0.8", "EN-us;q=1", "*", "en;q=2", "en;q=NaN,zh;q=0", "en;q=-0", "en;q=1e-400", "en;;q=1", ",,;q=", "\xff;q=0.5"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got := Preferred(header)
		if got != Chinese && got != English {
			t.Fatalf("%q: language %d", header, got)
		}
		if got == English && !strings.Contains(strings.ToLower(header), "en") {
			t.Errorf("%q asks for no English", header)
		}
		if again := Preferred(header + ", de;q=1"); again != got {
			t.Errorf("%q with German: %d, want %d", header, again, got)
		}
		if Preferred("zh;q=1,"+header) != Chinese {
			t.Errorf("%q: nothing is above Chinese at 1", header)
		}
	})
}
