package door

import (
	"fmt"
	"math"

	"meridian/kv"
	"meridian/serve/door/doorpb"
)

// Publication is what an engine caches and how it is cut and kept.
type Publication struct {
	Geometry    kv.Geometry
	Parallelism kv.Parallelism
	Layout      kv.Layout
	Packing     kv.Packing
	BlockTokens int
	Blocks      int
	// InterleaveTokens is how many tokens in a row a context rank takes; 0 means
	// one block.
	InterleaveTokens int
	// Scope is what all requests share; a request's own goes before it.
	Scope kv.Scope
}

var attentions = []kv.Attention{kv.KeyValue, kv.Latent}

// Message is what control publishes; ParsePublication reads it.
func (p *Publication) Message() *doorpb.Publish {
	m := &doorpb.Publish{
		Geometry: &doorpb.Geometry{Dtype: p.Geometry.DType.String()},
		Tp:       uint32(p.Parallelism.TP), Cp: uint32(p.Parallelism.CP), Dp: uint32(p.Parallelism.DP),
		Layout: p.Layout.String(), Packing: p.Packing.String(),
		BlockTokens: uint32(p.BlockTokens), Blocks: uint32(p.Blocks), InterleaveTokens: uint32(p.InterleaveTokens),
		Scope: scopeMessage(p.Scope),
	}
	for _, layers := range p.Parallelism.Stages {
		m.Stages = append(m.Stages, uint32(layers))
	}
	for _, l := range p.Geometry.Layers {
		m.Geometry.Layers = append(m.Geometry.Layers, &doorpb.Layer{
			Attention: l.Attention.String(), KvHeads: uint32(l.KVHeads), HeadDim: uint32(l.HeadDim),
			WindowTokens: uint32(l.WindowTokens), IndexBytes: uint32(l.IndexBytes),
		})
	}
	return m
}

// ParsePublication reads what an engine says of itself. It checks what can be
// read, not what can be: reshard.Side.Validate does that.
func ParsePublication(m *doorpb.Publish) (Publication, error) {
	p := Publication{Scope: parseScope(m.GetScope())}
	var err error
	if p.Geometry, err = parseGeometry(m.GetGeometry()); err != nil {
		return p, err
	}
	if p.Layout, err = kv.ParseLayout(m.GetLayout()); err != nil {
		return p, err
	}
	if m.GetPacking() != "" {
		if p.Packing, err = kv.ParsePacking(m.GetPacking()); err != nil {
			return p, err
		}
	}
	for _, layers := range m.GetStages() {
		p.Parallelism.Stages = append(p.Parallelism.Stages, int(layers))
	}
	for _, number := range []struct {
		name string
		from uint32
		to   *int
	}{
		{"tp", m.GetTp(), &p.Parallelism.TP},
		{"cp", m.GetCp(), &p.Parallelism.CP},
		{"dp", m.GetDp(), &p.Parallelism.DP},
		{"block_tokens", m.GetBlockTokens(), &p.BlockTokens},
		{"blocks", m.GetBlocks(), &p.Blocks},
		{"interleave_tokens", m.GetInterleaveTokens(), &p.InterleaveTokens},
	} {
		if number.from > math.MaxInt32 {
			return p, fmt.Errorf("door: %s is %d", number.name, number.from)
		}
		*number.to = int(number.from)
	}
	return p, nil
}

func parseGeometry(m *doorpb.Geometry) (kv.Geometry, error) {
	dtype, err := kv.ParseDType(m.GetDtype())
	if err != nil {
		return kv.Geometry{}, err
	}
	g := kv.Geometry{DType: dtype}
	for i, l := range m.GetLayers() {
		attention, err := parseAttention(l.GetAttention())
		if err != nil {
			return kv.Geometry{}, fmt.Errorf("door: layer %d: %w", i, err)
		}
		if max(l.GetKvHeads(), l.GetHeadDim(), l.GetWindowTokens(), l.GetIndexBytes()) > math.MaxInt32 {
			return kv.Geometry{}, fmt.Errorf("door: layer %d: a number is beyond %d", i, math.MaxInt32)
		}
		g.Layers = append(g.Layers, kv.Layer{
			Attention: attention, KVHeads: int(l.GetKvHeads()), HeadDim: int(l.GetHeadDim()),
			WindowTokens: int(l.GetWindowTokens()), IndexBytes: int(l.GetIndexBytes()),
		})
	}
	return g, nil
}

func parseAttention(name string) (kv.Attention, error) {
	for _, a := range attentions {
		if a.String() == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("no attention %q; there is %v", name, attentions)
}

func scopeMessage(s kv.Scope) *doorpb.Scope {
	if s == (kv.Scope{}) {
		return nil
	}
	return &doorpb.Scope{Model: s.Model, Revision: s.Revision, Adapter: s.Adapter, Media: s.Media, Salt: s.Salt}
}

func parseScope(m *doorpb.Scope) kv.Scope {
	return kv.Scope{Model: m.GetModel(), Revision: m.GetRevision(), Adapter: m.GetAdapter(), Media: m.GetMedia(), Salt: m.GetSalt()}
}
