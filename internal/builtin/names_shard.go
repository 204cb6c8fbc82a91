package builtin

import (
	"encoding/binary"
	"math/bits"
	"syscall"
)

// shard is a part of the entries: a hash table with linear probing, and the arena of the
// entries' data.
type shard struct {
	table []byte // slots
	used  int    // slots that are not free
	arena []byte // items; its length is the mapped memory
	next  int    // offset of the next item; no item has offset 0
	dead  int    // octets of removed items
}

// slot is an entry of the table: the hash (8 octets); the number of names and zones below,
// with the bit of a zone (4); the offset of its item in the arena, or 0 (4).
type slot []byte

const (
	slotSize   = 16
	zoneBit    = 1 << 31
	memoryPage = 4096
)

func (s slot) hash() uint64      { return binary.LittleEndian.Uint64(s) }
func (s slot) raw() uint32       { return binary.LittleEndian.Uint32(s[8:]) }
func (s slot) below() uint32     { return s.raw() &^ zoneBit }
func (s slot) isZone() bool      { return s.raw()&zoneBit != 0 }
func (s slot) item() uint32      { return binary.LittleEndian.Uint32(s[12:]) }
func (s slot) setBelow(n uint32) { binary.LittleEndian.PutUint32(s[8:], n) }
func (s slot) setItem(at uint32) { binary.LittleEndian.PutUint32(s[12:], at) }

func (s *shard) slot(i int) slot { return s.table[i*slotSize : (i+1)*slotSize : (i+1)*slotSize] }

func (s *shard) slots() int { return len(s.table) / slotSize }

// home returns the first slot to search for a hash. It ignores the bits that choose the shard.
func (s *shard) home(hash uint64) int {
	high, _ := bits.Mul64(hash<<shardBits, uint64(s.slots()))
	return int(high)
}

// search returns the slot of a hash, or the free slot where it belongs.
func (s *shard) search(hash uint64) (at int, there bool) {
	for at = s.home(hash); ; at++ {
		if at == s.slots() {
			at = 0
		}
		switch s.slot(at).hash() {
		case hash:
			return at, true
		case 0:
			return at, false
		}
	}
}

// find returns the entry of a hash.
func (s *shard) find(hash uint64) (slot, bool) {
	if s.used == 0 {
		return nil, false
	}
	at, there := s.search(hash)
	return s.slot(at), there
}

// add returns the slot of a hash, a new one if it has none.
func (s *shard) add(hash uint64) (slot, error) {
	if s.used+1 > s.slots()/8*7 {
		if err := s.resize(s.slots() * 5 / 4); err != nil {
			return nil, err
		}
	}
	at, there := s.search(hash)
	found := s.slot(at)
	if !there {
		s.used++
		binary.LittleEndian.PutUint64(found, hash)
	}
	return found, nil
}

// tidy removes an entry without data, zone or names below. Entries after it move up if a
// search would not find them past the free slot.
func (s *shard) tidy(hash uint64) {
	free, there := s.search(hash)
	if entry := s.slot(free); !there || entry.raw() != 0 || entry.item() != 0 {
		return
	}
	s.used--
	for at := free; ; {
		if at++; at == s.slots() {
			at = 0
		}
		entry := s.slot(at)
		if entry.hash() == 0 {
			break
		}
		home := s.home(entry.hash())
		if between := free < home && home <= at; between || at < free && (home > free || home <= at) {
			continue // a search finds it before it meets the free slot
		}
		copy(s.slot(free), entry)
		free = at
	}
	clear(s.slot(free))
	if s.slots()*slotSize > memoryPage && s.used < s.slots()/3 {
		s.resize(s.slots() / 2) // without memory, the larger table stays
	}
}

// resize replaces the table by one with at least the given number of slots.
func (s *shard) resize(slots int) error {
	table, err := mapMemory(slots * slotSize)
	if err != nil {
		return err
	}
	old := s.table
	s.table = table
	for i := 0; i < len(old); i += slotSize {
		if entry := slot(old[i : i+slotSize]); entry.hash() != 0 {
			at, _ := s.search(entry.hash())
			copy(s.slot(at), entry)
		}
	}
	return unmap(old)
}

// item reads an item of the arena: TTL and the length of the data, then the data.
func (s *shard) item(at uint32) (ttl uint32, data []byte) {
	rest := s.arena[at:]
	value, n := binary.Uvarint(rest)
	size, m := binary.Uvarint(rest[n:])
	return uint32(value), rest[n+m : n+m+int(size)]
}

// size returns the octets that an item takes.
func (s *shard) size(at uint32) int {
	_, n := binary.Uvarint(s.arena[at:])
	size, m := binary.Uvarint(s.arena[int(at)+n:])
	return n + m + int(size)
}

// put stores data for an entry that has none.
func (s *shard) put(entry slot, ttl uint32, data []byte) error {
	var head [2 * binary.MaxVarintLen64]byte
	size := binary.PutUvarint(head[:], uint64(ttl))
	size += binary.PutUvarint(head[size:], uint64(len(data)))
	if s.next+size+len(data) > len(s.arena) {
		if err := s.compact(size + len(data)); err != nil {
			return err
		}
	}
	entry.setItem(uint32(s.next))
	s.next += copy(s.arena[s.next:], head[:size])
	s.next += copy(s.arena[s.next:], data)
	return nil
}

// drop removes an entry's data.
func (s *shard) drop(entry slot) {
	s.dead += s.size(entry.item())
	entry.setItem(0)
	if s.dead > memoryPage && s.dead > s.next/4 {
		s.compact(0) // without memory, the larger arena stays
	}
}

// compact replaces the arena by one without removed items. It is twice as large as the
// items and the given room; the unused part takes no memory.
func (s *shard) compact(room int) error {
	live := 1 + s.next - s.dead + room
	arena, err := mapMemory(2 * live)
	if err != nil {
		return err
	}
	next := 1
	for i := range s.slots() {
		if entry := s.slot(i); entry.item() != 0 {
			at := int(entry.item())
			entry.setItem(uint32(next))
			next += copy(arena[next:], s.arena[at:at+s.size(uint32(at))])
		}
	}
	old := s.arena
	s.arena, s.next, s.dead = arena, next, 0
	return unmap(old)
}

// free releases the shard's memory.
func (s *shard) free() {
	unmap(s.table)
	unmap(s.arena)
	*s = shard{}
}

// mapMemory returns memory outside the heap. In the heap, the garbage collector would let
// the heap grow to twice its size. Untouched pages take no memory.
func mapMemory(octets int) ([]byte, error) {
	octets = max(1, (octets+memoryPage-1)/memoryPage) * memoryPage
	return syscall.Mmap(-1, 0, octets, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

func unmap(memory []byte) error {
	if memory == nil {
		return nil
	}
	return syscall.Munmap(memory)
}
