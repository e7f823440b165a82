package directory

import "fmt"

// EventKind says what a watcher hears.
type EventKind uint8

const (
	// Put: Record was created or changed.
	Put EventKind = iota + 1
	// Delete: the record at Record.Key was deleted, or its lease ended.
	Delete
	// Resync: Records is all there is under the prefix; what is not in it is gone.
	Resync
	// Unavailable: the directory cannot be reached, for the reason in Err.
	// What is known stays; no member is dead for it.
	Unavailable
	// Available: the directory is back. It carries Records as a Resync does.
	Available
)

func (k EventKind) String() string {
	if name := [...]string{"", "put", "delete", "resync", "unavailable", "available"}; k >= Put && int(k) < len(name) {
		return name[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is one thing a watcher hears.
type Event struct {
	Kind     EventKind
	Revision Revision // of the change, or of Records
	Record   Record   // Put; of a Delete only the key
	Records  []Record // Resync and Available: everything, sorted by key
	Err      error    // Unavailable: why
}
