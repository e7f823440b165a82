package node

import (
	"path/filepath"
	"testing"

	"meridian/move/fabric"
	"meridian/see/history"
)

// A transfer is explained after its agent has gone; one that comes for a question
// leaves no files.
func TestTransfersOutliveTheirAgent(t *testing.T) {
	for hasDoor, files := range map[bool]int{true: 3, false: 0} {
		dir := filepath.Join(t.TempDir(), "state")
		o := AgentOptions{Name: "a", StateDir: dir, Listen: "127.0.0.1:0"}
		if hasDoor {
			o.Door = &Door{}
		}
		o.NoDirectory = true
		n, err := OpenAgent(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		id := loop(t, n)
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		record, err := history.TransferIn(dir, id)
		if err != nil || (record != nil) != hasDoor {
			t.Fatalf("door %v: %v, %v", hasDoor, record, err)
		}
		if hasDoor && (record.ID != id || record.State != fabric.Done || record.Bytes != 100) {
			t.Errorf("%+v", record)
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "*.jsonl")); len(found) != files {
			t.Errorf("door %v: files %v", hasDoor, found)
		}
	}
}
