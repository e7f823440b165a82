// Command overlay writes an overlay with every known bug in it, and prints its
// path, for `go run -overlay` and `go test -overlay`. It is run in the root of
// the repository.
package main

import (
	"fmt"
	"os"

	"meridian/internal/mutant"
)

func main() {
	dir, err := os.MkdirTemp("", "meridian-mutants-")
	if err != nil {
		fail(err)
	}
	path, err := mutant.Overlay(".", dir)
	if err != nil {
		fail(err)
	}
	fmt.Println(path)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "overlay:", err)
	os.Exit(1)
}
