package builtin

import (
	"encoding/binary"
	"hash/maphash"
	"sync"

	"meshddns/internal/nameserver"
)

// names keeps the contents of DNS zones in little memory: a name takes 16 octets in a
// table, and its records are packed in an arena. Instead of a name it keeps a 64-bit hash
// of it. Clients do not know the key of the hash.
//
// A name is hashed label by label from the root, so one pass over a question computes the
// hashes of all names above it. A name without data that has names below it is an entry
// too, with their number. So one walk from the root finds the zones, and either the name or
// the point below which there is no name.
//
// A Go map of the same hashes is 250 lines less, but it is slower and larger: at a million
// names a hit took 1.1 us instead of 0.4 us, of the 3.8 us that an answer costs, and the
// process 352 MB instead of 132 MB.
//
// Names are in wire form with letters in lower case, and are never the root. Concurrent use
// is safe. The caller must call Free, because the garbage collector does not own the
// memory.
type names struct {
	mu     sync.RWMutex
	seed   maphash.Seed
	shards [shards]shard
	zones  map[uint64]uint32 // serials, by the hash of the apex
	names  int               // number of names with data
	path   [maxLabels]uint64 // buffer of the result of hashes
	freed  bool
}

// The number of shards bounds the entries that are moved at once when a table grows: no
// query is answered meanwhile.
const (
	shardBits = 6
	shards    = 1 << shardBits
)

// newNames returns an empty cache.
func newNames() *names {
	return &names{seed: maphash.MakeSeed(), zones: map[uint64]uint32{}}
}

// Free releases the memory. A later Look reports ok = false.
func (c *names) Free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed = true
	for i := range c.shards {
		c.shards[i].free()
	}
}

// Size returns the number of names with data, and the octets of memory that all entries take.
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

// path has the offsets of the labels of a name, the last label first.
type path struct {
	starts [maxLabels + 1]uint8
	labels int
}

// of sets the path to that of a name.
func (p *path) of(name []byte) {
	p.labels = 0
	for at := 0; name[at] != 0; at += 1 + int(name[at]) {
		p.starts[maxLabels-p.labels] = uint8(at)
		p.labels++
	}
}

// start returns the offset of the label that has n labels after it.
func (p *path) start(n int) int { return int(p.starts[maxLabels-p.labels+1+n]) }

// hash computes the hash of a name from the hash of the name above it and the first label.
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

// Look returns the data at a name. It appends to buffer for the result's Records. ok is false
// after Free.
func (c *names) Look(name, buffer []byte) (found nameserver.Found, ok bool) {
	found.Records = buffer
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
				found.TTL, found.Records = ttl, append(buffer, data...)
			}
		}
	}
	return found, !c.freed
}

// Set replaces the data at a name; empty data remove it. An error means that
// there is no memory, and the cache cannot be used any more.
func (c *names) Set(name []byte, ttl uint32, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.freed {
		return nil
	}
	hashes := c.hashes(name)
	hash := hashes[len(hashes)-1]
	s := c.shard(hash)
	if len(data) == 0 {
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
		return s.put(slot, ttl, data)
	}
	c.names++
	if err := s.put(slot, ttl, data); err != nil {
		return err
	}
	return c.count(hashes, 1)
}

// SetZone makes a name a zone with a serial, or no zone if served is false. Errors are those of Set.
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

// hashes returns the hashes of all names above a name, the highest first, and of the name.
// They are valid until the next call.
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

// count adds to the number of names below, for all names above the last one.
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
