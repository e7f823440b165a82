package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"meridian/keep/store"
	"meridian/member/directory/etcd/embedded"
	"meridian/prove/bench"
)

// ownRequest is a line to a process that Own runs in.
type ownRequest struct {
	// Do is directory, or own.
	Do      string  `json:"do"`
	Meeting meeting `json:"meeting"`
	// Of an owner.
	Name  string `json:"name,omitempty"`
	Arena uint64 `json:"arena,omitempty"`
	// Master says that it may be the master, too.
	Master bool `json:"master,omitempty"`
}

type ownAnswer struct {
	Endpoint string `json:"endpoint,omitempty"`
}

// own is what one of those processes is: the directory, or an owner.
type own struct{ bench.Opened }

const patientLease = time.Minute

// leastExtent is what the smallest objects that are measured take of an arena.
const leastExtent = 4 << 10

// Own keeps the directory or an arena for a measurement: it does what the lines of
// in ask, answers on out, and returns when in ends.
func Own(in io.Reader, out io.Writer) error {
	w := &own{}
	err := bench.Answer(in, out, func(r ownRequest) (any, error) { return w.do(context.Background(), r) })
	return errors.Join(err, w.CloseWithin(closeLimit))
}

func (w *own) do(ctx context.Context, r ownRequest) (a ownAnswer, err error) {
	switch r.Do {
	case "directory":
		directory, err := embedded.Open(ctx, embedded.Options{Dir: r.Meeting.Dir})
		if err != nil {
			return a, err
		}
		w.Closes(directory.Close)
		return ownAnswer{Endpoint: directory.Endpoint()}, nil
	case "own":
		party, err := join(ctx, r.Name, r.Meeting)
		if err != nil {
			return a, err
		}
		w.Closes(party.Close)
		s, err := store.Open(ctx, store.Options{
			Agent: party.agent, Directory: party.directory, Candidate: r.Master,
			// A machine that stands still for seconds is slow, and not dead.
			MasterTTL: patientLease, Lease: patientLease / 2,
			// No object is smaller than a page of memory, but for those of tests.
			Owner: &store.OwnerOptions{Bytes: r.Arena, Headers: uint32(r.Arena / leastExtent)},
		})
		if err == nil {
			w.Closes(s.Close)
		}
		return a, err
	}
	return a, fmt.Errorf("no request %q", r.Do)
}
