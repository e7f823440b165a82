package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"meridian/config"
	"meridian/kv"
	"meridian/mrdn"
	"meridian/store"
	"meridian/store/payload"
)

// fabricOf opens the fabric that the configuration names.
func fabricOf(s *store.Store, in *config.Config) (*payload.Fabric, error) {
	f, err := payload.Open(s, payload.Options{Enabled: in.Disagg.Enabled, Fabric: in.Disagg.Fabric})
	if errors.Is(err, payload.ErrDisabled) || errors.Is(err, payload.ErrNoFabric) {
		hint := "set disagg.enabled = true and disagg.fabric = \"meridian\" in the configuration, or MERIDIAN_DISAGG_ENABLED and MERIDIAN_DISAGG_FABRIC"
		return nil, &failure{err: err, hint: hint, status: exitFailure}
	}
	return f, err
}

type storePushCommand struct {
	storeFlags
	timeoutFlag
	File string `arg:"" optional:"" default:"-" help:"What is pushed; - reads standard input (default: ${default})."`
	Tier string `enum:"think_complete,think_active,output_critical" default:"think_complete" placeholder:"TIER" help:"Tier of the block: think_complete, think_active or output_critical (default: ${default})."`
	JSON bool   `help:"Print one JSON object."`
}

func (c *storePushCommand) Help() string {
	return "Stores a payload as one MRDN frame, and prints the handle by which `meridian store pull` gets it. disagg.enabled and disagg.fabric of the configuration say whether it may.\n\n" +
		"  MERIDIAN_DISAGG_ENABLED=true MERIDIAN_DISAGG_FABRIC=meridian meridian store push block.bin\n"
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
	put := storePutCommand{File: c.File}
	source, size, err := put.source(std)
	if err != nil {
		return err
	}
	defer source.Close()
	body, err := io.ReadAll(io.LimitReader(source, mrdn.DefaultMaxBody+1))
	if err != nil {
		return err
	}
	return c.with(std, all, c.Timeout, func(ctx context.Context, s *store.Store) error {
		f, err := fabricOf(s, loaded.Config)
		if err != nil {
			return err
		}
		wait := newWaiting(std.err, "pushing")
		h, err := f.Push(ctx, tier, body)
		wait.stop()
		if err != nil {
			return err
		}
		if c.JSON {
			return std.writeJSON(map[string]any{"handle": h.String(), "tier": c.Tier, "bytes": size, "fabric": f.Label()})
		}
		_, err = fmt.Fprintln(std.out, h)
		return err
	})
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
	return c.with(std, all, c.Timeout, func(ctx context.Context, s *store.Store) error {
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
