package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// replayer is written from "Plans" in docs/wire.md and shares nothing with the
// planner: it knows where an element lies by its indices alone, one element at a
// time.
type replayer struct {
	tp, cp, block int
	stages        []int
	layout        string
	kvHeads, dim  int
	elementBytes  int
	table         []int
}

type heldBy struct {
	firstLayer, layers, firstHead, heads, cp int
}

func (r *replayer) ranks() int { return r.cp * r.tp * len(r.stages) }

func (r *replayer) holds(rank int) heldBy {
	cp, tp, pp := rank%r.cp, rank/r.cp%r.tp, rank/r.cp/r.tp
	held := heldBy{layers: r.stages[pp], cp: cp, firstHead: tp * r.kvHeads / r.tp, heads: 1}
	for _, n := range r.stages[:pp] {
		held.firstLayer += n
	}
	if r.tp <= r.kvHeads {
		held.heads = (tp+1)*r.kvHeads/r.tp - held.firstHead
	}
	return held
}

// offset of an element in the memory of a rank that holds it, and the memory's
// size.
func (r *replayer) offset(held heldBy, layer, head, token, part, element int) (offset, size int) {
	size = 1
	for _, axis := range strings.Replace(r.layout, "C", "FD", 1) {
		extent, index := 0, 0
		switch axis {
		case 'L':
			extent, index = held.layers, layer-held.firstLayer
		case 'B':
			extent, index = slices.Max(r.table)+1, r.table[token/r.block/r.cp]
		case 'H':
			extent, index = held.heads, head-held.firstHead
		case 'N':
			extent, index = r.block, token%r.block
		case 'F':
			extent, index = 2, part
		case 'D':
			extent, index = r.dim, element
		}
		offset, size = offset*extent+index, size*extent
	}
	return offset * r.elementBytes, size * r.elementBytes
}

// memories returns every rank's memory with the request in it, and 0xEE
// elsewhere.
func (r *replayer) memories(tokens int) [][]byte {
	all := make([][]byte, r.ranks())
	for rank := range all {
		held := r.holds(rank)
		_, size := r.offset(held, held.firstLayer, held.firstHead, 0, 0, 0)
		all[rank] = bytes.Repeat([]byte{0xEE}, size)
		for i := range held.layers * held.heads * tokens * 2 * r.dim {
			element, part, token := i%r.dim, i/r.dim%2, i/r.dim/2%tokens
			head, layer := i/r.dim/2/tokens%held.heads+held.firstHead, i/r.dim/2/tokens/held.heads+held.firstLayer
			if token/r.block%r.cp != held.cp {
				continue
			}
			offset, _ := r.offset(held, layer, head, token, part, element)
			for b := range r.elementBytes {
				all[rank][offset+b] = byte((layer*131+head*31+token*17+part*7+element*3+b*101)*73) >> 1
			}
		}
	}
	return all
}

type replayed struct {
	Digest string
	Src    []struct {
		Rank, Bytes int
	}
	Dst []struct {
		Rank, Bytes int
	}
	Runs []struct {
		Src, Dst, Length, Count int
		SrcOffset               int `json:"src_offset"`
		DstOffset               int `json:"dst_offset"`
		SrcStride               int `json:"src_stride"`
		DstStride               int `json:"dst_stride"`
	}
}

// drawSide draws an engine and how the command is told about it.
func drawSide(random *rand.Rand, layers, kvHeads, dim, elementBytes, tokens int) (*replayer, string, string) {
	pick := func(values ...int) int { return values[random.IntN(len(values))] }
	r := &replayer{
		tp: pick(1, 2, 3, 4, 6, 8, 12, 24, 64), cp: pick(1, 1, 1, 2, 3), block: 1 + random.IntN(9),
		layout:  []string{"LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC", "BLFHND", "FLBNHD"}[random.IntN(8)],
		kvHeads: kvHeads, dim: dim, elementBytes: elementBytes,
	}
	var named []string
	for left := layers; left > 0; {
		n := 1 + random.IntN(left)
		r.stages, named, left = append(r.stages, n), append(named, strconv.Itoa(n)), left-n
	}
	pp := strings.Join(named, "+")
	if len(named) == 1 {
		pp = "1"
	}
	blocks := (tokens + r.block - 1) / r.block
	r.table = random.Perm((blocks+r.cp-1)/r.cp + 3)[:(blocks+r.cp-1)/r.cp]
	var ids []string
	for _, id := range r.table {
		ids = append(ids, strconv.Itoa(id))
	}
	return r, fmt.Sprintf("tp=%d,pp=%s,cp=%d,block=%d,layout=%s", r.tp, pp, r.cp, r.block, r.layout), strings.Join(ids, ",")
}

// TestPlansReplay moves real bytes as `meridian plan --json` says and finds in
// every destination rank exactly its shard of the whole.
func TestPlansReplay(t *testing.T) {
	for seed := range uint64(24) { // the plans have a property test of their own; this is about how they are told
		random := rand.New(rand.NewPCG(seed, 6))
		layers, kvHeads, dim, tokens := 1+random.IntN(7), []int{1, 2, 3, 4, 8}[random.IntN(5)], 1+random.IntN(4), 1+random.IntN(30)
		from, fromText, fromTable := drawSide(random, layers, kvHeads, dim, 2, tokens)
		to, toText, toTable := drawSide(random, layers, kvHeads, dim, 2, tokens)
		args := []string{
			"plan", "--json", "--from", fromText, "--to", toText, "--tokens", strconv.Itoa(tokens),
			"--src-blocks", fromTable, "--dst-blocks", toTable, "--request", strconv.Itoa(random.IntN(100)),
			"--model", fmt.Sprintf("layers=%d,kv_heads=%d,head_dim=%d,dtype=bf16", layers, kvHeads, dim),
		}
		var out, errs bytes.Buffer
		if status := run(args, &stdio{out: &out, err: &errs}); status != exitOK {
			t.Fatalf("%v: status %d: %s", args, status, errs.String())
		}
		var plan replayed
		decoder := json.NewDecoder(&out)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&plan); err != nil || len(plan.Digest) != 64 {
			t.Fatalf("%v: %v, digest %q", args, err, plan.Digest)
		}
		if problem := carriedOut(plan, from.memories(tokens), to.memories(tokens)); problem != "" {
			t.Errorf("%v: %s", args, problem)
		}
	}
}

// carriedOut copies the runs and says what is wrong with the result.
func carriedOut(plan replayed, have, want [][]byte) string {
	if len(plan.Src) != len(have) || len(plan.Dst) != len(want) {
		return fmt.Sprintf("%d and %d ranks, want %d and %d", len(plan.Src), len(plan.Dst), len(have), len(want))
	}
	got := make([][]byte, len(want))
	for rank := range want {
		if plan.Dst[rank].Rank != rank || plan.Dst[rank].Bytes != len(want[rank]) {
			return fmt.Sprintf("destination %+v, want rank %d of %d bytes", plan.Dst[rank], rank, len(want[rank]))
		}
		got[rank] = bytes.Repeat([]byte{0xEE}, len(want[rank]))
	}
	for rank := range have {
		if plan.Src[rank].Rank != rank || plan.Src[rank].Bytes != len(have[rank]) {
			return fmt.Sprintf("source %+v, want rank %d of %d bytes", plan.Src[rank], rank, len(have[rank]))
		}
	}
	written := make(map[[2]int]bool)
	for _, r := range plan.Runs {
		for i := range r.Count {
			src, dst := r.SrcOffset+i*r.SrcStride, r.DstOffset+i*r.DstStride
			copy(got[r.Dst][dst:dst+r.Length], have[r.Src][src:src+r.Length])
			for b := range r.Length {
				if written[[2]int{r.Dst, dst + b}] {
					return fmt.Sprintf("byte %d of rank %d is written twice", dst+b, r.Dst)
				}
				written[[2]int{r.Dst, dst + b}] = true
			}
		}
	}
	for rank := range want {
		if !bytes.Equal(got[rank], want[rank]) {
			return fmt.Sprintf("rank %d is not its shard of the whole", rank)
		}
	}
	return ""
}
