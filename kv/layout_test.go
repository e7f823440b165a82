package kv

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func mustLayout(t testing.TB, name string) Layout {
	t.Helper()
	l, err := ParseLayout(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLayoutNames(t *testing.T) {
	for _, c := range []struct{ name, axes, text string }{
		{"LBHNC", "LBHNFD", "LBHNC"},
		{"HND", "LBHNFD", "LBHNC"},
		{"nhd", "LBNHFD", "LBNHC"},
		{"BHLNC", "BHLNFD", "BHLNC"},
		{"TRTLLM_HND", "BLFHND", "TRTLLM_HND"},
		{"SGLANG", "FLBNHD", "SGLANG"},
		{"LFBNHD", "LFBNHD", "LFBNHD"},
		{"HLBNC", "HLBNFD", "HLBNFD"},
	} {
		l, err := ParseLayout(c.name)
		if err != nil || l.Axes() != c.axes || l.String() != c.text {
			t.Errorf("%s: got %v with axes %s, %v", c.name, l, l.Axes(), err)
		}
		if back, err := ParseLayout(l.String()); err != nil || back != l {
			t.Errorf("%v does not read back: %v, %v", l, back, err)
		}
	}
	for _, name := range []string{"", "LBHN", "LBHNCC", "LBHNX", "LBHNFF", "LLLLLL", "LBHNFDX"} {
		if l, err := ParseLayout(name); !errors.Is(err, ErrShape) {
			t.Errorf("%q was read as %v, %v", name, l, err)
		}
	}
	if (Layout{}).Valid() || (Layout{}).String() != "layout(none)" {
		t.Error("the zero Layout is no layout")
	}
}

// TensorRT-LLM's block byte is (((l·F+kv)·H+h)·tpb+tok)·dim + element, and
// vLLM on CPU reports stride(0) of a layer's tensor [blocks, heads, block, 2·head].
func TestOffsetsGolden(t *testing.T) {
	e := Extents{Layers: 4, Blocks: 10, Parts: 2, Heads: 2, Tokens: 32, Elements: 32}
	p := Point{Layers: 3, Blocks: 7, Parts: 1, Heads: 1, Tokens: 5, Elements: 9}

	trt, err := mustLayout(t, "TRTLLM_HND").Strides(e)
	if err != nil {
		t.Fatal(err)
	}
	inBlock := int64((((3*2+1)*2+1)*32+5)*32 + 9)
	if want := 7*trt.Block + inBlock; trt.Offset(p) != want || trt.Block != 4*2*2*32*32 {
		t.Errorf("TensorRT-LLM: got %d with block stride %d, want %d", trt.Offset(p), trt.Block, want)
	}

	vllm, err := mustLayout(t, "LBHNC").Strides(e)
	if err != nil {
		t.Fatal(err)
	}
	if vllm.Block != 4096 || vllm.Head != 2048 || vllm.Token != 64 || vllm.Part != 32 || vllm.Element != 1 {
		t.Errorf("vLLM on CPU: got %+v, want strides 4096, 2048, 64", vllm)
	}
}

func TestEveryElementHasItsOwnPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, err := ParseLayout(string(rapid.Permutation([]byte(allAxes)).Draw(t, "axes")))
		if err != nil {
			t.Fatal(err)
		}
		extent := rapid.IntRange(1, 4)
		e := Extents{
			Layers: extent.Draw(t, "L"), Blocks: extent.Draw(t, "B"), Parts: extent.Draw(t, "F"),
			Heads: extent.Draw(t, "H"), Tokens: extent.Draw(t, "N"), Elements: extent.Draw(t, "D"),
		}
		s, err := l.Strides(e)
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]bool, s.Total)
		var p Point
		for p.Layers = range e.Layers {
			for p.Blocks = range e.Blocks {
				for p.Parts = range e.Parts {
					for p.Heads = range e.Heads {
						for p.Tokens = range e.Tokens {
							for p.Elements = range e.Elements {
								at := s.Offset(p)
								if seen[at] {
									t.Fatalf("%v %+v: %+v shares offset %d", l, e, p, at)
								}
								seen[at] = true
							}
						}
					}
				}
			}
		}
		for at, used := range seen {
			if !used {
				t.Fatalf("%v %+v: nothing at offset %d", l, e, at)
			}
		}
	})
}

func TestStridesRefuse(t *testing.T) {
	l := mustLayout(t, "LBHNC")
	full := Extents{Layers: 1, Blocks: 1, Parts: 2, Heads: 1, Tokens: 1, Elements: 1}
	if _, err := (Layout{}).Strides(full); !errors.Is(err, ErrShape) {
		t.Errorf("no layout: %v", err)
	}
	empty := full
	empty.Heads = 0
	if _, err := l.Strides(empty); !errors.Is(err, ErrShape) {
		t.Errorf("no heads: %v", err)
	}
	huge := full
	huge.Blocks = math.MaxInt64
	if _, err := l.Strides(huge); !errors.Is(err, ErrShape) {
		t.Errorf("overflow: %v", err)
	}
}
