package agent

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"meridian/kv"
	"meridian/move/mem"
)

// ErrMetadata means that a blob is not one, or was changed on the way.
var ErrMetadata = errors.New("agent: bad metadata")

// Limits on what a blob may hold.
const (
	maxInfo    = 1 << 10
	maxRegions = 1 << 16
	maxFabrics = 64
	maxAddress = 4096
)

const metadataVersion = 1

// metadata is what an agent tells of itself:
//
//	"MRDM" u8 version, u8 partial, name, incarnation,
//	u16 n × (fabric name, address),
//	u32 m × (id, epoch, kind, device, address, length, info, u16 k × fabric name),
//	u64 XXH3-64 of everything before
//
// with texts as u16 length and bytes, integers little-endian.
type metadata struct {
	partial     bool
	name        string
	incarnation kv.ID
	fabrics     []reach
	regions     []RegionInfo
}

// reach is how a fabric is connected to.
type reach struct {
	fabric  string
	address []byte
}

// MetadataBlob is everything a peer needs to reach this agent, for a caller who
// carries it there.
func (a *Agent) MetadataBlob() []byte {
	return metadata{name: a.options.Name, incarnation: a.incarnation, fabrics: a.reaches(), regions: a.Regions()}.append(nil)
}

// PartialMetadataBlob tells of some regions only. A peer that loads it adds
// them to what it knows; with none it learns how to connect and nothing else.
func (a *Agent) PartialMetadataBlob(ids ...uint64) ([]byte, error) {
	m := metadata{partial: true, name: a.options.Name, incarnation: a.incarnation, fabrics: a.reaches()}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		r, known := a.regions[id]
		if !known || len(r.Fabrics) == 0 {
			return nil, fmt.Errorf("agent: no region %d", id)
		}
		m.regions = append(m.regions, r.RegionInfo)
	}
	return m.append(nil), nil
}

func (a *Agent) reaches() []reach {
	a.mu.Lock()
	fabrics := a.fabrics // a fabric that is open may ask while the next one is opened
	a.mu.Unlock()
	var all []reach
	for _, f := range fabrics {
		if address := f.Address(); address != nil {
			all = append(all, reach{f.Name(), address})
		}
	}
	return all
}

func (m metadata) append(b []byte) []byte {
	start := len(b)
	b = append(b, "MRDM"...)
	b = append(b, metadataVersion, 0)
	if m.partial {
		b[len(b)-1] = 1
	}
	b = appendText(b, m.name)
	b = append(b, m.incarnation[:]...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.fabrics)))
	for _, r := range m.fabrics {
		b = appendText(appendText(b, r.fabric), string(r.address))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.regions)))
	for _, r := range m.regions {
		b = binary.LittleEndian.AppendUint64(b, r.ID)
		b = binary.LittleEndian.AppendUint64(b, r.Epoch)
		b = append(b, byte(r.Kind))
		b = binary.LittleEndian.AppendUint32(b, r.Device)
		b = binary.LittleEndian.AppendUint64(b, r.Address)
		b = binary.LittleEndian.AppendUint64(b, r.Length)
		b = appendText(b, r.Info)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Fabrics)))
		for _, f := range r.Fabrics {
			b = appendText(b, f)
		}
	}
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b[start:]))
}

func appendText(b []byte, text string) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// parseMetadata reads a blob from a stranger.
func parseMetadata(b []byte) (metadata, error) {
	if len(b) < 14 || string(b[:4]) != "MRDM" {
		return metadata{}, fmt.Errorf("%w: not a metadata blob", ErrMetadata)
	}
	if b[4] != metadataVersion {
		return metadata{}, fmt.Errorf("%w: version %d, this build reads %d", ErrMetadata, b[4], metadataVersion)
	}
	body, sum := b[:len(b)-8], binary.LittleEndian.Uint64(b[len(b)-8:])
	if xxh3.Hash(body) != sum {
		return metadata{}, fmt.Errorf("%w: its checksum is wrong", ErrMetadata)
	}
	s := scanner{b: body[6:]}
	m := metadata{partial: b[5] == 1, name: s.text(255), incarnation: kv.ID(s.take(16))}
	for range s.count(uint64(s.u16()), maxFabrics) {
		m.fabrics = append(m.fabrics, reach{s.text(255), []byte(s.text(maxAddress))})
	}
	for range s.count(uint64(s.u32()), maxRegions) {
		r := RegionInfo{ID: s.u64(), Epoch: s.u64(), Kind: mem.Kind(s.take(1)[0]), Device: s.u32(), Address: s.u64(), Length: s.u64(), Info: s.text(maxInfo)}
		for range s.count(uint64(s.u16()), maxFabrics) {
			r.Fabrics = append(r.Fabrics, s.text(255))
		}
		if r.Address+r.Length < r.Address {
			s.bad = true
		}
		m.regions = append(m.regions, r)
	}
	if s.bad || len(s.b) != 0 || m.name == "" || b[5] > 1 {
		return metadata{}, fmt.Errorf("%w: malformed", ErrMetadata)
	}
	return m, nil
}

// scanner takes a blob apart; the first thing missing fails all that follows.
type scanner struct {
	b   []byte
	bad bool
}

func (s *scanner) take(n int) []byte {
	if s.bad || n > len(s.b) {
		s.bad = true
		return make([]byte, min(n, 16))
	}
	taken := s.b[:n]
	s.b = s.b[n:]
	return taken
}

func (s *scanner) u16() uint16 { return binary.LittleEndian.Uint16(s.take(2)) }
func (s *scanner) u32() uint32 { return binary.LittleEndian.Uint32(s.take(4)) }
func (s *scanner) u64() uint64 { return binary.LittleEndian.Uint64(s.take(8)) }

func (s *scanner) text(most int) string {
	n := int(s.u16())
	if n > most || n > len(s.b) {
		s.bad = true
		return ""
	}
	return string(s.take(n))
}

// count bounds a loop by its limit and by what the input could hold.
func (s *scanner) count(n, most uint64) uint64 {
	if n > most || n > uint64(len(s.b)) {
		s.bad = true
		return 0
	}
	return n
}
