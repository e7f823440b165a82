package node

import (
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
	"time"

	"meridian/keep/prefix"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/transceiver/handoff"
	"meridian/see/ledger"
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

// records keeps and writes down what an agent has moved.
type records struct {
	transfers, handOffs, prefixes *ledger.File
	lastTransfers                 ring[agent.Record]
	lastHandOffs                  ring[handoff.Record]
	lastPrefixes                  ring[prefix.Record]
	flows                         flowTally

	mu      sync.Mutex // protects what follows
	second  time.Time
	written int // of those that went well, since second
	passed  uint64
}

func openRecords(stateDir, name string, logger *slog.Logger) (*records, error) {
	open := func(kind string) (*ledger.File, error) {
		return ledger.OpenFile(ledger.FileOptions{Path: filepath.Join(stateDir, kind+name+recordsSuffix), Bytes: recordBytes, Logger: logger})
	}
	r := &records{}
	var err error
	if r.transfers, err = open(transferFiles); err != nil {
		return nil, err
	}
	if r.handOffs, err = open(handOffFiles); err != nil {
		return nil, errors.Join(err, r.transfers.Close(context.Background()))
	}
	if r.prefixes, err = open(prefixFiles); err != nil {
		return nil, errors.Join(err, r.transfers.Close(context.Background()), r.handOffs.Close(context.Background()))
	}
	return r, nil
}

func (r *records) addTransfer(t agent.Record) {
	r.lastTransfers.add(&t)
	if t.State != fabric.Done || r.hasRoom(t.Times.Ended) {
		r.transfers.Add(t)
	}
}

// hasRoom is true of so many a second.
func (r *records) hasRoom(now time.Time) bool {
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

func (r *records) addHandOff(h *handoff.Record) {
	r.flows.add(h)
	r.lastHandOffs.add(withFlows(h, maxFlowsKept))
	r.handOffs.Add(withFlows(h, maxFlowsWritten))
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

// dropped counts records that are in memory only.
func (r *records) dropped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed + r.transfers.Dropped() + r.handOffs.Dropped() + r.prefixes.Dropped()
}

func (r *records) close(ctx context.Context) error {
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
