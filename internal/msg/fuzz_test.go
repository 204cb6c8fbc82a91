package msg

import (
	"strings"
	"testing"
)

// FuzzPreferred: any header gives one of the two languages. Letter case, spaces and other languages in the
// header do not change it.
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
