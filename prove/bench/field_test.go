package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// guest is a contender that does nothing.
type guest struct {
	name   string
	pid    int
	closed bool
}

func (g *guest) Name() string { return g.name }
func (g *guest) PIDs() []int  { return []int{g.pid} }
func (g *guest) Close(context.Context) error {
	g.closed = true
	return errors.New("it does not end in order")
}

func guests() []Peer[*guest] {
	comes := func(g *guest, err error) func(context.Context) (*guest, error) {
		return func(context.Context) (*guest, error) { return g, err }
	}
	return []Peer[*guest]{
		{Name: "one", Open: comes(&guest{name: "one", pid: 1}, nil)},
		{Name: "away", Open: comes(nil, nil), Missing: func() *Absence { return &Absence{Why: "not installed"} }},
		{Name: "broken", Open: comes(nil, errors.New("no luck")), Packages: "libluck"},
		{Name: "two", Open: comes(&guest{name: "two", pid: 2}, nil)},
	}
}

func TestField(t *testing.T) {
	f := &Field[*guest, *guest]{Ours: []*guest{{name: "ours", pid: 3}}, Head: new(Head)}
	wanted, must := Wanted([]string{"auto"}, guests())
	var joined []string
	err := f.Enter(t.Context(), wanted, must, func(who *Peer[*guest], p *guest) { joined = append(joined, who.Name+p.Name()) })
	if err != nil || must || !slices.Equal(joined, []string{"oneone", "twotwo"}) || !slices.Equal(f.PIDs(), []int{3, 1, 2}) {
		t.Errorf("joined %v with %v, must: %t, %v", joined, f.PIDs(), must, err)
	}
	two := f.Peers[1]
	f.Drop(two, errors.New("it hangs"))
	if len(f.Peers) != 1 || !two.closed {
		t.Errorf("left are %v, closed: %t", f.Peers, two.closed)
	}
	said := f.Head.Text()
	for _, text := range []string{"away is absent: not installed", "broken is absent: does not start: no luck", "two is absent: it failed: it hangs"} {
		if !strings.Contains(said, text) {
			t.Errorf("%q is not in %s", text, said)
		}
	}
	if err := f.Close(); err == nil || !f.Ours[0].closed || !f.Peers[0].closed {
		t.Errorf("closed: ours %t, a peer %t, %v", f.Ours[0].closed, f.Peers[0].closed, err)
	}
}

func TestNamedPeersMustBeThere(t *testing.T) {
	for asked, want := range map[string]error{"one": nil, "away": ErrPeer, "broken": ErrPeer, "none": nil} {
		f := &Field[*guest, *guest]{Head: new(Head)}
		wanted, must := Wanted([]string{asked}, guests())
		if err := f.Enter(t.Context(), wanted, must, func(*Peer[*guest], *guest) {}); !errors.Is(err, want) || !must || len(f.Head.Absent) > 0 {
			t.Errorf("%s: %v, must: %t, absent: %v", asked, err, must, f.Head.Absent)
		}
	}
}
