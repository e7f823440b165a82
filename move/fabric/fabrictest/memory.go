package fabrictest

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// memory is a registered section and what it must hold.
type memory struct {
	s          *fixture
	side       *side
	region     fabric.Region
	registered bool
	image      []byte     // outside Go's heap: the race detector need not watch it
	backing    *mem.Arena // of the image
}

// memory makes a region of random bytes. Loopback means one table for both
// sides, so that IDs are never used twice.
func (s *fixture) memory(a *side, sizeBytes uint64) *memory {
	s.Helper()
	section := a.section(s.TB, sizeBytes)
	s.regions++
	m := &memory{s: s, side: a, region: fabric.Region{ID: s.regions, Epoch: s.random.Uint64(), Section: section}}
	s.memories = append(s.memories, m)
	var err error
	if m.backing, err = mem.NewArena(mem.ArenaOptions{Name: "image", SizeBytes: section.Size(), NUMANode: -1}); err != nil {
		s.Fatal(err)
	}
	m.image = m.backing.Bytes(0, section.Size())
	m.renew()
	m.register()
	return m
}

func (m *memory) register() {
	m.s.Helper()
	if err := m.side.fabric.Register(m.region); err != nil {
		m.s.Fatalf("registering region %d: %v", m.region.ID, err)
	}
	m.registered = true
}

func (m *memory) deregister() {
	m.s.Helper()
	err := m.s.bounded("Deregister", func(ctx context.Context) error { return m.side.fabric.Deregister(ctx, m.region.ID) })
	if err != nil {
		m.s.Fatalf("deregistering region %d: %v", m.region.ID, err)
	}
	m.registered = false
}

// fence gives the region a new epoch: nothing that was posted before can touch
// it any more.
func (m *memory) fence() {
	m.s.Helper()
	m.deregister()
	m.region.Epoch++
	m.register()
}

// renew gives the memory new bytes, as its owner. No two stretches of them are
// alike, so that bytes in the wrong place are seen.
func (m *memory) renew() {
	m.s.Helper()
	block, err := aes.NewCipher(binary.LittleEndian.AppendUint64(make([]byte, 8), m.s.random.Uint64()))
	if err != nil {
		m.s.Fatal(err)
	}
	cipher.NewCTR(block, make([]byte, aes.BlockSize)).XORKeyStream(m.image, m.image)
	m.use(func() error { return m.region.Section.WriteAt(m.image, 0) })
}

// holds returns what the memory holds in [offset, offset+length).
func (m *memory) holds(offset, length uint64) []byte {
	m.s.Helper()
	got := make([]byte, length)
	m.use(func() error { return m.region.Section.ReadAt(got, offset) })
	return got
}

func (m *memory) use(access func() error) {
	m.s.Helper()
	if err := m.region.Section.Acquire(); err != nil {
		m.s.Errorf("region %d: %v", m.region.ID, err)
		return
	}
	defer m.region.Section.Release()
	if err := access(); err != nil {
		m.s.Errorf("region %d: %v", m.region.ID, err)
	}
}

// check compares the memory with its image, every byte of it.
func (m *memory) check() {
	m.s.Helper()
	size := uint64(len(m.image))
	if m.region.Section.Mapped() {
		same := false
		m.use(func() error {
			same = bytes.Equal(m.region.Section.Bytes(0, size), m.image)
			return nil
		})
		if same {
			return
		}
	}
	if got := m.holds(0, size); !bytes.Equal(got, m.image) {
		at, count := differences(got, m.image)
		m.s.Errorf("%s's region %d: %d of %d bytes are wrong, the first at %d", m.side.self.Name, m.region.ID, count, len(got), at)
	}
}

func differences(a, b []byte) (first, count int) {
	for i := range a {
		if a[i] != b[i] {
			if count++; count == 1 {
				first = i
			}
		}
	}
	return first, count
}

// checkAll compares all memory of the stage.
func (s *fixture) checkAll() {
	s.Helper()
	for _, m := range s.memories {
		m.check()
	}
}
