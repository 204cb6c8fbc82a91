package e2e

import (
	octets "encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// volatileDisk is a disk with a cache that a power cut empties, served by NBD
// (https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md) to one client at a time.
type volatileDisk struct {
	path string // of the socket

	mu      sync.Mutex
	now     []byte  // what is read
	safe    []byte  // what a power cut leaves
	pending []int64 // blocks that were written since the last flush
	flushes int
	conn    net.Conn // nil while it has no power

	left   int           // the power is cut with so many writes; 0 is never
	chance *rand.Rand    // decides what survives
	cuts   int           // so far
	lost   int           // blocks, at all cuts
	gone   chan struct{} // is closed by the cut
}

// diskBlock is written whole or not at all. It is ext4's: a torn block at the end of its
// journal is not taken for the end, and needs a check of the file system.
const diskBlock = 1024

const (
	nbdFixedNewstyle = 1
	nbdNoZeroes      = 2
	nbdExportName    = 1
	nbdGo            = 7
	nbdHasFlags      = 1
	nbdSendFlush     = 4
	nbdRead          = 0
	nbdWrite         = 1
	nbdDisconnect    = 2
	nbdFlush         = 3
)

func newVolatileDisk(t *testing.T, content []byte) *volatileDisk {
	t.Helper()
	folder, err := os.MkdirTemp("", "disk-") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	d := &volatileDisk{path: filepath.Join(folder, "nbd"), now: content, safe: append([]byte(nil), content...)}
	listener, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.conn = conn
			d.mu.Unlock()
			go d.serve(conn)
		}
	}()
	return d
}

// cutWith cuts the power in the middle of the nth write from now, and closes the channel.
func (d *volatileDisk) cutWith(n int, chance *rand.Rand) (gone <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.chance, d.gone = n, chance, make(chan struct{})
	return d.gone
}

// cut cuts the power: what was not flushed is lost, but for some blocks by chance. The
// first cut loses all of it.
func (d *volatileDisk) cut() {
	keep := []int{0, 9, 5, 1}[d.cuts%4] // of ten
	for _, b := range d.pending {
		if d.chance.IntN(10) < keep {
			copy(d.safe[b*diskBlock:(b+1)*diskBlock], d.now[b*diskBlock:])
		} else {
			d.lost++
		}
	}
	copy(d.now, d.safe)
	d.pending, d.conn = nil, nil
	d.cuts++
	close(d.gone)
}

func (d *volatileDisk) serve(conn net.Conn) {
	defer conn.Close()
	if d.greet(conn) != nil {
		return
	}
	for {
		var request struct {
			Magic       uint32
			Flags, Type uint16
			Handle      uint64
			Offset      uint64
			Length      uint32
		}
		if octets.Read(conn, octets.BigEndian, &request) != nil || request.Magic != 0x25609513 {
			return
		}
		var data []byte
		if request.Type == nbdWrite {
			data = make([]byte, request.Length)
			if _, err := io.ReadFull(conn, data); err != nil {
				return
			}
		}
		answer, err := d.do(conn, request.Type, int64(request.Offset), int64(request.Length), data)
		if err != nil {
			io.Copy(io.Discard, conn) // a disk without power does not even fail
			return
		}
		head := octets.BigEndian.AppendUint32(nil, 0x67446698)
		head = octets.BigEndian.AppendUint32(head, 0)
		head = octets.BigEndian.AppendUint64(head, request.Handle)
		if _, err := conn.Write(append(head, answer...)); err != nil {
			return
		}
	}
}

// greet is the handshake: one disk, whatever its name.
func (d *volatileDisk) greet(conn net.Conn) error {
	hello := octets.BigEndian.AppendUint16([]byte("NBDMAGICIHAVEOPT"), nbdFixedNewstyle|nbdNoZeroes)
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	var flags uint32
	if err := octets.Read(conn, octets.BigEndian, &flags); err != nil {
		return err
	}
	export := octets.BigEndian.AppendUint64(nil, uint64(len(d.now)))
	export = octets.BigEndian.AppendUint16(export, nbdHasFlags|nbdSendFlush)
	for {
		var option struct {
			Magic        uint64
			Type, Length uint32
		}
		if err := octets.Read(conn, octets.BigEndian, &option); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, conn, int64(option.Length)); err != nil {
			return err
		}
		const ack, info, unsupported = 1, 3, 1<<31 + 1
		switch option.Type {
		case nbdExportName:
			_, err := conn.Write(export)
			return err
		case nbdGo:
			err := errors.Join(nbdReply(conn, nbdGo, info, append([]byte{0, 0}, export...)), nbdReply(conn, nbdGo, ack, nil))
			return err
		}
		if err := nbdReply(conn, option.Type, unsupported, nil); err != nil {
			return err
		}
	}
}

func nbdReply(conn net.Conn, option, kind uint32, data []byte) error {
	text := octets.BigEndian.AppendUint64(nil, 0x3e889045565a9)
	text = octets.BigEndian.AppendUint32(text, option)
	text = octets.BigEndian.AppendUint32(text, kind)
	text = octets.BigEndian.AppendUint32(text, uint32(len(data)))
	_, err := conn.Write(append(text, data...))
	return err
}

// do does a request, unless the power is cut.
func (d *volatileDisk) do(conn net.Conn, kind uint16, offset, length int64, data []byte) (answer []byte, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if conn != d.conn || offset+length > int64(len(d.now)) {
		return nil, io.EOF
	}
	switch kind {
	case nbdRead:
		return append([]byte(nil), d.now[offset:offset+length]...), nil
	case nbdWrite:
		copy(d.now[offset:], data)
		for b := offset / diskBlock; b*diskBlock < offset+length; b++ {
			d.pending = append(d.pending, b)
		}
		if d.left--; d.left == 0 {
			d.cut()
			return nil, io.EOF
		}
		return nil, nil
	case nbdFlush:
		for _, b := range d.pending {
			copy(d.safe[b*diskBlock:(b+1)*diskBlock], d.now[b*diskBlock:])
		}
		d.pending, d.flushes = nil, d.flushes+1
		return nil, nil
	}
	return nil, io.EOF
}
