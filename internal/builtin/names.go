package builtin

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
)

// found is what stands at a name. A zone is told by the length of its apex, which
// is the name's end.
type found struct {
	Apex        int // octets of the apex of the longest zone that contains the name; 0: no zone does
	Serial      uint32
	Above       int // octets of the apex of the next zone around that one; 0: none
	AboveSerial uint32
	Exists      bool // the name has data or is an apex, or others lie below it
	TTL         uint32
	TXT         []byte // what Set was given
}

// names keeps the contents of DNS zones in little memory: a name is 16 octets in a table, and its
// records are packed in an arena. It keeps 64 bits of a hash of each name instead of the name; no
// client knows the key of the hash.
//
// A name is hashed label by label from the root, so one pass over a question gives the hashes of all
// names above it. A name that only has others below it is an entry too, with their number. So one
// walk from the root finds the zone, the name, or the place where nothing lies below.
//
// Names are in wire form, letters in lower case, and not the root. Many goroutines may use it at a
// time. It has to be freed, because the garbage collector does not own its memory.
type names struct {
	mu     sync.RWMutex
	seed   maphash.Seed
	shards [shards]shard
	zones  map[uint64]uint32 // serials by the hash of the apex
	names  int               // with data
	path   [maxLabels]uint64 // what hashes gives
	freed  bool
}

// shards bounds how much is moved at once when a table has to grow: no query
// is answered meanwhile.
const (
	shardBits = 6
	shards    = 1 << shardBits
)

// newNames makes an empty cache.
func newNames() *names {
	return &names{seed: maphash.MakeSeed(), zones: map[uint64]uint32{}}
}

// Free gives the memory back. What looks for a name after it finds nothing.
func (c *names) Free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed = true
	for i := range c.shards {
		c.shards[i].free()
	}
}

// Size gives the number of names with data, and the octets of memory that they take.
func (c *names) Size() (names, octets int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range c.shards {
		octets += len(c.shards[i].table) + c.shards[i].next
	}
	return c.names, octets
}

const (
	maxLabels = 127
	maxLabel  = 63
)

// path is where the labels of a name begin, the last label first, and the end of
// the last.
type path struct {
	starts [maxLabels + 1]uint8
	labels int
}

func (p *path) of(name []byte) {
	p.labels = 0
	for at := 0; name[at] != 0; at += 1 + int(name[at]) {
		p.starts[maxLabels-p.labels] = uint8(at)
		p.labels++
	}
}

// start gives where the label begins that has n labels behind it.
func (p *path) start(n int) int { return int(p.starts[maxLabels-p.labels+1+n]) }

// hash gives the hash of a name from that of the name above it and its first label.
func (c *names) hash(above uint64, label []byte) uint64 {
	var text [8 + 1 + maxLabel]byte
	binary.LittleEndian.PutUint64(text[:], above)
	h := maphash.Bytes(c.seed, text[:8+copy(text[8:], label)])
	if h == 0 {
		return 1 // 0 marks a free slot
	}
	return h
}

func (c *names) shard(hash uint64) *shard { return &c.shards[hash>>(64-shardBits)] }

// Look gives what is at a name, appending to txt for the result's TXT. ok is
// false when the cache is freed.
func (c *names) Look(name, txt []byte) (found found, ok bool) {
	found.TXT = txt
	var p path
	p.of(name)
	c.mu.RLock()
	defer c.mu.RUnlock()
	var hash uint64
	for n := range p.labels {
		at := p.start(n)
		hash = c.hash(hash, name[at:at+1+int(name[at])])
		s := c.shard(hash)
		slot, there := s.find(hash)
		if !there {
			return found, !c.freed
		}
		if slot.isZone() {
			found.Above, found.AboveSerial = found.Apex, found.Serial
			found.Apex, found.Serial = len(name)-at, c.zones[hash]
		}
		if n == p.labels-1 {
			found.Exists = true
			if slot.item() > 0 {
				ttl, data := s.item(slot.item())
				found.TTL, found.TXT = ttl, append(txt, data...)
			}
		}
	}
	return found, !c.freed
}

// Set makes txt, and nothing else, the data at a name; no octets is none. An
// error means that there is no memory: the cache is of no use any more.
func (c *names) Set(name []byte, ttl uint32, txt []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.freed {
		return nil
	}
	hashes := c.hashes(name)
	hash := hashes[len(hashes)-1]
	s := c.shard(hash)
	if len(txt) == 0 {
		slot, there := s.find(hash)
		if !there || slot.item() == 0 {
			return nil
		}
		c.names--
		s.drop(slot)
		s.tidy(hash)
		return c.count(hashes, -1)
	}
	slot, err := s.add(hash)
	if err != nil {
		return err
	}
	if slot.item() != 0 {
		s.drop(slot)
		return s.put(slot, ttl, txt)
	}
	c.names++
	if err := s.put(slot, ttl, txt); err != nil {
		return err
	}
	return c.count(hashes, 1)
}

// SetZone makes a name a zone with a serial, or takes that from it.
func (c *names) SetZone(name []byte, serial uint32, served bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.freed {
		return nil
	}
	hashes := c.hashes(name)
	hash := hashes[len(hashes)-1]
	_, was := c.zones[hash]
	if served {
		c.zones[hash] = serial
	} else {
		delete(c.zones, hash)
	}
	if was == served {
		return nil
	}
	s := c.shard(hash)
	if !served {
		slot, _ := s.find(hash)
		slot.setBelow(slot.below())
		s.tidy(hash)
		return c.count(hashes, -1)
	}
	slot, err := s.add(hash)
	if err != nil {
		return err
	}
	slot.setBelow(slot.below() | zoneBit)
	return c.count(hashes, 1)
}

// hashes are those of all names above a name, the highest first, and its own. They
// are good until the next call.
func (c *names) hashes(name []byte) []uint64 {
	var p path
	p.of(name)
	hashes := c.path[:p.labels]
	var hash uint64
	for n := range hashes {
		at := p.start(n)
		hash = c.hash(hash, name[at:at+1+int(name[at])])
		hashes[n] = hash
	}
	return hashes
}

// count adds to the numbers of names below all names above the last one.
func (c *names) count(hashes []uint64, change int32) error {
	for _, hash := range hashes[:len(hashes)-1] {
		s := c.shard(hash)
		slot, err := s.add(hash)
		if err != nil {
			return err
		}
		slot.setBelow(slot.raw() + uint32(change))
		if change < 0 {
			s.tidy(hash)
		}
	}
	return nil
}
