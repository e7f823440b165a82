package chaos

import (
	"context"
	"errors"
	"os"
	"time"

	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/fabric/file"
	"meridian/move/mem"
)

// disk is a puppet's file fabric, which moves between its arena and one file.
type disk struct {
	fabric  *file.Fabric
	link    fabric.Link
	section *mem.Section
}

// What the file fabric knows the two by.
const (
	arenaRegion = 1
	fileRegion  = 2
)

// File is a file that a puppet opens.
type File struct {
	Path      string
	SizeBytes uint64
}

// OpenFile opens a file for Store.
func (p *agentServer) OpenFile(o File, a *Answer) error {
	a.Err = failure(p.openFile(o))
	return nil
}

func (p *agentServer) openFile(o File) error {
	handle, err := os.OpenFile(o.Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	section, err := mem.OpenFile(handle, o.SizeBytes, 1)
	if err != nil {
		return errors.Join(err, handle.Close())
	}
	ctx := context.Background()
	self := fabric.Peer{Name: p.agent.Name(), Incarnation: p.agent.Incarnation()}
	fabrics, err := file.Open(ctx, file.Options{Agent: self.Name, Incarnation: self.Incarnation, Events: quiet{}})
	if err != nil {
		return err
	}
	p.disk = disk{fabric: fabrics, section: section}
	err = errors.Join(
		fabrics.Register(fabric.Region{ID: arenaRegion, Epoch: 1, Section: p.arena.Section}),
		fabrics.Register(fabric.Region{ID: fileRegion, Epoch: 1, Section: section}))
	if err == nil {
		p.disk.link, err = fabrics.Connect(ctx, self)
	}
	return err
}

// Store writes a stretch of the arena to the file, or reads it back.
func (p *agentServer) Store(o Post, out *Outcome) error {
	start := time.Now()
	t, err := p.store(o)
	if err != nil {
		*out = Outcome{State: fabric.NotSubmitted, Took: time.Since(start), Err: failure(err)}
		return nil
	}
	err = t.Await(context.Background())
	state, _ := t.Status()
	*out = Outcome{ID: t.ID, State: state, Took: time.Since(start), Err: failure(err)}
	return nil
}

func (p *agentServer) store(o Post) (*fabric.Transfer, error) {
	prepared, err := p.disk.link.Prepare(o.Op, stretch(arenaRegion, o), stretch(fileRegion, o))
	if err != nil {
		return nil, err
	}
	defer prepared.Release()
	return p.disk.link.Post(context.Background(), prepared, fabric.PostOptions{ID: agent.NewID()})
}

func stretch(region uint64, o Post) fabric.List {
	part := fabric.Part{Region: region, Epoch: 1}
	if err := part.Spans.Add(o.Offset, o.Length); err != nil {
		panic(err) // one span always fits
	}
	return fabric.List{part}
}

func (d disk) close(ctx context.Context) error {
	if d.fabric == nil {
		return nil
	}
	return errors.Join(d.fabric.Close(ctx), d.section.Close(ctx))
}

// quiet hears of nothing: a file does not notify.
type quiet struct{}

func (quiet) Notified(fabric.Notification) (fabric.NotificationHandler, error) { return nil, nil }
func (quiet) LinkLost(fabric.Peer, error)                                      {}
func (quiet) Refused(string, error)                                            {}
