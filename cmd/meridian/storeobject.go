package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"meridian/keep/store"
	"meridian/keep/store/protocol"
)

type storePutCommand struct {
	storeFlags
	timeoutFlag
	tenantFlag
	Key      string `arg:"" help:"Key of the object."`
	File     string `arg:"" optional:"" default:"-" help:"What is stored; - reads standard input (default: ${default})."`
	Owner    string `placeholder:"NAME" help:"Owner that is asked first; another is when it has no room (default: the one that the key falls to)."`
	Pin      bool   `help:"Never evict it."`
	Priority uint8  `placeholder:"N" help:"Where owners evict by priority, objects of a lower one leave first: 0 to 255."`
	JSON     bool   `help:"Print one JSON object."`
}

func (c *storePutCommand) Help() string {
	return "Stores a value under a key that has none. When it says so, the object can be got, until it is evicted or removed or its owner ends.\n\n" +
		"  meridian store put model/block-7 block.bin\n  head -c 1000000 /dev/urandom | meridian store put noise\n"
}

// maxStdin bounds what is kept of standard input: its length is not known before.
const maxStdin = 1 << 30

func (c *storePutCommand) Run(std *stdio, all *commands) error {
	source, size, err := c.source(std)
	if err != nil {
		return err
	}
	defer source.Close()
	if size == 0 {
		return invalid("", "%s is empty: an object has at least one byte", c.File)
	}
	o := store.PutOptions{Preferred: c.Owner, Pinned: c.Pin, Priority: c.Priority, Tenant: c.Tenant}
	return c.withOwners(std, all, c.Timeout, func(ctx context.Context, s *store.Store) error {
		at, err := c.put(ctx, std, s, source, size, o)
		if err != nil {
			return fmt.Errorf("%s: %w", oneLine(c.Key), err)
		}
		if c.JSON {
			return std.writeJSON(map[string]any{"key": c.Key, "bytes": size, "owner": at})
		}
		where := oneLine(at)
		if at == "" {
			where = "an owner that cannot be named now: `meridian store stat KEY` may"
		}
		_, err = fmt.Fprintf(std.out, "stored %s: %d bytes at %s\n", oneLine(c.Key), size, where)
		return err
	})
}

// source is what is stored, and its length.
func (c *storePutCommand) source(std *stdio) (io.ReadCloser, uint64, error) {
	if c.File == "-" {
		all, err := io.ReadAll(io.LimitReader(std.in, maxStdin+1))
		if err == nil && len(all) > maxStdin {
			err = invalid("put it into a file and name that", "standard input is longer than %d bytes", maxStdin)
		}
		return io.NopCloser(bytes.NewReader(all)), uint64(len(all)), err
	}
	f, err := os.Open(c.File)
	if err != nil {
		return nil, 0, unopened(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = invalid("`-` reads standard input", "%s is no plain file", c.File)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, uint64(info.Size()), nil
}

// putWindow is how much is read before it is written to the owner.
const putWindow = 8 << 20

// put stores what the source has, and says where; "" where that could not be learned any
// more, which makes the object no less stored.
func (c *storePutCommand) put(ctx context.Context, std *stdio, s *store.Store, from io.Reader, size uint64, o store.PutOptions) (at string, err error) {
	if size <= protocol.MaxInline {
		value := make([]byte, size)
		if _, err := io.ReadFull(from, value); err != nil {
			return "", err
		}
		wait := newWaiting(std.err, "storing "+oneLine(c.Key))
		defer wait.stop()
		if err := s.Put(ctx, c.Key, value, o); err != nil {
			return "", err
		}
		where, _ := s.Locate(ctx, c.Key, store.LocateOptions{Preferred: c.Owner, Tenant: c.Tenant})
		return where.Owner, nil
	}
	wait := newWaiting(std.err, "making room for "+oneLine(c.Key))
	plan, err := s.OpenForWrite(ctx, c.Key, size, o)
	wait.stop()
	if err != nil {
		return "", err
	}
	if err := c.write(ctx, std, s, plan, from); err != nil {
		_ = plan.Abort(context.WithoutCancel(ctx)) // else its owner takes the room back
		return "", err
	}
	wait = newWaiting(std.err, "committing "+oneLine(c.Key))
	defer wait.stop()
	return plan.Owner, plan.Commit(ctx)
}

// write brings the bytes to their owner, window by window.
func (c *storePutCommand) write(ctx context.Context, std *stdio, s *store.Store, plan *store.WritePlan, from io.Reader) error {
	buffer, err := s.Buffer(putWindow)
	if err != nil {
		return err
	}
	defer buffer.Close(context.WithoutCancel(ctx))
	bar := newProgress(std.err, oneLine(c.Key), plan.Bytes)
	defer bar.finish()
	for at := uint64(0); at < plan.Bytes; {
		window := buffer.Bytes()[:min(putWindow, plan.Bytes-at)]
		if _, err := io.ReadFull(from, window); err != nil {
			return fmt.Errorf("reading %s: %w", c.File, err)
		}
		if err := plan.Write(ctx, at, window); err != nil {
			return err
		}
		at += uint64(len(window))
		bar.set(at)
	}
	return nil
}

type storeGetCommand struct {
	storeFlags
	timeoutFlag
	tenantFlag
	storeOutput
	Key   string `arg:"" help:"Key of the object."`
	Owner string `placeholder:"NAME" help:"Owner that is asked first (default: the one that the key falls to)."`
}

func (c *storeGetCommand) Help() string {
	return "Gets an object: its bytes are those that were put, checked by their sum, or there is an error.\n\n  meridian store get model/block-7 -o block.bin\n"
}

func (c *storeGetCommand) Run(std *stdio, all *commands) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.withOwners(std, all, c.Timeout, func(ctx context.Context, s *store.Store) error {
		wait := newWaiting(std.err, "getting "+oneLine(c.Key))
		value, giveBack, err := c.get(ctx, s)
		wait.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", oneLine(c.Key), err)
		}
		defer giveBack()
		return c.deliver(std, c.Key, value)
	})
}

// get gets the object. A large one comes into memory that its owner writes to by itself:
// there is one copy of it, and that until giveBack.
func (c *storeGetCommand) get(ctx context.Context, s *store.Store) (value []byte, giveBack func(), err error) {
	value, giveBack = make([]byte, protocol.MaxInline), func() {}
	for { // again, where another object came meanwhile
		n, err := s.Get(ctx, c.Key, value, store.GetOptions{Preferred: c.Owner, Tenant: c.Tenant})
		if err == nil {
			return value[:n], giveBack, nil
		}
		giveBack()
		if !errors.Is(err, store.ErrTooSmall) {
			return nil, nil, err
		}
		at, err := s.Locate(ctx, c.Key, store.LocateOptions{Preferred: c.Owner, Tenant: c.Tenant})
		if err != nil {
			return nil, nil, err
		}
		buffer, err := s.Buffer(at.Bytes)
		if err != nil {
			return nil, nil, err
		}
		value, giveBack = buffer.Bytes()[:at.Bytes], func() { _ = buffer.Close(context.WithoutCancel(ctx)) }
	}
}

// getWindow is how much is written to a file before its bar moves.
const getWindow = 8 << 20

// storeOutput is where what was got goes.
type storeOutput struct {
	Out  string `short:"o" placeholder:"FILE" help:"Where it is written (default: standard output)."`
	JSON bool   `help:"With --out: print one JSON object."`
}

// check refuses what cannot be said together.
func (c *storeOutput) check() error {
	if c.JSON && c.Out == "" {
		return invalid("name a file with -o", "--json and the object cannot both go to standard output")
	}
	return nil
}

func (c *storeOutput) deliver(std *stdio, key string, value []byte) error {
	if c.Out == "" {
		if std.terminal && printable(string(value)) != string(value) {
			return invalid("name a file with -o FILE", "%s holds bytes that would drive a terminal", oneLine(key))
		}
		_, err := std.out.Write(value)
		return err
	}
	bar := newProgress(std.err, oneLine(c.Out), uint64(len(value)))
	err := writeAtomic(c.Out, func(w io.Writer) error {
		for at := 0; at < len(value); {
			n, err := w.Write(value[at:min(len(value), at+getWindow)])
			if err != nil {
				return err
			}
			at += n
			bar.set(uint64(at))
		}
		return nil
	})
	bar.finish()
	if err != nil {
		return unwritable(c.Out, err)
	}
	if c.JSON {
		return std.writeJSON(map[string]any{"key": key, "bytes": len(value), "file": c.Out})
	}
	_, err = fmt.Fprintf(std.out, "got %s: %d bytes, checksum verified\n", oneLine(key), len(value))
	return err
}

type storeRmCommand struct {
	storeFlags
	timeoutFlag
	tenantFlag
	Keys  []string `arg:"" name:"key" help:"Keys of the objects."`
	Force bool     `short:"f" help:"Do not mind those that are not there."`
	JSON  bool     `help:"Print one JSON object."`
}

func (c *storeRmCommand) Help() string {
	return "Removes objects. Each key is tried and told of; the exit status is 0 only if all are gone, and with -f it does not matter who removed them.\n\n" +
		"  meridian store rm model/block-7 model/block-8\n"
}

// removal is what came of the keys of rm.
type removal struct {
	Removed []string          `json:"removed"`
	Missing []string          `json:"missing"`
	Failed  map[string]string `json:"failed,omitempty"`
}

func (c *storeRmCommand) Run(std *stdio, all *commands) error {
	return c.withOwners(std, all, c.Timeout, func(ctx context.Context, s *store.Store) error {
		wait := newWaiting(std.err, "removing")
		result, failed := c.remove(ctx, s)
		wait.stop()
		if c.JSON {
			return errors.Join(std.writeJSON(result), failed)
		}
		for _, key := range result.Removed {
			fmt.Fprintf(std.out, "removed %s\n", oneLine(key))
		}
		return failed
	})
}

// remove tries every key, whatever becomes of the others.
func (c *storeRmCommand) remove(ctx context.Context, s *store.Store) (result removal, failed error) {
	result = removal{Removed: []string{}, Missing: []string{}, Failed: make(map[string]string)}
	for _, key := range c.Keys {
		err := s.Remove(ctx, key, store.RemoveOptions{Tenant: c.Tenant})
		missing := errors.Is(err, store.ErrMissing)
		switch {
		case err == nil:
			result.Removed = append(result.Removed, key)
		case missing:
			result.Missing = append(result.Missing, key)
		default:
			result.Failed[key] = err.Error()
		}
		if err != nil && !(missing && c.Force) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", oneLine(key), err))
		}
	}
	return result, failed
}
