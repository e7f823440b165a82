package gateway

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"meridian/internal/budget"
	"meridian/member/directory"
	"meridian/see/ledger"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/moves"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/gateway/warm"
)

// Gateway is open. It owns its listeners, the watch of the directory and the
// prober, and waits for all of them in Close.
type Gateway struct {
	options   Options
	keys      edge.Keys // of clients; none lets all in
	adminKeys edge.Keys // of the admin listener, likewise
	roster    *roster.Roster
	watch     *directory.Watch
	admission *edge.Admission
	answers   budget.Budget // of answers that are no streams
	upstream  *upstream.Client
	ledger    *ledger.Ledger
	ownLedger bool
	count     counters
	running   runningRequests
	moves     *moves.Moves
	turns     atomic.Uint64
	shapes    maphash.Seed // what senders and prompts are told apart by, in records
	// givingBack has a place for each ticket that is on its way back.
	givingBack chan struct{}
	warmer     *warm.Warmer // nil before it serves
	// warmCalls has a place for each prompt that an operator has computed ahead.
	warmCalls chan struct{}
	opened    time.Time

	life context.Context // ends when requests must
	stop context.CancelFunc
	// retiring: no new client should come; closing: none is let in.
	retiring, closing atomic.Bool
	active            sync.WaitGroup

	public, admin *edge.Listener
}

// Open starts a gateway. It serves when Open returns, with the engines that
// have answered by then.
func Open(ctx context.Context, o Options) (*Gateway, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	g := &Gateway{
		options: o,
		admission: edge.NewAdmission(edge.AdmissionOptions{
			Running: o.MaxRunning, Waiting: o.MaxWaiting, QueueTimeout: o.QueueTimeout,
			BodyBytes: o.MaxBodyBytes, BodyMemory: o.MaxBodyMemory, BodyTimeout: o.BodyTimeout,
		}),
		answers: budget.Budget{Limit: o.MaxResponseMemory},
		ledger:  o.Ledger, opened: time.Now(), givingBack: make(chan struct{}, maxGivingBack),
		shapes: maphash.MakeSeed(), warmCalls: make(chan struct{}, MaxWarmCalls),
	}
	g.life, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	client := upstream.NewHTTP(o.MaxRunning)
	g.keys.ReplaceLines(o.APIKeys)
	g.adminKeys.Replace(o.AdminKeys)
	g.roster = roster.New(roster.Options{Place: o.Place, Client: client, ProbeInterval: o.ProbeInterval, ProbeTimeout: o.ProbeTimeout, Logger: o.Logger, Drains: func(e *roster.Engine) { g.moves.Drain(e) }})
	g.upstream = &upstream.Client{HTTP: client, Roster: g.roster, Logger: o.Logger}
	g.moves = moves.New(moves.Options{
		Place: o.Place, Roster: g.roster, Upstream: g.upstream, Balance: o.MoveForBalance, Turns: g.turns.Load, Life: g.life, Logger: o.Logger,
	})
	if err := g.open(ctx); err != nil {
		return nil, errors.Join(err, g.Close(context.WithoutCancel(ctx)))
	}
	return g, nil
}

func (g *Gateway) open(ctx context.Context) error {
	var err error
	if g.ledger == nil {
		g.ownLedger = true
		if g.ledger, err = ledger.Open(ledger.Options{Logger: g.options.Logger}); err != nil {
			return err
		}
	}
	for i, b := range g.options.Backends {
		if err := g.roster.List(i, b); err != nil {
			return err
		}
	}
	if g.options.Directory != nil {
		g.watch, err = g.options.Directory.Watch(g.life, directory.EnginePrefix, 0)
		if err != nil {
			return fmt.Errorf("gateway: engines in the directory: %w", err)
		}
		g.active.Go(g.roster.FollowDirectory(g.life, g.watch.Events()))
	}
	g.roster.Ask(ctx)
	g.active.Go(func() { g.roster.Run(g.life) })
	g.active.Go(g.moves.Run)
	g.warmer = warm.New(g.life, warm.Options{
		Ahead: g.options.WarmNextTurn, Roster: g.roster, Upstream: g.upstream, Timeout: g.options.PrefillTimeout, Logger: g.options.Logger, LegKey: g.options.LegKey,
		Crowded: func() bool {
			_, waiting, _ := g.admission.Counts()
			return waiting > 0
		},
	})
	if g.public, err = edge.Listen(ctx, edge.Address{Host: g.options.Listen, TLS: g.options.TLS, Connections: g.options.MaxConnections}, g.publicHandler(), g.life, g.options.Logger); err != nil {
		return err
	}
	if g.options.Admin != "" {
		g.admin, err = edge.Listen(ctx, edge.Address{Host: g.options.Admin, TLS: g.options.adminTLS, Connections: adminConnections}, g.adminHandler(), g.life, g.options.Logger)
	}
	return err
}

// Addr is where clients come in, AdminAddr where operators do or "".
func (g *Gateway) Addr() string { return g.public.Addr() }

// AdminAddr is where operators come in, or "".
func (g *Gateway) AdminAddr() string {
	if g.admin == nil {
		return ""
	}
	return g.admin.Addr()
}

// Retire has /ready say that the gateway stops, while requests are let in as
// before: load balancers get time to notice.
func (g *Gateway) Retire() { g.retiring.Store(true) }

// Close lets no new client in, waits for requests that run until ctx ends, and
// then ends them.
func (g *Gateway) Close(ctx context.Context) error {
	g.closing.Store(true)
	if g.warmer != nil {
		g.warmer.Stop() // who drains does nothing ahead
	}
	var errs []error
	if g.public != nil {
		errs = append(errs, g.public.Drain(ctx))
	}
	g.stop()
	if g.public != nil {
		errs = append(errs, g.public.Close())
	}
	if g.admin != nil {
		errs = append(errs, g.admin.Close())
	}
	if g.watch != nil {
		g.watch.Close()
	}
	g.active.Wait()
	g.moves.Wait()
	if g.warmer != nil {
		g.warmer.Wait()
	}
	g.roster.Close()
	g.upstream.HTTP.CloseIdleConnections()
	if g.ownLedger && g.ledger != nil {
		errs = append(errs, g.ledger.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}

// IsReady tells whether requests can be served.
func (g *Gateway) IsReady() bool { return g.unready() == "" }

// IsLocal tells whether clients come in from this host alone.
func (g *Gateway) IsLocal() bool {
	local, err := isLoopback(g.Addr())
	return err == nil && local
}

// HasTLS tells whether clients come in by https.
func (g *Gateway) HasTLS() bool { return g.options.TLS != nil }

// SetAdminKeys replaces the keys that let operators in. Whether any is asked for stays
// as it was at the start.
func (g *Gateway) SetAdminKeys(keys []string) error {
	o := Options{AdminKeys: keys}
	if hadKeys := g.adminKeys.Any(); hadKeys != (len(keys) > 0) {
		return errors.New("gateway: whether the admin listener asks for a key stays as it was at the start")
	}
	if err := o.checkAdmin(); err != nil {
		return err
	}
	g.adminKeys.Replace(keys)
	return nil
}

// AdminURL is where operators come in, or "".
func (g *Gateway) AdminURL() string {
	switch {
	case g.admin == nil:
		return ""
	case g.admin.Secure():
		return "https://" + g.AdminAddr()
	}
	return "http://" + g.AdminAddr()
}
