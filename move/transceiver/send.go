package transceiver

import (
	"context"
	"time"

	"meridian/move/transceiver/handoff"
)

const (
	maxInFlight = 256 // messages to one agent
	sendTimeout = 5 * time.Second
)

// send delivers a message. One that is lost is said again by the machines.
func (t *Transceiver) send(e handoff.Send) {
	ctx, cancel := context.WithTimeout(t.ctx, sendTimeout)
	defer cancel()
	err := t.peers.Tell(ctx, e.To, handoff.AppendMessage(nil, e.Transfer, e.Message))
	if err != nil {
		t.options.Logger.Debug("a message of a hand-off was not delivered", "peer", e.To.Name, "transfer", e.Transfer.String(), "error", err)
	}
	t.count(func(m *Metrics) {
		if err == nil {
			m.MessagesSent++
		} else {
			m.MessagesLost++
		}
	})
}
