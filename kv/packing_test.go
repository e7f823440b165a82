package kv

import (
	"errors"
	"strings"
	"testing"
)

func TestPackingText(t *testing.T) {
	for text, want := range map[string]Packing{
		"plain": {}, "head:vllm_cpu_fp32": {Unit: HeadOfBlock, Name: "vllm_cpu_fp32"}, "block:a:b": {Unit: WholeBlock, Name: "a:b"},
	} {
		got, err := ParsePacking(text)
		if err != nil || got != want || got.String() != text || got.Plain() != (text == "plain") {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "head", "head:", "plain:x", "tile:x", "block:" + strings.Repeat("x", maxPackingName+1)} {
		if p, err := ParsePacking(text); !errors.Is(err, ErrShape) {
			t.Errorf("%q was read as %v, %v", text, p, err)
		}
	}
	if PackedUnit(9).String() != "unit(9)" {
		t.Error("an unknown unit must print as its number")
	}
}

// A piece that must stay whole has to be one piece in memory.
func TestPackingsNeedTheirLayout(t *testing.T) {
	head, block := Packing{Unit: HeadOfBlock, Name: "x"}, Packing{Unit: WholeBlock, Name: "x"}
	for _, c := range []struct {
		layout string
		p      Packing
		fits   bool
	}{
		{"LBHNC", Packing{}, true},
		{"SGLANG", Packing{}, true},
		{"LBHNC", head, true},
		{"BHLNC", head, true},
		{"LBHFND", head, true},
		{"LBNHC", head, false},
		{"TRTLLM_HND", head, false},
		{"LBHNC", block, true},
		{"LBNHC", block, true},
		{"TRTLLM_HND", block, true},
		{"LHBNC", block, false},
		{"SGLANG", block, false},
		{"LBHNC", Packing{Unit: HeadOfBlock}, false},
		{"LBHNC", Packing{Name: "x"}, false},
		{"LBHNC", Packing{Unit: 9, Name: "x"}, false},
		{"LBHNC", Packing{Unit: WholeBlock, Name: strings.Repeat("x", maxPackingName+1)}, false},
	} {
		err := c.p.Validate(mustLayout(t, c.layout))
		if (err == nil) != c.fits || (err != nil && !errors.Is(err, ErrShape)) {
			t.Errorf("%v in %s: got %v", c.p, c.layout, err)
		}
	}
}

func TestInnermost(t *testing.T) {
	for axes, want := range map[string]string{"LBFHND": "LBFHND", "DLBFHN": "LBFHND", "LBDHNF": "LBHNFD"} {
		if got := mustLayout(t, axes).Innermost(ElementAxis).Axes(); got != want {
			t.Errorf("%s: got %s, want %s", axes, got, want)
		}
	}
	if (Layout{}).Innermost(ElementAxis).Valid() {
		t.Error("nothing was made of no layout")
	}
}
