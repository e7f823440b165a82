package directory

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// View is what a watcher knows: feed it every event of one watch. The zero
// View knows nothing yet.
type View struct {
	records map[string]Record
	known   bool
}

// Apply takes in an event and returns what is new because of it: the records
// that appeared or changed, and those that are gone, as they last were.
func (v *View) Apply(e Event) (changed, gone []Record) {
	if v.records == nil {
		v.records = make(map[string]Record)
	}
	switch e.Kind {
	case Put:
		v.records[e.Record.Key] = e.Record
		return []Record{e.Record}, nil
	case Delete:
		if last, had := v.records[e.Record.Key]; had {
			delete(v.records, e.Record.Key)
			gone = []Record{last}
		}
		return nil, gone
	case Resync, Available:
		return v.replace(e.Records)
	case Unavailable:
		v.known = false
	}
	return nil, nil
}

func (v *View) replace(records []Record) (changed, gone []Record) {
	v.known = true
	now := make(map[string]Record, len(records))
	for _, r := range records {
		now[r.Key] = r
		if last, had := v.records[r.Key]; !had || last.Revision != r.Revision || !bytes.Equal(last.Value, r.Value) {
			changed = append(changed, r)
		}
	}
	for _, last := range v.records {
		if _, has := now[last.Key]; !has {
			gone = append(gone, last)
		}
	}
	v.records = now
	slices.SortFunc(gone, byKey)
	return changed, gone
}

// Known is false before the first full state and while the directory is away:
// the records are then the last that was heard.
func (v *View) Known() bool { return v.known }

func (v *View) Get(key string) (Record, bool) {
	r, has := v.records[key]
	return r, has
}

// Records are sorted by key.
func (v *View) Records() []Record { return slices.SortedFunc(maps.Values(v.records), byKey) }

func byKey(a, b Record) int { return cmp.Compare(a.Key, b.Key) }
