package tcp

import (
	"io"
	"net"
	"sync"

	"meridian/move/fabric/link"
	"meridian/move/mrdn"
)

// stream is one TCP connection of a link: a sender and a receiver, which have
// the socket in common and their locks for themselves.
type stream struct {
	end     link.End
	options *Options
	socket  *socket
	*sender
	*receiver
}

func newStream(secured net.Conn, o *Options, e link.End) (*stream, error) {
	k, err := newSocket(secured)
	if err != nil {
		return nil, err
	}
	s := &stream{end: e, options: o, socket: k, sender: newSender(k, o, e)}
	s.receiver = newReceiver(s)
	return s, nil
}

// run serves the stream until it breaks, and returns when both directions have
// stopped.
func (s *stream) run() {
	var writer sync.WaitGroup
	writer.Go(func() {
		defer s.fetcher.close()
		if err := s.writeLoop(); err != nil {
			s.end.Lost(s.causeOf(err))
		}
	})
	err := s.readLoop()
	if err == nil {
		err = io.EOF
	}
	s.end.Lost(s.causeOf(err))
	s.Close()
	writer.Wait()
}

// Close breaks the stream; who waits on it wakes up.
func (s *stream) Close() { s.closeFor(nil) }

// Quiet stops every part that match selects, in both directions. When it
// returns the stream does not touch their memory any more.
func (s *stream) Quiet(match func(link.Part) bool) {
	s.quietSending(match)
	s.scatter.quiet(match)
}

// keepAlive is called once in a keep-alive. It tells the peer that this side
// lives, unless something has left since the last time, and reports whether the
// peer has been silent for too long.
//
// A side does not wait to be asked: the question may be behind bytes that a slow
// network takes longer than that to deliver. Those bytes are a sign of life to
// the side that they reach, and this is the one to the side that sends them. It
// asks all the same, for peers that speak only when they are asked.
func (s *stream) keepAlive() (dead bool) {
	if !s.socket.spoke.Swap(false) {
		s.sayAlive()
		s.socket.spoke.Store(false)
	}
	ask, dead := s.socket.silence.Check()
	if ask {
		s.Send(mrdn.AppendPing(nil))
	}
	return dead
}
