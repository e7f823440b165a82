package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Contender is one that is measured in turn with others.
type Contender interface {
	Name() string
	// PIDs are its processes, without this one.
	PIDs() []int
	Close(ctx context.Context) error
}

// comparableContender is a Contender that a field finds again.
type comparableContender interface {
	comparable
	Contender
}

// Peer is one to be measured beside.
type Peer[P comparableContender] struct {
	Name string
	// Title says in the report what exactly is measured.
	Title string
	// Missing says why it is not here; nil, as what it returns, is nothing.
	Missing func() *Absence
	Open    func(ctx context.Context) (P, error)
	// Packages are what apt must bring for it, if it is a Python package.
	Packages string
}

// PeerNames are theirs.
func PeerNames[P comparableContender](peers []Peer[P]) []string {
	names := make([]string, len(peers))
	for i := range peers {
		names[i] = peers[i].Name
	}
	return names
}

// Wanted are those of some peers that were asked for, and whether they must be there:
// those named must; with "auto" who is there will do.
func Wanted[P comparableContender](asked []string, among []Peer[P]) (peers []Peer[P], must bool) {
	must = asked[0] != "auto"
	return slices.DeleteFunc(among, func(p Peer[P]) bool { return must && !slices.Contains(asked, p.Name) }), must
}

// Absent says why it is not here; nil: it is.
func (k *Peer[P]) Absent() *Absence {
	if k.Missing == nil {
		return nil
	}
	return k.Missing()
}

// start opens it, or says why it is not there.
func (k *Peer[P]) start(ctx context.Context) (p P, absence *Absence) {
	if absence = k.Absent(); absence == nil {
		opened, err := k.Open(ctx)
		switch {
		case err == nil:
			return opened, nil
		case k.Packages != "":
			absence = WhyNotPython(err, k.Packages)
		default:
			absence = &Absence{Why: err.Error()}
		}
	}
	absence.Peer = k.Name
	return p, absence
}

// Field is everybody in one measurement: Meridian, in each of its variants, and the
// peers that are left.
type Field[O Contender, P comparableContender] struct {
	Ours  []O
	Peers []P
	Head  *Head // of the report: it says who is not here
}

// Enter starts peers. Those that must be there are, or there is an error; of others it is
// noted that they are not. Who joins is told, where there is something to tell.
func (f *Field[O, P]) Enter(ctx context.Context, peers []Peer[P], must bool, joins func(*Peer[P], P)) error {
	for i := range peers {
		p, absence := peers[i].start(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case absence == nil:
			f.Peers = append(f.Peers, p)
			joins(&peers[i], p)
		case must:
			return fmt.Errorf("%w: %s", ErrPeer, absence)
		default:
			f.Head.Miss(*absence)
		}
	}
	return nil
}

// Drop gives up a peer that failed.
func (f *Field[O, P]) Drop(p P, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.Close(ctx) // it has failed already; what matters is that it is gone
	f.Peers = slices.DeleteFunc(f.Peers, func(other P) bool { return other == p })
	f.Head.Miss(Absence{Peer: p.Name(), Why: "it failed: " + err.Error()})
}

// PIDs are the processes of all.
func (f *Field[O, P]) PIDs() (all []int) {
	for _, m := range f.Ours {
		all = append(all, m.PIDs()...)
	}
	for _, p := range f.Peers {
		all = append(all, p.PIDs()...)
	}
	return all
}

// closeLimit bounds how long a field takes to close in order.
const closeLimit = 10 * time.Second

// Close ends everybody.
func (f *Field[O, P]) Close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	for _, m := range f.Ours {
		err = errors.Join(err, m.Close(ctx))
	}
	for _, p := range f.Peers {
		_ = p.Close(ctx) // a peer that does not stop in order is killed; the figures stand
	}
	return err
}
