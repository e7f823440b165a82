package bench

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// shared is what the drivers of all measurements import.
//
//go:embed peers/*.py
var shared embed.FS

// Drivers puts scripts where an interpreter can read them, with what they share.
func (o *Opened) Drivers(own fs.FS) (directory string, err error) {
	if directory, err = o.Folder(""); err != nil {
		return "", err
	}
	for _, from := range []fs.FS{shared, own} {
		scripts, err := fs.Glob(from, "peers/*.py")
		if err != nil {
			return directory, err
		}
		for _, script := range scripts {
			text, err := fs.ReadFile(from, script)
			if err == nil {
				err = os.WriteFile(filepath.Join(directory, filepath.Base(script)), text, 0o600)
			}
			if err != nil {
				return directory, err
			}
		}
	}
	return directory, nil
}

// Interpreter is the Python of a peer that `make peers` has installed.
func Interpreter(peersDir, peer string) string { return filepath.Join(peersDir, peer, "bin", "python") }

// WithoutPython says why a peer is not there, or nil.
func WithoutPython(peersDir, peer string) *Absence {
	if _, err := os.Stat(Interpreter(peersDir, peer)); err != nil {
		return &Absence{Peer: peer, Why: "not in " + filepath.Join(peersDir, peer), Fix: "make peers"}
	}
	return nil
}

// WithoutProgram says why a peer that is a program is not there, or nil.
func WithoutProgram(peer, program string) *Absence {
	if _, err := exec.LookPath(program); err != nil {
		return &Absence{Peer: peer, Why: "not on PATH", Fix: "apt-get install " + program}
	}
	return nil
}

// WhyNotPython turns the reason that a Python peer does not start into what to
// type.
func WhyNotPython(err error, packages string) *Absence {
	text := err.Error()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	why := lines[len(lines)-1] // of a Python traceback the last line says it
	if strings.Contains(text, "cannot open shared object file") {
		return &Absence{Why: why, Fix: "apt-get install " + packages}
	}
	return &Absence{Why: fmt.Sprintf("does not start: %s", why), Fix: "rm -r .peers && make peers"}
}
