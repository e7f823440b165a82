package disk

import (
	"context"
	"fmt"
	"path/filepath"
)

// loading is a segment that is read when the folder is opened.
type loading struct {
	segment *segment
	records []found
	failed  bool
	done    chan struct{} // closed when the others say what came of it
}

// rebuild makes the index from the segments there are, the oldest first. So many are read at
// a time as reads may be under way: a disk answers a thousand small reads in the time of one
// after the other that of tens.
func (d *Disk) rebuild(ctx context.Context) error {
	names, err := d.files.List(d.options.Dir)
	if err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	numbers := make([]uint32, 0, len(names))
	for _, name := range names { // in order: numbers have leading zeros
		var number uint32
		if n, err := fmt.Sscanf(name, "%08d"+suffix, &number); n == 1 && err == nil && segmentName(number) == name {
			numbers = append(numbers, number)
		}
	}
	ahead := make([]*loading, 0, d.options.MaxReads)
	defer func() {
		for _, l := range ahead { // not taken in: the folder is not opened
			<-l.done
			d.drop(l)
		}
	}()
	for read, next := 0, 0; read < len(numbers); read++ {
		for ; next < len(numbers) && len(ahead) < cap(ahead); next++ {
			ahead = append(ahead, d.begin(ctx, numbers[next]))
		}
		if d.options.Progress != nil {
			d.options.Progress(read, len(numbers))
		}
		l := ahead[0]
		<-l.done
		if ctx.Err() != nil {
			return fmt.Errorf("disk: opening %s: %w", d.options.Dir, ctx.Err())
		}
		ahead = append(ahead[:0], ahead[1:]...)
		d.takeIn(l)
	}
	for d.stats.Bytes > d.options.Bytes {
		d.discard(d.reclaim())
	}
	return nil
}

// begin has a segment loaded on a goroutine of its own, which rebuild waits for.
func (d *Disk) begin(ctx context.Context, number uint32) *loading {
	l := &loading{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		if ctx.Err() != nil {
			return
		}
		path := filepath.Join(d.options.Dir, segmentName(number))
		var err error
		if l.segment, l.records, err = d.load(number, path); err != nil {
			l.segment, l.failed = d.unread(number, path), true
		}
	}()
	return l
}

// takeIn lets what a segment has be found.
func (d *Disk) takeIn(l *loading) {
	s := l.segment
	if l.failed || s.untrimmed {
		d.stats.Failed++
	}
	for _, r := range l.records {
		if r.dropped {
			delete(d.index, r.hash)
		} else {
			d.index[r.hash] = r.place
		}
	}
	d.next = max(d.next, s.number+1)
	d.segments[s.number] = s
	d.stats.Bytes += uint64(s.size)
}

// drop lets go of a segment that was loaded and is not taken in.
func (d *Disk) drop(l *loading) {
	if l.segment != nil && l.segment.file != nil {
		_ = l.segment.file.Close() // nothing was written
	}
}
