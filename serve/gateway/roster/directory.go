package roster

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	"meridian/decide/placement"
	"meridian/member/directory"
)

// maxEngines bounds how many engines of the directory the gateway knows: each is
// probed, and looked at for every request.
const maxEngines = 4096

// follower keeps the roster as the directory has it. While the directory is
// away the roster stays as it is: unknown is not dead.
type follower struct {
	roster *Roster
	known  atomic.Bool

	view directory.View
	// keys are the roster's, by the directory's.
	keys map[string]string
}

func (f *follower) run(ctx context.Context, events <-chan directory.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-events:
			if !open {
				return
			}
			f.take(event)
		}
	}
}

func (f *follower) take(event directory.Event) {
	changed, gone := f.view.Apply(event)
	if known := f.view.Known(); f.known.Swap(known) != known && !known {
		f.roster.logger.Warn("the directory is away; engines that are known go on serving", "error", event.Err)
	}
	for _, record := range gone {
		if key, had := f.keys[record.Key]; had {
			f.roster.orphan(key)
			f.roster.Hurry()
			f.roster.logger.Info("the directory does not name an engine any more; it is asked for as long as it answers", "engine", strings.TrimPrefix(record.Key, directory.EnginePrefix))
		}
	}
	for _, record := range changed {
		f.upsert(record)
	}
}

func (f *follower) drop(key string) {
	if last, had := f.keys[key]; had {
		f.roster.remove(last)
		delete(f.keys, key)
		f.roster.logger.Info("an engine is gone", "engine", strings.TrimPrefix(key, directory.EnginePrefix))
	}
}

func (f *follower) upsert(record directory.Record) {
	refuse := func(why string, err error) {
		f.roster.logger.Warn("an engine's record cannot be used", "key", fmt.Sprintf("%.200s", record.Key), "reason", why, "error", err)
		f.drop(record.Key)
	}
	r, err := directory.ParseEngineRecord(record)
	if err != nil {
		refuse("it is not of an engine", err)
		return
	}
	if r.URL == "" {
		f.drop(record.Key) // not to be reached by HTTP: none of ours
		return
	}
	role, err := placement.ParseRole(r.Role)
	if err != nil {
		refuse("its role", err)
		return
	}
	url, _, err := checkURL(r.URL)
	if err != nil {
		refuse("its url", err)
		return
	}
	key := r.ID + "@" + r.Incarnation
	e := &Engine{Key: key, URL: url, Role: role, cut: r.Cut, cacheHashes: placement.TextHashes(r.Blocks * r.BlockTokens), cacheTokens: r.CacheTokens}
	e.Home.Store(homeOf(&r))
	e.Unit.Store(int64(r.CacheTokens))
	e.given = About{ID: r.ID, Models: []string{r.Model}, Legs: r.Legs}
	e.About.Store(&e.given)
	if f.keys[record.Key] == key && f.roster.claim(e) {
		return // the same life
	}
	f.drop(record.Key)
	if len(f.keys) >= maxEngines { // engines that are gone take no place
		maps.DeleteFunc(f.keys, func(_, key string) bool { return f.roster.Get(key) == nil })
	}
	if len(f.keys) >= maxEngines {
		refuse("there are too many", fmt.Errorf("the gateway knows %d engines of the directory, which is the limit", len(f.keys)))
		return
	}
	f.keys[record.Key] = key
	f.roster.add(e)
	f.roster.logger.Info("an engine has come", "engine", r.ID, "role", r.Role, "url", url)
	f.roster.Hurry()
}
