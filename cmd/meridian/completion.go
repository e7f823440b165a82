package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"meridian/config"
	"meridian/models"
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

func (c *completeCommand) Run(io *stdio, k *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	for _, candidate := range candidates(k.Model.Node, words[:len(words)-1], words[len(words)-1]) {
		fmt.Fprintln(io.out, candidate)
	}
	return nil
}

// candidates walks the words that stand already and lists what may come next.
func candidates(node *kong.Node, before []string, last string) []string {
	var waiting *kong.Flag // a flag that still wants its value
	for _, word := range before {
		switch {
		case waiting != nil:
			waiting = nil
		case strings.HasPrefix(word, "-"):
			if flag := findFlag(node, word); flag != nil && !flag.IsBool() && !strings.Contains(word, "=") {
				waiting = flag
			}
		default:
			if child := findChild(node, word); child != nil {
				node = child
			}
		}
	}
	return withPrefix(wordsFor(node, waiting, last), last)
}

func wordsFor(node *kong.Node, waiting *kong.Flag, last string) []string {
	switch {
	case waiting != nil && waiting.Name == "model":
		return models.Names()
	case waiting != nil:
		return waiting.EnumSlice()
	case strings.HasPrefix(last, "-"):
		return flagNames(node)
	}
	var words []string
	for _, child := range node.Children {
		if !child.Hidden {
			words = append(words, child.Name)
		}
	}
	for _, argument := range node.Positional {
		if argument.Name == "field" {
			words = append(words, fieldPaths()...)
		}
		words = append(words, argument.EnumSlice()...)
	}
	return words
}

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
