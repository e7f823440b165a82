// Package history keeps what members of a cell remember, and gathers it: an agent its
// transfers, its hand-offs and what its engines found and kept of prefixes, a gateway its
// requests.
//
//	what ended ─► Records ─► memory, files, the log, spans
//	                 └─ Book ◄── questions ═══ links ═══ Gather, at any other agent
//	admin socket ─► Get, on the same machine        files ─► …In, when the agent is gone
package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meridian/keep/prefix"
	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/transceiver/handoff"
	"meridian/see/ledger"
	"meridian/see/telemetry"
)

// Files of a state directory in which an agent keeps what it has moved, so that it
// can be explained when the agent is gone.
const (
	transferFiles = "transfers-"
	handOffFiles  = "handoffs-"
	prefixFiles   = "prefixes-"
	recordsSuffix = ".jsonl"
)

const (
	// recordBytes is how large each of an agent's three pairs of files may grow.
	recordBytes = 4 << 20
	// transfersPerSecond are written of those that went well: they are also told
	// by the hand-offs that they were part of, and a disk has better things to do.
	transfersPerSecond = 100
	// maxFlowsWritten is how much of the matrix of a hand-off is written; a line
	// must stay one that readers take.
	maxFlowsWritten = 4096
)

// keptRecords is how many records of a kind can be asked for by number; agents keep
// more of what is asked for by its id.
const keptRecords = 1024

// Options configures Open.
type Options struct {
	// Dir is a state directory; empty keeps records in memory only.
	Dir string
	// Agent is whose records they are.
	Agent  string
	Logger *slog.Logger
}

// Records keeps and writes down what an agent has moved, and tells of it as it ends: to the
// log, and to the collector of traces.
type Records struct {
	options   Options
	transfers *ledger.Log[agent.Record]
	handOffs  *ledger.Log[handoff.Record]
	prefixes  *ledger.Log[prefix.Record]
	flows     flowTally
	legs      askedLegs
	traces    atomic.Pointer[telemetry.Telemetry] // once there is one

	mu      sync.Mutex // protects what follows
	second  time.Time
	written int // of those that went well, since second
	passed  uint64
}

// Open goes on with the files where an earlier agent stopped.
func Open(o Options) (*Records, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	r := &Records{options: o}
	var errs [3]error
	r.transfers, errs[0] = openLog[agent.Record](o, transferFiles)
	r.handOffs, errs[1] = openLog[handoff.Record](o, handOffFiles)
	r.prefixes, errs[2] = openLog[prefix.Record](o, prefixFiles)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, r.Close(context.Background()))
	}
	return r, nil
}

func openLog[T any](o Options, kind string) (*ledger.Log[T], error) {
	file := ledger.FileOptions{Bytes: recordBytes, Logger: o.Logger}
	if o.Dir != "" {
		file.Path = filepath.Join(o.Dir, kind+o.Agent+recordsSuffix)
	}
	return ledger.OpenLog[T](keptRecords, file)
}

// TransferEnded takes what became of a transfer.
func (r *Records) TransferEnded(t agent.Record) {
	r.transfers.Keep(&t)
	if t.State != fabric.Done || r.hasRoom(t.Times.Ended) {
		r.transfers.Write(&t)
	}
}

// hasRoom is true of so many a second.
func (r *Records) hasRoom(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.second).Abs() >= time.Second {
		r.second, r.written = now, 0
	}
	if r.written == transfersPerSecond {
		r.passed++
		return false
	}
	r.written++
	return true
}

// HandOffEnded takes one side of a hand-off.
func (r *Records) HandOffEnded(h *handoff.Record) {
	r.flows.add(h)
	r.handOffs.Keep(withFlows(h, maxFlowsKept))
	r.handOffs.Write(withFlows(h, maxFlowsWritten))
	leg, known := r.legs.take(h)
	level, line := slog.LevelInfo, []any{"audit", true, "transfer", h.Transfer.String(), "as", h.As.String(), "engine", h.Engine, "peer", h.Peer, "peer_engine", h.PeerEngine, "tokens", h.Tokens, "bytes", h.Bytes, "ms", float64(h.Stages.Ended-h.Stages.Begun) / float64(handoff.Millisecond)}
	if known && leg.Request != [16]byte{} {
		line = append(line, "request", kv.ID(leg.Request).String())
	}
	if h.Problem != "" {
		level, line = slog.LevelWarn, append(line, "error", h.Problem)
	}
	if h.Unused { // as often as engines ask, and no reason to look
		r.options.Logger.Debug("an offer was given back before it was taken", line...)
	} else {
		r.options.Logger.Log(context.Background(), level, "hand-off ended", line...)
	}
	if t := r.traces.Load(); known && leg.Trace.Sampled && t != nil {
		t.Trace(handOffSpans(h, leg.Trace, r.options.Agent)...)
	}
}

// withFlows is the record with at most so many flows.
func withFlows(h *handoff.Record, most int) *handoff.Record {
	if len(h.Flows) <= most {
		return h
	}
	cut := *h
	cut.Flows = slices.Clone(h.Flows[:most]) // what was cut off is not kept alive
	return &cut
}

// PrefixEnded takes what came of a Find or of a Keep.
func (r *Records) PrefixEnded(p *prefix.Record) {
	r.prefixes.Keep(p)
	r.prefixes.Write(p)
}

// LegAsked has a hand-off of an engine of this agent told to the collector of traces.
func (r *Records) LegAsked(leg trust.Leg) { r.legs.add(leg) }

// TraceTo says where spans go from now on.
func (r *Records) TraceTo(t *telemetry.Telemetry) { r.traces.Store(t) }

// Dropped counts records that are in memory only.
func (r *Records) Dropped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed + r.transfers.Dropped() + r.handOffs.Dropped() + r.prefixes.Dropped()
}

// Close writes what is left.
func (r *Records) Close(ctx context.Context) error {
	return errors.Join(r.transfers.Close(ctx), r.handOffs.Close(ctx), r.prefixes.Close(ctx))
}

// TransferIn looks for a transfer in what agents of a state directory have written
// down, whether or not they run.
func TransferIn(stateDir string, id kv.ID) (*agent.Record, error) {
	var found *agent.Record
	err := readRecords(stateDir, transferFiles, id.String(), func(r *agent.Record) {
		if r.ID == id {
			found = r
		}
	})
	return found, err
}

// HandOffsIn looks for the sides of a hand-off in what agents of a state directory
// have written down, whether or not they run.
func HandOffsIn(stateDir string, id kv.ID) ([]handoff.Record, error) {
	var found []handoff.Record
	err := readRecords(stateDir, handOffFiles, id.String(), func(r *handoff.Record) {
		if r.Transfer == id {
			found = append(found, *r)
		}
	})
	return found, err
}

// MovedIDs lists up to most ids of transfers and hand-offs in what agents of a state
// directory have written down that begin with prefix.
func MovedIDs(stateDir, prefix string, most int) (ids []kv.ID, err error) {
	seen := make(map[kv.ID]bool)
	add := func(id kv.ID) {
		if strings.HasPrefix(id.String(), prefix) && !seen[id] && len(ids) < most {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	err = errors.Join(
		readRecords(stateDir, transferFiles, prefix, func(r *agent.Record) { add(r.ID) }),
		readRecords(stateDir, handOffFiles, prefix, func(r *handoff.Record) { add(r.Transfer) }))
	return ids, err
}

// readRecords hands over the records of one kind that hold a text that begins so.
func readRecords[T any](stateDir, kind, beginning string, take func(*T)) error {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	seen := ""
	for _, entry := range entries { // in the order of names: the older of two files comes last
		file := strings.TrimSuffix(entry.Name(), ".1")
		if !strings.HasPrefix(file, kind) || !strings.HasSuffix(file, recordsSuffix) || file == seen {
			continue
		}
		seen = file
		_, problem := ledger.ReadFile(filepath.Join(stateDir, file), func(line []byte) {
			var r T
			if strings.Contains(string(line), `"`+beginning) && json.Unmarshal(line, &r) == nil {
				take(&r)
			}
		})
		err = errors.Join(err, problem)
	}
	return err
}
