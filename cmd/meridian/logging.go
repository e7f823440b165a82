package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"meridian/run/cell"
	"meridian/run/config"
	"meridian/see/telemetry"
)

// load reads the configuration in force, and says at level debug where from.
func (c *commands) load(std *stdio) (*config.Loaded, error) {
	loaded, err := config.Load(config.Options{Path: c.Config})
	if err != nil {
		return nil, err
	}
	newLogger(std.err, c.logOptions(loaded.Config)).Debug("configuration read", "from", sourceName(loaded.File))
	return loaded, nil
}

// quieter is c at a level of its own, where no flag says one.
func (c *commands) quieter(level string) *commands {
	quiet := *c
	quiet.LogLevel = cmp.Or(quiet.LogLevel, level)
	return &quiet
}

// logOptions is [logging] with the flags, which win.
func (c *commands) logOptions(in *config.Config) telemetry.LogOptions {
	return telemetry.LogOptions{Level: cmp.Or(c.LogLevel, in.Logging.Level), Format: cmp.Or(c.LogFormat, in.Logging.Format)}
}

// logger writes as the flags and the configuration say.
func (c *commands) logger(std *stdio) *slog.Logger { return newLogger(std.err, c.logOptionsInForce()) }

// logOptionsInForce falls back to the defaults where the configuration cannot
// be used: that must not hide an error that is to be told.
func (c *commands) logOptionsInForce() telemetry.LogOptions {
	loaded, err := config.Load(config.Options{Path: c.Config})
	if err != nil {
		return c.logOptions(config.Defaults())
	}
	return c.logOptions(loaded.Config)
}

func newLogger(w io.Writer, o telemetry.LogOptions) *slog.Logger {
	logger, err := telemetry.NewLogger(w, o)
	if err != nil {
		panic(err) // flags and configuration take known words only
	}
	return logger
}

// ready tells the parent of a process that it serves: a line for people, or the same
// as an event, so that what such a process writes is JSON and nothing else.
func (c *commands) ready(std *stdio, text string, attributes ...any) {
	o := c.logOptionsInForce()
	if o.Format != "json" {
		fmt.Fprintln(std.out, text)
		return
	}
	o.Level = "info" // it is no less of a result where little is logged
	newLogger(std.out, o).Info(cell.ReadyEvent, append([]any{"text", text}, attributes...)...)
}

// flagIn finds the value of a flag where the arguments as a whole do not parse.
func flagIn(args []string, name string) (value string) {
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if given, found := strings.CutPrefix(arg, "--"+name+"="); found {
			value = given
		} else if arg == "--"+name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}
