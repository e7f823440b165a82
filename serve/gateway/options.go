package gateway

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	gopath "path"
	"slices"
	"strings"
	"syscall"
	"time"

	"meridian/decide/placement"
	"meridian/member/directory"
	"meridian/see/ledger"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

// Backend is an engine that is listed, not found in the directory, and CacheEvents is where one
// publishes what its cache holds.
type (
	Backend     = roster.Backend
	CacheEvents = roster.CacheEvents
)

// Options configures Open. What is zero takes the default in its comment.
type Options struct {
	// Listen is where clients come in, Admin where operators do; empty means no admin
	// listener. Beyond loopback that one needs TLS and AdminKeys.
	Listen, Admin string
	// AdminKeys let operators in; with none, every client that reaches the listener.
	AdminKeys []string
	// TLS is for Listen. Beyond loopback it is needed, or Insecure.
	TLS      *tls.Config
	Insecure bool

	// Directory is where engines are found; nil where they are all listed.
	Directory directory.Directory
	Backends  []Backend
	// LegKey seals what the gateway asks of engines; nil where there is no cell.
	LegKey *[32]byte

	// Place weighs engines.
	Place placement.Options
	// PromiseTokens: where no more tokens wait at a prefill engine, with the
	// prompt's own, the decode engine is asked at the same time; 0 never.
	PromiseTokens int
	// WarmNextTurn has idle engines compute what the next turn of a chat begins with,
	// where the answer had a thought that its template strips.
	WarmNextTurn bool
	// Thinking tells how a model thinks, by the name that engines give it; nil: nothing is
	// known of any. It is called from many requests at once.
	Thinking func(model string) thought.Markers
	// Efforts are how many tokens a thought may have, by reasoning_effort; one that is not
	// named leaves it to engines, but for none.
	Efforts map[string]int
	// NoResume tells a client that its engine was lost, instead of going on
	// with another.
	NoResume bool
	// MoveAtThinkEnd has a request whose thought has ended leave for a decode engine that has
	// less to do.
	MoveAtThinkEnd bool
	// MoveForBalance has running requests leave an engine that has much more to do than another.
	MoveForBalance bool
	// APIKeys let clients in; none lets everybody in. Each is a key, or a key and behind a space
	// the name of the tenant whose it is.
	APIKeys []string
	// ProxyPaths are endpoints that are passed on to an engine as they are; nil
	// takes the usual ones, an empty list none.
	ProxyPaths []string

	MaxBodyBytes     int64 // 8 MiB
	MaxBodyMemory    int64 // 512 MiB; of the bodies of all requests that are inside, or one
	MaxConnections   int   // of clients at a time; as many as connectionLimit says
	MaxResponseBytes int64 // 64 MiB; of an answer that is no stream
	// MaxResponseMemory is for all such answers that are being gathered; one fits.
	MaxResponseMemory int64 // 1 GiB

	MaxRunning   int           // 1024 requests
	MaxWaiting   int           // 1024 requests; negative: none
	QueueTimeout time.Duration // 30 s
	EngineWait   time.Duration // 3 s for an engine to come where none is there

	BodyTimeout       time.Duration // 30 s for a client to send its request
	ClientTimeout     time.Duration // 10 s for a client to take a piece of its answer
	PrefillTimeout    time.Duration // 2 min
	FirstTokenTimeout time.Duration // 2 min, of a stream
	AnswerTimeout     time.Duration // 10 min, of an answer that is no stream
	StallTimeout      time.Duration // 30 s between tokens
	ProbeInterval     time.Duration // 1 s
	ProbeTimeout      time.Duration // 2 s

	// Ledger keeps the records of requests; nil keeps them in memory.
	Ledger *ledger.Ledger
	// Traces: spans are made of what is recorded, of traces that clients have sampled
	// and of TraceFraction of the others.
	Traces        bool
	TraceFraction float64
	// Ended is told of every request that has ended, and must not wait.
	Ended func(*ledger.Record)
	// MetricsPage serves /metrics on the admin listener.
	MetricsPage http.Handler
	// Page, where given, is what operators look at, below PagePath of the admin
	// listener.
	Page     http.Handler
	PagePath string
	Logger   *slog.Logger

	adminTLS *tls.Config // of the admin listener; nil for none
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// complete fills in defaults and refuses what cannot be.
func (o *Options) complete() error {
	orDefault(&o.MaxBodyBytes, 8<<20)
	orDefault(&o.MaxResponseBytes, 64<<20)
	orDefault(&o.MaxRunning, 1024)
	orDefault(&o.MaxWaiting, 1024)
	orDefault(&o.MaxBodyMemory, 512<<20)
	orDefault(&o.MaxResponseMemory, 1<<30)
	orDefault(&o.MaxConnections, connectionLimit(o, openFiles()))
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&o.QueueTimeout, 30 * time.Second},
		{&o.EngineWait, 3 * time.Second},
		{&o.BodyTimeout, 30 * time.Second},
		{&o.ClientTimeout, 10 * time.Second},
		{&o.PrefillTimeout, 2 * time.Minute},
		{&o.FirstTokenTimeout, 2 * time.Minute},
		{&o.AnswerTimeout, 10 * time.Minute},
		{&o.StallTimeout, 30 * time.Second},
		{&o.ProbeInterval, time.Second},
		{&o.ProbeTimeout, 2 * time.Second},
	} {
		orDefault(d.value, d.otherwise)
		if *d.value < 0 {
			return fmt.Errorf("gateway: a time of %v is none", *d.value)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxRunning < 1 || o.MaxBodyBytes < 1 || o.MaxResponseBytes < 1 || o.MaxConnections < 1 {
		return fmt.Errorf("gateway: at least one request must be able to run, with a body")
	}
	// The largest fits.
	o.MaxBodyMemory = max(o.MaxBodyMemory, o.MaxBodyBytes+1)
	o.MaxResponseMemory = max(o.MaxResponseMemory, o.MaxResponseBytes+2)
	if o.Directory == nil && len(o.Backends) == 0 {
		return fmt.Errorf("gateway: no engine can be found: list some, or give a directory")
	}
	if o.ProxyPaths == nil {
		o.ProxyPaths = ProxyPaths
	}
	for i, path := range o.ProxyPaths {
		if err := checkProxyPath(path); err != nil {
			return err
		}
		if slices.Contains(o.ProxyPaths[:i], path) {
			return fmt.Errorf("gateway: %s is passed on twice", path)
		}
	}
	for _, key := range o.APIKeys {
		if _, _, err := edge.SplitKey(key); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
	}
	o.warnOfFiles(openFiles())
	return o.checkListen()
}

// rules are what lives go by.
func (o *Options) rules() lifecycle.Rules {
	return lifecycle.Rules{Place: o.Place, NoResume: o.NoResume, EngineWait: span(o.EngineWait), RoomWait: span(o.QueueTimeout), PromiseTokens: o.PromiseTokens, MoveAtThinkEnd: o.MoveAtThinkEnd}
}

// warnOfFiles says so where connections and legs may need more descriptors than
// there are: an engine that cannot be reached for want of one looks lost.
func (o *Options) warnOfFiles(files uint64) {
	if need := o.MaxConnections + 2*o.MaxRunning + otherFiles; uint64(need) > files {
		o.Logger.Warn("the gateway may need more open files than it may have; raise the limit (ulimit -n), or lower gateway.max_connections and gateway.max_running",
			"needed", need, "limit", files)
	}
}

// checkProxyPath takes paths that are one endpoint each, and none of ours.
func checkProxyPath(path string) error {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "{} \t?#*") || strings.HasSuffix(path, "/") || path != gopath.Clean(path) {
		return fmt.Errorf("gateway: %q cannot be passed on: name one endpoint, as /tokenize", path)
	}
	for _, own := range []string{"/health", "/ready", "/ping", openai.PathModels, openai.PathCompletions, openai.PathChat} {
		if path == own {
			return fmt.Errorf("gateway: %s is the gateway's own, and not passed on", path)
		}
	}
	return nil
}

// checkListen refuses to open the door to a network by accident.
func (o *Options) checkListen() error {
	loopback, err := isLoopback(o.Listen)
	if err != nil {
		return err
	}
	if !loopback && o.TLS == nil {
		if !o.Insecure {
			return fmt.Errorf("gateway: %s is beyond loopback and has no TLS: give gateway.tls_cert and gateway.tls_key, "+
				"or allow a network that reads everything with insecure", o.Listen)
		}
		o.Logger.Warn("the gateway listens beyond loopback without TLS: every host on the way reads prompts, answers and API keys", "listen", o.Listen)
	}
	if !loopback && len(o.APIKeys) == 0 {
		o.Logger.Warn("the gateway listens beyond loopback and asks for no API key: every client that reaches it is served", "listen", o.Listen)
	}
	return o.checkAdmin()
}

func isLoopback(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("gateway: %q is not host:port: %w", address, err)
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback(), nil
}

// thinking is what is known of the model of a request.
func (g *Gateway) thinking(c *request.Request) thought.Markers {
	if g.options.Thinking == nil {
		return thought.Markers{}
	}
	return g.options.Thinking(c.Model)
}

// adminConnections is how many connections of operators there may be.
const adminConnections = 64

const (
	// otherFiles are descriptors for anything but clients and legs: listeners,
	// probes, cache events, the directory, records, engines that are asked to hand a request on.
	otherFiles = 256
	// otherConnections are for clients that ask for anything but tokens.
	otherConnections = 64
)

// connectionLimit is how many clients' connections there may be where nothing
// is said: twice as many as requests may be inside, for clients that keep theirs
// between requests, as far as this process may open files beside those for the
// two legs of each request that runs. Where it may open too few even for those,
// clients get a quarter of them.
func connectionLimit(o *Options, files uint64) int {
	wanted := 2*(o.MaxRunning+max(o.MaxWaiting, 0)) + otherConnections
	most := int(min(files, 1<<30))
	return max(min(wanted, max(most-2*o.MaxRunning-otherFiles, most/4)), 1)
}

// openFiles is how many descriptors this process may have.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 1024 // what systems give at least
	}
	return limit.Cur
}

// minAdminKey is how many bytes a key of the admin listener has at least: no
// part of the gateway counts how often strangers guess.
const minAdminKey = 16

// checkAdmin refuses an admin listener that strangers could use: beyond loopback it
// needs TLS and a key.
func (o *Options) checkAdmin() error {
	for _, key := range o.AdminKeys {
		if len(key) < minAdminKey {
			return fmt.Errorf("gateway: a key of the admin listener has %d bytes; at least %d, as `openssl rand -hex 16` makes", len(key), minAdminKey)
		}
	}
	if o.Admin == "" {
		return nil
	}
	loopback, err := isLoopback(o.Admin)
	switch {
	case err != nil || loopback:
		return err
	case o.TLS == nil || len(o.AdminKeys) == 0:
		return fmt.Errorf("gateway: the admin listener %s is beyond loopback, where it needs TLS and a key: give gateway.tls_cert, gateway.tls_key and "+
			"gateway.admin_key_file, or bind it to 127.0.0.1 and reach it through a tunnel", o.Admin)
	}
	o.adminTLS = o.TLS
	return nil
}
