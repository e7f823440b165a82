package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"meridian/config"
	"meridian/models"
)

type configCommands struct {
	Init    configInit    `cmd:"" help:"Write an annotated meridian.toml."`
	Check   configCheck   `cmd:"" help:"Check configuration files; every fault is listed at once."`
	Show    configShow    `cmd:"" help:"Print the configuration in force."`
	Explain configExplain `cmd:"" help:"Tell what a field or a section means."`
}

type configInit struct {
	File  string   `arg:"" optional:"" default:"meridian.toml" help:"File to write; - for standard output."`
	Model []string `placeholder:"FAMILY" help:"Add the think markers of a model family (${models})."`
	Force bool     `help:"Overwrite the file if it exists."`
}

func (c *configInit) Run(io *stdio) error {
	text := config.Example()
	for _, name := range c.Model {
		table, err := models.Text(name)
		if err != nil {
			return invalid("models/*.toml holds the tables", "%w", err)
		}
		text += "\n" + table
	}
	if c.File == "-" {
		_, err := fmt.Fprint(io.out, text)
		return err
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if c.Force {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(c.File, mode, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(io.out, "wrote %s\n", c.File)
	return err
}

type configCheck struct {
	Files []string `arg:"" optional:"" help:"Files to check; without any, the configuration that would be used, environment included."`
	JSON  bool     `help:"Print one JSON object with every fault."`
}

type checkedFile struct {
	File   string         `json:"file"`
	OK     bool           `json:"ok"`
	Faults []config.Fault `json:"faults,omitempty"`
}

func (c *configCheck) Run(io *stdio, all *commands) error {
	var checked []checkedFile
	var faults []config.Fault
	judge := func(file string, err error) error {
		var e *config.Error
		if err != nil && !errors.As(err, &e) {
			return err
		}
		result := checkedFile{File: file, OK: err == nil}
		if e != nil {
			result.Faults = e.Faults
			faults = append(faults, e.Faults...)
		}
		checked = append(checked, result)
		return nil
	}
	for _, file := range c.Files {
		_, err := config.Load(config.Options{Path: file, Environ: []string{}})
		if err := judge(file, err); err != nil {
			return err
		}
	}
	if len(c.Files) == 0 {
		loaded, err := config.Load(config.Options{Path: all.Config})
		name := all.Config
		if err == nil {
			name = sourceName(loaded)
		}
		if err := judge(name, err); err != nil {
			return err
		}
	}
	if c.JSON {
		if err := io.writeJSON(map[string]any{"files": checked}); err != nil {
			return err
		}
	} else {
		for _, result := range checked {
			if result.OK {
				fmt.Fprintf(io.out, "%s: ok\n", result.File)
			}
		}
	}
	if len(faults) > 0 {
		return &config.Error{Faults: faults}
	}
	return nil
}

func sourceName(l *config.Loaded) string {
	if l.File == "" {
		return "built-in defaults"
	}
	return l.File
}

type configShow struct {
	Effective bool `help:"Every field, defaults included."`
	JSON      bool `help:"Print one JSON object."`
}

func (c *configShow) Run(io *stdio, all *commands) error {
	loaded, err := config.Load(config.Options{Path: all.Config})
	if err != nil {
		return err
	}
	if c.JSON {
		out, err := loaded.JSON(c.Effective)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(io.out, "%s\n", out)
		return err
	}
	text := strings.TrimRight(loaded.TOML(c.Effective), "\n")
	if text == "" {
		text = "# nothing differs from the defaults; --effective shows them"
	}
	_, err = fmt.Fprintf(io.out, "# from %s\n%s\n", sourceName(loaded), text)
	return err
}

type configExplain struct {
	Field string `arg:"" help:"A field or a section, such as scheduler.max_think_tokens."`
}

func (c *configExplain) Run(io *stdio, all *commands) error {
	// A broken file must not keep anybody from asking what its fields mean.
	loaded, err := config.Load(config.Options{Path: all.Config})
	if err != nil {
		loaded = nil
	}
	text, err := config.Explain(c.Field, loaded)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(io.out, text)
	return err
}
