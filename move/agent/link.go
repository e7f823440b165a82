package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"meridian/move/fabric"
)

// linkAttempt is a link to a peer, or the attempt to make one. What is not nil
// when made is closed stays as it is.
type linkAttempt struct {
	made chan struct{}
	link fabric.Link
	err  error // why there is no link; nil when the caller that tried gave up waiting
}

const (
	// connectTimeout bounds a connect whose caller set no deadline.
	connectTimeout = 10 * time.Second
	// closeTimeout bounds the end of a link that no caller waits for.
	closeTimeout = 10 * time.Second
)

// link returns the peer's link on a fabric, connecting at the first use. One
// caller connects; others wait for it, and share its failure.
func (p *Peer) link(ctx context.Context, f fabric.Fabric) (fabric.Link, error) {
	for {
		c, mine, err := p.linkAttempt(f.Name())
		if err != nil {
			return nil, err
		}
		if mine {
			return p.connect(ctx, f, c)
		}
		select {
		case <-c.made:
		default:
			select {
			case <-c.made:
			case <-ctx.Done():
				return nil, fmt.Errorf("agent: waiting for a link to %s: %w", p.Name, ctx.Err())
			}
		}
		if c.link != nil || c.err != nil {
			return c.link, c.err
		}
	}
}

// linked is the peer's link on a fabric; nil where there is none yet, or no more.
func (p *Peer) linked(name string) fabric.Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.links[name]; c != nil {
		return c.link // which connect sets under mu
	}
	return nil
}

// linkAttempt finds the attempt on a fabric; mine means that the caller is to
// make it.
func (p *Peer) linkAttempt(name string) (c *linkAttempt, mine bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone != nil {
		return nil, false, p.gone
	}
	if c = p.links[name]; c != nil {
		return c, false, nil
	}
	c = &linkAttempt{made: make(chan struct{})}
	p.links[name] = c
	return c, true, nil
}

// connect makes a link, without any lock while it waits for the network.
func (p *Peer) connect(ctx context.Context, f fabric.Fabric, c *linkAttempt) (fabric.Link, error) {
	bounded := ctx
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, connectTimeout)
		defer cancel()
	}
	peer := fabric.Peer{Name: p.Name, Incarnation: p.Incarnation, Address: p.address(f.Name())}
	link, err := f.Connect(bounded, peer)
	p.mu.Lock()
	gone := p.gone
	switch {
	case gone != nil:
		c.err = gone
	case err != nil:
		delete(p.links, f.Name())
		if ctx.Err() == nil {
			c.err = err
		}
	default:
		c.link = link
	}
	close(c.made)
	p.mu.Unlock()
	if gone != nil {
		if err == nil {
			p.agent.closeLinks(link)
		}
		return nil, gone
	}
	return c.link, err
}

func (p *Peer) address(fabricName string) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fabrics[fabricName]
}

// retire makes the peer unusable, for a reason, and returns the links it had.
// Those that are being made are closed by the caller that makes them.
func (p *Peer) retire(gone error) []fabric.Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = gone
	var links []fabric.Link
	for _, name := range slices.Sorted(maps.Keys(p.links)) { // in order, so that a simulation repeats
		if c := p.links[name]; c.link != nil {
			links = append(links, c.link)
		}
	}
	clear(p.links)
	return links
}

// closeLinks ends links without making its caller wait; Close waits for it.
func (a *Agent) closeLinks(links ...fabric.Link) {
	if len(links) == 0 {
		return
	}
	a.run(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		var errs []error
		for _, l := range links {
			errs = append(errs, l.Close(ctx))
		}
		if err := errors.Join(errs...); err != nil {
			a.options.Logger.Warn("a link to a peer that is gone did not end", "peer", links[0].Peer().Name, "error", err)
		}
	})
}
