package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"meridian/keep/prefix"
	"meridian/keep/store"
	"meridian/keep/store/disk"
	"meridian/keep/store/s3"
	"meridian/keep/store/tier"
	"meridian/member/trust"
)

// Store says which part a process has in the object cache.
type Store struct {
	// Owner is what it keeps; nil keeps nothing.
	Owner *store.OwnerOptions
	// Candidate says that it may become the master.
	Candidate bool
	// DirectMap says that processes of the agent's own user may map what it keeps.
	DirectMap bool
	// Tenant is whose keys are meant where a call names no other.
	Tenant string
	// Disk and S3 are where objects go that leave memory; nil: there is none. They are
	// opened where something is kept.
	Disk *disk.Options
	S3   *s3.Options
	// Prefixes is how engines keep and find what they computed.
	Prefixes Prefixes
}

// ErrNoDirectory means that an object cache was asked for without a directory.
var ErrNoDirectory = errors.New("node: an object cache needs a directory: its owners and its master are found there")

// offeredExtents is how many extents of each size an owner sets aside for producers
// that map its arena: what they use up between two of its scans, a second apart.
const offeredExtents = 16

// openStore opens the part of the object cache that the process has.
func (n *Agent) openStore(ctx context.Context, o AgentOptions) (err error) {
	if o.Store == nil {
		return nil
	}
	if n.Directory == nil {
		return ErrNoDirectory
	}
	owner := o.Store.Owner
	if owner != nil {
		own := *owner
		owner = &own
		if o.Store.DirectMap && own.Offers == 0 {
			owner.Offers = offeredExtents
		}
		if err := o.checkTiers(); err != nil {
			return err
		}
		n.openTiers(o.Store, o.Logger)
		for _, t := range n.tiers {
			owner.Tiers = append(owner.Tiers, t)
		}
		owner.Pin = n.pinOwn
		if o.Door != nil { // else no engine uses it, as openPrefixes has it
			owner.Prefixes = prefix.Reads
		}
	}
	n.Store, err = store.Open(ctx, store.Options{
		Agent: n.Agent, Directory: n.Directory, Owner: owner, Candidate: o.Store.Candidate, Tenant: o.Store.Tenant, Logger: o.Logger,
	})
	return err
}

// pinOwn has the object cache's memory pinned once engines lend GPU memory: else the
// first of their transfers would wait for it.
func (n *Agent) pinOwn(memory []byte) (unpin func(context.Context) error) {
	return n.gpus.Pin(memory, func(err error) {
		n.logger.Warn("the object cache is not pinned: GPUs reach it through other memory", "bytes", len(memory), "error", err)
	}).Release
}

// checkTiers refuses what no second try would mend, and a bucket beyond loopback without TLS
// by accident: the sums of objects are no secret, so that a forged one would be taken for
// what an engine computed.
func (o AgentOptions) checkTiers() error {
	if o.Store.Disk != nil {
		if err := o.Store.Disk.Check(); err != nil {
			return err
		}
	}
	bucket := o.Store.S3
	if bucket == nil {
		return nil
	}
	if err := bucket.Check(); err != nil || bucket.Secure {
		return err
	}
	host, _, err := net.SplitHostPort(bucket.Endpoint)
	if err != nil {
		host = bucket.Endpoint
	}
	switch {
	case trust.IsLoopback(host):
		return nil
	case !o.Insecure:
		return fmt.Errorf("node: the S3 server http://%s is beyond loopback and has no TLS: a host on the way could forge what engines find; "+
			"say https://%s, or allow it with --insecure", bucket.Endpoint, bucket.Endpoint)
	}
	o.Logger.Warn("the S3 server is spoken to beyond loopback without TLS: a host on the way can read and forge what engines find", "endpoint", bucket.Endpoint)
	return nil
}

// openTiers begins to open what is below the memory of an owner, the nearest first. The
// agent serves meanwhile.
func (n *Agent) openTiers(o *Store, logger *slog.Logger) {
	open := func(name string, open func(context.Context, func(read, of int)) (tier.Tier, error)) {
		began := time.Now()
		n.tiers = append(n.tiers, tier.Open(name, func(err error) {
			if err != nil {
				logger.Warn("a tier of the object cache cannot be opened, and is tried again; what leaves memory is lost meanwhile", "tier", name, "error", err)
				return
			}
			logger.Info("a tier of the object cache is open", "tier", name, "ms", time.Since(began).Milliseconds())
		}, open))
	}
	if o.Disk != nil {
		open("disk", func(ctx context.Context, progress func(read, of int)) (tier.Tier, error) {
			options := *o.Disk
			options.Progress = told(logger, progress)
			return disk.Open(ctx, options)
		})
	}
	if o.S3 != nil {
		open("s3", func(ctx context.Context, _ func(read, of int)) (tier.Tier, error) { return s3.Open(ctx, *o.S3) })
	}
}

// told passes on how far a disk is that is opened, and tells the log of one that takes long.
func told(logger *slog.Logger, progress func(read, of int)) func(read, of int) {
	last := time.Now()
	return func(read, of int) {
		progress(read, of)
		if now := time.Now(); now.Sub(last) >= toldEvery {
			last = now
			logger.Info("the disk of the object cache is still being opened; what lies there is missed meanwhile", "read", read, "segments", of)
		}
	}
}

const toldEvery = 10 * time.Second

// tierTimeout is how long a tier has to write what waits when the agent ends; what is left
// is computed again by the engine that needs it.
const tierTimeout = 3 * time.Second

// closeTiers closes them. One that hangs must not keep the agent: what it runs ends with
// the process.
func (n *Agent) closeTiers(ctx context.Context, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, tierTimeout)
	defer cancel()
	for _, t := range n.tiers {
		if err := t.Close(ctx); err != nil {
			logger.Warn("a tier of the object cache did not close in time", "tier", t.Name(), "error", err)
		}
	}
	n.tiers = nil
}
