package serving

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// heard is what clients of one round came home with.
type heard struct {
	latencies []time.Duration
	lasted    time.Duration
}

// askAll has so many clients ask, each one request after the other on a
// connection of its own, until the time is over. Every answer is read to its
// end and must be a good one.
func askAll(ctx context.Context, address string, a stubAnswer, clients int, lasts time.Duration) (heard, error) {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var mu sync.Mutex // protects all and errs
	var all heard
	var errs []error
	var active sync.WaitGroup
	began := time.Now()
	for range clients {
		active.Go(func() {
			latencies, err := ask(ctx, address, a)
			mu.Lock()
			defer mu.Unlock()
			all.latencies = append(all.latencies, latencies...)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	active.Wait()
	all.lasted = time.Since(began)
	if len(all.latencies) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("not one request was answered"))
	}
	if ctx.Err() == context.Canceled {
		errs = append(errs, ctx.Err())
	}
	if len(errs) > 0 {
		return heard{}, errs[0]
	}
	return all, nil
}

// answerTimeout is far beyond what a stub's answer takes.
const answerTimeout = 10 * time.Second

func ask(ctx context.Context, address string, a stubAnswer) ([]time.Duration, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 16<<10)
	var latencies []time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		_ = conn.SetDeadline(began.Add(answerTimeout))
		if _, err := conn.Write(a.request); err != nil {
			return nil, err
		}
		if err := hearAnswer(in); err != nil {
			return nil, err
		}
		latencies = append(latencies, time.Since(began))
	}
	return latencies, nil
}

// hearAnswer reads a response to its end.
func hearAnswer(in *bufio.Reader) error {
	status, length, err := readHead(in)
	switch {
	case err != nil:
		return err
	case status != "200":
		text, _ := in.Peek(min(in.Buffered(), 500))
		return fmt.Errorf("the answer has status %s: %s", status, text)
	case length >= 0:
		_, err := in.Discard(length)
		return err
	}
	done := false
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return errNoHTTP
		}
		chunk, err := in.Peek(min(int(size), in.Size()))
		if err != nil && err != io.EOF {
			return err
		}
		done = done || bytes.Contains(chunk, []byte("[DONE]"))
		if _, err := in.Discard(int(size) + len("\r\n")); err != nil {
			return err
		}
		if size == 0 {
			if !done {
				return errors.New("a stream ended without saying so")
			}
			return nil
		}
	}
}
