// Package cell runs a whole cell on one machine: a directory, two agents that
// stand for two hosts, engines that prefill and engines that decode, and a
// gateway; each a process of its own, all with one state directory.
//
//	directory ─► agents ─► engines (at a time) ─► gateway       started in this order,
//	   ▲           ▲          ▲                      ▲          stopped in the other
//	   └───────────┴──────────┴──────────────────────┴── Cell   watches, starts again what dies
//
// A part of the cell lives like this:
//
//	                ready line, health             exit
//	waiting ─► starting ───────────► ready ───────────────► pausing ─► starting …
//	              │ exit, deadline     │      exit, deadline ─► pausing …
//	              └──────► dead        └─ stopping ─► stopped
//
// The state directory holds
//
//	cell.lock        held by the process that runs the cell
//	cell.json        Record: what runs, with pids that are never mistaken; gone after a clean end
//	logs/NAME.log    what a part has said, a time before each line; NAME.log.1 before that
//
// and what the parts keep there themselves.
//
// Nothing outlives the process that holds the lock: children are sent SIGTERM
// when it dies, however it dies, and the next start ends those that stayed.
package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options says what a cell is and how it is run.
type Options struct {
	// StateDir belongs to this user alone.
	StateDir string
	Spec     Spec
	// Listen and Admin are the gateway's addresses; empty means the default
	// one, or the next that is free.
	Listen, Admin string
	// Program is what parts are made of; empty means this program.
	Program string
	// Globals stand before the command of every part.
	Globals []string
	// LogJSON has logs of one JSON object a line, whatever a part says.
	LogJSON bool
	// Environment is added to what this process has.
	Environment []string
	// NoRestart leaves the dead alone.
	NoRestart bool
	// Ready bounds how long a part may take until it is ready; Drain how long
	// one may take to stop before it is killed. Zero takes the defaults.
	Ready, Drain time.Duration
	// FirstPause is the shortest pause before a part is started again.
	FirstPause time.Duration
	// Operator asks the gateway's admin listener, which may want a key; nil is the client
	// for all parts.
	Operator *http.Client
	// Kill has a start that is given up end at once, as the context of Close has
	// a cell that runs; nil never does.
	Kill context.Context
	// Watch hears of every change, one at a time, and must not block.
	Watch func(Event)
}

const (
	defaultReady      = 30 * time.Second
	defaultDrain      = 15 * time.Second
	defaultFirstPause = 250 * time.Millisecond
)

// Event is a change in the life of a part.
type Event struct {
	Part  string
	Kind  Kind
	State State
	// Detail is for people: a URL, how it ended, what is taken.
	Detail string
	// Took is how long it was in the state before.
	Took time.Duration
}

// Cell is a running cell.
type Cell struct {
	options Options
	lock    *os.File
	nursery *spawner
	stages  [][]*part
	killed  chan struct{} // closed when nothing is waited for any more
	killing sync.Once

	mu     sync.Mutex // protects record, the file it is kept in, and Watch
	record Record
}

// Open starts a cell, or nothing, and returns when all of it is ready. What a
// killed cell has left behind is ended first.
func Open(ctx context.Context, o Options) (*Cell, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	lock, err := acquire(o.StateDir)
	if err != nil {
		return nil, err
	}
	left, err := cleanUp(ctx, o.StateDir)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	c := &Cell{options: o, lock: lock, nursery: openSpawner(), killed: make(chan struct{})}
	if left.Unclean {
		c.tell(Event{Part: "cell", State: Starting, Detail: left.String()})
	}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, c.Close(o.Kill))
	}
	return c, nil
}

func (o Options) checked() (Options, error) {
	if o.StateDir == "" {
		return o, errors.New("cell: there is no state directory; name one that belongs to this user alone")
	}
	var err error
	if o.StateDir, err = filepath.Abs(o.StateDir); err != nil {
		return o, fmt.Errorf("cell: state directory: %w", err)
	}
	if err := makePrivate(o.StateDir); err != nil {
		return o, err
	}
	o.Ready = cmp.Or(o.Ready, defaultReady)
	o.Drain = cmp.Or(o.Drain, defaultDrain)
	o.FirstPause = cmp.Or(o.FirstPause, defaultFirstPause)
	o.Kill = cmp.Or(o.Kill, context.Background())
	if o.Watch == nil {
		o.Watch = func(Event) {}
	}
	o.Globals, o.Environment = slices.Clone(o.Globals), slices.Clone(o.Environment)
	return o, o.Spec.validate()
}

func makePrivate(dir string) error {
	for _, path := range []string{dir, filepath.Join(dir, logsDir)} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return fmt.Errorf("cell: state directory: %w", err)
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("cell: state directory: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("cell: others can enter the state directory %s, its mode is %04o; chmod 700 it", dir, mode)
	}
	return nil
}

// acquire takes the lock that the process running a cell holds. The kernel
// gives it back when that process ends, however it ends.
func acquire(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "cell.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cell: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	lock.Close()
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("cell: lock of %s: %w", dir, err)
	}
	running := &RunningError{StateDir: dir}
	if r, err := ReadRecord(dir); err == nil {
		running.Record = r
	}
	return nil, running
}

// RunningError means that the state directory has a cell that runs.
type RunningError struct {
	StateDir string
	Record   *Record // nil while it starts
}

func (e *RunningError) Error() string {
	if e.Record == nil {
		return "a cell is being started with the state directory " + e.StateDir
	}
	return fmt.Sprintf("a cell runs already with the state directory %s: process %d, since %s, %s",
		e.StateDir, e.Record.Supervisor.PID, e.Record.Started.Local().Format(time.DateTime), e.Record.Gateway)
}

// Hint says what to do.
func (e *RunningError) Hint() string {
	return "`meridian status` shows it and `meridian down` stops it; --state DIR has another one beside it"
}

func (c *Cell) open(ctx context.Context) error {
	self, err := identify(os.Getpid())
	if err != nil {
		return fmt.Errorf("cell: %w", err)
	}
	listen, err := c.address("gateway", c.options.Listen, DefaultListen)
	if err != nil {
		return err
	}
	admin, err := c.address("admin listener", c.options.Admin, DefaultAdmin, listen)
	if err != nil {
		return err
	}
	// The gateway ends by itself before it is killed.
	at := places{state: c.options.StateDir, listen: listen, admin: admin, drain: c.options.Drain * 2 / 3}
	stages, err := c.options.Spec.stages(at)
	if err != nil {
		return err
	}
	for _, stage := range stages {
		var parts []*part
		for _, plan := range stage {
			parts = append(parts, newPart(plan))
			c.record.Parts = append(c.record.Parts, plan.record())
		}
		c.stages = append(c.stages, parts)
	}
	c.record.Version, c.record.Supervisor, c.record.Started, c.record.Model = recordVersion, self, time.Now(), c.options.Spec.Model
	for _, p := range c.record.Parts {
		c.tell(Event{Part: p.Name, Kind: p.Kind, State: Waiting})
	}
	for _, stage := range c.stages {
		if err := c.start(ctx, stage); err != nil {
			return err
		}
	}
	return c.awaitService(ctx)
}

// start begins the lives of parts and waits until all are ready, or one is not.
func (c *Cell) start(ctx context.Context, stage []*part) error {
	openings := make(chan opening, len(stage))
	for _, p := range stage {
		p.alive, p.opened = true, openings
		go c.live(p)
	}
	for range stage {
		select {
		case o := <-openings:
			if o.err != nil {
				return o.err
			}
		case <-ctx.Done():
			return fmt.Errorf("cell: stopped while it was starting: %w", context.Cause(ctx))
		}
	}
	return nil
}

// Add starts one more part, which is stopped before all others.
func (c *Cell) Add(ctx context.Context, plan Plan) (PartRecord, error) {
	p := newPart(plan)
	c.mu.Lock()
	c.record.Parts = append(c.record.Parts, plan.record())
	c.stages = append(c.stages, []*part{p})
	c.mu.Unlock()
	if err := c.start(ctx, []*part{p}); err != nil {
		return PartRecord{}, err
	}
	return *c.Record().Part(plan.Name), nil
}

// Stop ends a part that Add started, and waits until it is gone: at most as long as a
// part has to end before it is killed.
func (c *Cell) Stop(name string) error {
	c.mu.Lock()
	stages := slices.Clone(c.stages)
	c.mu.Unlock()
	for _, p := range slices.Concat(stages...) {
		if p.plan.Name == name {
			p.stopping.Do(func() { close(p.stop) })
			<-p.gone
			return nil
		}
	}
	return fmt.Errorf("cell: there is no part %s", name)
}

// StateDir is where the cell keeps everything.
func (c *Cell) StateDir() string { return c.options.StateDir }

// Spec is what the cell is made of.
func (c *Cell) Spec() Spec { return c.options.Spec }

// Record is what runs now.
func (c *Cell) Record() *Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.record
	r.Parts = slices.Clone(r.Parts)
	return &r
}

// Close stops the gateway, which lets its requests end, then everything else,
// in the other order than it was started. When ctx ends, what is left is killed.
func (c *Cell) Close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.killing.Do(func() { close(c.killed) }) })
	defer stop()
	c.mu.Lock()
	stages := slices.Clone(c.stages)
	c.mu.Unlock()
	for _, stage := range slices.Backward(stages) {
		for _, p := range stage {
			p.stopping.Do(func() { close(p.stop) })
		}
		for _, p := range stage {
			if p.alive {
				<-p.gone
			}
		}
	}
	c.nursery.close()
	err := os.Remove(recordPath(c.options.StateDir))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, c.lock.Close())
}

// tell passes an event on, in order.
func (c *Cell) tell(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.options.Watch(e)
}

// note writes down how a part is now, and tells.
func (c *Cell) note(p *part, e Event, change func(*PartRecord)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.record.Part(p.plan.Name)
	now := time.Now()
	e.Part, e.Kind = p.plan.Name, p.plan.Kind
	if !r.Since.IsZero() {
		e.Took = now.Sub(r.Since)
	}
	r.State, r.Since = e.State, now
	if change != nil {
		change(r)
	}
	if p.plan.Kind == Gateway && r.URL != "" {
		c.record.Gateway, c.record.Admin = r.URL, r.Admin
	}
	if err := c.record.write(c.options.StateDir); err != nil {
		c.options.Watch(Event{Part: p.plan.Name, Kind: p.plan.Kind, State: e.State, Detail: err.Error()})
	}
	c.options.Watch(e)
}
