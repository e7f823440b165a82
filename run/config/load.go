package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Origin is the layer a value came from.
type Origin string

// The layers, later ones winning.
const (
	Default         Origin = "default"
	FromFile        Origin = "file"
	FromEnvironment Origin = "environment"
)

// FileName is what is looked for in the working directory.
const FileName = "meridian.toml"

// fileVariable names the file where no caller does.
const fileVariable = envPrefix + "CONFIG"

// Options says where to look. The zero Options look where a command would.
type Options struct {
	// Path names the file; empty means the one that MERIDIAN_CONFIG names, or to
	// search for one.
	Path string
	// Dir and Home are where the search looks; empty means the working
	// directory and the user's home.
	Dir, Home string
	// Environ overrides the process's environment; nil means to use it.
	Environ []string
}

// Loaded is a configuration and where it came from.
type Loaded struct {
	*Config
	// File is the file that was read, or "" when there was none.
	File     string
	settings map[string]setting
	tables   map[string][]string
}

// Origin returns the layer that path's value came from.
func (l *Loaded) Origin(path string) Origin { return l.settings[path].origin }

// Load finds, reads and checks a configuration. The error is *Error when the
// file was read and is wrong.
func Load(o Options) (*Loaded, error) {
	environ := environMap(o.Environ)
	file, err := o.find(environ)
	if err != nil {
		return nil, err
	}
	var data []byte
	if file != "" {
		if data, err = readFile(file); err != nil {
			return nil, err
		}
	}
	return parse(file, data, environ)
}

// Read checks what r holds, under the name source, as Parse does.
func Read(source string, r io.Reader) (*Loaded, error) {
	data, err := readAll(source, r)
	if err != nil {
		return nil, err
	}
	return Parse(source, data)
}

// Parse checks the text of a file called source, without the environment.
// Paths in it are relative to source's directory.
func Parse(source string, data []byte) (*Loaded, error) { return parse(source, data, nil) }

func parse(source string, data []byte, environ map[string]string) (*Loaded, error) {
	c := newChecker()
	d, faults := parseDocument(source, data)
	if faults != nil {
		return nil, asError(faults)
	}
	c.document = d
	c.file()
	c.environment(environ)
	c.rules()
	config := decode(c.settings, c.tables)
	for _, path := range c.tables[model.Name] {
		name := unquoteKey(strings.TrimPrefix(path, model.Name+"."))
		m := config.Model[name]
		m.TokenizerPath = m.Tokenizer
		if m.Tokenizer != "" && !filepath.IsAbs(m.Tokenizer) {
			m.TokenizerPath = filepath.Join(filepath.Dir(source), m.Tokenizer)
		}
		m.Markers = c.resolve(path, m)
		config.Model[name] = m
	}
	if err := asError(c.faults); err != nil {
		return nil, err
	}
	return &Loaded{Config: config, File: source, settings: c.settings, tables: c.tables}, nil
}

// Find returns the file that Load reads: Options.Path, or what MERIDIAN_CONFIG
// names, or ./meridian.toml, or ~/.config/meridian/meridian.toml, or "" for
// none, which leaves the built-in defaults.
func (o Options) Find() (string, error) { return o.find(environMap(o.Environ)) }

func (o Options) find(environ map[string]string) (string, error) {
	if named := cmp.Or(o.Path, environ[fileVariable]); named != "" {
		return named, nil
	}
	here := filepath.Join(o.Dir, FileName)
	if _, err := os.Stat(here); !errors.Is(err, fs.ErrNotExist) {
		return here, err
	}
	home := o.Home
	if home == "" {
		home, _ = os.UserHomeDir()
	}
	if home == "" {
		return "", nil
	}
	atHome := filepath.Join(home, ".config", "meridian", FileName)
	if _, err := os.Stat(atHome); !noneAtHome(err) {
		return atHome, err
	}
	return "", nil
}

// noneAtHome forgives a home that cannot be entered or is no directory, as
// service accounts have them: no file was put there.
func noneAtHome(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(path, f)
}

func readAll(source string, r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		reason := fmt.Sprintf("is larger than %d bytes; is it the right file?", maxFileBytes)
		return nil, asError([]Fault{{Source: source, Reason: reason}})
	}
	return data, nil
}

func environMap(environ []string) map[string]string {
	if environ == nil {
		environ = os.Environ()
	}
	m := make(map[string]string)
	for _, entry := range environ {
		if name, value, found := strings.Cut(entry, "="); found && strings.HasPrefix(name, envPrefix) {
			m[name] = value
		}
	}
	return m
}
