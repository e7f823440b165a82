package handoff

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/zeebo/blake3"
	"pgregory.net/rapid"

	"meridian/kv"
	"meridian/move/reshard"
)

func drawID(t *rapid.T) kv.ID { return kv.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")) }

func drawParty(t *rapid.T) Party {
	number := rapid.IntRange(0, 1<<20)
	var p Party
	p.Engine.ID = rapid.StringN(0, 10, 40).Draw(t, "engine")
	s := &p.Engine.Side
	s.Geometry.DType = rapid.SampledFrom([]kv.DType{kv.BFloat16, kv.Int8}).Draw(t, "dtype")
	for range rapid.IntRange(1, 5).Draw(t, "groups") {
		l := kv.Layer{KVHeads: number.Draw(t, "heads"), HeadDim: number.Draw(t, "dim"), WindowTokens: number.Draw(t, "window")}
		for range rapid.IntRange(1, 3).Draw(t, "alike") {
			s.Geometry.Layers = append(s.Geometry.Layers, l)
		}
	}
	s.Parallelism = kv.Parallelism{TP: number.Draw(t, "tp"), CP: 1, DP: 2, Stages: rapid.SliceOfN(number, 1, 4).Draw(t, "stages")}
	s.Layout, _ = kv.ParseLayout(rapid.SampledFrom([]string{"LBHNC", "SGLANG", "BFLHND"}).Draw(t, "layout"))
	if rapid.Bool().Draw(t, "packed") {
		s.Packing = kv.Packing{Unit: kv.HeadOfBlock, Name: "x"}
	}
	s.BlockTokens, s.Blocks, s.InterleaveTokens = number.Draw(t, "block"), number.Draw(t, "blocks"), number.Draw(t, "turn")
	if rapid.IntRange(0, 2).Draw(t, "places") == 0 {
		s.BlockStride = int64(number.Draw(t, "stride"))
		s.Offsets = rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 1, 4).Draw(t, "offsets")
	}
	members := []kv.Member{{Name: "a", Incarnation: kv.ID{1}}, {Name: "b", Incarnation: kv.ID{2}}}
	for range rapid.IntRange(0, 5).Draw(t, "ranks") {
		r := Rank{Agent: rapid.SampledFrom(members).Draw(t, "agent")}
		for range rapid.IntRange(0, 3).Draw(t, "extents") {
			r.Memory = append(r.Memory, Extent{rapid.Uint64().Draw(t, "region"), rapid.Uint64().Draw(t, "epoch"), rapid.Uint64().Draw(t, "offset"), 7})
		}
		p.Engine.Ranks = append(p.Engine.Ranks, r)
	}
	p.Holding.DP = number.Draw(t, "dp")
	for range rapid.IntRange(0, 3).Draw(t, "tables") {
		p.Holding.Tables = append(p.Holding.Tables, rapid.SliceOfN(rapid.Uint32(), 0, 6).Draw(t, "table"))
	}
	return p
}

func drawProblem(t *rapid.T) Problem {
	if rapid.Bool().Draw(t, "none") {
		return Problem{}
	}
	p := Problem{Code: Code(rapid.IntRange(1, 25).Draw(t, "code")), Text: rapid.StringN(0, 20, 100).Draw(t, "text")}
	if rapid.Bool().Draw(t, "differences") {
		p.Differences = []reshard.Difference{{Field: "f", Src: "1", Dst: "2", Why: "w"}}
	}
	return p
}

func drawReports(t *rapid.T) (all []FlowReport) {
	for range rapid.IntRange(0, 4).Draw(t, "flows") {
		all = append(all, FlowReport{
			FlowGrant: FlowGrant{Flow{rapid.IntRange(0, 1000).Draw(t, "src"), 3}, drawID(t)}, Layers: 5, Bytes: rapid.Uint64().Draw(t, "bytes"),
			Attempts: 2, Failures: 1, Micros: 9, Fabric: "tcp", Problem: drawProblem(t),
		})
	}
	return all
}

func drawOpenings(t *rapid.T) (all []FlowGrant) {
	for _, f := range drawReports(t) {
		all = append(all, f.FlowGrant)
	}
	return all
}

func drawComputed(t *rapid.T) Computed {
	c := Computed{Layers: rapid.IntRange(0, 9).Draw(t, "layers")}
	if rapid.Bool().Draw(t, "chunks") {
		c.Tokens, c.Whole = rapid.IntRange(0, 900).Draw(t, "tokens"), rapid.IntRange(0, 900).Draw(t, "whole")
	}
	return c
}

func drawMessage(t *rapid.T) Message {
	n := rapid.Uint64().Draw(t, "n")
	switch rapid.IntRange(1, 11).Draw(t, "kind") {
	case 1:
		return &Ask{Session: n, Low: 1, High: 2, Capabilities: n, Push: n%2 == 0, Ticket: []byte("ticket"), Dst: drawParty(t), Tokens: kv.TokenRange{Start: 1, End: 9}, RemainingMs: n}
	case 2:
		return &Answer{Session: n, Version: 1, Src: drawParty(t), ContextTokens: 7, Digest: kv.Hash{1}, Grants: drawOpenings(t), Computed: drawComputed(t), LeaseMs: n}
	case 3:
		return &Refusal{Session: n, Problem: drawProblem(t)}
	case 4:
		return &Heartbeat{Session: n, Computed: drawComputed(t)}
	case 5:
		return &Progress{Session: n, Computed: drawComputed(t)}
	case 6:
		return &Push{Session: n, Digest: kv.Hash{2}, Grants: drawOpenings(t)}
	case 7:
		return &Pushed{Session: n, Flows: drawReports(t), Problem: drawProblem(t)}
	case 8:
		return &End{Session: n, Ticket: []byte{1}, Problem: drawProblem(t), Final: n%2 == 0}
	case 9:
		return &Ended{Session: n, Problem: drawProblem(t)}
	case 10:
		o := &Order{Session: n, Number: 2, Kind: OrderStop, As: Source, Engine: "e", LeaseMs: 1, RemainingMs: n, Problem: drawProblem(t)}
		if rapid.Bool().Draw(t, "with terms") {
			o.Kind, o.Digest, o.Flows, o.Computed = OrderGrant, kv.Hash{3}, drawOpenings(t), drawComputed(t)
			o.Terms = &Terms{Transfer: drawID(t), Src: drawParty(t), Dst: drawParty(t), Tokens: kv.TokenRange{End: 5}, ContextTokens: 5}
		}
		return o
	}
	return &Report{As: Destination, Session: n, Number: 3, Serial: 4, Phase: Moved, Flows: drawReports(t), Problem: drawProblem(t)}
}

var asMessages = []cmp.Option{
	cmpopts.EquateEmpty(), cmp.AllowUnexported(Terms{}), cmp.Comparer(func(a, b kv.Layout) bool { return a == b }),
	cmpopts.IgnoreFields(Terms{}, "plan"),
}

func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id, want := drawID(t), drawMessage(t)
		wire := AppendMessage(nil, id, want)
		gotID, got, err := ParseMessage(wire)
		if err != nil || gotID != id {
			t.Fatalf("%T: %v", want, err)
		}
		if diff := cmp.Diff(want, got, asMessages...); diff != "" {
			t.Fatal(diff)
		}
		for cut := range wire {
			if _, _, err := ParseMessage(wire[:cut]); !errors.Is(err, ErrMessage) {
				t.Fatalf("%T cut after %d of %d bytes: %v", want, cut, len(wire), err)
			}
		}
		if _, _, err := ParseMessage(append(wire, 0)); !errors.Is(err, ErrMessage) {
			t.Fatalf("%T with a byte too many: %v", want, err)
		}
	})
}

// wireParty is a party that says something everywhere.
func wireParty(id string, at kv.Member) Party {
	e := oneRank(id, 2, at, memberX)
	e.Side.Geometry.Layers[1] = kv.Layer{KVHeads: 1, HeadDim: 300, WindowTokens: 9, IndexBytes: 5}
	e.Side.InterleaveTokens, e.Side.Packing = 4, kv.Packing{Unit: kv.HeadOfBlock, Name: "x"}
	return Party{Engine: *e, Holding: reshard.Holding{DP: 1, Tables: [][]uint32{{5, 6, 3}, {1 << 31}}}}
}

// placesParty is an object cache.
func placesParty(id string, at kv.Member) Party {
	unit, err := reshard.UnitOf(oneRank("e", 1, at).Side, 64)
	if err != nil {
		panic(err)
	}
	side, err := unit.Side(1 << 20)
	if err != nil {
		panic(err)
	}
	e := Engine{ID: id, Side: side, Ranks: []Rank{{Agent: at, Memory: Memory{{Region: 7, Epoch: 1, Offset: 4096, Length: 1 << 20}}}}}
	return Party{Engine: e, Holding: reshard.Holding{Tables: [][]uint32{{200, 9}}}}
}

// Messages are what other builds say and read: these bytes do not change. Those
// without places are from before there were any.
func TestMessagesOnTheWire(t *testing.T) {
	plain, places := wireParty("decode", memberD), placesParty("store@p", memberP)
	ask := func(dst Party) *Ask {
		return &Ask{Session: 300, Low: 1, High: 1, Capabilities: 1, Push: true, Ticket: []byte("ticket"), Dst: dst, Tokens: kv.TokenRange{Start: 1, End: 400}, RemainingMs: 9000}
	}
	answer := func(src Party) *Answer {
		return &Answer{Session: 300, Version: 1, Src: src, ContextTokens: 400, Digest: kv.Hash{1}, Grants: []FlowGrant{{Flow{0, 1}, kv.ID{2}}}, Computed: Computed{Layers: 2}, LeaseMs: 30}
	}
	order := func(src Party) *Order {
		return &Order{
			Session: 1, Number: 2, Kind: OrderMove, As: Destination, Engine: "decode", Digest: kv.Hash{3}, Computed: Computed{Layers: 2}, LeaseMs: 5, RemainingMs: 6,
			Terms: &Terms{Transfer: kv.ID{4}, Src: src, Dst: plain, Tokens: kv.TokenRange{End: 3}, ContextTokens: 3},
		}
	}
	for name, c := range map[string]struct {
		message Message
		form    uint8
		hash    string
	}{
		"ask":                 {ask(plain), 1, "3a61dfb46ce403b9d783efe22d8a8ba6"},
		"answer":              {answer(plain), 1, "4dbe6740016fa79e9795fe4d4cbff144"},
		"order":               {order(wireParty("prefill", memberP)), 1, "f78d04f269a00869dbffacfa00a05774"},
		"ask of a cache":      {ask(places), 2, "72abb0c7b3a4933f2d510519c2730eeb"},
		"answer of a cache":   {answer(places), 2, "154541c3a56d0c96f3572a27063a9b1d"},
		"order about a cache": {order(places), 2, "6657a4c13bc0cce2e6521cf31aa6c30b"},
		"beat of chunks":      {&Heartbeat{Session: 4, Computed: Computed{Layers: 5, Tokens: 700, Whole: 300}}, 3, "0a2758cd525568b35297c4f21e667922"},
		"beat":                {&Heartbeat{Session: 4, Computed: Computed{Layers: 5}}, 1, "186488dbdfd79776e8428827f631268a"},
	} {
		wire := AppendMessage(nil, kv.ID{9}, c.message)
		if hash := kv.Hash(blake3.Sum256(wire)).String()[:32]; hash != c.hash || wire[4] != c.form {
			t.Errorf("%s: form %d, %d bytes, %s, these lines have form %d, %s", name, wire[4], len(wire), hash, c.form, c.hash)
		}
		_, got, err := ParseMessage(wire)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.message, got, asMessages...); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		// A build that reads form 1 alone makes nothing of the others.
		if wire[4] = 1; c.form > 1 {
			if _, _, err := ParseMessage(wire); !errors.Is(err, ErrMessage) {
				t.Errorf("%s in the other form: %v", name, err)
			}
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	messages := rapid.Custom(drawMessage)
	for i := range 40 {
		f.Add(AppendMessage(nil, kv.ID{1}, messages.Example(i)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		id, m, err := ParseMessage(b)
		if err != nil {
			return
		}
		_, again, err := ParseMessage(AppendMessage(nil, id, m))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, again, asMessages...); diff != "" {
			t.Error(diff)
		}
		// Whatever a stranger says of himself is looked at before it is used.
		if a, is := m.(*Ask); is {
			_ = a.Dst.Engine.Validate()
			_, _ = a.Dst.Engine.Side.BlockBytes()
		}
	})
}

func TestMessagesOfOthers(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty": nil, "text": []byte("hello"), "magic alone": []byte("MRDH"), "another form": []byte("MRDH\x04\x04aaaaaaaaaaaaaaaa\x00\x00"),
		"unknown kind": []byte("MRDH\x01\x63aaaaaaaaaaaaaaaa"),
	} {
		if _, _, err := ParseMessage(b); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
