package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Load reads a model from a directory as Hugging Face has them: config.json,
// generation_config.json if there is one, and model.safetensors, or
// model.safetensors.index.json with the files it names. Weights of any of the
// types F32, BF16 and F16 become fp32.
func Load(dir string) (*Model, error) {
	config, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	files, err := openCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	defer files.close()
	return assemble(config, files)
}

// checkpoint is the files of a model, and which of them holds each tensor.
type checkpoint struct {
	dir    string
	files  []*tensorFile
	holder map[string]*tensorFile
}

func openCheckpoint(dir string) (*checkpoint, error) {
	names, index, err := shards(dir)
	if err != nil {
		return nil, err
	}
	c := &checkpoint{dir: dir, holder: make(map[string]*tensorFile)}
	byName := make(map[string]*tensorFile)
	for _, name := range names {
		file, err := openTensors(filepath.Join(dir, name))
		if err != nil {
			c.close()
			return nil, err
		}
		c.files = append(c.files, file)
		byName[name] = file
		for tensor := range file.tensors {
			if index == nil {
				c.holder[tensor] = file
			}
		}
	}
	for tensor, name := range index {
		c.holder[tensor] = byName[name]
	}
	return c, nil
}

// shards returns the files of a checkpoint and, where there is an index, which
// of them holds each tensor.
func shards(dir string) (names []string, index map[string]string, err error) {
	const single, indexName = "model.safetensors", "model.safetensors.index.json"
	data, err := os.ReadFile(filepath.Join(dir, indexName))
	if errors.Is(err, fs.ErrNotExist) {
		return []string{single}, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	var parsed struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	path := filepath.Join(dir, indexName)
	if err := json.Unmarshal(data, &parsed); err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrFile, path, err)
	}
	if len(parsed.WeightMap) == 0 {
		return nil, nil, fmt.Errorf("%w: %s: weight_map is missing or empty", ErrFile, path)
	}
	for tensor, name := range parsed.WeightMap {
		if name != filepath.Base(name) || !filepath.IsLocal(name) {
			return nil, nil, fmt.Errorf("%w: %s: tensor %q is said to be in %q, which is not a file of that directory", ErrFile, path, tensor, name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), parsed.WeightMap, nil
}

func (c *checkpoint) close() {
	for _, f := range c.files {
		_ = f.Close() // nothing was written
	}
}

// find returns a tensor that must have a shape.
func (c *checkpoint) find(name string, shape ...int64) (*tensorFile, tensor, error) {
	file := c.holder[name]
	if file == nil {
		return nil, tensor{}, fmt.Errorf("%w: %s: tensor %q is missing", ErrFile, c.dir, name)
	}
	t, exists := file.tensors[name]
	switch {
	case !exists:
		return nil, tensor{}, fmt.Errorf("%w: %s: tensor %q is missing, though the index says it is there", ErrFile, file.Name(), name)
	case t.dtype.widen == nil:
		return nil, tensor{}, fmt.Errorf("%w: %s: tensor %q has type %q; F32, BF16 and F16 can be read", ErrFile, file.Name(), name, t.dtype.name)
	case !slices.Equal(t.shape, shape):
		return nil, tensor{}, fmt.Errorf("%w: %s: tensor %q has shape %v, but config.json makes it %v", ErrFile, file.Name(), name, t.shape, shape)
	}
	return file, t, nil
}

func (c *checkpoint) matrix(name string, rows, columns int) (matrix, error) {
	file, t, err := c.find(name, int64(rows), int64(columns))
	if err != nil {
		return matrix{}, err
	}
	m := newMatrix(rows, columns)
	if err := file.read(t, int64(rows), int64(columns), func(i int64) []float32 { return m.Row(int(i), columns) }); err != nil {
		return matrix{}, fmt.Errorf("%w: %s: tensor %q: %w", ErrFile, file.Name(), name, err)
	}
	return m, nil
}

func (c *checkpoint) vector(name string, n int) ([]float32, error) {
	file, t, err := c.find(name, int64(n))
	if err != nil {
		return nil, err
	}
	v := make([]float32, n)
	if err := file.read(t, 1, int64(n), func(int64) []float32 { return v }); err != nil {
		return nil, fmt.Errorf("%w: %s: tensor %q: %w", ErrFile, file.Name(), name, err)
	}
	return v, nil
}
