package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/prove/bench"
)

// request is a line to the serving side; each has one answer.
type request struct {
	// Do is open, load, clear, check, echo or pong; for hand-offs lend, meet,
	// offer or settle; in a cell that is watched also cell, unwatched, collect, watch
	// or leave.
	Do       string        `json:"do"`
	Setup    *setup        `json:"setup,omitempty"`
	Case     *Case         `json:"case,omitempty"`
	Peer     *introduction `json:"peer,omitempty"`
	Staging  *staging      `json:"staging,omitempty"`
	Metadata []byte        `json:"metadata,omitempty"`
	Traced   bool          `json:"traced,omitempty"`
	Cell     *cellSetup    `json:"cell,omitempty"`
	URL      string        `json:"url,omitempty"`
}

type answer struct {
	Self     *introduction `json:"self,omitempty"`
	Address  string        `json:"address,omitempty"`
	Grant    kv.ID         `json:"grant,omitzero"`
	Metadata []byte        `json:"metadata,omitempty"`
	Tickets  [][]byte      `json:"tickets,omitempty"`
	Traced   []kv.ID       `json:"traced,omitempty"`
	Seen     *Seen         `json:"seen,omitempty"`
}

// server is the serving side of a measurement, in a process of its own or, with
// the opener of the posting side, in that one's.
type server struct {
	*endpoint
	opened      bench.Opened // the endpoint, or the parts of a hand-off's cell
	engine      *engine      // of a hand-off
	rest        *restOfCell
	watcher     *watcher
	opener      opener
	current     Case
	stopProfile func() error
	echoing     sync.WaitGroup
	stopEcho    context.CancelFunc
	pong        net.Listener
}

// closeLimit bounds how long a side takes to close in order.
const closeLimit = 10 * time.Second

func newServer(o opener) *server {
	return &server{opener: o, stopProfile: func() error { return nil }, stopEcho: func() {}}
}

// Serve is the serving side: it does what the lines of in ask, answers on out,
// and returns when in ends.
func Serve(in io.Reader, out io.Writer) error {
	s := newServer(nil)
	defer s.stopEcho()
	err := bench.Answer(in, out, func(r request) (any, error) { return s.do(context.Background(), r) })
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	return errors.Join(err, s.close(ctx))
}

func (s *server) do(ctx context.Context, r request) (answer, error) {
	switch r.Do {
	case "lend", "meet", "offer", "settle":
		return s.lending(ctx, r)
	case "cell", "unwatched", "collect", "watch", "leave":
		return s.watched(ctx, r)
	}
	if s.endpoint == nil && r.Do != "open" {
		return answer{}, fmt.Errorf("%q before open", r.Do)
	}
	switch r.Do {
	case "open":
		return s.open(ctx, *r.Setup)
	case "load":
		s.current = *r.Case
		if err := s.load(ctx, s.current); err != nil {
			return answer{}, err
		}
		grant, err := s.shield.open(ctx, s.current, s.self.Region)
		return answer{Grant: grant}, err
	case "clear":
		return answer{}, s.clear(ctx)
	case "check":
		return answer{}, s.check(ctx, s.current)
	case "echo":
		return answer{}, s.echo(ctx, r.Peer.peer())
	case "pong":
		return s.listen(ctx)
	}
	return answer{}, fmt.Errorf("no request %q", r.Do)
}

func (s *server) open(ctx context.Context, o setup) (a answer, err error) {
	if s.stopProfile, err = bench.StartProfile(o.CPUProfile, o.profileName()); err != nil {
		return a, err
	}
	if s.opener == nil {
		s.opener = fabricByName(o.Fabric).opener()
	}
	if s.endpoint, err = openEndpoint(ctx, serving, o, s.opener); err != nil {
		return a, err
	}
	s.opened.Closes(s.endpoint.Close)
	return answer{Self: &s.self}, nil
}

// The two notifications of a latency measurement.
const (
	keepQuiet   = "q"
	pleaseReply = "r"
)

// echo answers notifications that ask for it, by a link of this side's own.
func (s *server) echo(ctx context.Context, p fabric.Peer) error {
	ctx, s.stopEcho = context.WithCancel(ctx)
	back, err := s.fabric.Connect(ctx, p)
	if err != nil {
		return err
	}
	s.echoing.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case n := <-s.notes:
				if string(n.Payload) == pleaseReply {
					// When it fails the other side waits in vain and says so.
					_ = back.Notify(ctx, newID(), n.Payload)
				}
			}
		}
	})
	return nil
}

func (s *server) close(ctx context.Context) error {
	s.stopEcho()
	err := s.closePong()
	s.echoing.Wait()
	return errors.Join(err, s.opened.Close(ctx), s.stopProfile())
}
