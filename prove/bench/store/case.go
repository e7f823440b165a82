package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	put = "put"
	get = "get"
)

// Case is one row's work: so many objects of so many bytes, each put or got once
// in a round.
type Case struct {
	Op      string `json:"op"`
	Object  uint64 `json:"object"`
	Clients int    `json:"clients"`
	Count   int    `json:"count"`
}

func (c Case) bytes() uint64 { return c.Object * uint64(c.Count) }

// Lap is what one round took, and each of its operations.
type Lap struct {
	Took time.Duration
	Each []time.Duration
}

func (l Lap) gbps(c Case) float64 { return float64(c.bytes()) / 1e9 / l.Took.Seconds() }

// run lets every client do its share of the objects, one after the other: client
// k takes objects k, k + Clients and so on.
func (c Case) run(ctx context.Context, do func(ctx context.Context, client, object int) error) (Lap, error) {
	lap := Lap{Each: make([]time.Duration, c.Count)}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var clients sync.WaitGroup
	start := time.Now()
	for client := range c.Clients {
		clients.Go(func() {
			before := time.Now()
			for object := client; object < c.Count; object += c.Clients {
				if err := do(ctx, client, object); err != nil {
					fail(fmt.Errorf("object %d of %d: %w", object+1, c.Count, err))
					return
				}
				now := time.Now()
				lap.Each[object] = now.Sub(before)
				before = now
			}
		})
	}
	clients.Wait()
	lap.Took = time.Since(start)
	return lap, context.Cause(ctx)
}

// slot is where an object lies in the memory of its client.
func (c Case) slot(memory []byte, object int) []byte {
	at := uint64(object/c.Clients) * c.Object
	return memory[at : at+c.Object : at+c.Object]
}

// memoryBytes is what one client needs.
func (c Case) memoryBytes() uint64 {
	return uint64((c.Count+c.Clients-1)/c.Clients) * c.Object
}

// key names an object; no two rounds of a row, and no two rows, share one.
func key(row, round, object int) string { return fmt.Sprintf("bench/%d/%d/%d", row, round, object) }

const wordBytes = 8

// fill writes the contents of an object, which no other object has.
func fill(part []byte, object int) {
	for at := 0; at+wordBytes <= len(part); at += wordBytes {
		binary.LittleEndian.PutUint64(part[at:], uint64(object+1)<<40+uint64(at))
	}
}

// ErrContents means that something else came back than was put.
var ErrContents = errors.New("bench: wrong contents")

// check compares every object with what was put.
func (c Case) check(memory func(object int) []byte) error {
	want := make([]byte, c.Object)
	for object := range c.Count {
		fill(want, object)
		if !bytes.Equal(memory(object), want) {
			return fmt.Errorf("%w: object %d of %d", ErrContents, object+1, c.Count)
		}
	}
	return nil
}
