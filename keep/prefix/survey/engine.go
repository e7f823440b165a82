package survey

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/agent/peerquery"
)

// Engine is an engine that keeps and finds prefixes, as its home agent tells of it.
type Engine struct {
	ID       string `json:"id"`
	Model    string `json:"model"`
	Revision string `json:"revision"`
	Adapter  string `json:"adapter,omitempty"`
	// Salted says that it has a salt of its own, which is a secret, where a request has none.
	Salted bool `json:"salted,omitempty"`
	// UnitTokens and UnitBytes are of one piece, UnitDigest what its bytes mean.
	UnitTokens int    `json:"unit_tokens"`
	UnitBytes  uint64 `json:"unit_bytes"`
	UnitDigest string `json:"unit_digest"`
	// NoSalt is how the tenant without a salt is called: who calls it otherwise has another
	// cell's key.
	NoSalt string `json:"no_salt"`
	// What a token takes to compute, what a fetch takes, and each token of it, in
	// microseconds; 0 while that is not known.
	TokenUs      float64 `json:"token_us,omitempty"`
	FetchUs      float64 `json:"fetch_us,omitempty"`
	FetchTokenUs float64 `json:"fetch_token_us,omitempty"`
	// URL is where it serves, Home its agent, by the directory.
	URL  string `json:"-"`
	Home string `json:"-"`
}

// engines are those of this agent.
func (s *Survey) engines() []Engine {
	var all []Engine
	if s.Cache == nil || s.Scope == nil {
		return all
	}
	for _, f := range s.Cache.Facts() {
		scope, serves := s.Scope(f.Engine)
		if !serves {
			continue
		}
		all = append(all, Engine{
			ID: f.Engine, Model: scope.Model, Revision: scope.Revision, Adapter: scope.Adapter, Salted: scope.Salt != "",
			UnitTokens: f.UnitTokens, UnitBytes: f.UnitBytes, UnitDigest: hex.EncodeToString(f.Digest[:]), NoSalt: s.Names.TenantOf(""),
			TokenUs: micros(f.TokenTime), FetchUs: micros(f.FetchTime), FetchTokenUs: micros(f.FetchToken),
		})
	}
	return all
}

// tag is how keys of its pieces begin.
func (k *Engine) tag(names keys.NamesKey) string {
	return names.ModelTag(kv.Scope{Model: k.Model, Revision: k.Revision}).String()
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// maxKeeperText bounds each text of an engine that another agent tells of, maxUnitTokens how
// large a piece can be.
const (
	maxKeeperText = 1 << 10
	maxUnitTokens = 1 << 20
	// maxUs is more than a token takes, or a fetch: a minute.
	maxUs = 60e6
)

// facts are what an agent told of an engine, if it can be.
func (k *Engine) facts() (prefix.EngineFacts, error) {
	f := prefix.EngineFacts{Engine: k.ID, UnitTokens: k.UnitTokens, UnitBytes: k.UnitBytes}
	bounded := len(k.UnitDigest) == 2*len(f.Digest) && len(k.ID) <= maxKeeperText && len(k.Model) <= maxKeeperText && len(k.Revision) <= maxKeeperText && len(k.Adapter) <= maxKeeperText
	for _, v := range []float64{k.TokenUs, k.FetchUs, k.FetchTokenUs} {
		bounded = bounded && v >= 0 && v < maxUs // NaN is neither
	}
	if bounded = bounded && k.UnitTokens >= 1 && k.UnitTokens <= maxUnitTokens; bounded {
		_, err := hex.Decode(f.Digest[:], []byte(k.UnitDigest))
		bounded = err == nil
	}
	if !bounded {
		return f, fmt.Errorf("node: agent %s tells of engine %.80q what cannot be", k.Home, k.ID)
	}
	duration := func(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }
	f.TokenTime, f.FetchTime, f.FetchToken = duration(k.TokenUs), duration(k.FetchUs), duration(k.FetchTokenUs)
	return f, nil
}

// ErrNoKeeper means that no engine of the cell was found that keeps and finds.
var ErrNoKeeper = errors.New("node: no such engine keeps and finds prefixes")

// Engine finds an engine that keeps and finds, by its id, by its model, or any, and asks its
// home agent about it.
func (s *Survey) Engine(ctx context.Context, asks *peerquery.Service, id, model string) (*Engine, error) {
	listed, err := s.Directory.List(ctx, directory.EnginePrefix)
	if err != nil {
		return nil, err
	}
	problem := fmt.Errorf("%w: the directory lists none with the id %q and the model %q, where these are given", ErrNoKeeper, id, model)
	for _, record := range listed.Records {
		r, err := directory.ParseEngineRecord(record)
		if err != nil || id != "" && r.ID != id || model != "" && r.Model != model {
			continue
		}
		k, err := askEngine(ctx, asks, &r)
		if err == nil {
			return k, nil
		}
		problem = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, problem
}

func askEngine(ctx context.Context, asks *peerquery.Service, r *directory.EngineRecord) (k *Engine, err error) {
	home := kv.Member{Name: r.Home}
	if home.Incarnation, err = kv.ParseID(r.HomeIncarnation); err != nil {
		return nil, fmt.Errorf("node: the home of engine %s: %w", r.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, peerquery.MemberTimeout)
	defer cancel()
	err = asks.Pages(ctx, home, peerquery.Question{Kind: peerquery.Keepers}, func(record []byte) {
		var one Engine
		if k == nil && json.Unmarshal(record, &one) == nil && one.ID == r.ID {
			one.URL, one.Home, k = r.URL, r.Home, &one
		}
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("node: asking agent %s about engine %s: %w", r.Home, r.ID, err)
	case k == nil:
		return nil, fmt.Errorf("%w: engine %s does not at agent %s", ErrNoKeeper, r.ID, r.Home)
	}
	return k, nil
}
