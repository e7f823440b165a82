package kv

import (
	"bytes"
	"encoding/hex"
	"fmt"
)

// ID names a transfer, an incarnation, a grant or a link: 128 random bits.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Compare orders ids.
func (id ID) Compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// ParseID reads the 32 hex digits that String writes.
func ParseID(text string) (ID, error) {
	var id ID
	if len(text) != 2*len(id) {
		return ID{}, fmt.Errorf("kv: an id of %d characters: want %d hex digits", len(text), 2*len(id))
	}
	if _, err := hex.Decode(id[:], []byte(text)); err != nil {
		return ID{}, fmt.Errorf("kv: %q is not an id: want %d hex digits", text, 2*len(id))
	}
	return id, nil
}

// MarshalText writes id as String does.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}
