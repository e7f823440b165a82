package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	// replaySilence: vLLM looks for who asks a few times a second; a replay that
	// is silent for longer has ended, with or without its last message.
	replaySilence = 3 * time.Second
	// replayRounds bound how often the rest is asked for. A publisher drops what
	// its queue for us has no place for, in the middle of a replay.
	replayRounds = 100
)

var errCutReplay = errors.New("kvevents: replays leave out more than they tell")

// replay visits every batch that the publisher still has from a number on, in
// order and without a hole after the first.
func (s *Subscriber) replay(ctx context.Context, from uint64, visit func(sequence uint64, payload []byte) error) error {
	next, begun := from, false
	for range replayRounds {
		before := next
		complete, err := s.replayRound(ctx, next, func(sequence uint64, payload []byte) (bool, error) {
			if begun && sequence != next {
				return false, nil // a hole: the rest is asked for again
			}
			begun, next = true, sequence+1
			return true, visit(sequence, payload)
		})
		if err != nil || complete {
			return err
		}
		if next == before {
			break
		}
	}
	return errCutReplay
}

// replayRound asks once. It is complete where nothing was refused and the end
// was seen.
func (s *Subscriber) replayRound(ctx context.Context, from uint64, visit func(uint64, []byte) (bool, error)) (complete bool, err error) {
	c, err := s.dial(ctx, s.options.Replay, dealer)
	if err != nil {
		return false, fmt.Errorf("replay: %w", err)
	}
	defer c.close()
	if err := c.wire.send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return false, fmt.Errorf("replay: %w", err)
	}
	for whole := true; ; {
		if err := c.socket.SetReadDeadline(time.Now().Add(replaySilence)); err != nil {
			return false, err
		}
		frames, err := c.wire.receive()
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("replay: %w", err)
		}
		sequence, payload, ok := numbered(frames)
		switch {
		case !ok:
			return false, fmt.Errorf("%w: a replay of %d frames", ErrProtocol, len(frames))
		case len(payload) == 0 || sequence == endOfReplay:
			return whole, nil
		case whole:
			if whole, err = visit(sequence, payload); err != nil {
				return false, err
			}
		}
	}
}
