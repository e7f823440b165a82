package doorstore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"meridian/serve/door"
	"meridian/serve/doorserver"
)

// pieceTime is how long a copy of a piece may take. No call takes a page fault in another process's
// memory back, and its client may answer faults itself, or never: what takes longer holds what it
// has, its client gets no more until it has ended, and an operator is told.
const pieceTime = 5 * time.Second

// slowMemory counts the copies that take too long.
type slowMemory struct {
	pieceTime time.Duration
	logger    *slog.Logger

	mu      sync.Mutex                // protects the rest
	overdue map[doorserver.Client]int // copies that have not ended, of each client that has such
	pieces  uint64                    // that took too long, of all clients
}

func newSlowMemory(logger *slog.Logger) *slowMemory {
	return &slowMemory{pieceTime: pieceTime, logger: logger, overdue: make(map[doorserver.Client]int)}
}

// Metrics is a snapshot of the copies between clients' memory and the cache.
type Metrics struct {
	// Overdue are copies that go on although their time is over, SlowPieces all that took too long.
	Overdue    int    `metric:"meridian_door_memory_overdue"`
	SlowPieces uint64 `metric:"meridian_door_slow_pieces_total"`
}

// Metrics returns a snapshot.
func (c *Cache) Metrics() Metrics {
	s := c.slow
	s.mu.Lock()
	defer s.mu.Unlock()
	m := Metrics{SlowPieces: s.pieces}
	for _, n := range s.overdue {
		m.Overdue += n
	}
	return m
}

// refuse is the problem of a client whose memory is waited for.
func (s *slowMemory) refuse(client doorserver.Client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.overdue[client]; n > 0 {
		return &door.Problem{
			Code: door.CodeBusy, Message: fmt.Sprintf("%d copies of this process's memory have not ended in %v each", n, s.pieceTime),
			Hint: "its pages do not come: userfaultfd, FUSE, or a disk that hangs",
		}
	}
	return nil
}

// copy copies a piece of a client's memory. One that took too long ends the request, though all of it
// has come: the next may take as long.
func (s *slowMemory) copy(client doorserver.Client, piece func() error) error {
	var ended, late bool // under mu
	alarm := time.AfterFunc(s.pieceTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if late = !ended; !late {
			return
		}
		s.pieces++
		s.overdue[client]++
		s.logger.Warn("memory of a client does not come; its share of the memory for copies is held until it does, or its process ends",
			"pid", client.Process, "ms", s.pieceTime.Milliseconds())
	})
	err := piece()
	alarm.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended = true; !late {
		return err
	}
	if s.overdue[client]--; s.overdue[client] == 0 {
		delete(s.overdue, client)
	}
	return errors.Join(err, &door.Problem{Code: door.CodeDeadline, Message: fmt.Sprintf("a copy of this process's memory took longer than %v", s.pieceTime)})
}
