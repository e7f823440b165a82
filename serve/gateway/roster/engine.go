package roster

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"meridian/decide/placement"
	"meridian/internal/clip"
	"meridian/member/directory"
	"meridian/serve/openai"
)

// Backend is an engine that is listed, not found in the directory.
type Backend struct {
	URL  string
	Role placement.Role
	// Engine is its id, as its agent knows it; empty asks the engine, and takes
	// the URL's host where it does not say.
	Engine string
	// APIKey is what the engine itself wants, where it wants one.
	APIKey string
	Cache  CacheEvents
	// Phases are what the engine is meant to generate; 0: all.
	Phases placement.Phases
}

// About is what an engine says of itself.
type About struct {
	ID         string // as people and agents call it
	Nameless   bool   // neither it nor its configuration says its name: id is its address, and no agent knows it by that
	Models     []string
	cards      map[string]json.RawMessage // of models, as the engine shows them
	adapters   []string                   // the models that are a LoRA of another
	Kind       openai.EngineKind
	MaxContext int // in tokens, 0 where it does not say
	Legs       int // the newest version of legs that its home reads, 0 where it does not say
	// Asked: it has answered; before, only the directory's word is known.
	Asked bool
}

// Serves tells whether a model can be asked for there.
func (a *About) Serves(model string) bool { return slices.Contains(a.Models, model) }

func (a *About) isAdapter(model string) bool { return slices.Contains(a.adapters, model) }

// Engine is one engine in one life: one that comes back is another.
type Engine struct {
	Key    string // unique among all that ever were
	URL    string
	Role   placement.Role
	Phases placement.Phases
	listed bool
	cut    string
	// Home is the agent that speaks for it, as the directory has it; nil where that
	// is not known, or where it does not redeem promises.
	Home atomic.Pointer[Home]
	// Authorization is the header that lets the gateway in, "" for none.
	Authorization string
	cacheEvents   CacheEvents
	// cacheHashes is how many chunks of text its cache can hold, 0 for unknown;
	// cacheTokens is the directory's word about unit. Both are under the roster's lock.
	cacheHashes, cacheTokens int
	pace                     placement.Throughput // under the roster's lock
	full                     placement.Saturation // likewise

	// Unit is how many tokens a piece of a prefix has that it keeps in the cell's
	// object cache, and finds there; 0: it does neither, as far as is known.
	Unit atomic.Int64
	// Tells: it has told how much of a prompt it did not compute.
	Tells atomic.Bool

	// Splits: it has sent a thought apart from an answer, so that it tells them apart itself.
	Splits atomic.Bool

	// Stray: the directory does not name it any more, as when its agent died. For
	// as long as it answers it is asked, but hands nothing over.
	Stray atomic.Bool

	given  About // what is known of it unasked
	About  atomic.Pointer[About]
	caches []*cache // under the roster's lock
	// Up: it has answered since it came or last failed. Others are doubtful; of
	// these a hopeless one is not asked at all.
	Up atomic.Bool
	// unreachable: when it was last asked, its host or port did not take the
	// connection. One that is only silent may still serve.
	unreachable atomic.Bool
	lostAt      atomic.Int64 // when it came, or was last up, as an Instant
	probing     atomic.Bool
	problem     atomic.Pointer[string] // why it is not up
	Running     atomic.Int64
	Waiting     atomic.Int64 // tokens of prompts
	// Arriving is how many requests were asked to move here, less those that were asked to leave.
	Arriving atomic.Int64
	// AskingToMove has a place for each request that it is being asked to let go.
	AskingToMove chan struct{}
	// room is how many more it would begin at once, as it last told; 0: none, or it did not tell.
	room atomic.Int64
	// all is how many requests it had then, other gateways' too; 0: none, or it did not tell.
	all atomic.Int64
	// silentAt is when it last took too long to tell that; of the goroutine that rearranges.
	silentAt time.Time
	// Unprioritized: its scheduler takes no priorities.
	Unprioritized atomic.Bool
	Served        atomic.Uint64
	Failed        atomic.Uint64
}

// Home is an agent in one life.
type Home struct {
	Name        string
	Incarnation [16]byte
}

// homeOf is nil for a record of an agent that does not tell its incarnation.
func homeOf(r *directory.EngineRecord) *Home {
	incarnation, err := hex.DecodeString(r.HomeIncarnation)
	if err != nil || len(incarnation) != len(Home{}.Incarnation) || r.Home == "" || len(r.Home) > 255 {
		return nil
	}
	return &Home{Name: r.Home, Incarnation: [16]byte(incarnation)}
}

// Name is what people and agents call it.
func (e *Engine) Name() string { return e.About.Load().ID }

// maxProblem is how much is kept of why an engine failed, in bytes.
const maxProblem = 1 << 10

// MarkFailed marks an engine that failed until it answers a probe, and tells whether
// that is news.
func (e *Engine) MarkFailed(err error, why string) bool {
	why = clip.Plain(why, maxProblem)
	e.problem.Store(&why)
	e.unreachable.Store(IsDial(err))
	return e.markDown()
}

// markDown marks an engine that must answer a probe before it is believed.
func (e *Engine) markDown() bool {
	if !e.Up.Swap(false) {
		return false
	}
	e.lostAt.Store(Instant(time.Now()))
	e.Splits.Store(false) // it may come back with other settings
	return true
}

// markUp marks an engine that has answered.
func (e *Engine) markUp() {
	e.unreachable.Store(false)
	e.Up.Store(true)
	e.problem.Store(nil)
}

// hopeless: it is not up, and nothing speaks for it but a list or a record.
func (e *Engine) hopeless() bool {
	return !e.Up.Load() && (e.listed || e.Stray.Load() || e.unreachable.Load())
}

// IsDial tells whether an error came before there was a connection.
func IsDial(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// checkURL reads the base URL of an engine, without a slash at its end.
func checkURL(text string) (base, host string, err error) {
	u, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil {
		return "", "", fmt.Errorf("gateway: %q is not a URL: %w", text, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", "", fmt.Errorf("gateway: %q is not the base URL of an engine; it looks like http://host:port", text)
	}
	return u.String(), u.Host, nil
}

// IdleRunning is how many answers an idle engine may be generating.
const IdleRunning = 2

// MayWarm tells whether an engine can be asked: what others make of a chat is not
// known.
func (e *Engine) MayWarm() bool {
	a := e.About.Load()
	return e.Up.Load() && !e.Stray.Load() && a.Asked && (a.Kind == openai.KindVLLM || a.Kind == openai.KindMeridian)
}

// IsIdle: no prompt waits there, and few answers are being generated.
func (e *Engine) IsIdle() bool { return e.Waiting.Load() == 0 && e.Running.Load() <= IdleRunning }

// Offers: it computes prompts for others.
func (e *Engine) Offers() bool { return e.Role&placement.Prefill != 0 && !e.Stray.Load() }
