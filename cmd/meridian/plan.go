package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"meridian/kv"
	"meridian/move/reshard"
)

type planCommand struct {
	From      string   `required:"" placeholder:"SIDE" help:"How the source cuts and keeps the cache, e.g. tp=4,pp=1,block=16,layout=LBHNC."`
	To        string   `required:"" placeholder:"SIDE" help:"The same for the destination."`
	Model     string   `required:"" placeholder:"MODEL" help:"A model by name, or its shape, e.g. layers=7,kv_heads=4,head_dim=8,dtype=bf16."`
	Tokens    string   `required:"" placeholder:"N" help:"Tokens of the request; 128k means 128 × 1024."`
	Present   int      `placeholder:"N" help:"Tokens that the destination holds already."`
	Layers    string   `placeholder:"A-B" help:"Only these layers, the first and the last."`
	Request   uint64   `placeholder:"N" help:"Number of the request: copies of a head take turns by it."`
	SrcBlocks []uint32 `placeholder:"N,…" help:"The request's blocks at the source; default 0,1,2,…"`
	DstBlocks []uint32 `placeholder:"N,…" help:"The request's blocks at the destination; default 0,1,2,…"`
	SrcGroup  int      `placeholder:"N" help:"Attention-DP group that has the request at the source."`
	DstGroup  int      `placeholder:"N" help:"Attention-DP group that takes it at the destination."`
	Link      string   `placeholder:"RATE" help:"Add the time it takes over such a link, e.g. 200Gbps or 25GB/s."`
	JSON      bool     `help:"Print one JSON object with every run, to replay the plan on real bytes."`
	SVG       string   `placeholder:"FILE" help:"Draw it as well."`
}

func (c *planCommand) Help() string {
	return "Prints who sends what to whom when the KV cache of one request moves between two engines, without any engine.\n\n" +
		"A SIDE is a list of NAME=VALUE: tp, pp (2 splits the layers evenly, 4+3 names the stages), cp, dp, block (tokens), layout " +
		"(LBHNC, LBNHC, LHBNC, BLHNC, BLNHC, BHLNC, HND, NHD, TRTLLM_HND, SGLANG or an order of LBFHND), packing (plain, head:NAME, block:NAME), " +
		"interleave (tokens that a context rank takes in turn) and dtype. A shape may also have latent, index_bytes, window and full_every.\n\n" +
		"Models by name: " + strings.Join(kv.ModelNames(), ", ") + ".\n\n" +
		"docs/wire.md says how ranks are numbered and where in their memory everything lies."
}

// planned is a plan with what it was made from.
type planned struct {
	model    string
	src, dst reshard.Side
	tokens   kv.TokenRange
	digest   kv.Hash
	flows    []reshard.Flow
	srcBytes []int64 // of each rank's memory
	dstBytes []int64
}

func (c *planCommand) Run(std *stdio) error {
	p, err := c.plan()
	if err != nil {
		return &failure{err: err, hint: "`meridian plan --help` tells what it takes, docs/wire.md what it means", status: exitInvalid}
	}
	link := linkRate(0)
	if c.Link != "" {
		if link, err = parseLink(c.Link); err != nil {
			return &failure{err: err, hint: "write it as 200Gbps or 25GB/s", status: exitInvalid}
		}
	}
	if c.SVG != "" {
		if err := writeAtomic(c.SVG, func(w io.Writer) error { return p.draw(w, link) }); err != nil {
			return unwritable(c.SVG, err)
		}
	}
	if c.JSON {
		return p.writeJSON(std.out)
	}
	return p.writeText(std.out, link)
}

func (c *planCommand) plan() (*planned, error) {
	geometry, err := kv.ParseGeometry(c.Model)
	if err != nil {
		return nil, fmt.Errorf("--model: %w", err)
	}
	p := &planned{model: c.Model}
	if p.src, err = reshard.ParseSide(c.From, geometry); err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	if p.dst, err = reshard.ParseSide(c.To, geometry); err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	if p.tokens.End, err = parseTokens(c.Tokens); err != nil {
		return nil, err
	}
	if p.tokens.Start = c.Present; c.Present < 0 || c.Present > p.tokens.End {
		return nil, fmt.Errorf("--present: %d of %d tokens", c.Present, p.tokens.End)
	}
	srcTable := tableFor(&p.src, c.SrcBlocks, p.tokens.End)
	dstTable := tableFor(&p.dst, c.DstBlocks, p.tokens.End)
	shape, err := reshard.Prepare(p.src, p.dst)
	if err != nil {
		return nil, err
	}
	plan, err := shape.Plan(reshard.Request{
		Tokens: p.tokens, Turn: c.Request,
		Src: reshard.Holding{DP: c.SrcGroup, Tables: [][]uint32{srcTable}}, Dst: reshard.Holding{DP: c.DstGroup, Tables: [][]uint32{dstTable}},
	})
	if err != nil {
		return nil, err
	}
	p.digest = plan.Digest()
	if p.flows, err = c.narrowed(plan.Flows(), len(geometry.Layers)); err != nil {
		return nil, err
	}
	return p, errors.Join(memoryOf(&p.srcBytes, p.src), memoryOf(&p.dstBytes, p.dst))
}

// tableFor returns the blocks that were named, or as many as the tokens take,
// and makes memory large enough for them.
func tableFor(s *reshard.Side, named []uint32, tokens int) []uint32 {
	if len(named) == 0 {
		named = make([]uint32, max(1, s.BlocksFor(tokens)))
		for i := range named {
			named[i] = uint32(i)
		}
	}
	s.Blocks = int(slices.Max(named)) + 1
	return named
}

func memoryOf(sizes *[]int64, s reshard.Side) error {
	for rank := range s.Parallelism.Ranks() {
		size, err := s.MemoryBytes(rank)
		if err != nil {
			return err
		}
		*sizes = append(*sizes, size)
	}
	return nil
}

// narrowed keeps the layers that were asked for.
func (c *planCommand) narrowed(flows []reshard.Flow, layers int) ([]reshard.Flow, error) {
	if c.Layers == "" {
		return flows, nil
	}
	a, b, _ := strings.Cut(c.Layers, "-")
	first, errFirst := strconv.Atoi(a)
	last, errLast := strconv.Atoi(b)
	if errFirst != nil || errLast != nil || first < 0 || last < first || last >= layers {
		return nil, fmt.Errorf("--layers: %q is no range within 0-%d", c.Layers, layers-1)
	}
	var some []reshard.Flow
	for _, f := range flows {
		if f = f.Layers(first, last+1); f.Bytes() > 0 {
			some = append(some, f)
		}
	}
	return some, nil
}

// maxPlanTokens is a table of blocks that still fits into memory.
const maxPlanTokens = 1 << 30

func parseTokens(text string) (int, error) {
	digits, unit := text, 1
	if k, found := strings.CutSuffix(strings.ToLower(text), "k"); found {
		digits, unit = k, 1024
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > maxPlanTokens/unit {
		return 0, fmt.Errorf("--tokens: %q is not a number of tokens up to %d", text, maxPlanTokens)
	}
	return n * unit, nil
}

// The object that --json prints, but for its runs, which may be many.
type planJSON struct {
	Digest string     `json:"digest"`
	Src    []rankJSON `json:"src"`
	Dst    []rankJSON `json:"dst"`
}

type rankJSON struct {
	Rank  int   `json:"rank"`
	Bytes int64 `json:"bytes"`
}

type runJSON struct {
	Src       int   `json:"src"`
	Dst       int   `json:"dst"`
	SrcOffset int64 `json:"src_offset"`
	DstOffset int64 `json:"dst_offset"`
	Length    int64 `json:"length"`
	Count     int64 `json:"count"`
	SrcStride int64 `json:"src_stride"`
	DstStride int64 `json:"dst_stride"`
}

func (p *planned) writeJSON(w io.Writer) error {
	head := planJSON{Digest: p.digest.String()}
	for rank, size := range p.srcBytes {
		head.Src = append(head.Src, rankJSON{rank, size})
	}
	for rank, size := range p.dstBytes {
		head.Dst = append(head.Dst, rankJSON{rank, size})
	}
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	out.Write(text[:len(text)-1])
	out.WriteString(`,"runs":[`)
	separator := ""
	for _, f := range p.flows {
		for r := range f.Runs() {
			if text, err = json.Marshal(runJSON{f.Src, f.Dst, r.Src, r.Dst, r.Length, r.Count, r.SrcStride, r.DstStride}); err != nil {
				return err
			}
			out.WriteString(separator)
			out.Write(text)
			separator = ","
		}
	}
	out.WriteString("]}\n")
	return out.Flush()
}
