package gateway

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

// about is what an engine says of itself.
type about struct {
	id         string // as people and agents call it
	nameless   bool   // neither it nor its configuration says its name: id is its address, and no agent knows it by that
	models     []string
	cards      map[string]json.RawMessage // of models, as the engine shows them
	adapters   []string                   // the models that are a LoRA of another
	kind       openai.EngineKind
	maxContext int // in tokens, 0 where it does not say
	legs       int // the newest version of legs that its home reads, 0 where it does not say
	// asked: it has answered; before, only the directory's word is known.
	asked bool
}

func (a *about) serves(model string) bool { return slices.Contains(a.models, model) }

func (a *about) isAdapter(model string) bool { return slices.Contains(a.adapters, model) }

// engine is one engine in one life: one that comes back is another.
type engine struct {
	key    string // unique among all that ever were
	url    string
	role   placement.Role
	phases placement.Phases
	listed bool
	cut    string
	// home is the agent that speaks for it, as the directory has it; nil where that
	// is not known, or where it does not redeem promises.
	home atomic.Pointer[home]
	// authorization is the header that lets the gateway in, "" for none.
	authorization string
	cacheEvents   CacheEvents
	// cacheHashes is how many chunks of text its cache can hold, 0 for unknown;
	// cacheTokens is the directory's word about unit. Both are under the roster's lock.
	cacheHashes, cacheTokens int
	pace                     placement.Throughput // under the roster's lock
	full                     placement.Saturation // likewise

	// unit is how many tokens a piece of a prefix has that it keeps in the cell's
	// object cache, and finds there; 0: it does neither, as far as is known.
	unit atomic.Int64
	// tells: it has told how much of a prompt it did not compute.
	tells atomic.Bool

	// splits: it has sent a thought apart from an answer, so that it tells them apart itself.
	splits atomic.Bool

	// stray: the directory does not name it any more, as when its agent died. For
	// as long as it answers it is asked, but hands nothing over.
	stray atomic.Bool

	given  about // what is known of it unasked
	about  atomic.Pointer[about]
	caches []*cache // under the roster's lock
	// up: it has answered since it came or last failed. Others are doubtful; of
	// these a hopeless one is not asked at all.
	up atomic.Bool
	// unreachable: when it was last asked, its host or port did not take the
	// connection. One that is only silent may still serve.
	unreachable atomic.Bool
	lostAt      atomic.Int64 // when it came, or was last up, in ns since 1970
	probing     atomic.Bool
	problem     atomic.Pointer[string] // why it is not up
	running     atomic.Int64
	waiting     atomic.Int64 // tokens of prompts
	// arriving is how many requests were asked to move here, less those that were asked to leave.
	arriving atomic.Int64
	// askingToMove has a place for each request that it is being asked to let go.
	askingToMove chan struct{}
	// room is how many more it would begin at once, as it last told; 0: none, or it did not tell.
	room atomic.Int64
	// all is how many requests it had then, other gateways' too; 0: none, or it did not tell.
	all atomic.Int64
	// silentAt is when it last took too long to tell that; of the goroutine that rearranges.
	silentAt time.Time
	// unprioritized: its scheduler takes no priorities.
	unprioritized atomic.Bool
	served        atomic.Uint64
	failed        atomic.Uint64
}

// home is an agent in one life.
type home struct {
	name        string
	incarnation [16]byte
}

// homeOf is nil for a record of an agent that does not tell its incarnation.
func homeOf(r *directory.EngineRecord) *home {
	incarnation, err := hex.DecodeString(r.HomeIncarnation)
	if err != nil || len(incarnation) != len(home{}.incarnation) || r.Home == "" || len(r.Home) > 255 {
		return nil
	}
	return &home{name: r.Home, incarnation: [16]byte(incarnation)}
}

func (e *engine) id() string { return e.about.Load().id }

// markFailed marks an engine that failed until it answers a probe, and tells whether
// that is news.
func (e *engine) markFailed(err error, why string) bool {
	why = clip.Plain(why, maxSaid)
	e.problem.Store(&why)
	e.unreachable.Store(isDial(err))
	return e.markDown()
}

// markDown marks an engine that must answer a probe before it is believed.
func (e *engine) markDown() bool {
	if !e.up.Swap(false) {
		return false
	}
	e.lostAt.Store(time.Now().UnixNano())
	e.splits.Store(false) // it may come back with other settings
	return true
}

// markUp marks an engine that has answered.
func (e *engine) markUp() {
	e.unreachable.Store(false)
	e.up.Store(true)
	e.problem.Store(nil)
}

// hopeless: it is not up, and nothing speaks for it but a list or a record.
func (e *engine) hopeless() bool {
	return !e.up.Load() && (e.listed || e.stray.Load() || e.unreachable.Load())
}

// isDial tells whether an error came before there was a connection.
func isDial(err error) bool {
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
