package transfer

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"meridian/prove/bench"
)

//go:embed peers/*.py
var drivers embed.FS

// pythonPeer drives a peer through its Python package, in two processes.
type pythonPeer struct {
	kind      peerKind
	directory string // of the scripts
	post      *bench.Process
	serve     *bench.Process
	version   string
	current   Case
	placed    bool // whether pinned says how the processes are placed
	pinned    bool
}

type pythonOptions struct {
	python      string
	environment []string
	poolBytes   uint64
	// servingThread gives the serving side a thread that makes progress.
	servingThread bool
}

func openPython(ctx context.Context, kind peerKind, o pythonOptions) (_ *pythonPeer, err error) {
	p := &pythonPeer{kind: kind}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(ctx))
		}
	}()
	if p.directory, err = bench.WriteDrivers(drivers); err != nil {
		return p, err
	}
	command := []string{o.python, filepath.Join(p.directory, kind.name+"_peer.py")}
	if p.post, err = bench.StartProcess(kind.name+"'s posting side", command, o.environment); err != nil {
		return p, err
	}
	if p.serve, err = bench.StartProcess(kind.name+"'s serving side", command, o.environment); err != nil {
		return p, err
	}
	return p, p.introduce(ctx, o)
}

// introduce opens both sides and tells each of the other.
func (p *pythonPeer) introduce(ctx context.Context, o pythonOptions) error {
	type opened struct {
		Self    json.RawMessage `json:"self"`
		Version string          `json:"version"`
	}
	open := func(at *bench.Process, of side, thread bool) (answer opened, err error) {
		err = at.Ask(ctx, map[string]any{"do": "open", "side": of, "bytes": o.poolBytes, "progress_thread": thread}, &answer)
		return answer, err
	}
	far, err := open(p.serve, serving, o.servingThread)
	if err != nil {
		return err
	}
	near, err := open(p.post, posting, false)
	if err != nil {
		return err
	}
	p.version = near.Version
	if err := p.serve.Ask(ctx, map[string]any{"do": "meet", "other": near.Self}, nil); err != nil {
		return err
	}
	return p.post.Ask(ctx, map[string]any{"do": "meet", "other": far.Self}, nil)
}

func (p *pythonPeer) name() string { return p.kind.name }

func (p *pythonPeer) both(ctx context.Context, request any) error {
	if err := p.serve.Ask(ctx, request, nil); err != nil {
		return err
	}
	return p.post.Ask(ctx, request, nil)
}

func (p *pythonPeer) load(ctx context.Context, c Case) error {
	p.current = c
	return p.both(ctx, map[string]any{"do": "load", "case": c})
}

func (p *pythonPeer) clear(ctx context.Context) error  { return p.both(ctx, request{Do: "clear"}) }
func (p *pythonPeer) verify(ctx context.Context) error { return p.both(ctx, request{Do: "check"}) }

func (p *pythonPeer) place(pinned bool) error {
	if p.placed && p.pinned == pinned {
		return nil
	}
	p.placed, p.pinned = true, pinned
	return bench.PlacePair(p.post.PID(), p.serve.PID(), pinned)
}

func (p *pythonPeer) round(ctx context.Context, pinned bool) (float64, error) {
	if err := p.place(pinned); err != nil {
		return 0, err
	}
	var took struct {
		Seconds float64 `json:"seconds"`
	}
	if err := p.post.Ask(ctx, request{Do: "round"}, &took); err != nil {
		return 0, err
	}
	return gbps(p.current.Total, time.Duration(took.Seconds*float64(time.Second))), nil
}

func (p *pythonPeer) pids() []int { return []int{p.post.PID(), p.serve.PID()} }

func (p *pythonPeer) rest() {
	p.post.Pause()
	p.serve.Pause()
}

func (p *pythonPeer) wake() {
	p.serve.Resume()
	p.post.Resume()
}

func (p *pythonPeer) close(ctx context.Context) error {
	var errs []error
	for _, side := range []*bench.Process{p.post, p.serve} {
		if side != nil {
			errs = append(errs, side.Stop(ctx))
		}
	}
	if p.directory != "" {
		errs = append(errs, os.RemoveAll(p.directory))
	}
	return errors.Join(errs...)
}
