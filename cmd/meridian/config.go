package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"meridian/run/config"
	"meridian/run/models"
)

type configCommands struct {
	Init    configInit    `cmd:"" help:"Write an annotated meridian.toml."`
	Check   configCheck   `cmd:"" help:"Check configuration files; every fault is listed at once."`
	Show    configShow    `cmd:"" help:"Print the configuration in force."`
	Explain configExplain `cmd:"" help:"Tell what a field or a section means."`
}

type configInit struct {
	File  string   `arg:"" optional:"" help:"File to write, - for standard output; without it the one that --config names, else meridian.toml."`
	Model []string `placeholder:"FAMILY" help:"Add the think markers of a model family (${models})."`
	Force bool     `help:"Overwrite the file if it exists."`
}

func (c *configInit) Run(std *stdio, all *commands) error {
	if c.File != "" && all.Config != "" && c.File != all.Config {
		return invalid("name it once", "--config names %s and the argument %s: which one is to be written?", all.Config, c.File)
	}
	file := cmp.Or(c.File, all.Config, config.FileName)
	text := config.Example()
	for i, name := range c.Model {
		if slices.Contains(c.Model[:i], name) {
			continue
		}
		table, err := models.Text(name)
		if err != nil {
			return invalid("run/models/*.toml holds the tables", "%w", err)
		}
		text += "\n" + table
	}
	if file == "-" {
		_, err := fmt.Fprint(std.out, text)
		return err
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if c.Force {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(file, mode, 0o644)
	if errors.Is(err, fs.ErrExist) {
		if info, _ := os.Stat(file); info != nil && info.IsDir() {
			return &fs.PathError{Op: "open", Path: file, Err: syscall.EISDIR}
		}
		return &failure{err: err, hint: "--force overwrites it", status: exitFailure}
	}
	if err != nil {
		return unwritable(file, err)
	}
	if _, err := f.WriteString(text); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "wrote %s\n", file)
	return err
}

type configCheck struct {
	Files []string `arg:"" optional:"" help:"Files to check, - for standard input; without any, the configuration that would be used, environment included."`
	JSON  bool     `help:"Print one JSON object with every fault."`
}

// checkedFile has faults, or an error where the file could not be read.
type checkedFile struct {
	File   string         `json:"file"`
	OK     bool           `json:"ok"`
	Faults []config.Fault `json:"faults,omitempty"`
	Error  string         `json:"error,omitempty"`
}

func (c *configCheck) Run(std *stdio, all *commands) error {
	var checked []checkedFile
	var faults config.Error
	var unreadable []error
	judge := func(file string, err error) {
		result := checkedFile{File: file, OK: err == nil}
		if e := new(config.Error); errors.As(err, &e) {
			result.Faults = e.Faults
			faults.Faults = append(faults.Faults, e.Faults...)
		} else if err != nil {
			result.Error = err.Error()
			unreadable = append(unreadable, err)
		}
		checked = append(checked, result)
	}
	for _, file := range c.Files {
		judge(checkFile(std, file))
	}
	if len(c.Files) == 0 {
		options := config.Options{Path: all.Config}
		file, err := options.Find()
		if err == nil {
			_, err = config.Load(options)
		}
		judge(sourceName(file), err)
	}
	if err := c.print(std, checked); err != nil {
		return err
	}
	if len(faults.Faults) > 0 {
		return errors.Join(append([]error{&faults}, unreadable...)...)
	}
	return errors.Join(unreadable...)
}

// checkFile checks a file by itself, without the environment.
func checkFile(std *stdio, file string) (name string, err error) {
	if file != "-" {
		_, err = config.Load(config.Options{Path: file, Environ: []string{}})
		return file, unopened(err)
	}
	name = "standard input"
	_, err = config.Read(name, std.in)
	return name, err
}

func (c *configCheck) print(std *stdio, checked []checkedFile) error {
	if c.JSON {
		return std.writeJSON(map[string]any{"files": checked})
	}
	for _, result := range checked {
		if result.OK {
			if _, err := fmt.Fprintf(std.out, "%s: ok\n", result.File); err != nil {
				return err
			}
		}
	}
	return nil
}

// sourceName is what people call the place a configuration comes from.
func sourceName(file string) string { return cmp.Or(file, "built-in defaults") }

type configShow struct {
	Effective bool `help:"Every field, defaults included."`
	JSON      bool `help:"Print one JSON object."`
}

func (c *configShow) Run(std *stdio, all *commands) error {
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	if c.JSON {
		out, err := loaded.JSON(c.Effective)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(std.out, "%s\n", out)
		return err
	}
	text := strings.TrimRight(loaded.TOML(c.Effective), "\n")
	if text == "" {
		text = "# nothing differs from the defaults; --effective shows them"
	}
	_, err = fmt.Fprintf(std.out, "# from %s\n%s\n", sourceName(loaded.File), text)
	return err
}

type configExplain struct {
	Field string `arg:"" help:"A field or a section, such as scheduler.max_think_tokens."`
	JSON  bool   `help:"Print one JSON object."`
}

func (c *configExplain) Run(std *stdio, all *commands) error {
	// A broken file must not keep its author from asking what its fields mean.
	loaded, _ := all.load(std)
	text, err := config.Explain(c.Field, loaded)
	if err != nil {
		return err
	}
	if c.JSON {
		return std.writeJSON(map[string]string{"field": c.Field, "text": text})
	}
	_, err = fmt.Fprint(std.out, text)
	return err
}
