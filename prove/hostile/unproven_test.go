package hostile

import (
	"context"
	"crypto/rand"
	"time"

	"meridian/member/trust"
	"meridian/move/mrdn"
)

// crowd opens connections and says nothing.
func crowd(ctx context.Context, a *Attacker) {
	a.hold(ctx, func(ctx context.Context) {
		if conn := a.dial(ctx); conn != nil {
			a.awaitEnd(conn)
		}
	})
}

// drip says who it is at a byte a second.
func drip(ctx context.Context, a *Attacker) {
	hello := mrdn.Hello{MinVersion: 1, MaxVersion: 1, Agent: "drip", Link: newID(), Streams: 1}.Append(nil)
	a.hold(ctx, func(ctx context.Context) {
		conn := a.dial(ctx)
		if conn == nil {
			return
		}
		defer conn.Close()
		for i := range hello {
			if _, err := conn.Write(hello[i : i+1]); err != nil {
				a.tally.failures.Add(1)
				return
			}
			pause(ctx, time.Second)
		}
	})
}

// garbage says what makes no sense.
func garbage(ctx context.Context, a *Attacker) {
	noise := make([]byte, 4<<10)
	for ctx.Err() == nil {
		conn := a.dial(ctx)
		if conn == nil {
			return
		}
		rand.Read(noise)
		_, _ = conn.Write(noise)
		a.tally.frames.Add(1)
		a.awaitEnd(conn)
	}
}

// giant promises an introduction of four MiB.
func giant(ctx context.Context, a *Attacker) {
	a.hold(ctx, func(ctx context.Context) {
		conn := a.dial(ctx)
		if conn == nil {
			return
		}
		_, _ = conn.Write(prefix(mrdn.HelloFrame, mrdn.MaxLinkFrame))
		a.tally.frames.Add(1)
		a.awaitEnd(conn)
	})
}

// impostor takes the name of another and a proof out of the air.
func impostor(ctx context.Context, a *Attacker) {
	for ctx.Err() == nil {
		conn := a.dial(ctx)
		if conn == nil {
			return
		}
		hello := mrdn.Hello{MinVersion: 1, MaxVersion: 1, Agent: a.Self.Agent, Link: newID(), Streams: 1, Nonce: trust.NewNonce()}
		var proof mrdn.Proof
		rand.Read(proof.MAC[:])
		_, _ = conn.Write(proof.Append(hello.Append(nil)))
		a.tally.frames.Add(2)
		a.awaitEnd(conn)
	}
}
