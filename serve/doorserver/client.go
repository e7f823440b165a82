package doorserver

import (
	"fmt"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// registerClient lets a client in that is no engine. It may ask for the status; it
// lends nothing, and its end fences nothing.
func (s *Server) registerClient(c *conn, hello *doorpb.Hello) *door.Problem {
	if id := hello.GetEngine(); id != "" {
		return problem(door.CodeTerms, "a client is part of no engine, and this one names %.80q", id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clients := 0
	for other := range s.conns {
		if other.rank == client {
			clients++
		}
	}
	switch {
	case s.closing:
		return problem(door.CodeFenced, "the agent stops")
	case clients >= s.options.MaxClients:
		return busy(fmt.Sprintf("%d clients are here, which is the limit", clients))
	}
	c.rank = client
	s.welcome(c, hello)
	return nil
}

// status says how the door is.
func (s *Server) status() *doorpb.Reply {
	m := s.Metrics()
	return &doorpb.Reply{With: &doorpb.Reply_Status{Status: &doorpb.AgentStatus{
		Connections: uint32(m.Connections), Engines: uint32(m.Engines), Serving: uint32(m.Serving),
	}}}
}

// choice says what is wrong with a message in which one of several things must be
// chosen and none was that this build knows.
func choice(unknown []byte, message string) *door.Problem {
	if len(unknown) > 0 { // a newer engine's, most likely
		return problem(door.CodeUnsupported, "%s, or something that this agent does not know", message)
	}
	return problem(door.CodeMalformed, "%s", message)
}
