package bench

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"
)

// Opened is what a part of a measurement has opened: Close closes it in reverse.
type Opened struct{ ends []func(context.Context) error }

// Closes has end called by Close, before what is here already.
func (o *Opened) Closes(end func(context.Context) error) { o.ends = append(o.ends, end) }

// Folder makes a folder in another one, which goes with all that is in it.
func (o *Opened) Folder(in string) (dir string, err error) {
	if dir, err = os.MkdirTemp(in, "meridian-"); err == nil {
		o.Closes(func(context.Context) error { return os.RemoveAll(dir) })
	}
	return dir, err
}

// Start starts a process.
func (o *Opened) Start(title string, command, environment []string) (*Process, error) {
	p, err := StartProcess(title, command, environment)
	if err == nil {
		o.Closes(p.Stop)
	}
	return p, err
}

// Server is Start for a program that does not read its input, and ends when it is asked to.
func (o *Opened) Server(title string, command, environment []string) (*Process, error) {
	p, err := o.Start(title, command, environment)
	if err == nil {
		o.Closes(func(context.Context) error {
			p.Interrupt()
			return nil
		})
	}
	return p, err
}

// Close closes everything that is here; after it nothing is.
func (o *Opened) Close(ctx context.Context) (err error) {
	for _, end := range slices.Backward(o.ends) {
		err = errors.Join(err, end(ctx))
	}
	o.ends = nil
	return err
}

// Unless is deferred by what opens: it closes everything if there is an error.
func (o *Opened) Unless(ctx context.Context, err *error) {
	if *err != nil {
		*err = errors.Join(*err, o.Close(ctx))
	}
}

// CloseWithin is Close for who has no context, or one that is over.
func (o *Opened) CloseWithin(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return o.Close(ctx)
}
