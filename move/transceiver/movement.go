package transceiver

import (
	"context"
	"errors"
	"slices"

	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/transceiver/handoff"
)

// move brings a part of a flow over, and returns when nothing of it touches
// memory here any more.
func (t *Transceiver) move(l *work, g *ownGrant, e handoff.Move, own map[int]handoff.Memory) handoff.Movement {
	m := handoff.Movement{Flow: e.FlowGrant.Flow}
	began := t.now()
	ctx, cancel := context.WithTimeout(l.ctx, duration(handoff.Span(e.Order.RemainingMs)))
	defer cancel()
	if g != nil {
		defer context.AfterFunc(g.ctx, cancel)()
	}
	all, err := t.batchesOf(e, own)
	if err == nil && len(all) > 0 {
		m.Bytes, m.Fabric, err = t.moveBatches(ctx, e, all)
	}
	m.Err, m.Again = err, mayWorkAgain(err)
	m.Micros = uint64(t.now() - began)
	return m
}

func (t *Transceiver) batchesOf(e handoff.Move, own map[int]handoff.Memory) ([]batch, error) {
	plan, err := t.planOf(e.Order)
	if err != nil {
		return nil, err
	}
	flow, err := flowOf(plan, e.FlowGrant.Flow)
	if err != nil {
		return nil, err
	}
	src, dst := e.Order.Terms.Src.Engine.Ranks[e.FlowGrant.Src].Memory, e.Order.Terms.Dst.Engine.Ranks[e.FlowGrant.Dst].Memory
	if e.Order.As == handoff.Source {
		src = own[e.FlowGrant.Src]
	} else {
		dst = own[e.FlowGrant.Dst]
	}
	parts, err := e.Flows(flow)
	if err != nil {
		return nil, err
	}
	return batches(parts, src, dst)
}

// moveBatches posts all batches at once and waits for all of them. The first failure
// cancels the others.
func (t *Transceiver) moveBatches(ctx context.Context, e handoff.Move, all []batch) (bytes uint64, fabricName string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running []*agent.Transfer
	for i := range all {
		var tr *agent.Transfer
		if tr, err = t.post(ctx, e, &all[i]); err != nil {
			cancel()
			break
		}
		running = append(running, tr)
	}
	for _, tr := range running {
		ended := finish(ctx, tr)
		if err == nil {
			err = ended
		}
		if ended != nil {
			cancel()
		}
		record := tr.Record()
		fabricName = record.Fabric
		bytes += record.Bytes
	}
	if err != nil {
		return 0, fabricName, err
	}
	return bytes, fabricName, nil
}

// post starts one batch.
func (t *Transceiver) post(ctx context.Context, e handoff.Move, l *batch) (tr *agent.Transfer, err error) {
	op, local, remote := fabric.Read, l.dst, l.src
	if e.Order.As == handoff.Source {
		op, local, remote = fabric.Write, l.src, l.dst
	}
	err = t.peers.With(ctx, e.Order.Other(e.FlowGrant.Flow).Agent, func(p *agent.Peer) error {
		here, err := t.options.Agent.LocalSpans(local)
		if err != nil {
			return err
		}
		there, err := p.RemoteSpans(remote)
		if err != nil {
			return err
		}
		request, err := t.options.Agent.Prepare(op, agent.Side{List: here}, agent.Side{List: there})
		if err != nil {
			return err
		}
		defer request.Release() // as soon as the transfer has ended
		tr, err = request.Post(ctx, agent.PostOptions{Grant: e.FlowGrant.Grant, PartOf: e.Order.Terms.Transfer})
		return err
	})
	return tr, err
}

// finish waits for the end of a transfer. When ctx ends first it is cancelled;
// either way nothing of it touches memory here when finish returns.
func finish(ctx context.Context, tr *agent.Transfer) error {
	select {
	case <-tr.Done():
	case <-ctx.Done():
		_ = tr.Cancel(context.WithoutCancel(ctx)) // local work only
	}
	if _, err := tr.Status(); err != nil {
		return err
	}
	return nil
}

// mayWorkAgain: what a broken link, a full queue or a flipped bit spoils may
// succeed the next time.
func mayWorkAgain(err error) bool {
	return slices.ContainsFunc([]error{fabric.ErrPeerGone, fabric.ErrBusy, fabric.ErrChecksum}, func(passing error) bool { return errors.Is(err, passing) })
}
