package kvevents

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
)

// goldenBatch is a batch as vLLM encoded it, and what Python says is in it.
type goldenBatch struct {
	Name    string
	Ts      float64
	Rank    int
	Payload string
	Events  []goldenEvent
}

type goldenEvent struct {
	Type            string
	BlockHashes     []uint64 `json:"block_hashes"`
	ParentBlockHash *uint64  `json:"parent_block_hash"`
	TokenIDs        []uint32 `json:"token_ids"`
	BlockSize       int      `json:"block_size"`
	Medium          string
	LoraName        string          `json:"lora_name"`
	ExtraKeys       [][]any         `json:"extra_keys"`
	Group           int             `json:"group_idx"`
	Spec            string          `json:"kv_cache_spec_kind"`
	Locality        string          `json:"locality"`
	Ignored         json.RawMessage `json:"session_id"`
}

func goldenBatches(t testing.TB) []goldenBatch {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Batches []goldenBatch }
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Batches) < 15 {
		t.Fatalf("only %d golden batches", len(golden.Batches))
	}
	return golden.Batches
}

func (g *goldenBatch) payload(t testing.TB) []byte {
	t.Helper()
	payload, err := hex.DecodeString(g.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

func TestDecodeWhatVLLMEncodes(t *testing.T) {
	for _, g := range goldenBatches(t) {
		got, err := DecodeBatch(g.payload(t))
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
			continue
		}
		if got.Time != g.Ts || got.Rank != g.Rank || got.Unknown != 0 || len(got.Events) != len(g.Events) {
			t.Errorf("%s: got %+v, want time %v, rank %d, %d events", g.Name, got, g.Ts, g.Rank, len(g.Events))
			continue
		}
		for i := range g.Events {
			g.Events[i].compare(t, g.Name, got.Events[i])
		}
	}
}

func (g *goldenEvent) compare(t *testing.T, name string, e Event) {
	t.Helper()
	parent := g.ParentBlockHash != nil
	switch {
	case e.Kind != kinds[g.Type], !slices.Equal(e.Blocks, g.BlockHashes), !slices.Equal(e.Tokens, g.TokenIDs), e.BlockTokens != g.BlockSize,
		e.Medium != g.Medium, e.Adapter != g.LoraName, e.Group != g.Group, e.Spec != g.Spec, e.Remote != (g.Locality == "REMOTE"),
		e.HasParent != parent, parent && e.Parent != *g.ParentBlockHash:
		t.Errorf("%s: got %+v, want %+v", name, e, g)
	}
}

// What a block is of besides tokens is told apart: a client that asks for blocks
// knows its salt, and cannot name an image.
func TestExtraKeys(t *testing.T) {
	want := map[string]struct {
		salt   string
		others []bool
	}{
		"one block": {}, "an adapter": {}, "a salt": {salt: "tenant"}, "an adapter, a salt": {salt: "tenant"},
		"an image": {others: []bool{true, false}}, "embeddings": {others: []bool{true}},
	}
	for _, g := range goldenBatches(t) {
		w, has := want[g.Name]
		if !has {
			continue
		}
		delete(want, g.Name)
		got, err := DecodeBatch(g.payload(t))
		if err != nil {
			t.Fatal(err)
		}
		e := got.Events[0]
		others := []bool(nil)
		for _, o := range e.Others {
			others = append(others, o != nil)
		}
		if e.Salt != w.salt || !slices.Equal(others, w.others) {
			t.Errorf("%s: salt %q, others %v", g.Name, e.Salt, e.Others)
		}
	}
	if len(want) > 0 {
		t.Errorf("not among the golden batches: %v", want)
	}
}

// A batch that is cut anywhere is refused, not half taken.
func TestCutBatches(t *testing.T) {
	for _, g := range goldenBatches(t) {
		payload := g.payload(t)
		for n := range payload {
			if _, err := DecodeBatch(payload[:n]); !errors.Is(err, ErrEncoding) {
				t.Fatalf("%s, the first %d of %d bytes: %v", g.Name, n, len(payload), err)
			}
		}
	}
}

func TestStrangeBatches(t *testing.T) {
	for name, c := range map[string]struct {
		payload string // hex
		wrong   bool
		unknown int
	}{
		"an event of tomorrow":     {payload: "92" + "00" + "91" + "81a474797065a3466f6f", unknown: 1},
		"as a list":                {payload: "92" + "00" + "91" + "92a3466f6f93010203", unknown: 1},
		"more members of a batch":  {payload: "94" + "00" + "90" + "02" + "c3"},
		"no type":                  {payload: "92" + "00" + "91" + "80", wrong: true},
		"no time":                  {payload: "92" + "a161" + "90", wrong: true},
		"a list of billions":       {payload: "92" + "00" + "ddffffffff", wrong: true},
		"a text of billions":       {payload: "92" + "00" + "91" + "81a474797065dbffffffff", wrong: true},
		"a map":                    {payload: "80", wrong: true},
		"a code that is never one": {payload: "92" + "00" + "91" + "81a1c1c1", wrong: true},
		"empty list for an event":  {payload: "92" + "00" + "91" + "90", wrong: true},
	} {
		payload, err := hex.DecodeString(c.payload)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := DecodeBatch(payload)
		if (err != nil) != c.wrong || got.Unknown != c.unknown {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Values that nest without end do not take the stack with them.
func TestDeepValues(t *testing.T) {
	payload := []byte{0x92, 0, 0x91, 0x92, 0xa3, 'F', 'o', 'o'}
	for range 1 << 20 {
		payload = append(payload, 0x91)
	}
	if _, err := DecodeBatch(append(payload, 0)); !errors.Is(err, ErrEncoding) {
		t.Errorf("got %v", err)
	}
}

// Tokens and blocks that do not go together are refused.
func TestBlocksAndTokensAgree(t *testing.T) {
	g := goldenBatches(t)[0]
	payload := g.payload(t)
	at := slices.Index(payload, 16) // block_size, which is last but for lora and medium
	for i := range payload {
		if payload[i] == 16 && i > at {
			at = i
		}
	}
	payload[at] = 15
	if _, err := DecodeBatch(payload); !errors.Is(err, ErrEncoding) {
		t.Errorf("16 tokens were taken for a block of 15: %v", err)
	}
}

// What a batch says of its own size is believed as far as its bytes go.
func TestBatchTakesNoMoreThanItIs(t *testing.T) {
	const pairs = 1 << 20
	claim := binary.BigEndian.AppendUint32([]byte{0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0xdf}, pairs)
	for name, data := range map[string][]byte{
		"members without a meaning": append(append(slices.Clone(claim), bytes.Repeat([]byte{0xa0, 0xc0}, pairs)...), 0xc0),
		"claimed and not there":     append(slices.Clone(claim), bytes.Repeat([]byte{0xa0}, 2*pairs)...),
		"many events": append(binary.BigEndian.AppendUint32([]byte{0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0xdd}, pairs),
			bytes.Repeat(append([]byte{0x91, 0xb0}, "AllBlocksCleared"...), pairs)...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeBatch(data)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrEncoding) || took > uint64(len(data)) {
			t.Errorf("%s: %d bytes took %d: %v", name, len(data), took, err)
		}
	}
}

func FuzzDecodeBatch(f *testing.F) {
	for _, g := range goldenBatches(f) {
		f.Add(g.payload(f))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := DecodeBatch(data)
		if err != nil {
			if !errors.Is(err, ErrEncoding) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		for _, e := range b.Events {
			if e.Kind == Stored && len(e.Tokens) != len(e.Blocks)*e.BlockTokens {
				t.Fatalf("%d blocks of %d have %d tokens", len(e.Blocks), e.BlockTokens, len(e.Tokens))
			}
			if e.Others != nil && len(e.Others) != len(e.Blocks) {
				t.Fatalf("%d others of %d blocks", len(e.Others), len(e.Blocks))
			}
		}
	})
}
