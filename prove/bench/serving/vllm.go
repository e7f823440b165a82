package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"meridian/kv"
	"meridian/prove/bench"
	"meridian/run/cell"
)

// VLLMOptions says how to measure hand-offs between servers of vLLM.
type VLLMOptions struct {
	VLLM *cell.VLLM `kong:"-"`
	// Shape is of the model's cache, as kv.ParseGeometry takes it; a model with
	// such a cache and random weights is made.
	Shape string `name:"model" default:"tiny" placeholder:"MODEL" help:"Whose cache the model has, by name or as a shape in fp32, e.g. layers=4,kv_heads=8,head_dim=128,dtype=fp32; weights are random; default ${default}."`
	// Tokens have a row each.
	Tokens        []int    `default:"128,512,900" placeholder:"N" help:"How long prompts are; default ${default}."`
	Requests      int      `default:"8" placeholder:"N" help:"Prompts that each route answers in a round, one after the other; default ${default}."`
	Rounds        int      `default:"5" placeholder:"N" help:"Rounds; default ${default}."`
	Peers         []string `default:"auto" placeholder:"NAME" help:"Connectors of vLLM to measure beside: auto for all that work here, none, or some of ${vllm_peers}; default ${default}."`
	PeersDir      string   `default:".peers" env:"MERIDIAN_PEERS_DIR" placeholder:"DIR" help:"Where make peers put NIXL; default ${default}."`
	bench.Setting `kong:"-"`
	// scratch is where files are put: in memory, because the shared files of
	// ExampleConnector are not to wait for a disk. Tests look into their own.
	scratch string
}

// VLLMBlock is the block of all servers of vLLM, in tokens.
const VLLMBlock = 32

const (
	vllmAnswer    = 4 // tokens of every answer
	maxVLLMTokens = 16 << 10
	// vllmShare is memory that is asked for a cache: a few of the longest
	// prompts.
	vllmShare = 8
)

func (o *VLLMOptions) validate() (kv.Geometry, error) {
	g, err := kv.ParseGeometry(o.Shape)
	switch {
	case err != nil:
		return g, fmt.Errorf("%w: %w", bench.ErrOptions, err)
	case o.VLLM == nil:
		return g, fmt.Errorf("%w: no vLLM", bench.ErrOptions)
	case o.Rounds < 1 || o.Requests < 1:
		return g, fmt.Errorf("%w: %d rounds of %d requests; at least 1 of each", bench.ErrOptions, o.Rounds, o.Requests)
	case len(o.Tokens) == 0:
		return g, fmt.Errorf("%w: no prompts: say how long they are", bench.ErrOptions)
	}
	for _, n := range o.Tokens {
		if n <= VLLMBlock || n > maxVLLMTokens {
			return g, fmt.Errorf("%w: prompts of %d tokens; more than a block, %d, and at most %d", bench.ErrOptions, n, VLLMBlock, maxVLLMTokens)
		}
	}
	if slices.Equal(o.Peers, []string{"auto"}) || slices.Equal(o.Peers, []string{"none"}) {
		return g, nil
	}
	return g, bench.Known("peer", o.Peers, VLLMPeerNames())
}

// RunVLLM measures what a hand-off adds to the first token. All servers are
// there all the time; in every round each route answers the same new prompts in
// turn, through a gateway of its own, while the others rest. Tokens of answers are compared with those of
// the server that serves alone.
func RunVLLM(ctx context.Context, o VLLMOptions) (report *VLLMReport, err error) {
	geometry, err := o.validate()
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp(cmp.Or(o.scratch, "/dev/shm"), "meridian-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	model := filepath.Join(scratch, "model")
	if err := writeModel(model, geometry, slices.Max(o.Tokens)+vllmAnswer+1); err != nil {
		return nil, err
	}
	report = newVLLMReport(o, geometry)
	routes, err := openRoutes(ctx, o, scratch, model, report)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, routes.close()) }()
	meter := bench.StartMeter(routes.pids())
	_, err = rows(&o.Setting, "prompts of %d tokens", o.Tokens, o.Rounds, func(tokens int, progress func(int, string)) (struct{}, error) {
		turns, err := routes.measure(ctx, o, tokens, progress)
		if err == nil {
			report.add(tokens, turns)
		}
		return struct{}{}, err
	})
	if err != nil {
		return nil, err
	}
	report.Others = meter.Others()
	return report, report.wrong()
}

// turn is what one route did in one round.
type turn struct {
	firsts []time.Duration // to each first token
	tokens [][]uint32      // of each answer
	cpu    time.Duration
	handed int64 // tokens that its decode server took from elsewhere
}

// measure has all routes answer prompts of one length. The first round warms up.
func (r *routes) measure(ctx context.Context, o VLLMOptions, tokens int, progress func(int, string)) (map[string][]turn, error) {
	all := make(map[string][]turn)
	prompts := make([][][]uint32, o.Rounds+1)
	for round := range prompts {
		prompts[round] = NewPrompts(uint64(tokens), uint64(round), o.Requests+1, tokens)
	}
	return all, inTurn(o.Rounds, r.all, func(round int, route *route) error {
		progress(round, route.name)
		t, err := route.turn(ctx, prompts[round])
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrMeasure, route.name, err)
		}
		if round > 0 {
			all[route.name] = append(all[route.name], t)
		}
		return nil
	})
}

// NewPrompts are random, so that no server has any of them in a cache.
func NewPrompts(length, round uint64, n, tokens int) [][]uint32 {
	chance := rand.New(rand.NewPCG(length, round))
	prompts := make([][]uint32, n)
	for i := range prompts {
		for range tokens {
			prompts[i] = append(prompts[i], firstByteToken+uint32(chance.IntN(256)))
		}
	}
	return prompts
}

// wakeLimit is how long a route may take until it answers again after a rest,
// in which its gateway may have missed the servers' word that they are well.
const wakeLimit = 20 * time.Second

// turn wakes a route and has it answer prompts. The first is only to see that
// it is awake.
func (r *route) turn(ctx context.Context, prompts [][]uint32) (turn, error) {
	r.wake()
	defer r.rest()
	for began := time.Now(); ; {
		_, err := Ask(ctx, r.url, prompts[0], vllmAnswer)
		if err == nil {
			return r.take(ctx, prompts[1:])
		}
		if ctx.Err() != nil || time.Since(began) > wakeLimit {
			return turn{}, err
		}
		time.Sleep(settling)
	}
}

// take answers prompts one after the other.
func (r *route) take(ctx context.Context, prompts [][]uint32) (t turn, err error) {
	handed, err := r.handed(ctx)
	if err != nil {
		return t, err
	}
	before := r.cpu()
	for _, prompt := range prompts {
		answer, err := Ask(ctx, r.url, prompt, vllmAnswer)
		if err != nil {
			return t, err
		}
		t.firsts, t.tokens = append(t.firsts, answer.First), append(t.tokens, answer.Tokens)
	}
	if err := settle(ctx); err != nil {
		return t, err
	}
	t.cpu = r.cpu() - before
	after, err := r.handed(ctx)
	t.handed = after - handed
	if err == nil && t.handed == 0 && r.name != alone {
		err = errors.New("nothing was handed over: the decode server computes prompts itself")
	}
	return t, err
}
