package workload

import (
	"embed"
	"io/fs"
)

// The samples have the formats of the public traces and are like them in the
// mean; nothing in them was recorded. `make generate` makes them, by
// sample_test.go.
//
//go:embed sample
var sampleFiles embed.FS

var samples = func() fs.FS {
	sub, err := fs.Sub(sampleFiles, "sample")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}()
