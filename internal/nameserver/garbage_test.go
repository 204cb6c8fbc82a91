//go:build !race

package nameserver

import "testing"

// TestAnswerMakesNoGarbage does not run under the race detector, with which a
// sync.Pool forgets at random.
func TestAnswerMakesNoGarbage(t *testing.T) {
	s := keptServer(1000)
	buffer := make([]byte, 0, maxUDP)
	for _, form := range []string{hitForm, noneForm, deepForm} {
		packet := asked(form, 1000)[0]
		if n := testing.AllocsPerRun(200, func() { buffer = s.answer(t.Context(), buffer[:0], packet, asker{limit: maxUDP}) }); n >= 1 {
			t.Errorf("%v allocations for %s", n, form)
		}
	}
}
