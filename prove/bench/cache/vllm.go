package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"meridian/prove/bench"
	"meridian/prove/bench/serving"
	"meridian/run/cell"
)

const (
	vllmShape    = "tiny"
	vllmUnit     = tiersUnit
	vllmMemory   = 512 << 20
	vllmRequests = 4 // prompts of each length in a round
	vllmAnswer   = 4 // tokens of their answers
	// vllmTail is what a prompt has beyond its prefix: one token is always computed, and
	// ExampleConnector leaves out another.
	vllmTail = 2

	stepPrompt  = 512
	stepAnswer  = 48
	stepClients = 2 // one's prompt is kept while the other's tokens are made
	stepAsks    = 2 // of each client in a round

	plainServer  = "plain"
	keepsServer  = "meridian-reader"
	silentServer = "meridian-off"
	// vllmPatience is for servers that start on cores that others use.
	vllmPatience = 10 * time.Minute
	// keepLimit is how long a prompt may take until it is kept; one that never is was
	// dropped under load, and its reader computes it.
	keepLimit = 5 * time.Second
)

// vllmPrefixes are how long stored prefixes are.
var vllmPrefixes = []int{128, 512, 900}

// vllmBench is servers of vLLM beside a cell whose agent keeps.
type vllmBench struct {
	*world
	vllm   *cell.VLLM
	model  string
	report *VLLMReport
	seeds  uint64 // of prompts, that were used
}

// runVLLM has prompts computed and kept by a server with a connector, and found by another
// one, which is started when the first is gone, each beside a server without. So two are
// there at a time, and one works.
func runVLLM(ctx context.Context, o Options, r *Report) (_ *VLLMReport, err error) {
	v, err := cell.FindVLLM(ctx, o.Venv)
	if none := new(cell.NoVLLMError); errors.As(err, &none) {
		r.Miss(bench.Absence{Peer: "vLLM", Why: none.Why, Fix: none.Fix})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o.say(PartVLLM, "starting a cell that keeps")
	w, err := openWorld(ctx, o, setup{model: "tiny", blocks: 4 * vllmUnit, unit: vllmUnit, memory: vllmMemory})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.CloseWithin(stopLimit)) }()
	longest := slices.Max(vllmPrefixes) + vllmTail + vllmAnswer + 1
	b := &vllmBench{
		world: w, vllm: serving.WithServerArgs(v, longest), model: filepath.Join(w.dir, "model"),
		report: &VLLMReport{VLLM: v.Version, Model: vllmShape, Rounds: o.Rounds, Requests: vllmRequests},
	}
	b.vllm.Args, b.vllm.Patience = append(b.vllm.Args, "--enable-prompt-tokens-details"), vllmPatience
	if b.report.BytesPerToken, err = serving.WriteModel(b.model, vllmShape, longest); err != nil {
		return nil, err
	}
	return b.report, b.measure(ctx)
}

// family is all processes of the cell and of the servers, with those that they started.
func (b *vllmBench) family() (all []int) {
	for _, p := range b.cell.Record().Parts {
		if p.Process == nil {
			continue
		}
		if pids, err := p.Process.PIDs(); err == nil { // one that has ended is noticed when it does not answer
			all = append(all, pids...)
		}
	}
	return all
}

// pair is two servers with one connector: what the first has computed, the second finds.
type pair struct {
	connector, writer, reader string
	transfer                  func(server string) map[string]any
	// kept waits until the store has a prompt of so many tokens more than before; nil: it
	// has it when the answer is there.
	kept func(ctx context.Context, before float64, tokens int) error
}

// measure has all servers come and go, beside one without a connector.
func (b *vllmBench) measure(ctx context.Context) (err error) {
	shared, err := os.MkdirTemp("/dev/shm", "meridian-bench-") // not to wait for a disk
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(shared)) }()
	example := map[string]any{"kv_connector": "ExampleConnector", "kv_role": "kv_both", "kv_connector_extra_config": map[string]any{"shared_storage_path": shared}}
	if err := b.serve(ctx, plainServer, nil); err != nil {
		return err
	}
	for _, p := range []pair{
		{connector: "example", writer: "example-writer", reader: "example-reader", transfer: func(string) map[string]any { return example }},
		{connector: "meridian", writer: "meridian-writer", reader: keepsServer, transfer: func(name string) map[string]any { return b.ours(name, true) }, kept: b.keptSoon},
	} {
		if err := b.pair(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.connector, err)
		}
	}
	if err := b.steps(ctx, plainServer, keepsServer); err != nil {
		return err
	}
	if err := b.cell.Stop(plainServer); err != nil {
		return err
	}
	if err := b.serve(ctx, silentServer, b.ours(silentServer, false)); err != nil {
		return err
	}
	return b.steps(ctx, silentServer, keepsServer)
}

// pair measures one connector. Its second server stays if it is needed.
func (b *vllmBench) pair(ctx context.Context, p pair) error {
	if err := b.serve(ctx, p.writer, p.transfer(p.writer)); err != nil {
		return err
	}
	lengths := make([]length, len(vllmPrefixes))
	for i, tokens := range vllmPrefixes {
		lengths[i].tokens = tokens
		if err := b.write(ctx, p, &lengths[i]); err != nil {
			return err
		}
	}
	if err := b.cell.Stop(p.writer); err != nil {
		return err
	}
	if err := b.serve(ctx, p.reader, p.transfer(p.reader)); err != nil {
		return err
	}
	for i := range lengths {
		if err := b.read(ctx, p, &lengths[i]); err != nil {
			return err
		}
		b.report.add(p.connector, &lengths[i])
	}
	if p.reader == keepsServer {
		return nil
	}
	return b.cell.Stop(p.reader)
}

// ours is the connector of a server that computes prompts and answers. It takes whatever
// there is, so that where that is worth it can be seen.
func (b *vllmBench) ours(name string, keeps bool) map[string]any {
	return map[string]any{
		"kv_connector": "Connector", "kv_connector_module_path": "meridian.vllm", "kv_role": "kv_both", "engine_id": name, "kv_load_failure_policy": "recompute",
		"kv_connector_extra_config": map[string]any{"state_dir": b.cell.StateDir(), "agent": owner, "cache": keeps, "cache_always": true, "agent_required": true},
	}
}

// serve starts a server, without a connector where there is no transfer, and has it answer
// once: the first prompt takes longer.
func (b *vllmBench) serve(ctx context.Context, name string, transfer map[string]any) error {
	b.options.say(PartVLLM, "starting "+name)
	port, err := bench.FreePort(ctx)
	if err != nil {
		return err
	}
	s := cell.Server{
		Name: name, Kind: cell.Beside, Model: b.model, ServedName: serving.VLLMModel, Address: "127.0.0.1:" + port,
		Cut: cell.Cut{TP: 1, PP: 1, BlockTokens: serving.VLLMBlock}, Together: 2,
	}
	if transfer != nil {
		s.Transfer = transfer
	}
	plan, err := b.vllm.Serve(s)
	if err != nil {
		return err
	}
	if _, err := b.cell.Add(ctx, plan); err != nil {
		return err
	}
	_, err = serving.Ask(ctx, b.url(name), b.prompts(1, slices.Max(vllmPrefixes))[0], vllmAnswer)
	return err
}

// prompts are such that no server has computed one of them.
func (b *vllmBench) prompts(n, tokens int) [][]uint32 {
	b.seeds++
	return serving.NewPrompts(uint64(tokens), b.seeds, n, tokens)
}

// length is what prompts with prefixes of one length took.
type length struct {
	tokens int
	stored [][]storedPrompt // round by round; the first of both kinds warms up
	missed []missedRound
	found  []foundRound
	others []float64 // cores
}

// storedPrompt is one that was computed and kept, and what came of it.
type storedPrompt struct{ prompt, answer []uint32 }

// missedRound is what the same new prompts took, at the server without a connector and at
// one that finds nothing, computes and keeps them.
type missedRound struct{ computed, missed []time.Duration }

// foundRound is what stored prompts took at a server that finds them, and others, new ones
// of the same length, at the one without a connector, which is then asked them again.
type foundRound struct {
	computed, own, found []time.Duration
	lost                 int // that were computed after all, or found less of; they are not above
}

// progress tells of a round.
func (b *vllmBench) progress(what, who string, tokens, round int) {
	b.options.Tell(bench.Progress{
		Row: slices.Index(vllmPrefixes, tokens) + 1, Rows: len(vllmPrefixes), What: fmt.Sprintf("vllm: %s prefixes of %d tokens", what, tokens), Round: round, Rounds: b.options.Rounds, Who: who,
	})
}

// inTurn has two things done, of which neither always comes after the other.
func inTurn(i int, first, second func() error) error {
	if i%2 == 1 {
		first, second = second, first
	}
	if err := first(); err != nil {
		return err
	}
	return second()
}

// write has prompts of one length computed and kept.
func (b *vllmBench) write(ctx context.Context, p pair, l *length) error {
	meter := bench.StartMeter(b.family())
	for round := range b.options.Rounds + 1 {
		b.progress("computing", p.connector, l.tokens, round)
		var r missedRound
		var stored []storedPrompt
		for i, prompt := range b.prompts(vllmRequests, l.tokens+vllmTail) {
			var alone, kept serving.Answer
			err := inTurn(i, func() (err error) {
				alone, err = serving.Ask(ctx, b.url(plainServer), prompt, vllmAnswer)
				return err
			}, func() (err error) {
				kept, err = b.askWriter(ctx, p, prompt, l.tokens)
				return err
			})
			switch {
			case err != nil:
				return err
			case !slices.Equal(alone.Tokens, kept.Tokens):
				return fmt.Errorf("bench: %s answers with other tokens than the server alone", p.writer)
			case alone.Cached+kept.Cached > 0:
				return errors.New("bench: a new prompt was in a cache")
			}
			r.computed, r.missed = append(r.computed, alone.First), append(r.missed, kept.First)
			stored = append(stored, storedPrompt{prompt, alone.Tokens})
		}
		l.missed, l.stored = append(l.missed, r), append(l.stored, stored)
	}
	l.others = append(l.others, meter.Others())
	return nil
}

// askWriter has a prompt computed, and waits until it is kept.
func (b *vllmBench) askWriter(ctx context.Context, p pair, prompt []uint32, tokens int) (serving.Answer, error) {
	before, err := b.counts(ctx, "meridian_store_objects")
	if err != nil {
		return serving.Answer{}, err
	}
	answer, err := serving.Ask(ctx, b.url(p.writer), prompt, vllmAnswer)
	if err == nil && p.kept != nil {
		err = p.kept(ctx, before, tokens)
	}
	return answer, err
}

// read has prompts found that were kept.
func (b *vllmBench) read(ctx context.Context, p pair, l *length) error {
	meter := bench.StartMeter(b.family())
	for round, stored := range l.stored {
		b.progress("finding", p.connector, l.tokens, round)
		var r foundRound
		for i, fresh := range b.prompts(len(stored), l.tokens+vllmTail) {
			var alone, own, found serving.Answer
			err := inTurn(i, func() (err error) {
				if alone, err = serving.Ask(ctx, b.url(plainServer), fresh, vllmAnswer); err == nil {
					own, err = serving.Ask(ctx, b.url(plainServer), fresh, vllmAnswer)
				}
				return err
			}, func() (err error) {
				found, err = serving.Ask(ctx, b.url(p.reader), stored[i].prompt, vllmAnswer)
				return err
			})
			switch {
			case err != nil:
				return err
			case !slices.Equal(found.Tokens, stored[i].answer):
				return fmt.Errorf("bench: %s answers with other tokens than the server alone", p.reader)
			case alone.Cached > 0:
				return errors.New("bench: a new prompt was in a cache")
			}
			if found.Cached < l.tokens/vllmUnit*vllmUnit {
				r.lost++
				continue
			}
			r.computed, r.own, r.found = append(r.computed, alone.First), append(r.own, own.First), append(r.found, found.First)
		}
		l.found = append(l.found, r)
	}
	l.others = append(l.others, meter.Others())
	return nil
}

// keptSoon waits until the store has a prompt more.
func (b *vllmBench) keptSoon(ctx context.Context, before float64, tokens int) error {
	late, cancel := context.WithTimeout(ctx, keepLimit)
	defer cancel()
	err := until(late, "a prompt is kept", func() (bool, error) {
		n, err := b.counts(ctx, "meridian_store_objects")
		return n >= before+float64(tokens/vllmUnit), err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil
	}
	return err
}

// steps measures the time between tokens at two servers in turn, while prompts come and end.
func (b *vllmBench) steps(ctx context.Context, servers ...string) error {
	all, meter := make(map[string][]float64), bench.StartMeter(b.family())
	for round := range b.options.Rounds + 1 {
		prompts := b.prompts(stepClients*stepAsks, stepPrompt)
		for k := range servers {
			name := servers[(k+round)%len(servers)] // none always comes after the same one
			b.options.Tell(bench.Progress{Row: 1, Rows: 1, What: "vllm: time between tokens", Round: round, Rounds: b.options.Rounds, Who: name})
			gaps := make([]time.Duration, len(prompts))
			err := eachOf(len(prompts), stepClients, func(i int) error {
				answer, err := serving.Ask(ctx, b.url(name), prompts[i], stepAnswer)
				gaps[i] = (answer.Last - answer.First) / (stepAnswer - 1)
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			var sum time.Duration
			for _, gap := range gaps {
				sum += gap
			}
			if round > 0 {
				all[name] = append(all[name], sum.Seconds()*1e3/float64(len(gaps)))
			}
		}
	}
	b.report.addSteps(servers[0], servers[1], all, meter.Others())
	return nil
}
