package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// endless never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestReadAnswer(t *testing.T) {
	for _, octets := range []int{0, 1, 40_000, maxAnswer} {
		want := bytes.Repeat([]byte("a"), octets)
		got, tooLong, err := readAnswer(t.Context(), iotest.HalfReader(bytes.NewReader(want)))
		if !bytes.Equal(got, want) || tooLong || err != nil {
			t.Errorf("%d octets: got %d, %v, %v", octets, len(got), tooLong, err)
		}
	}
	if _, tooLong, err := readAnswer(t.Context(), strings.NewReader(strings.Repeat("a", maxAnswer+1))); !tooLong || err != nil {
		t.Errorf("one octet too many: %v, %v", tooLong, err)
	}
	broken := errors.New("broken")
	if _, tooLong, err := readAnswer(t.Context(), iotest.ErrReader(broken)); tooLong || err != broken {
		t.Errorf("broken: %v, %v", tooLong, err)
	}
}

// Many answers that are too long may come at a time. Each costs little more memory than the limit.
func TestLongAnswerMemory(t *testing.T) {
	result := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			readAnswer(context.Background(), endless{})
		}
	})
	if got := result.AllocedBytesPerOp(); got > maxAnswer*5/4 {
		t.Errorf("%d octets for an answer that is too long, %d at most", got, maxAnswer*5/4)
	}
}

// TestLongReads: of the answers that are long, two are read at a time. Short ones do not wait.
func TestLongReads(t *testing.T) {
	var reads sync.WaitGroup
	ends := []*io.PipeWriter{}
	for range cap(longReads) {
		from, to := io.Pipe()
		ends = append(ends, to)
		reads.Go(func() { readAnswer(t.Context(), from) })
		if _, err := to.Write(make([]byte, shortRead+1)); err != nil { // returns once the octet is read that needs a place
			t.Fatal(err)
		}
	}
	long := func() io.Reader { return bytes.NewReader(make([]byte, shortRead)) }
	waiting, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := readAnswer(waiting, long()); err != context.Canceled {
		t.Errorf("a third long answer is read: %v", err)
	}
	if _, _, err := readAnswer(waiting, bytes.NewReader(make([]byte, shortRead-1))); err != nil {
		t.Errorf("a short answer is not read: %v", err)
	}
	for _, to := range ends {
		to.Close()
	}
	reads.Wait()
	if _, _, err := readAnswer(t.Context(), long()); err != nil {
		t.Errorf("a long answer after the others: %v", err)
	}
}
