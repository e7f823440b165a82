package serving

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"meridian/internal/rounds"
	"meridian/prove/bench"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// StepOptions says how to measure what a step costs an engine that is governed.
type StepOptions struct {
	bench.Options
	// Requests are how many an engine runs, rows for each; Steps how many a round has.
	Requests []int
	Steps    int
	// Python is an interpreter that finds the package meridian; empty: Python is not measured.
	Python string
}

const (
	maxStepRequests = 4096
	stepAnswer      = time.Minute // how long a decision is waited for
	// pythonStep is what a step may cost Python's side, by the median, for 256 requests.
	pythonStep         = 150
	pythonStepRequests = 256
	stepBlocks         = door.MaxGovernedBlocks
	stepBlockTokens    = 16
)

func (o *StepOptions) validate() error {
	if o.Steps < 100 || o.Steps > 1<<16 || o.Rounds < 1 || o.Rounds > 100 {
		return fmt.Errorf("%w: %d rounds of %d steps; 1 to 100 of 100 to %d", bench.ErrOptions, o.Rounds, o.Steps, 1<<16)
	}
	for _, n := range o.Requests {
		if blocks := n * (o.Rounds + 1) * o.Steps / stepBlockTokens; n < 1 || n > maxStepRequests || blocks > stepBlocks/2 {
			return fmt.Errorf("%w: %d rounds of %d steps with %d requests; 1 to %d requests, and fewer steps the more there are", bench.ErrOptions, o.Rounds, o.Steps, n, maxStepRequests)
		}
	}
	if len(o.Requests) == 0 {
		return fmt.Errorf("%w: no requests: say how many run", bench.ErrOptions)
	}
	return nil
}

// RunStep measures the time from before an engine writes down what a step did to when it
// has read what was decided, with an agent and its governor in a process of their own.
func RunStep(ctx context.Context, o StepOptions) (_ *bench.Costs, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	agent, err := openAgent(ctx, o.Program, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, agent.close()) }()
	o.Beside(agent.process.PID())
	socket := door.Socket(agent.state, agentName)
	python, absence := startStepPython(ctx, o.Python, socket)
	if python != nil {
		defer func() { err = errors.Join(err, stopProcess(python)) }()
		o.Beside(python.PID())
	}
	var tasks []rounds.Task
	for _, n := range o.Requests {
		world, err := newStepWorld(ctx, socket, n, o.Steps)
		if err != nil {
			return nil, err
		}
		defer world.steps.Close()
		tasks = append(tasks, stepTasks("Go", n, 0, world.round)...)
		if python == nil {
			continue
		}
		bound := 0.0
		if n == pythonStepRequests {
			bound = pythonStep
		}
		tasks = append(tasks, stepTasks("Python", n, bound, func() ([]time.Duration, error) { return pythonRound(ctx, python, n, o.Steps) })...)
	}
	report, err := bench.Measure(ctx, o.Options, tasks)
	if report != nil && absence != nil {
		report.Absent = append(report.Absent, *absence)
	}
	return report, err
}

// stepTasks are the median and the 99th of a hundred.
func stepTasks(who string, requests int, bound float64, round func() ([]time.Duration, error)) (tasks []rounds.Task) {
	for _, percent := range []int{50, 99} {
		var samples []time.Duration
		task := rounds.Task{
			What: fmt.Sprintf("a step over the door, %s, %d requests, p%d", who, requests, percent), Unit: "µs",
			Score: func() float64 { return bench.Percentile(samples, percent) },
			Ours: func() (lap rounds.Lap, err error) {
				samples, err = round()
				for _, s := range samples {
					lap.Took += s
				}
				lap.Operations = len(samples)
				return lap, err
			},
		}
		if percent == 50 {
			task.Bound = bound
		}
		tasks = append(tasks, task)
	}
	return tasks
}

// stopServing ends an agent or an engine, which do not read their input.
func stopServing(p *bench.Process) error {
	p.Interrupt()
	return stopProcess(p)
}

func stopProcess(p *bench.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return p.Stop(ctx)
}

// stepWorld is an engine of this process: all its requests decode, a token a step.
type stepWorld struct {
	steps *door.Steps
	m     *doorpb.Step
	count int
	next  uint32 // block
	have  []uint32
}

func newStepWorld(ctx context.Context, socket string, requests, count int) (*stepWorld, error) {
	steps, err := door.OpenSteps(ctx, door.StepsOptions{
		Socket: socket, Engine: fmt.Sprintf("go-%d", requests), Software: "meridian bench",
		About: &doorpb.Steps{Model: "bench", Blocks: stepBlocks, BlockTokens: stepBlockTokens, MaxRunning: uint32(requests), StepTokens: maxStepRequests * 64},
	})
	if err != nil {
		return nil, err
	}
	w := &stepWorld{steps: steps, m: &doorpb.Step{Number: 1}, count: count, have: make([]uint32, requests)}
	steps.Renewed()
	first := &doorpb.Step{Number: 1, Waiting: uint32(requests), FreeBlocks: stepBlocks}
	for i := range requests {
		prompt := uint32(64 + i%stepBlockTokens)
		first.Begun = append(first.Begun, &doorpb.Begun{Sequence: uint64(i + 1), Id: fmt.Sprintf("request-%d", i), PromptTokens: prompt, Tail: make([]uint32, 64)})
		w.have[i] = prompt % stepBlockTokens
	}
	if !steps.Send(first) || len(steps.Take(stepAnswer)) != 1 {
		steps.Close()
		return nil, errors.New("the agent has not decided about the first step")
	}
	return w, nil
}

// round takes steps, and tells what each cost.
func (w *stepWorld) round() ([]time.Duration, error) {
	samples := make([]time.Duration, 0, w.count)
	for range w.count {
		began := time.Now()
		w.write()
		if !w.steps.Send(w.m) {
			return nil, fmt.Errorf("step %d could not be told", w.m.GetNumber())
		}
		come := w.steps.Take(stepAnswer)
		samples = append(samples, time.Since(began))
		if len(come) != 1 || come[0].GetStep() != w.m.GetNumber() || len(come[0].GetOrder()) != len(w.have) {
			return nil, fmt.Errorf("wrong: after step %d came %.200v", w.m.GetNumber(), come)
		}
	}
	return samples, nil
}

// write fills the columns of the next step.
func (w *stepWorld) write() {
	m := w.m
	m.Number++
	m.Running, m.TookNs = uint32(len(w.have)), uint64(10*time.Millisecond)
	m.Sequences, m.Computed, m.Counts, m.Tokens, m.Entropies = m.Sequences[:0], m.Computed[:0], m.Counts[:0], m.Tokens[:0], m.Entropies[:0]
	m.BlockCounts, m.Blocks = m.BlockCounts[:0], m.Blocks[:0]
	for i := range w.have {
		m.Sequences, m.Computed, m.Counts = append(m.Sequences, uint64(i+1)), append(m.Computed, 1), append(m.Counts, 1)
		m.Tokens, m.Entropies = append(m.Tokens, uint32(1000+(i+int(m.Number))%100_000)), append(m.Entropies, 1.25)
		blocks := uint32(0)
		if w.have[i] = (w.have[i] + 1) % stepBlockTokens; w.have[i] == 0 {
			blocks = 1
			m.Blocks = append(m.Blocks, w.next)
			w.next++
		}
		m.BlockCounts = append(m.BlockCounts, blocks)
	}
	m.FreeBlocks = stepBlocks - w.next
}

//go:embed peers/step_peer.py
var stepPeer string

// startStepPython starts the other engine, or says why there is none.
func startStepPython(ctx context.Context, python, socket string) (*bench.Process, *bench.Absence) {
	absent := func(why string) (*bench.Process, *bench.Absence) {
		return nil, &bench.Absence{Peer: "Python", Why: why, Fix: "name an interpreter with --python, and have PYTHONPATH name the package meridian"}
	}
	if python == "" {
		return absent("no interpreter is named")
	}
	p, err := bench.StartProcess("Python", []string{python, "-c", stepPeer}, nil)
	if err != nil {
		return absent(err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := p.Ask(ctx, map[string]any{"do": "open", "socket": socket, "blocks": stepBlocks, "block_tokens": stepBlockTokens}, nil); err != nil {
		return absent(errors.Join(err, stopProcess(p)).Error())
	}
	return p, nil
}

func pythonRound(ctx context.Context, p *bench.Process, requests, count int) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var answer struct {
		NS []int64 `json:"ns"`
	}
	if err := p.Ask(ctx, map[string]any{"do": "lap", "requests": requests, "count": count}, &answer); err != nil {
		return nil, err
	}
	samples := make([]time.Duration, len(answer.NS))
	for i, ns := range answer.NS {
		samples[i] = time.Duration(ns)
	}
	return samples, nil
}
