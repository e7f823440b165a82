package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"meridian/decide/placement"
	"meridian/run/config"
	"meridian/run/node"
	"meridian/serve/gateway"
)

type gatewayCommand struct {
	cellFlags
	Listen        string         `placeholder:"ADDRESS" help:"Where clients come in (default: gateway.listen of the configuration)."`
	Admin         *string        `placeholder:"ADDRESS" help:"Where metrics, health detail and debug pages are; beyond loopback with TLS and gateway.admin_key_file; empty for nowhere (default: gateway.admin_listen)."`
	Metrics       string         `placeholder:"ADDRESS" help:"A second place of /metrics, which may be beyond loopback (default: gateway.metrics_listen)."`
	Prefill       []string       `placeholder:"URL" help:"Engines that prefill, instead of those in the directory."`
	Decode        []string       `placeholder:"URL" help:"Engines that decode, instead of those in the directory."`
	Both          []string       `placeholder:"URL" help:"Engines that do both, instead of those in the directory."`
	WarmNextTurn  bool           `help:"Have idle engines compute what the next turn of a chat begins with, after answers with thoughts (default: gateway.warm_next_turn)."`
	NoResume      bool           `help:"Tell a client that its engine was lost, instead of going on with another (default: gateway.resume)."`
	DirectTokens  *int           `placeholder:"N" help:"Prompts of which no more tokens than this are to be computed go straight to decode (default: gateway.direct_prompt_tokens)."`
	PromiseTokens *int           `placeholder:"N" help:"Decode engines are asked at the same time as prefill engines at which no more tokens than this wait; 0 never (default: gateway.promise_tokens)."`
	APIKey        []string       `placeholder:"KEY" env:"MERIDIAN_API_KEY" help:"Keys that clients must send; better in a file: gateway.api_key_file."`
	APIKeyFile    string         `placeholder:"FILE" help:"File of keys, one a line (default: gateway.api_key_file)."`
	Grace         *time.Duration `placeholder:"TIME" help:"How long after SIGTERM requests are still let in while /ready says 503, so that load balancers notice (default: 5s, at a loopback address none)."`
	Drain         time.Duration  `default:"30s" help:"How long requests that have begun may go on after that (default: ${default})."`
}

func (c *gatewayCommand) Help() string {
	return "Serves the OpenAI API: /v1/models, /v1/completions and /v1/chat/completions. Engines are found in the directory of the cell, or listed. " +
		"A long prompt is computed by a prefill engine and handed over to the decode engine that generates; docs/gateway.md tells what happens when one of them fails."
}

func (c *gatewayCommand) Run(std *stdio, all *commands) error {
	logger := all.logger(std)
	var opened atomic.Pointer[node.Gateway]
	ctx, cancel := whileServing(logger, func() error {
		if g := opened.Load(); g != nil {
			return g.Reload()
		}
		return errors.New("the gateway is not open yet")
	})
	defer cancel()
	g, err := c.open(ctx, std, all)
	if err != nil {
		return err
	}
	opened.Store(g)
	scheme := "http"
	if g.HasTLS() {
		scheme = "https"
	}
	admin := cmp.Or(g.AdminURL(), "nowhere")
	url := fmt.Sprintf("%s://%s", scheme, g.Addr())
	all.ready(std, fmt.Sprintf("gateway ready at %s, admin at %s", url, admin), "url", url, "admin", admin)
	<-ctx.Done()
	if grace := c.grace(g); grace > 0 && context.Cause(ctx) == errTerminated {
		logger.Info("stopping: /ready says so, and requests are let in until load balancers have noticed", "grace", grace)
		c.letNotice(g, grace)
	}
	stop, done := context.WithTimeout(context.Background(), c.Drain)
	defer done()
	return g.Close(stop)
}

// usualGrace is how long load balancers take to notice, who ask every few
// seconds.
const usualGrace = 5 * time.Second

// grace is how long requests are let in after SIGTERM. No balancer sends load to a
// loopback address.
func (c *gatewayCommand) grace(g *node.Gateway) time.Duration {
	switch {
	case c.Grace != nil:
		return *c.Grace
	case g.IsLocal():
		return 0
	}
	return usualGrace
}

// letNotice waits for the grace, or for another signal: who asks twice is in a
// hurry.
func (c *gatewayCommand) letNotice(g *node.Gateway, grace time.Duration) {
	g.Retire()
	again, cancel := untilStopped()
	defer cancel()
	select {
	case <-time.After(grace):
	case <-again.Done():
	}
}

func (c *gatewayCommand) open(ctx context.Context, std *stdio, all *commands) (*node.Gateway, error) {
	loaded, err := all.load(std)
	if err != nil {
		return nil, err
	}
	in := loaded.Config
	if err := c.fill(in); err != nil {
		return nil, err
	}
	name, err := agentName("", in)
	if err != nil {
		return nil, err
	}
	backends, err := c.backends(in)
	if err != nil {
		return nil, err
	}
	o := node.GatewayOptions{
		Options: c.options(in, backends), StateDir: c.State, DirectoryEndpoints: c.Directory, Name: name, TLSOfAgents: c.security(in), InsecureDirectory: c.Insecure,
		DirectoryPrefix: c.prefix, Metrics: cmp.Or(c.Metrics, in.Gateway.MetricsListen),
		Cert: unless(config.None, in.Gateway.TLSCert), Key: unless(config.None, in.Gateway.TLSKey), APIKeyFile: cmp.Or(c.APIKeyFile, unless(config.None, in.Gateway.APIKeyFile)), AdminKeyFile: unless(config.None, in.Gateway.AdminKeyFile),
		AgentListen: in.Agent.Listen, AgentAdvertise: unless(config.Auto, in.Agent.Advertise),
		OTLPEndpoint: otlpEndpoint(in), Build: telemetryBuild(),
	}
	o.Logger = all.logger(std)
	g, err := node.OpenGateway(ctx, o)
	return g, lacking(err)
}

// options are what flags and configuration say of the gateway itself.
func (c *gatewayCommand) options(in *config.Config, backends []gateway.Backend) gateway.Options {
	t := in.Gateway
	admin := given(c.Admin, t.AdminListen)
	direct := given(c.DirectTokens, int(t.DirectPromptTokens))
	promise := given(c.PromiseTokens, int(t.PromiseTokens))
	waiting := int(t.MaxWaiting)
	if waiting == 0 {
		waiting = -1 // none, where 0 would be the default
	}
	milliseconds := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return gateway.Options{
		Listen: cmp.Or(c.Listen, t.Listen), Admin: admin, Insecure: t.Insecure || c.Insecure, Backends: backends,
		Place:         placement.Options{DirectTokens: direct, AffinityWeight: t.PrefixAffinity, RunningTokens: runningTokens, StoredWeight: t.StoredTokenWeight},
		Thinking:      thinkingOf(in),
		Efforts:       effortsOf(in),
		WarmNextTurn:  c.WarmNextTurn || t.WarmNextTurn,
		PromiseTokens: promise, NoResume: c.NoResume || !t.Resume, MoveAtThinkEnd: t.MoveAtThinkEnd, MoveForBalance: t.MoveForBalance, APIKeys: c.APIKey, ProxyPaths: t.ProxyPaths, MaxBodyBytes: t.MaxBodyBytes, MaxRunning: int(t.MaxRunning), MaxWaiting: waiting,
		TraceFraction: in.Telemetry.TraceFraction,
		MaxBodyMemory: t.MaxBodyMemoryBytes, MaxConnections: int(t.MaxConnections),
		QueueTimeout: milliseconds(t.QueueTimeoutMs), ClientTimeout: milliseconds(t.ClientTimeoutMs), PrefillTimeout: milliseconds(t.PrefillTimeoutMs),
		FirstTokenTimeout: milliseconds(t.FirstTokenTimeoutMs), AnswerTimeout: milliseconds(t.AnswerTimeoutMs), StallTimeout: milliseconds(t.StallTimeoutMs),
	}
}

// runningTokens is what a running generation weighs in placement, against
// tokens of prompts that wait.
const runningTokens = 64

// backends are the engines that flags list, or else the configuration.
func (c *gatewayCommand) backends(in *config.Config) ([]gateway.Backend, error) {
	var listed []gateway.Backend
	for _, part := range []struct {
		urls []string
		role placement.Role
	}{{c.Prefill, placement.Prefill}, {c.Decode, placement.Decode}, {c.Both, placement.Both}} {
		for _, url := range part.urls {
			listed = append(listed, gateway.Backend{URL: url, Role: part.role})
		}
	}
	if len(listed) > 0 {
		return listed, nil
	}
	for _, b := range in.Gateway.Backend {
		role, err := placement.ParseRole(b.Role)
		if err != nil {
			return nil, err
		}
		phases, err := placement.ParsePhases(b.Phases)
		if err != nil {
			return nil, err
		}
		backend := gateway.Backend{URL: b.URL, Role: role, Phases: phases, Engine: unless(config.Auto, b.Engine), Cache: cacheEvents(b)}
		if backend.APIKey, err = engineKey(b); err != nil {
			return nil, err
		}
		listed = append(listed, backend)
	}
	return listed, nil
}

// cacheEvents is where an engine publishes what its cache holds.
func cacheEvents(b config.Backend) gateway.CacheEvents {
	named := func(endpoint string) string { return unless(config.Auto, unless(config.None, endpoint)) }
	return gateway.CacheEvents{
		Off: b.KVEvents == config.None, Events: named(b.KVEvents), Replay: named(b.KVEventsReplay), Ranks: int(b.KVEventsRanks),
	}
}

// engineKey is what lets the gateway in at an engine, "" where nothing is asked
// for.
func engineKey(b config.Backend) (string, error) {
	if b.APIKeyFile == config.None {
		return "", nil
	}
	text, err := os.ReadFile(b.APIKeyFile)
	if err != nil {
		return "", invalid("name a file with the key, or none", "the key of the engine at %s: %v", b.URL, err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsAny(key, "\r\n") {
		return "", invalid("put the key into it, on one line", "%s does not hold one key for the engine at %s", b.APIKeyFile, b.URL)
	}
	return key, nil
}
