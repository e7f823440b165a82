package fabrictest

import (
	"errors"
	"sync"
	"time"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// toyOp is one transfer of a toy, on its own goroutine.
type toyOp struct {
	link *toyLink
	p    *fabric.Prepared
	o    fabric.PostOptions

	mu       sync.Mutex // protects transfer, cause
	transfer *fabric.Transfer
	cause    error
	stopped  chan struct{}
	quiet    chan struct{} // closed when it touches no memory any more
}

func (o *toyOp) has(x fault) bool { return o.link.near.has(x) }

func (o *toyOp) stop(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cause == nil {
		o.cause = cause
		close(o.stopped)
	}
}

func (o *toyOp) stopCause() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cause
}

func (o *toyOp) touches(f *toy, region uint64) bool {
	list := fabric.List(nil)
	if o.link.near == f {
		list = append(list, o.p.Local.List...)
	}
	if o.link.far == f {
		list = append(list, o.p.Remote...)
	}
	for i := range list {
		if list[i].Region == region {
			return true
		}
	}
	return false
}

func (o *toyOp) run() {
	o.mu.Lock() // Post has to hand out the transfer first
	t := o.transfer
	o.mu.Unlock()
	state, err := o.perform()
	if state == fabric.InDoubt && o.has("denies what is in doubt") {
		state = fabric.NotSubmitted
	}
	if state != fabric.Done && o.has("says done when stopped") {
		state, err = fabric.Done, nil
	}
	near, far := o.link.near, o.link.far
	for _, f := range []*toy{near, far} {
		f.mu.Lock()
		delete(f.ops, o)
		f.mu.Unlock()
	}
	t.Finish(state, err)
	close(o.quiet)
}

func (o *toyOp) perform() (fabric.State, error) {
	if !o.has("hangs when stopped") {
		select {
		case <-o.link.near.network.gated():
		case <-o.stopped:
			return fabric.NotSubmitted, o.stopCause()
		}
	} else {
		<-o.link.near.network.gated()
	}
	if err := o.link.near.regions.Current(o.p.Local); err != nil && !o.has("runs what was prepared before a fence") {
		return fabric.NotSubmitted, err
	}
	remote, err := o.admit()
	if err != nil {
		return fabric.NotSubmitted, err
	}
	if !o.has("keeps a reference") {
		defer remote.Release()
	}
	if o.o.Notify && o.has("notifies before the data") {
		if err := o.notify(); err != nil {
			return fabric.NotSubmitted, err
		}
	}
	o.transfer.Advance(fabric.Submitting)
	if moved, err := o.copy(remote); err != nil {
		if moved {
			return fabric.InDoubt, err
		}
		return fabric.NotSubmitted, err
	}
	o.transfer.Advance(fabric.Submitted)
	if o.o.Notify && !o.has("notifies before the data") {
		if err := o.notify(); err != nil {
			if o.p.Bytes == 0 || o.has("denies data whose notification was refused") {
				return fabric.NotSubmitted, err
			}
			return fabric.InDoubt, err
		}
	}
	return fabric.Done, nil
}

// admit finds the far side's memory, as far as the fault lets it.
func (o *toyOp) admit() (*fabric.Bound, error) {
	far := o.link.far
	far.mu.Lock()
	defer far.mu.Unlock()
	if far.closed {
		return nil, fabric.ErrPeerGone
	}
	if err := far.guard.Admit(fabric.Access{Peer: o.link.near.self.Name, Grant: o.o.Grant, Op: o.p.Op, List: o.p.Remote}); err != nil && !o.has("asks no guard") {
		return nil, err
	}
	far.ops[o] = struct{}{}
	b, err := far.regions.Bind(o.p.Remote)
	for ignores, what := range map[fault]error{
		"ignores epochs": fabric.ErrStaleEpoch, "ignores regions": fabric.ErrUnknownRegion, "ignores remote bounds": mem.ErrBounds,
	} {
		if o.has(ignores) && errors.Is(err, what) {
			return far.regions.Bind(nil) // as if there were nothing to refuse
		}
	}
	return b, err
}

func (o *toyOp) notify() error {
	l := o.link
	if o.has("loses empty notifications") && len(o.o.Notification) == 0 {
		return nil
	}
	n := fabric.Notification{From: l.near.self.Name, Incarnation: l.near.self.Incarnation, Transfer: o.o.ID, Payload: o.o.Notification}
	if o.has("forges the sender") {
		n.From = "forger"
	}
	if o.has("notifies twice") {
		_, _ = l.far.events.Notified(n)
	}
	_, err := l.far.events.Notified(n)
	if o.has("swallows a refusal") {
		return nil
	}
	return err
}

// copy moves bytes piece by piece and looks for a stop before each.
func (o *toyOp) copy(remote *fabric.Bound) (moved bool, err error) {
	if len(remote.List) != len(o.p.Remote) {
		return false, nil // the fault forgave something
	}
	dst, src := o.p.Local, remote
	if o.p.Op == fabric.Write {
		dst, src = src, dst
	}
	from, to := src.List.Walk(), dst.List.Walk()
	for from.Left() > 0 {
		select {
		case <-o.stopped:
			return moved, o.afterStop(dst, src, from, to)
		default:
		}
		in := from.Next(4096)
		source := src.Section(in.Part).Bytes(in.Offset, in.Length)
		for len(source) > 0 {
			out := to.Next(uint64(len(source)))
			target := dst.Section(out.Part).Bytes(out.Offset, out.Length)
			if o.has("drops the last byte") && to.Left() == 0 {
				target = target[:len(target)-1]
			}
			copy(target, source)
			source = source[out.Length:]
		}
		moved = true
		if slow := o.link.near.network.slow; slow > 0 {
			time.Sleep(slow)
		}
	}
	if moved {
		o.spoil(dst, src)
	}
	return moved, nil
}

// afterStop goes on where it must not.
func (o *toyOp) afterStop(dst, src *fabric.Bound, from, to fabric.Walk) error {
	cause := o.stopCause()
	if o.has("deregister does not wait") {
		time.Sleep(50 * time.Millisecond) // so that a caller that did not wait is seen
		out := to.Next(1)
		dst.Section(out.Part).Bytes(out.Offset, 1)[0]++
	}
	if !o.has("goes on after a stop") {
		return cause
	}
	targets, sources := held(dst), held(src)
	o.link.near.wait.Go(func() {
		time.Sleep(5 * time.Millisecond)
		for from.Left() > 0 {
			in := from.Next(1)
			out := to.Next(1)
			copy(targets[out.Part].Bytes(out.Offset, 1), sources[in.Part].Bytes(in.Offset, 1))
		}
		for _, s := range append(targets, sources...) {
			s.Release()
		}
	})
	return cause
}

// held takes references of its own.
func held(b *fabric.Bound) (sections []*mem.Section) {
	for i := range b.List {
		s := b.Section(i)
		if err := s.Acquire(); err != nil {
			panic(err)
		}
		sections = append(sections, s)
	}
	return sections
}

// spoil does to the bytes what a checksum would not see, or what the poster did not
// ask for.
func (o *toyOp) spoil(dst, src *fabric.Bound) {
	w := dst.List.Walk()
	first := w.Next(64)
	start := dst.Section(first.Part).Bytes(first.Offset, first.Length)
	switch {
	case o.has("swaps two blocks") && first.Length == 64:
		for i := range 16 {
			start[i], start[i+16] = start[i+16], start[i]
		}
	case o.has("touches a guard byte"):
		dst.Section(first.Part).Bytes(first.Offset-1, 1)[0]++
	case o.has("changes the source"):
		w := src.List.Walk()
		in := w.Next(1)
		src.Section(in.Part).Bytes(in.Offset, 1)[0]++
	}
}
