package host

import (
	"fmt"
	"os"
	"strings"

	"meridian/move/fabric"
)

// An address is the machine and the socket on it: "BOOT-ID:/path/to/socket", with
// "BOOT-ID.REALM" of agents that have one.

// bootID names this boot of this machine; containers of it share the name, and
// then the socket's path decides.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("host: which machine is this: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// socketOf is the path in an address, if it is on this machine.
func socketOf(address []byte, hostID string) (string, error) {
	machine, path, found := strings.Cut(string(address), ":")
	switch {
	case !found || !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("%w: %q is not an address of the host fabric", fabric.ErrUnsupported, address)
	case machine != hostID && boot(machine) == boot(hostID):
		return "", fmt.Errorf("%w: the peer is on this machine, and has another cell key", fabric.ErrUnsupported)
	case machine != hostID:
		return "", fmt.Errorf("%w: the peer is on machine %s, this is %s", fabric.ErrUnsupported, machine, hostID)
	}
	return path, nil
}

// boot is a host's id without its realm.
func boot(hostID string) string {
	id, _, _ := strings.Cut(hostID, ".")
	return id
}

// maxSocketPath is what the system allows, with its final zero.
const maxSocketPath = 107

// makeDirectory makes the directory of sockets, for this user alone.
func makeDirectory(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	if open := info.Mode().Perm() & 0o077; open != 0 {
		return fmt.Errorf("host: %s is open to others (%v): chmod 0700 it", dir, info.Mode().Perm())
	}
	return nil
}
