package main

import (
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// withoutJSON are the commands that print no facts, or print them in a form that is for
// programs already, each with the reason.
var withoutJSON = map[string]string{
	"chat":         "a conversation",
	"completion":   "a script for a shell",
	"cert init":    "writes files, which cert show --json tells of",
	"cert issue":   "writes files, which cert show --json tells of",
	"config init":  "writes a file",
	"frame encode": "writes a frame",
	"record":       "writes a workload, a line of JSON for each request",
	"sim":          "tells the story of a world; --trace writes its events, a line of JSON each",
	"replay run":   "writes report.json",
	"replay tune":  "writes report.json",
	"agent":        "serves; with --log-format json all that it says is JSON",
	"directory":    "serves; with --log-format json all that it says is JSON",
	"engine":       "serves; with --log-format json all that it says is JSON",
	"gateway":      "serves; with --log-format json all that it says is JSON",
	"store serve":  "serves; with --log-format json all that it says is JSON",
}

// Every command that prints facts prints them for programs, too.
func TestCommandsHaveJSON(t *testing.T) {
	var c commands
	parser, err := newParser(&c, &stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, leaf := range parser.Model.Leaves(true) {
		name := strings.TrimPrefix(strings.Join(nameOf(leaf), " "), "meridian ")
		if strings.Contains(name, "__") {
			continue
		}
		seen++
		has := false
		for _, flag := range leaf.Flags {
			has = has || flag.Name == "json"
		}
		reason, excepted := withoutJSON[name]
		switch {
		case !has && !excepted:
			t.Errorf("`meridian %s` has no --json", name)
		case has && excepted:
			t.Errorf("`meridian %s` has --json and is an exception: %s", name, reason)
		}
		delete(withoutJSON, name)
	}
	for name := range withoutJSON {
		t.Errorf("there is no command %s", name)
	}
	if seen < 40 {
		t.Errorf("%d commands are found", seen)
	}
}

func nameOf(n *kong.Node) []string {
	if n.Parent == nil {
		return nil
	}
	return append(nameOf(n.Parent), n.Name)
}
