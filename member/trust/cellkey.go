package trust

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// CellKeyFile is where a state directory keeps the cell's key.
const CellKeyFile = "cell.key"

const keyBytes = 32

// CellKey is the secret that all agents of one user on one machine share. It
// never prints itself. The zero CellKey is no key: using it panics.
type CellKey struct{ secret *[keyBytes]byte }

// Purpose names what a derived key is for. A key for one purpose tells nothing
// about the cell's key nor about the key for another.
type Purpose string

// Purposes of derived keys.
const (
	ForTickets     Purpose = "tickets"
	ForGatewayLegs Purpose = "gateway legs"
	// ForRealms names a key to holders of the same key, and says nothing of it.
	ForRealms Purpose = "realms"
)

// OpenCellKey loads the key of a state directory, and makes directory and key
// where there is none. Processes that start at once end up with one key. A key
// that others can read, or that is damaged, is refused and left as it is.
func OpenCellKey(stateDir string) (CellKey, error) {
	path := filepath.Join(stateDir, CellKeyFile)
	if err := makeDir(stateDir); err != nil {
		return CellKey{}, keyFault(path, err)
	}
	key, err := loadCellKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, keyFault(path, err)
	}
	if err := createFile(path, newCellKey().text(), secretMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return CellKey{}, keyFault(path, err)
	}
	// The process that came first has made it: what counts is what stands there now.
	key, err = loadCellKey(path)
	return key, keyFault(path, err)
}

func newCellKey() CellKey {
	var secret [keyBytes]byte
	rand.Read(secret[:])
	return CellKey{&secret}
}

func loadCellKey(path string) (CellKey, error) {
	data, err := readFile(path, ownerOnly)
	if err != nil {
		return CellKey{}, err
	}
	return parseCellKey(data)
}

// parseCellKey reads 64 hex digits and a newline, which may be missing.
func parseCellKey(data []byte) (CellKey, error) {
	digits := strings.TrimSuffix(string(data), "\n")
	var secret [keyBytes]byte
	if len(digits) != hex.EncodedLen(keyBytes) {
		return CellKey{}, because(ErrFile, fmt.Sprintf("it has %d bytes where %d hex digits should be", len(digits), hex.EncodedLen(keyBytes)))
	}
	if _, err := hex.Decode(secret[:], []byte(digits)); err != nil {
		return CellKey{}, because(ErrFile, "not all of it are hex digits")
	}
	if secret == ([keyBytes]byte{}) {
		return CellKey{}, because(ErrFile, "it is all zeros, which is easily guessed")
	}
	return CellKey{&secret}, nil
}

func (k CellKey) text() []byte { return []byte(hex.EncodeToString(k.secret[:]) + "\n") }

func keyFault(path string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case errors.Is(err, ErrFile):
		hint = "if every agent that uses it has stopped, remove it: the next start makes a new one"
	case errors.Is(err, ErrExposed):
		hint = "others may know it: stop the agents that use it, remove it and start them again"
	}
	return &Error{Op: "open cell key", Subject: path, Err: err, Hint: hint}
}

// Derive makes the key for one purpose: HKDF-SHA256 of the cell's key without
// salt, with "meridian purpose " and the purpose as info.
func (k CellKey) Derive(p Purpose) [keyBytes]byte { return k.derive("purpose " + string(p)) }

func (k CellKey) derive(info string) [keyBytes]byte {
	derived, err := hkdf.Key(sha256.New, k.secret[:], nil, "meridian "+info, keyBytes)
	if err != nil {
		panic(err) // only a length beyond 255 hashes is refused
	}
	return [keyBytes]byte(derived)
}

func (k CellKey) String() string   { return "cell key" }
func (k CellKey) GoString() string { return "trust.CellKey{}" }
