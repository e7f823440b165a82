package main

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"

	"meridian/see/dash"
)

// pageOf is where the page about a cell is.
func pageOf(admin string) string { return strings.TrimSuffix(admin, "/") + dash.Prefix }

// openPage shows a page in the browser of the person at this machine. Where there is none it
// says so: its address is on the screen anyway.
func openPage(w io.Writer, url string) {
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	}
	command := exec.Command(opener, url)
	if err := command.Start(); err != nil {
		fmt.Fprintf(w, "  no browser could be opened (%v); the page is at %s\n\n", err, url)
		return
	}
	_ = command.Process.Release() // it may last as long as the browser
}
