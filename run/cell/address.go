package cell

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"syscall"
)

// Where the gateway listens unless a flag says otherwise.
const (
	DefaultListen = "127.0.0.1:8080"
	DefaultAdmin  = "127.0.0.1:8081"
)

// address is the one that was asked for, or the first free one from the
// default on. It tells when that is another.
func (c *Cell) address(what, asked, standard string, taken ...string) (string, error) {
	if asked != "" {
		return settled(asked, taken...)
	}
	found, err := freeFrom(standard, taken...)
	if err == nil && found != standard {
		c.tell(Event{Part: "gateway", Kind: Gateway, State: Waiting, Detail: fmt.Sprintf("%s is taken; the %s is at %s", standard, what, found)})
	}
	return found, err
}

// Linux gives outgoing connections ports from 32768 on, unless it is told otherwise. One of
// those could be taken before the gateway listens there.
const lowestChosen, highestChosen = 20000, 32000

// settled is an address whose port, if the system may choose one, is chosen now:
// a gateway that is started again is to be found where it was.
func settled(address string, taken ...string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "0" {
		return address, nil // what is wrong with it, the gateway says
	}
	return freeFrom(net.JoinHostPort(host, strconv.Itoa(lowestChosen+rand.IntN(highestChosen-lowestChosen))), taken...)
}

// portsTried is how many ports are looked at.
const portsTried = 100

func freeFrom(standard string, taken ...string) (string, error) {
	host, text, err := net.SplitHostPort(standard)
	if err != nil {
		return "", err
	}
	first, err := strconv.Atoi(text)
	if err != nil {
		return "", err
	}
	for port := first; port < first+portsTried; port++ {
		address := net.JoinHostPort(host, strconv.Itoa(port))
		if slices.Contains(taken, address) {
			continue
		}
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return address, listener.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", fmt.Errorf("cell: %w", err)
		}
	}
	return "", fmt.Errorf("cell: ports %d to %d of %s are taken; name one that is free with --listen and --admin", first, first+portsTried-1, host)
}
