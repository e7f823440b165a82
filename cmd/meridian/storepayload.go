package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"meridian/keep/store"
	"meridian/keep/store/payload"
	"meridian/kv"
	"meridian/move/mrdn"
	"meridian/run/config"
)

// fabricOf opens the fabric that the configuration names.
func fabricOf(s *store.Store, in *config.Config) (*payload.Fabric, error) {
	f, err := payload.Open(s, payload.Options{Enabled: in.Disagg.Enabled, Fabric: in.Disagg.Fabric, BatchBlocks: int(min(in.Disagg.OffloadThresholdBlocks, 1<<20))})
	if errors.Is(err, payload.ErrDisabled) || errors.Is(err, payload.ErrNoFabric) {
		hint := "set disagg.enabled = true and disagg.fabric = \"meridian\" in the configuration, or MERIDIAN_DISAGG_ENABLED and MERIDIAN_DISAGG_FABRIC"
		return nil, &failure{err: err, hint: hint, status: exitFailure}
	}
	return f, err
}

type storePushCommand struct {
	storeFlags
	timeoutFlag
	Files []string `arg:"" optional:"" name:"file" help:"What is pushed, each a payload; - reads standard input (default: -)."`
	Tier  string   `enum:"think_complete,think_active,output_critical" default:"think_complete" placeholder:"TIER" help:"Tier of the blocks: think_complete, think_active or output_critical (default: ${default})."`
	JSON  bool     `help:"Print one JSON object."`
}

func (c *storePushCommand) Help() string {
	return "Stores each payload as one MRDN frame, and prints the handle by which `meridian store pull` gets it. disagg.enabled and disagg.fabric of the configuration say whether it may; " +
		"blocks of finished thoughts go out in batches of disagg.offload_threshold_blocks.\n\n" +
		"  MERIDIAN_DISAGG_ENABLED=true MERIDIAN_DISAGG_FABRIC=meridian meridian store push block.bin\n"
}

// pushedRow is a payload that was pushed.
type pushedRow struct {
	File   string `json:"file"`
	Handle string `json:"handle,omitempty"` // none: it was not
	Bytes  int    `json:"bytes"`
}

func (c *storePushCommand) Run(std *stdio, all *commands) error {
	tier, err := kv.ParseTier(c.Tier)
	if err != nil {
		return err
	}
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	if len(c.Files) == 0 {
		c.Files = []string{"-"}
	}
	return c.withOwners(std, all, c.Timeout, func(ctx context.Context, s *store.Store) error {
		f, err := fabricOf(s, loaded.Config)
		if err != nil {
			return err
		}
		wait := newWaiting(std.err, "pushing")
		rows, failed := c.push(ctx, std, f.Batch(tier))
		wait.stop()
		if c.JSON {
			return errors.Join(std.writeJSON(map[string]any{"pushed": rows, "tier": c.Tier, "fabric": f.Label()}), failed)
		}
		for _, r := range rows {
			switch {
			case r.Handle == "":
			case len(c.Files) == 1:
				fmt.Fprintln(std.out, r.Handle)
			default:
				fmt.Fprintf(std.out, "%s  %s\n", r.Handle, oneLine(r.File))
			}
		}
		return failed
	})
}

// push reads and pushes batch by batch, until something is wrong.
func (c *storePushCommand) push(ctx context.Context, std *stdio, batch *payload.Batch) (_ []pushedRow, err error) {
	rows, told := []pushedRow{}, 0
	take := func(handles []payload.Handle) {
		for _, h := range handles {
			if h != 0 {
				rows[told].Handle = h.String()
			}
			told++
		}
	}
	for _, file := range c.Files {
		body, failed := readPayload(std, file)
		if failed != nil {
			err = failed
			break
		}
		rows = append(rows, pushedRow{File: file, Bytes: len(body)})
		handles, failed := batch.Add(ctx, body)
		if take(handles); failed != nil {
			err = failed
			break
		}
	}
	handles, last := batch.Flush(ctx)
	take(handles)
	return rows, errors.Join(err, last)
}

// readPayload reads what one frame can hold.
func readPayload(std *stdio, file string) ([]byte, error) {
	put := storePutCommand{File: file}
	source, _, err := put.source(std)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	return io.ReadAll(io.LimitReader(source, mrdn.DefaultMaxBody+1))
}

type storePullCommand struct {
	storeFlags
	timeoutFlag
	storeOutput
	Handle string `arg:"" help:"Handle that push printed."`
}

func (c *storePullCommand) Help() string {
	return "Gets the payload of a frame that `meridian store push` has stored, checked by the frame's own checksum too. It stays until it is evicted, or removed as push/HANDLE.\n\n" +
		"  meridian store pull HANDLE -o block.bin\n"
}

func (c *storePullCommand) Run(std *stdio, all *commands) error {
	h, err := payload.ParseHandle(c.Handle)
	if err != nil {
		return invalid("`meridian store push` prints one", "%w", err)
	}
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	return c.withOwners(std, all, c.Timeout, func(ctx context.Context, s *store.Store) error {
		f, err := fabricOf(s, loaded.Config)
		if err != nil {
			return err
		}
		wait := newWaiting(std.err, "pulling "+c.Handle)
		frame, err := f.Pull(ctx, h)
		wait.stop()
		if err != nil {
			return err
		}
		return c.deliver(std, c.Handle, frame.Body)
	})
}
