package bench

import (
	"context"
	"encoding/json"
	"io/fs"
	"path/filepath"
)

// Pair is two processes of one driver in Python: one posts, and one serves.
type Pair struct {
	Opened
	Post, Serve *Process
}

// OpenPair starts both. The caller closes the pair, which is there where an error is, too.
func OpenPair(title string, drivers fs.FS, python, script string, environment []string) (p *Pair, err error) {
	p = &Pair{}
	directory, err := p.Drivers(drivers)
	if err != nil {
		return p, err
	}
	command := []string{python, filepath.Join(directory, script)}
	if p.Serve, err = p.Start(title+"'s serving side", command, environment); err != nil {
		return p, err
	}
	p.Post, err = p.Start(title+"'s posting side", command, environment)
	return p, err
}

// Introduce opens both sides and tells each of the other. It returns the posting side's version.
func (p *Pair) Introduce(ctx context.Context, posting, serving map[string]any) (version string, err error) {
	var near, far struct {
		Self    json.RawMessage `json:"self"`
		Version string          `json:"version"`
	}
	if err := p.Serve.Ask(ctx, serving, &far); err != nil {
		return "", err
	}
	if err := p.Post.Ask(ctx, posting, &near); err != nil {
		return "", err
	}
	if err := p.Serve.Ask(ctx, map[string]any{"do": "meet", "other": near.Self}, nil); err != nil {
		return "", err
	}
	return near.Version, p.Post.Ask(ctx, map[string]any{"do": "meet", "other": far.Self}, nil)
}

// Both asks the serving side, and then the posting one.
func (p *Pair) Both(ctx context.Context, request any) error {
	if err := p.Serve.Ask(ctx, request, nil); err != nil {
		return err
	}
	return p.Post.Ask(ctx, request, nil)
}

// Round has the posting side do what was loaded, and returns for how many seconds.
func (p *Pair) Round(ctx context.Context) (seconds float64, err error) {
	var took struct {
		Seconds float64 `json:"seconds"`
	}
	err = p.Post.Ask(ctx, map[string]any{"do": "round"}, &took)
	return took.Seconds, err
}
