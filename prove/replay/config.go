package replay

import (
	"errors"
	"fmt"
	"time"

	"meridian/decide/governor"
	"meridian/decide/placement"
)

// ErrConfig means that what was asked for cannot be replayed.
var ErrConfig = errors.New("replay: bad configuration")

// Config is the cell that a workload is replayed on. Zero fields have defaults.
type Config struct {
	// Profile is that of every engine.
	Profile Profile
	// Replicas engines generate, 1 by default. With Prefills, so many others
	// compute prompts and hand them over, and the replicas only decode.
	Replicas, Prefills int
	// MaxTokens, MaxSequences and Blocks are the profile's unless they are set.
	MaxTokens, MaxSequences, Blocks int32
	// PreemptMaxFraction is what policies are told, 0.1 by default.
	PreemptMaxFraction float64
	// Window is how many waiting requests of an engine a policy sees, in the order
	// in which they came; 512 by default. What is behind them waits unseen, but
	// for the first few of each tenant.
	Window int

	// Offload is where blocks of preempted requests go and come back from, HandOff
	// what prompts are handed over with; MeasuredHost and MeasuredTCP by default.
	Offload, HandOff Link
	// NoOffload: nothing can be copied out.
	NoOffload bool
	// CopyThought copies the blocks of a thought out when it ends, so that a later
	// pause of the answer is cheap.
	CopyThought bool
	// StoreTokens is how many tokens of prompts the cell's store holds; 0 means
	// that there is none. StoreLink is how they come back, MeasuredTCP by default.
	StoreTokens int64
	StoreLink   Link
	// Place weighs what the gateway weighs; its defaults are those of the gateway.
	Place placement.Options

	// Thoughts ends thoughts as an engine's governor does, by entropies that are made
	// up from Seed; nil leaves that to policies.
	Thoughts *governor.Budget

	// SLO is what an answer is held to.
	SLO SLO
	// Warmup: requests that arrive earlier are served and not counted.
	Warmup time.Duration
	// SampleEvery is the distance of points of the series, 1 s by default; it is
	// doubled whenever there are more than maxSamples.
	SampleEvery time.Duration
	// Closed keeps so many requests in the cell, whenever they arrive: the next comes
	// when one is done.
	Closed int
	// SingleStep asks the policy before every step. It changes no result.
	SingleStep bool
	// Seed breaks ties of placement.
	Seed uint64
	// Progress, if it is there, is called now and then with the virtual time and
	// how many requests are done.
	Progress func(now time.Duration, done int64)
}

// Link is a path for blocks; what it carries is carried one after the other.
type Link struct {
	BytesPerSecond float64       `json:"bytes_per_second"`
	Latency        time.Duration `json:"latency_ns"`
}

// What `meridian bench handoff` measured for 1024 tokens of Llama-3.1-70B between
// engines that are cut differently, in docs/performance.md: bytes a second, and
// the time to agree.
var (
	MeasuredTCP  = Link{BytesPerSecond: 2.88e9, Latency: 906 * time.Microsecond}
	MeasuredHost = Link{BytesPerSecond: 8.15e9, Latency: 714 * time.Microsecond}
)

// SLO is PASCAL's: an answer is good if its quality of experience is at least
// QoE, for a reader who expects the first token TTFAT after the end of the
// thought, and then one every TPOT.
type SLO struct {
	QoE   float64       `json:"qoe"`
	TPOT  time.Duration `json:"tpot_ns"`
	TTFAT time.Duration `json:"ttfat_ns"`
}

// PascalSLO is the default.
var PascalSLO = SLO{QoE: 0.95, TPOT: 100 * time.Millisecond, TTFAT: 250 * time.Millisecond}

// DefaultPreemptMaxFraction and DefaultPlace are those of an engine and of a
// gateway without configuration.
const DefaultPreemptMaxFraction = 0.1

var DefaultPlace = placement.Options{DirectTokens: 256, AffinityWeight: 1, RunningTokens: 64, StoredWeight: 0.25}

func (c Config) withDefaults() Config {
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.MaxTokens == 0 {
		c.MaxTokens = c.Profile.MaxTokens
	}
	if c.MaxSequences == 0 {
		c.MaxSequences = c.Profile.MaxSequences
	}
	if c.Blocks == 0 {
		c.Blocks = c.Profile.Blocks
	}
	if c.PreemptMaxFraction == 0 {
		c.PreemptMaxFraction = DefaultPreemptMaxFraction
	}
	if c.Window == 0 {
		c.Window = 512
	}
	if c.Offload == (Link{}) {
		c.Offload = MeasuredHost
	}
	if c.HandOff == (Link{}) {
		c.HandOff = MeasuredTCP
	}
	if c.StoreLink == (Link{}) {
		c.StoreLink = MeasuredTCP
	}
	if c.Place == (placement.Options{}) {
		c.Place = DefaultPlace
	}
	if c.SLO == (SLO{}) {
		c.SLO = PascalSLO
	}
	if c.SampleEvery == 0 {
		c.SampleEvery = time.Second
	}
	return c
}

func (c *Config) validate() error {
	c.Profile.MaxTokens, c.Profile.MaxSequences, c.Profile.Blocks = c.MaxTokens, c.MaxSequences, c.Blocks
	if err := c.Profile.validate(); err != nil {
		return err
	}
	for _, l := range []Link{c.Offload, c.HandOff, c.StoreLink} {
		if !(l.BytesPerSecond >= 1) || l.Latency < 0 {
			return fmt.Errorf("%w: a link carries at least a byte a second and takes no negative time; got %+v", ErrConfig, l)
		}
	}
	switch {
	case c.Replicas < 1 || c.Prefills < 0 || c.Replicas+c.Prefills > maxEngines:
		return fmt.Errorf("%w: %d replicas and %d that prefill; a cell has at least one replica and at most %d engines", ErrConfig, c.Replicas, c.Prefills, maxEngines)
	case c.Window < 1 || c.Closed < 0 || c.StoreTokens < 0:
		return fmt.Errorf("%w: window, closed and store must not be negative", ErrConfig)
	case !(c.PreemptMaxFraction > 0 && c.PreemptMaxFraction <= 1):
		return fmt.Errorf("%w: the fraction that may be preempted is %g; it must be above 0, up to 1", ErrConfig, c.PreemptMaxFraction)
	case !(c.SLO.QoE >= 0 && c.SLO.QoE <= 1) || c.SLO.TPOT < time.Microsecond || c.SLO.TTFAT < 0:
		return fmt.Errorf("%w: %+v is no SLO: QoE is from 0 to 1, TPOT at least a microsecond", ErrConfig, c.SLO)
	case c.SampleEvery < time.Millisecond || c.Warmup < 0:
		return fmt.Errorf("%w: samples are at least a millisecond apart, and a warm-up is not negative", ErrConfig)
	}
	return nil
}

const maxEngines = 256

// takes is how long a link is busy with so many bytes.
func (l Link) takes(bytes int64) ps {
	return picoseconds(float64(l.Latency) + 1e9*float64(bytes)/l.BytesPerSecond)
}
