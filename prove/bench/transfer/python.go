package transfer

import (
	"context"
	"embed"
	"time"

	"meridian/prove/bench"
)

//go:embed peers/*.py
var drivers embed.FS

// pythonPeer drives a peer through its Python package, in two processes.
type pythonPeer struct {
	title string
	*bench.Pair
	version string
	current Case
	placed  bool // whether pinned says how the processes are placed
	pinned  bool
}

type pythonOptions struct {
	python      string
	environment []string
	poolBytes   uint64
	// servingThread gives the serving side a thread that makes progress.
	servingThread bool
}

func openPython(ctx context.Context, name string, o pythonOptions) (_ *pythonPeer, err error) {
	pair, err := bench.OpenPair(name, drivers, o.python, name+"_peer.py", o.environment)
	p := &pythonPeer{title: name, Pair: pair}
	defer p.Unless(ctx, &err)
	if err != nil {
		return p, err
	}
	open := func(of side, thread bool) map[string]any {
		return map[string]any{"do": "open", "side": of, "bytes": o.poolBytes, "progress_thread": thread}
	}
	p.version, err = p.Introduce(ctx, open(posting, false), open(serving, o.servingThread))
	return p, err
}

func (p *pythonPeer) Name() string { return p.title }

func (p *pythonPeer) load(ctx context.Context, c Case) error {
	p.current = c
	return p.Both(ctx, map[string]any{"do": "load", "case": c})
}

func (p *pythonPeer) clear(ctx context.Context) error  { return p.Both(ctx, request{Do: "clear"}) }
func (p *pythonPeer) verify(ctx context.Context) error { return p.Both(ctx, request{Do: "check"}) }

func (p *pythonPeer) place(pinned bool) error {
	if p.placed && p.pinned == pinned {
		return nil
	}
	p.placed, p.pinned = true, pinned
	return bench.PlacePair(p.Post.PID(), p.Serve.PID(), pinned)
}

func (p *pythonPeer) round(ctx context.Context, pinned bool) (float64, error) {
	if err := p.place(pinned); err != nil {
		return 0, err
	}
	seconds, err := p.Round(ctx)
	if err != nil {
		return 0, err
	}
	return gbps(p.current.Total, time.Duration(seconds*float64(time.Second))), nil
}

func (p *pythonPeer) PIDs() []int { return []int{p.Post.PID(), p.Serve.PID()} }

func (p *pythonPeer) rest() {
	p.Post.Pause()
	p.Serve.Pause()
}

func (p *pythonPeer) wake() {
	p.Serve.Resume()
	p.Post.Resume()
}
