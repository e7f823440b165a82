package hostile

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/handshake"
	"meridian/move/mrdn"
)

// Attacker is who attacks whom.
type Attacker struct {
	// Target is where the agent listens.
	Target string
	// Self is who it says it is. An insider has the cell's key.
	Self handshake.Self
	// Crowd is how many connections it holds at a time where an attack is a
	// matter of numbers.
	Crowd int
	// Grant is what a grantee may touch.
	Grant Grant

	tally struct{ connections, frames, failures atomic.Int64 }
}

// Tally is what an attacker has done.
type Tally struct {
	// Connections that were made, frames that left whole, and connections that
	// the target refused or ended.
	Connections, Frames, Failures int64
}

// Tally tells what was done so far.
func (a *Attacker) Tally() Tally {
	return Tally{a.tally.connections.Load(), a.tally.frames.Load(), a.tally.failures.Load()}
}

type attack func(ctx context.Context, a *Attacker)

var strangers = map[string]attack{
	"crowd": crowd, "drip": drip, "garbage": garbage, "giant": giant, "impostor": impostor,
}

var insiders = map[string]attack{
	"links": manyLinks, "deaf": deaf, "asking": asking, "offering": offering, "halves": halves, "lists": lists,
	"cancels": cancels, "notices": notices, "nearly": nearly, "chunks": chunks, "crumbs": crumbs, "repeats": repeats,
}

var grantees = map[string]attack{
	"again": again, "begun": begun, "broken": broken, "halfway": halfway, "late": late, "overlaps": overlaps, "parts": parts,
	"pieces": pieces, "promises": promises, "same-handle": sameHandle, "too-much": tooMuch, "unread": unread,
}

// Strangers names the attacks that need no key.
func Strangers() []string { return names(strangers) }

// Insiders names the attacks of a member of the cell.
func Insiders() []string { return names(insiders) }

// Grantees names the attacks of a member that was granted something.
func Grantees() []string { return names(grantees) }

func names(attacks map[string]attack) []string {
	all := make([]string, 0, len(attacks))
	for name := range attacks {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// Run attacks until ctx ends.
func (a *Attacker) Run(ctx context.Context, name string) error {
	for _, attacks := range []map[string]attack{strangers, insiders, grantees} {
		if run := attacks[name]; run != nil {
			run(ctx, a)
			return nil
		}
	}
	return fmt.Errorf("hostile: no attack %q", name)
}

// dial connects. The connection ends with ctx.
func (a *Attacker) dial(ctx context.Context) net.Conn {
	for ctx.Err() == nil {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", a.Target)
		if err == nil {
			a.tally.connections.Add(1)
			context.AfterFunc(ctx, func() { conn.Close() })
			return conn
		}
		a.tally.failures.Add(1)
		pause(ctx, 10*time.Millisecond)
	}
	return nil
}

// join makes one stream of a new link.
func (a *Attacker) join(ctx context.Context) net.Conn { return a.joinLink(ctx, newID()) }

// joinLink makes one stream of a link.
func (a *Attacker) joinLink(ctx context.Context, link kv.ID) net.Conn {
	for ctx.Err() == nil {
		conn := a.dial(ctx)
		if conn == nil {
			return nil
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, err := a.Self.Introduce(conn, handshake.DialRequest{Link: link, Streams: streams})
		if err == nil {
			_ = conn.SetDeadline(time.Time{})
			return conn
		}
		conn.Close()
		a.tally.failures.Add(1)
		pause(ctx, 10*time.Millisecond)
	}
	return nil
}

// flood sends frames on one stream after another, and never reads.
func (a *Attacker) flood(ctx context.Context, next func(n uint32) []byte) {
	for ctx.Err() == nil {
		conn := a.join(ctx)
		if conn == nil {
			return
		}
		for n := uint32(1); ; n++ {
			if _, err := conn.Write(next(n)); err != nil {
				a.tally.failures.Add(1)
				break
			}
			a.tally.frames.Add(1)
		}
		conn.Close()
	}
}

// hold keeps Crowd connections and lets each behave; one that ends is replaced.
func (a *Attacker) hold(ctx context.Context, behave func(context.Context)) {
	var all sync.WaitGroup
	for range a.Crowd {
		all.Go(func() {
			for ctx.Err() == nil {
				behave(ctx)
			}
		})
	}
	all.Wait()
}

// What a peer may have at most.
const (
	links   = 4
	streams = 64
)

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func newID() (id kv.ID) {
	rand.Read(id[:])
	return id
}

// awaitEnd waits until the target hangs up.
func (a *Attacker) awaitEnd(conn net.Conn) {
	_, err := io.Copy(io.Discard, conn)
	if !errors.Is(err, net.ErrClosed) {
		a.tally.failures.Add(1)
	}
	conn.Close()
}

// prefix promises a frame, credibly: it is its body that never fits.
func prefix(frame mrdn.LinkFrame, length uint32) []byte {
	b := append(binary.LittleEndian.AppendUint32(nil, length), byte(frame))
	fold := ^(b[0] ^ b[1] ^ b[2] ^ b[3] ^ b[4])
	if b = append(b, fold, 0, 0); !promised(b) {
		panic("hostile: the target would not believe this prefix")
	}
	return b
}

func promised(b []byte) bool {
	_, _, err := mrdn.ParsePrefix(b)
	return err == nil
}

// list names bytes of a region that may or may not be there.
func list(pieces int) []byte { return scattered(1, pieces) }

// scattered names single bytes of a region in its first epoch.
func scattered(region uint64, pieces int) []byte {
	part := fabric.Part{Region: region, Epoch: 1}
	offset := uint64(0)
	for i := range pieces {
		if err := part.Spans.Add(offset, 1); err != nil {
			panic(err) // a list of ours is always well-formed
		}
		offset += 3 + uint64(i%5)*uint64(i%3) // irregular, so that it cannot be packed
	}
	return fabric.List{part}.AppendTo(nil)
}
