package provider

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

// endless never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestReadAnswer(t *testing.T) {
	for _, octets := range []int{0, 1, 40_000, maxAnswer} {
		want := bytes.Repeat([]byte("a"), octets)
		got, tooLong, err := readAnswer(iotest.HalfReader(bytes.NewReader(want)))
		if !bytes.Equal(got, want) || tooLong || err != nil {
			t.Errorf("%d octets: got %d, %v, %v", octets, len(got), tooLong, err)
		}
	}
	if _, tooLong, err := readAnswer(strings.NewReader(strings.Repeat("a", maxAnswer+1))); !tooLong || err != nil {
		t.Errorf("one octet too many: %v, %v", tooLong, err)
	}
	broken := errors.New("broken")
	if _, tooLong, err := readAnswer(iotest.ErrReader(broken)); tooLong || err != broken {
		t.Errorf("broken: %v, %v", tooLong, err)
	}
}

// Many answers that are too long may come at a time. Each costs little more memory than the limit.
func TestLongAnswerMemory(t *testing.T) {
	result := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			readAnswer(endless{})
		}
	})
	if got := result.AllocedBytesPerOp(); got > maxAnswer*5/4 {
		t.Errorf("%d octets for an answer that is too long, %d at most", got, maxAnswer*5/4)
	}
}
