package handoff

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"meridian/kv"
	"meridian/reshard"
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

func drawMessage(t *rapid.T) Message {
	n := rapid.Uint64().Draw(t, "n")
	switch rapid.IntRange(1, 11).Draw(t, "kind") {
	case 1:
		return &Ask{Session: n, Low: 1, High: 2, Capabilities: n, Push: n%2 == 0, Ticket: []byte("ticket"), Dst: drawParty(t), Tokens: kv.TokenRange{Start: 1, End: 9}, RemainingMs: n}
	case 2:
		return &Answer{Session: n, Version: 1, Src: drawParty(t), ContextTokens: 7, Digest: kv.Hash{1}, Grants: drawOpenings(t), Layers: 3, LeaseMs: n}
	case 3:
		return &Refusal{Session: n, Problem: drawProblem(t)}
	case 4:
		return &Beat{Session: n, Layers: 4}
	case 5:
		return &Progress{Session: n, Layers: 4}
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
			o.Kind, o.Digest, o.Flows, o.Layers = OrderGrant, kv.Hash{3}, drawOpenings(t), 2
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
		}
	})
}

func TestMessagesOfOthers(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty": nil, "text": []byte("hello"), "magic alone": []byte("MRDH"), "another form": []byte("MRDH\x03\x04aaaaaaaaaaaaaaaa\x00\x00"),
		"unknown kind": []byte("MRDH\x01\x63aaaaaaaaaaaaaaaa"),
	} {
		if _, _, err := ParseMessage(b); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
