package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/zeebo/xxh3"

	"meridian/kv"
	"meridian/move/mem"
)

// A blob from a stranger is refused with a reason, or read and written back as
// it was. The checksum is made right, or the fuzzer would never get past it.
func FuzzMetadata(f *testing.F) {
	for _, m := range []metadata{
		{name: "a"},
		{name: "b", partial: true, incarnation: kv.ID{1, 15: 2}, fabrics: []reach{{"tcp", []byte("127.0.0.1:7411")}}},
		{
			name: "c", fabrics: []reach{{"tcp", nil}, {"host", []byte("boot:/run/c.sock")}},
			regions: []RegionInfo{
				{ID: 1, Epoch: 2, Kind: mem.DRAM, Device: 3, Address: 4 << 30, Length: 5, Info: "layer 0", Fabrics: []string{"tcp", "host"}},
				{ID: 2, Kind: mem.File, Address: 1<<64 - 1, Length: 1},
			},
		},
	} {
		blob := m.append(nil)
		f.Add(blob[:len(blob)-8])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		blob := binary.LittleEndian.AppendUint64(bytes.Clone(body), xxh3.Hash(body))
		m, err := parseMetadata(blob)
		if err != nil {
			if !errors.Is(err, ErrMetadata) {
				t.Fatalf("%v has no sentinel", err)
			}
			return
		}
		if again := m.append(nil); !bytes.Equal(again, blob) {
			t.Fatalf("read\n% x\nwritten back as\n% x", blob, again)
		}
		for _, r := range m.regions {
			if r.covers(r.Device, r.Address, r.Length+1) || r.Length > 0 && !r.covers(r.Device, r.Address+r.Length-1, 1) {
				t.Fatalf("%+v does not cover what it says", r)
			}
		}
	})
}
