package transfer

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"meridian/member/trust"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/prove/bench"
)

// relay hands requests over: this process decodes, a child has the prompts.
type relay struct {
	bench.Opened
	child *bench.Process
	far   away
	near  *engine
	bytes uint64 // of one round

	prompts []handoff.Content
	records []handoff.Record // of the rounds that count
	traced  bool             // some hand-offs, by both sides
}

func openRelay(ctx context.Context, o HandOffOptions, kind fabricKind, errand Errand, cell *cellSetup) (_ *relay, err error) {
	r := &relay{}
	defer r.Unless(ctx, &err)
	dir, err := r.Folder(o.Dir) // for the sockets of both sides
	if err != nil {
		return r, err
	}
	if r.bytes, _, err = errand.load(); err != nil {
		return r, err
	}
	for i := range errand.Concurrent {
		r.prompts = append(r.prompts, errand.prompt(i))
	}
	s := staging{setup: setup{Fabric: kind.name, Streams: o.Streams, Checksums: true, Protect: withGrants, Dir: dir}, Errand: errand, Cell: cell}
	rand.Read(s.Key[:])
	if r.child, err = r.Start("the prefill side", o.ServeCommand, nil); err != nil {
		return r, err
	}
	r.far = away{r.child}
	far, err := r.far.do(ctx, request{Do: "lend", Staging: &s})
	if err != nil {
		return r, err
	}
	if r.near, err = openEngine(ctx, posting, s, kind.opener()); err != nil {
		return r, err
	}
	r.Closes(r.near.Close)
	if cell != nil {
		return r, nil // they meet by the directory
	}
	if err = r.near.meet(far.Metadata); err != nil {
		return r, err
	}
	_, err = r.far.do(ctx, request{Do: "meet", Metadata: r.near.agent.MetadataBlob()})
	return r, err
}

// run offers everything, and takes it: all at once, or one after the other. It
// returns how long the taking took; the offers stood before.
func (r *relay) run(ctx context.Context, atOnce bool) (took time.Duration, records []handoff.Record, err error) {
	offered, err := r.far.do(ctx, request{Do: "offer", Traced: r.traced})
	if err != nil {
		return 0, nil, err
	}
	for _, id := range offered.Traced {
		r.near.trace(id, trust.LegDecode)
	}
	start := time.Now()
	var running []*transceiver.AcceptHandle
	for i, ticket := range offered.Tickets {
		in, err := r.near.accept(ctx, i, r.prompts[i], ticket)
		if err == nil && !atOnce {
			err = r.wait(ctx, in)
		}
		if err != nil {
			return 0, nil, fmt.Errorf("request %d of %d: %w", i, len(offered.Tickets), err)
		}
		running = append(running, in)
	}
	for i, in := range running {
		if err := r.wait(ctx, in); err != nil {
			return 0, nil, fmt.Errorf("request %d of %d: %w", i, len(running), err)
		}
	}
	took = time.Since(start)
	for _, in := range running {
		record, err := r.near.transceiver.Explain(in.Transfer)
		if err != nil {
			return 0, nil, err
		}
		records = append(records, record[0])
	}
	_, err = r.far.do(ctx, request{Do: "settle"})
	return took, records, err
}

// wait ends with the child, too: no process would bring the rest.
func (r *relay) wait(ctx context.Context, in *transceiver.AcceptHandle) error {
	select {
	case <-in.Done():
		return in.Wait(ctx)
	case <-r.child.Exited():
		return r.child.Gone(nil)
	case <-ctx.Done():
		return in.Wait(ctx)
	}
}

// runner is a relay with a way to run: all requests at once, or one by one.
type runner struct {
	*relay
	atOnce bool
}

func (r runner) Name() string {
	if r.atOnce {
		return "hand-off"
	}
	return "one by one"
}

func (r runner) round(ctx context.Context, _ bool) (float64, error) {
	took, records, err := r.run(ctx, r.atOnce)
	if err != nil {
		return 0, err
	}
	if r.atOnce {
		r.records = append(r.records, records...)
	}
	return gbps(r.bytes, took), nil
}

func (r runner) clear(ctx context.Context) error {
	return bench.Apart(ctx, "clear", r.near.clear)
}

func (r runner) verify(ctx context.Context) error { return bench.Apart(ctx, "check", r.near.check) }

// lending answers what a relay asks of the serving side.
func (s *server) lending(ctx context.Context, r request) (a answer, err error) {
	if s.engine == nil && r.Do != "lend" {
		return a, fmt.Errorf("%q before lend", r.Do)
	}
	switch r.Do {
	case "lend":
		opened, err := openEngine(ctx, serving, *r.Staging, fabricByName(r.Staging.Fabric).opener())
		if err != nil {
			return a, err
		}
		s.engine = opened
		s.opened.Closes(opened.Close)
		return answer{Metadata: opened.agent.MetadataBlob()}, opened.fill()
	case "meet":
		return a, s.engine.meet(r.Metadata)
	case "offer":
		a.Tickets, a.Traced, err = s.engine.offer(r.Traced)
		return a, err
	}
	return a, s.engine.settle(ctx)
}
