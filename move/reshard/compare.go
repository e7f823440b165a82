package reshard

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"meridian/kv"
)

// ErrIncompatible is wrapped by the error for two sides between which no cache
// can move.
var ErrIncompatible = errors.New("reshard: source and destination do not fit")

// Difference is one thing that keeps two sides apart.
type Difference struct {
	Field    string
	Src, Dst string
	// Why it matters.
	Why string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: source %s, destination %s (%s)", d.Field, d.Src, d.Dst, d.Why)
}

// Incompatible names every difference between two sides that is in the way.
type Incompatible struct {
	Differences []Difference
}

func (e *Incompatible) Error() string {
	lines := make([]string, len(e.Differences))
	for i, d := range e.Differences {
		lines[i] = d.String()
	}
	return ErrIncompatible.Error() + ": " + strings.Join(lines, "; ")
}

func (e *Incompatible) Unwrap() error { return ErrIncompatible }

// CompareModels is the part of Compare that tells models and packings apart. It
// looks at no more layers than the smaller side has, and neither side need be
// valid.
func CompareModels(src, dst Side) []Difference {
	var found []Difference
	differ := func(field string, a, b any, why string) {
		if a != b {
			found = append(found, Difference{Field: field, Src: fmt.Sprint(a), Dst: fmt.Sprint(b), Why: why})
		}
	}
	differ("dtype", src.Geometry.DType, dst.Geometry.DType, "elements are not converted")
	differ("layers", len(src.Geometry.Layers), len(dst.Geometry.Layers), "they are not caches of one model")
	if len(src.Geometry.Layers) == len(dst.Geometry.Layers) {
		found = append(found, compareLayers(src.Geometry.Layers, dst.Geometry.Layers)...)
	}
	differ("packing", src.Packing, dst.Packing, "elements are not repacked")
	return found
}

// Compare names everything that keeps the cache of src from moving to dst; none
// means that it can. Ranks, stages, layouts and memory sizes may differ as they
// like. Both sides must be valid.
func Compare(src, dst Side) []Difference {
	found := CompareModels(src, dst)
	if len(found) > 0 {
		return found // what a packing allows is clear only between equal ones
	}
	if what := src.indivisible(); what != "" && src.BlockTokens != dst.BlockTokens {
		found = append(found, Difference{
			Field: "block_tokens", Src: strconv.Itoa(src.BlockTokens), Dst: strconv.Itoa(dst.BlockTokens), Why: what + " allows no cut within a block",
		})
	}
	if src.Packing.Unit == kv.WholeBlock {
		found = append(found, unequalHeads(src, dst)...)
	}
	return found
}

// layerFields is what a layer is made of, by the names of a model's geometry.
var layerFields = []struct {
	name  string
	value func(kv.Layer) string
}{
	{"attention", func(l kv.Layer) string { return l.Attention.String() }},
	{"kv_heads", func(l kv.Layer) string { return strconv.Itoa(l.KVHeads) }},
	{"head_dim", func(l kv.Layer) string { return strconv.Itoa(l.HeadDim) }},
	{"window", func(l kv.Layer) string { return strconv.Itoa(l.WindowTokens) }},
	{"index_bytes", func(l kv.Layer) string { return strconv.Itoa(l.IndexBytes) }},
}

// compareLayers names neighbouring layers that differ alike together.
func compareLayers(src, dst []kv.Layer) []Difference {
	var found []Difference
	for _, field := range layerFields {
		for first := 0; first < len(src); {
			a, b := field.value(src[first]), field.value(dst[first])
			end := first + 1
			for end < len(src) && field.value(src[end]) == a && field.value(dst[end]) == b {
				end++
			}
			if a != b {
				found = append(found, Difference{
					Field: fmt.Sprintf("%s of %s", field.name, layersText(first, end)), Src: a, Dst: b, Why: "they are not caches of one model",
				})
			}
			first = end
		}
	}
	return found
}

func layersText(first, end int) string {
	if end-first == 1 {
		return fmt.Sprintf("layer %d", first)
	}
	return fmt.Sprintf("layers %d–%d", first, end-1)
}

// unequalHeads says where a block whose heads must stay together would be cut by
// heads.
func unequalHeads(src, dst Side) []Difference {
	for _, group := range src.Geometry.Groups() {
		held := make(map[interval]bool)
		for tp := range src.Parallelism.TP {
			held[headsOf(src, tp, group.KVHeads)] = true
		}
		for tp := range dst.Parallelism.TP {
			if heads := headsOf(dst, tp, group.KVHeads); !held[heads] {
				return []Difference{{
					Field: "tp", Src: strconv.Itoa(src.Parallelism.TP), Dst: strconv.Itoa(dst.Parallelism.TP),
					Why: fmt.Sprintf("packing %v keeps the heads of a block together, and no source rank holds exactly heads %d–%d, as destination tensor rank %d does",
						src.Packing, heads.first, heads.end-1, tp),
				}}
			}
		}
	}
	return nil
}

// compatible returns an *Incompatible if anything is in the way.
func compatible(src, dst Side) error {
	if found := Compare(src, dst); len(found) > 0 {
		return &Incompatible{Differences: slices.Clip(found)}
	}
	return nil
}
