package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// errTerminated is why a process that serves stops where a supervisor asked for
// it, and not a person at a terminal.
var errTerminated = errors.New("told to stop by SIGTERM")

// untilStopped ends with Ctrl-C or SIGTERM.
func untilStopped() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// whileServing is untilStopped for a process that serves others: SIGHUP, which by
// itself would kill it in the middle of what it does, has it reload what it can.
// The cause of an end by SIGTERM is errTerminated.
func whileServing(logger *slog.Logger, reload func() error) (context.Context, context.CancelFunc) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx, stop := context.WithCancelCause(context.Background())
	over := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			select {
			case <-over:
				return
			case s := <-signals:
				switch s {
				case syscall.SIGHUP:
					reloaded(logger, reload)
				case syscall.SIGTERM:
					stop(errTerminated)
				default:
					stop(context.Canceled)
				}
			}
		}
	})
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(over)
		listening.Wait()
		stop(context.Canceled)
	})
}

// nothingToReload is for processes that read all they need when they start.
func nothingToReload() error { return errNothingToReload }

var errNothingToReload = errors.New("this process reads its settings when it starts; certificates are read again as they change")

func reloaded(logger *slog.Logger, reload func() error) {
	switch err := reload(); {
	case errors.Is(err, errNothingToReload):
		logger.Info("SIGHUP is ignored", "reason", err)
	case err != nil:
		logger.Error("reload failed; what was in force stays", "error", err)
	default:
		logger.Info("reloaded")
	}
}
