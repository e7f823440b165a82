package cell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Record is a running cell as cell.json tells of it.
type Record struct {
	Version    int          `json:"version"`
	Supervisor Identity     `json:"supervisor"`
	Started    time.Time    `json:"started"`
	Model      string       `json:"model"`
	Gateway    string       `json:"gateway,omitempty"`
	Admin      string       `json:"admin,omitempty"`
	Parts      []PartRecord `json:"parts"`
}

const recordVersion = 1

// PartRecord is one part of it.
type PartRecord struct {
	Name   string `json:"name"`
	Kind   Kind   `json:"kind"`
	Engine Engine `json:"engine,omitempty"`
	State  State  `json:"state"`
	// Process is absent while there is none.
	Process *Identity `json:"process,omitempty"`
	// Since is when it came into this state.
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts"`
	URL      string    `json:"url,omitempty"`
	Admin    string    `json:"admin,omitempty"`
	Metrics  string    `json:"metrics,omitempty"` // of an agent; the gateway's are below Admin
	// LastEnd is how its last process ended, if that was not asked for.
	LastEnd string   `json:"last_end,omitempty"`
	Args    []string `json:"args"`
}

func (p Plan) record() PartRecord {
	return PartRecord{Name: p.Name, Kind: p.Kind, Engine: p.Engine, State: Waiting, Args: p.Args}
}

// Part finds a part by its name.
func (r *Record) Part(name string) *PartRecord {
	for i := range r.Parts {
		if r.Parts[i].Name == name {
			return &r.Parts[i]
		}
	}
	return nil
}

// ErrNoCell means that a state directory has no cell that runs.
var ErrNoCell = errors.New("no cell runs")

func recordPath(dir string) string { return filepath.Join(dir, "cell.json") }

// ReadRecord reads what the cell of a state directory, running or killed, has
// written down.
func ReadRecord(dir string) (*Record, error) {
	text, err := os.ReadFile(recordPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w with the state directory %s", ErrNoCell, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cell: %w", err)
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("cell: %s: %w; remove it if no cell runs there", recordPath(dir), err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("cell: %s has version %d, this build reads %d; use the build that wrote it", recordPath(dir), r.Version, recordVersion)
	}
	return &r, nil
}

// write leaves either the new file or the old one.
func (r *Record) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	partial := recordPath(dir) + ".new"
	if err := os.WriteFile(partial, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("cell: %w", err)
	}
	return os.Rename(partial, recordPath(dir))
}
