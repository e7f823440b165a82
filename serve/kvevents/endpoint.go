package kvevents

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Endpoint is where a publisher listens, as ZeroMQ writes it: tcp://host:port or
// ipc:///path.
type Endpoint struct{ network, address string }

// ParseEndpoint reads an endpoint. A publisher that listens everywhere, as
// tcp://*:5557, is found at host.
func ParseEndpoint(text, host string) (Endpoint, error) {
	if path, isIPC := strings.CutPrefix(text, "ipc://"); isIPC && path != "" {
		return Endpoint{"unix", path}, nil
	}
	address, isTCP := strings.CutPrefix(text, "tcp://")
	if !isTCP {
		return Endpoint{}, fmt.Errorf("kvevents: %q is no endpoint: want tcp://host:port or ipc:///path", text)
	}
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return Endpoint{}, fmt.Errorf("kvevents: %q is no endpoint: %w", text, err)
	}
	if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
		return Endpoint{}, fmt.Errorf("kvevents: %q has no port that can be reached", text)
	}
	switch name {
	case "", "*", "0.0.0.0", "::":
		name = host
	}
	if name == "" {
		return Endpoint{}, fmt.Errorf("kvevents: %q does not say which host to ask", text)
	}
	return Endpoint{"tcp", net.JoinHostPort(name, port)}, nil
}

// IsLocal tells whether only this host's processes can publish there.
func (e Endpoint) IsLocal() bool { return e.network == "unix" }

// Rank is where a data-parallel rank publishes: each has the next port.
func (e Endpoint) Rank(rank int) (Endpoint, error) {
	if rank == 0 {
		return e, nil
	}
	host, port, err := net.SplitHostPort(e.address)
	if e.network != "tcp" || err != nil {
		return Endpoint{}, fmt.Errorf("kvevents: %s has no port, so rank %d has no endpoint", e, rank)
	}
	number, err := strconv.Atoi(port)
	if err != nil || number+rank > 65535 {
		return Endpoint{}, fmt.Errorf("kvevents: %s leaves no port for rank %d", e, rank)
	}
	return Endpoint{"tcp", net.JoinHostPort(host, strconv.Itoa(number+rank))}, nil
}

func (e Endpoint) String() string {
	if e.network == "unix" {
		return "ipc://" + e.address
	}
	return "tcp://" + e.address
}

// IsZero is true of no endpoint at all.
func (e Endpoint) IsZero() bool { return e == Endpoint{} }
