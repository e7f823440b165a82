package doorserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"meridian/kv"
	"meridian/member/directory"
	"meridian/member/trust"
)

// announce publishes an engine that serves, until it is lost. mu is held.
func (s *Server) announce(e *engine) {
	if s.options.Directory == nil {
		return
	}
	record := directory.EngineRecord{
		ID: e.id, Incarnation: e.incarnation.String(), Home: s.self.Name, HomeIncarnation: s.self.Incarnation.String(), URL: e.controlInfo.GetUrl(), Role: e.controlInfo.GetRole(), Model: e.controlInfo.GetModel(),
		Cut: cutOf(e.side), BlockTokens: e.side.BlockTokens, Blocks: e.side.Blocks, Legs: trust.LegVersion, CacheTokens: e.cacheTokens,
	}
	value, err := json.Marshal(record)
	if err != nil {
		panic(err) // strings and numbers
	}
	s.wait.Go(func() {
		s.keepRecord(e.life, directory.EnginePrefix+e.id, value, s.ownRecord)
	})
}

// Scope is what an engine that serves has published its caches to be of; each of its
// requests may say otherwise.
func (s *Server) Scope(id string) (kv.Scope, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.engines[id]
	if e == nil || e.state != serving {
		return kv.Scope{}, false
	}
	return e.scope, true
}

// ownRecord reports whether a record that stands there is an earlier one of this
// agent's, which the new one replaces.
func (s *Server) ownRecord(value []byte) error {
	var standing directory.EngineRecord
	if err := json.Unmarshal(value, &standing); err == nil && standing.Home != s.self.Name {
		return fmt.Errorf("an engine of that id is at home at agent %s", standing.Home)
	}
	return nil
}

const (
	firstRecordPause = 50 * time.Millisecond
	lastRecordPause  = 5 * time.Second
	withdrawTimeout  = 5 * time.Second
)

// keepRecord keeps a record in the directory until ctx ends, and then removes it
// at once. A directory that is away stops nothing: it is tried again.
func (s *Server) keepRecord(ctx context.Context, key string, value []byte, replaces func(standing []byte) error) {
	told := ""
	for pause := firstRecordPause; ctx.Err() == nil; pause = min(2*pause, lastRecordPause) {
		lease, err := s.putRecord(ctx, key, value, replaces)
		if err == nil {
			told, pause = "", firstRecordPause
			select {
			case <-lease.Lost():
				err = lease.Err()
			case <-ctx.Done():
			}
		}
		if lease != nil {
			s.revoke(lease, key)
		}
		if err != nil && ctx.Err() == nil && told != err.Error() {
			told = err.Error()
			s.options.Logger.Warn("the directory does not list this; trying again", "key", key, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// putRecord writes a record where there is none, or over one that it replaces.
func (s *Server) putRecord(ctx context.Context, key string, value []byte, replaces func([]byte) error) (*directory.Lease, error) {
	d := s.options.Directory
	lease, err := d.Grant(ctx, directory.LeaseOptions{})
	if err != nil {
		return nil, err
	}
	entry := directory.Entry{Key: key, Value: value, Lease: lease}
	standing, err := d.Create(ctx, entry)
	if errors.Is(err, directory.ErrExists) {
		if err = replaces(standing.Value); err == nil {
			_, err = d.Swap(ctx, entry, standing.Revision)
		}
	}
	return lease, err
}

// revoke removes what stands under a lease. If the directory is away it vanishes
// when the lease ends.
func (s *Server) revoke(lease *directory.Lease, key string) {
	ctx, cancel := bounded(withdrawTimeout)
	defer cancel()
	if err := lease.Revoke(ctx); err != nil {
		s.options.Logger.Warn("a record could not be removed; it ends with its lease", "key", key, "error", err)
	}
}

// BlockBytes is what a block of an engine takes, on all of its ranks; 0 where that is not
// known: it has not come, or not said how its cache is cut.
func (s *Server) BlockBytes(id string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.engines[id]
	if e == nil || e.side == nil {
		return 0
	}
	size, err := e.side.Geometry.BytesPerBlock(e.side.BlockTokens)
	if err != nil {
		return 0
	}
	return size
}
