//go:build real

package storm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"meridian/serve/door"
	"meridian/serve/producer"
)

// clientOf names the environment of a process of this program that is a client.
const clientOf = "MERIDIAN_STORM_CLIENT"

func TestMain(m *testing.M) {
	if job := os.Getenv(clientOf); job != "" {
		if err := beClient(job); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// doorCache is the object cache through the door of an agent.
type doorCache struct{ *door.Store }

func (c doorCache) judge(err error) error {
	var p *door.Problem
	if errors.As(err, &p) {
		switch p.Code {
		case door.CodeMissing:
			return ErrMissing
		case door.CodeExists, door.CodeFull, door.CodeBusy, door.CodeNotReady:
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	return err
}

// Put writes piece by piece what is too large for a message, and not always.
func (c doorCache) Put(ctx context.Context, key string, value []byte) error {
	if len(value) < 256<<10 || value[len(value)-1]%2 == 0 {
		return c.judge(c.Store.Put(ctx, []byte(key), value, door.Wish{}))
	}
	if _, err := c.Store.Open(ctx, []byte(key), uint64(len(value)), door.Wish{}); err != nil {
		return c.judge(err)
	}
	const piece = 100 << 10
	for at := 0; at < len(value); at += piece {
		if err := c.Store.Write(ctx, []byte(key), uint64(at), value[at:min(len(value), at+piece)]); err != nil {
			return err
		}
	}
	return c.judge(c.Store.Commit(ctx, []byte(key)))
}

func (c doorCache) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := c.Store.Get(ctx, []byte(key))
	return value, c.judge(err)
}

func (c doorCache) Remove(ctx context.Context, key string) error {
	return c.judge(c.Store.Remove(ctx, []byte(key)))
}

func (c doorCache) Owner(ctx context.Context, key string) (string, error) {
	place, err := c.Store.Locate(ctx, []byte(key), 0)
	return place.Owner, err
}

// mappedCache puts without a question where it can: such a put is done when its owner
// has claimed the key.
type mappedCache struct {
	doorCache
	producer *producer.Producer
}

func (c mappedCache) Put(ctx context.Context, key string, value []byte) error {
	err := c.producer.Put(ctx, []byte(key), value, door.Wish{})
	if err != nil {
		return c.judge(err)
	}
	for {
		if _, err = c.Owner(ctx, key); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

const (
	clientThreads = 4
	askPatience   = 4 * time.Second
)

// beClient is a client process: several writers at one door, until it is killed.
func beClient(job string) error {
	var number, count int
	var socket, table string
	var maps bool
	if _, err := fmt.Sscan(job, &number, &count, &socket, &table, &maps); err != nil {
		return err
	}
	checker, err := OpenChecker(table)
	if err != nil {
		return err
	}
	var threads sync.WaitGroup
	for i := range clientThreads {
		threads.Go(func() {
			for {
				cache, err := door.OpenStore(context.Background(), door.StoreOptions{Socket: socket})
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				w := Writer{
					Checker: checker, Cache: doorCache{cache}, Number: number*clientThreads + i, Count: count * clientThreads, Owners: owners, Ask: askPatience,
				}
				if maps {
					w.Cache = mappedCache{doorCache{cache}, producer.Open(cache, "")}
				}
				w.Run(context.Background(), func(err error) { fmt.Printf("%s %v\n", time.Now().Format("05.000"), err) })
			}
		})
	}
	threads.Wait()
	return nil
}
