package election

import (
	"encoding/json"
	"fmt"

	"meridian/kv"
	"meridian/member/directory"
)

// Leader is who leads, and in which term.
type Leader struct {
	kv.Member
	Term uint64
}

// maxName bounds an agent's name, as its certificate does.
const maxName = 255

// record is a leader as it writes itself down, in JSON.
type record struct {
	Name        string `json:"name"`
	Incarnation kv.ID  `json:"incarnation"`
}

// recordKey is where the leader's record stands.
func recordKey(key string) string { return key + "/leader" }

func encode(m kv.Member) ([]byte, error) {
	return json.Marshal(record{Name: m.Name, Incarnation: m.Incarnation})
}

// parse reads a record of the directory, whose writers are not trusted.
func parse(r directory.Record) (Leader, error) {
	var said record
	if err := json.Unmarshal(r.Value, &said); err != nil {
		return Leader{}, fmt.Errorf("election: the record at %s cannot be read: %w", r.Key, err)
	}
	if said.Name == "" || len(said.Name) > maxName {
		return Leader{}, fmt.Errorf("election: the record at %s has a name of %d bytes, not of 1 to %d", r.Key, len(said.Name), maxName)
	}
	return Leader{Member: kv.Member{Name: said.Name, Incarnation: said.Incarnation}, Term: uint64(r.Revision)}, nil
}
