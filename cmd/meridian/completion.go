package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"meridian/kv"
	"meridian/run/cell"
	"meridian/run/config"
	"meridian/run/models"
	"meridian/see/ledger"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"${enum}."`
}

func (c *completionCommand) Help() string {
	return "Load it with\n\n" +
		"  source <(meridian completion bash)            # in ~/.bashrc\n" +
		"  source <(meridian completion zsh)             # in ~/.zshrc, after compinit\n" +
		"  meridian completion fish | source             # in ~/.config/fish/config.fish\n"
}

// The scripts only carry words to and from the hidden command __complete, so
// that they never go stale: the binary itself knows what it takes.
var completionScripts = map[string]string{
	"bash": `_meridian() {
  local IFS=$'\n'
  COMPREPLY=($(meridian __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
  if [[ ${#COMPREPLY[@]} -eq 0 ]]; then compopt -o default; fi
}
complete -F _meridian meridian
`,
	"zsh": `#compdef meridian
_meridian() {
  local -a found
  found=("${(@f)$(meridian __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _meridian meridian
`,
	"fish": `function __meridian_complete
  set -l words (commandline -opc) (commandline -ct)
  meridian __complete $words[2..-1] 2>/dev/null
end
complete -c meridian -a '(__meridian_complete)'
`,
}

func (c *completionCommand) Run(io *stdio) error {
	_, err := fmt.Fprint(io.out, completionScripts[c.Shell])
	return err
}

// completeCommand prints what may stand in place of the last word.
type completeCommand struct {
	Words []string `arg:"" optional:""`
}

func (c *completeCommand) Run(io *stdio, k *kong.Kong, all *commands) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	last := len(words) - 1
	line := typed{node: k.Model.Node, state: func() (string, error) { return stateDir(os.Getenv("MERIDIAN_STATE"), io, all) }}
	for _, word := range words[:last] {
		line.take(word)
	}
	for _, candidate := range line.candidates(words[last]) {
		fmt.Fprintln(io.out, candidate)
	}
	return nil
}

// typed is what the words that stand already come down to.
type typed struct {
	node      *kong.Node
	waiting   *kong.Flag // a flag that still wants its value
	arguments int        // positional words of node
	// state finds the state directory, for names that only a cell knows.
	state func() (string, error)
}

func (t *typed) take(word string) {
	switch {
	case word == "=": // bash makes three words of --flag=value
	case t.waiting != nil:
		t.waiting = nil
	case strings.HasPrefix(word, "-"):
		if flag := findFlag(t.node, word); flag != nil && !flag.IsBool() && !strings.Contains(word, "=") {
			t.waiting = flag
		}
	default:
		if child := findChild(t.node, word); child != nil {
			t.node = child
		} else {
			t.arguments++
		}
	}
}

// candidates lists what may stand in place of the last word.
func (t *typed) candidates(last string) []string {
	if t.waiting != nil {
		return withPrefix(t.valuesOf(t.waiting), strings.TrimPrefix(last, "="))
	}
	if !strings.HasPrefix(last, "-") {
		return withPrefix(t.words(), last)
	}
	name, value, valued := strings.Cut(last, "=")
	if !valued {
		return withPrefix(flagNames(t.node), last)
	}
	var words []string
	if flag := findFlag(t.node, name); flag != nil {
		for _, found := range withPrefix(t.valuesOf(flag), value) {
			words = append(words, name+"="+found)
		}
	}
	return words
}

func (t *typed) valuesOf(flag *kong.Flag) []string {
	switch flag.PlaceHolder {
	case "ID":
		return t.requests()
	case "FAMILY":
		return models.Names()
	case "MODEL":
		return kv.ModelNames()
	}
	return flag.EnumSlice()
}

// words lists the commands below the node and the values of its next argument.
func (t *typed) words() []string {
	var words []string
	for _, child := range t.node.Children {
		if !child.Hidden {
			words = append(words, child.Name)
		}
	}
	if positional := t.node.Positional; len(positional) > 0 && (t.arguments < len(positional) || positional[len(positional)-1].IsCumulative()) {
		argument := positional[min(t.arguments, len(positional)-1)]
		switch argument.Name {
		case "field":
			words = append(words, fieldPaths()...)
		case "part":
			words = append(words, t.parts()...)
		case "id":
			words = append(words, t.requests()...)
		}
		words = append(words, argument.EnumSlice()...)
	}
	return words
}

// parts are those of the cell that `meridian up` runs or has run.
func (t *typed) parts() (names []string) {
	dir, err := t.state()
	if err != nil {
		return nil
	}
	r, err := cell.ReadRecord(dir)
	if err != nil {
		names, _ = cell.LogNames(dir) // of a cell that has ended, its logs are there
		return names
	}
	for _, p := range r.Parts {
		names = append(names, p.Name)
	}
	return names
}

// requests are the last ones that a gateway has written down.
func (t *typed) requests() (ids []string) {
	dir, err := t.state()
	if err != nil {
		return nil
	}
	latest, _, err := ledger.LatestIn(dir, usualRequests)
	if err != nil {
		return nil
	}
	for _, r := range latest {
		ids = append(ids, r.ID)
	}
	return ids
}

// usualRequests is how many ids are worth choosing from.
const usualRequests = 20

func fieldPaths() []string {
	var paths []string
	for _, s := range config.Schema() {
		paths = append(paths, s.Name)
		for _, f := range s.Fields {
			paths = append(paths, s.Name+"."+f.Name)
		}
	}
	return paths
}

func flagNames(node *kong.Node) []string {
	var names []string
	for ; node != nil; node = node.Parent {
		for _, flag := range node.Flags {
			if !flag.Hidden {
				names = append(names, "--"+flag.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func findFlag(node *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for ; node != nil; node = node.Parent {
		for _, flag := range node.Flags {
			if flag.Name == name || string(flag.Short) == name {
				return flag
			}
		}
	}
	return nil
}

func findChild(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name && !child.Hidden {
			return child
		}
	}
	return nil
}

func withPrefix(words []string, prefix string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return w == "" || !strings.HasPrefix(w, prefix) })
}
