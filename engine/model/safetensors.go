package model

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
)

// A safetensors file is the length of a header in 8 bytes, little-endian, the
// header in JSON, and the tensors' bytes:
//
//	u64 n │ {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, …} │ data
//
// Offsets count from the data's first byte.

// tensor is where one tensor lies in a file.
type tensor struct {
	dtype dtype
	shape []int64
	begin int64 // from the file's first byte
	bytes int64
}

// dtype is an element type that can be read as fp32.
type dtype struct {
	name  string
	bytes int64
	widen func(to []float32, from []byte)
}

var dtypes = map[string]dtype{
	"F32":  {"F32", 4, widenF32},
	"BF16": {"BF16", 2, widenBF16},
	"F16":  {"F16", 2, widenF16},
}

// maxHeaderBytes is the format's own limit.
const maxHeaderBytes = 100_000_000

// readHeader returns the tensors of a safetensors file of size bytes.
func readHeader(file io.ReaderAt, size int64) (map[string]tensor, error) {
	var prefix [8]byte
	if size < int64(len(prefix)) {
		return nil, fmt.Errorf("%d bytes are too few for a safetensors file: it is truncated", size)
	}
	if _, err := file.ReadAt(prefix[:], 0); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	switch {
	case length > maxHeaderBytes:
		return nil, fmt.Errorf("its header claims %d bytes, at most %d are allowed: this is no safetensors file", length, maxHeaderBytes)
	case int64(length) > size-int64(len(prefix)):
		return nil, fmt.Errorf("its header claims %d bytes, but %d follow: it is truncated", length, size-int64(len(prefix)))
	}
	header := make([]byte, length)
	if _, err := file.ReadAt(header, int64(len(prefix))); err != nil {
		return nil, err
	}
	return parseHeader(header, size-int64(len(prefix))-int64(length))
}

// parseHeader reads a header that dataBytes bytes of tensors follow.
func parseHeader(header []byte, dataBytes int64) (map[string]tensor, error) {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(header, &entries); err != nil {
		return nil, fmt.Errorf("its header is not a JSON object: %w", err)
	}
	delete(entries, "__metadata__")
	tensors := make(map[string]tensor, len(entries))
	for name, entry := range entries {
		t, err := parseTensor(entry, dataBytes)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		t.begin += 8 + int64(len(header))
		tensors[name] = t
	}
	return tensors, nil
}

func parseTensor(entry []byte, dataBytes int64) (tensor, error) {
	var fields struct {
		DType   string  `json:"dtype"`
		Shape   []int64 `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(entry, &fields); err != nil {
		return tensor{}, err
	}
	if len(fields.Offsets) != 2 {
		return tensor{}, fmt.Errorf("data_offsets are %v, want a begin and an end", fields.Offsets)
	}
	begin, end := fields.Offsets[0], fields.Offsets[1]
	if begin < 0 || end < begin || end > dataBytes {
		return tensor{}, fmt.Errorf("data_offsets are [%d, %d], but the file has %d bytes of data: it is damaged or truncated", begin, end, dataBytes)
	}
	// A tensor of another type is no error until it is asked for.
	kind, known := dtypes[fields.DType]
	if !known {
		return tensor{dtype: dtype{name: fields.DType}, shape: fields.Shape, begin: begin, bytes: end - begin}, nil
	}
	want := kind.bytes
	for _, n := range fields.Shape {
		if n < 0 || (n > 0 && want > math.MaxInt64/n) {
			return tensor{}, fmt.Errorf("impossible shape %v", fields.Shape)
		}
		want *= n
	}
	if want != end-begin {
		return tensor{}, fmt.Errorf("shape %v of %s takes %d bytes, but data_offsets name %d", fields.Shape, fields.DType, want, end-begin)
	}
	return tensor{dtype: kind, shape: fields.Shape, begin: begin, bytes: want}, nil
}

// tensorFile is an open safetensors file.
type tensorFile struct {
	*os.File
	tensors map[string]tensor
}

func openTensors(path string) (*tensorFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is not a regular file")
	}
	var tensors map[string]tensor
	if err == nil {
		tensors, err = readHeader(f, info.Size())
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, path, err)
	}
	return &tensorFile{f, tensors}, nil
}

// readAtOnce bounds the memory that reading takes beside the weights.
const readAtOnce = 1 << 20

// read fills rows of columns elements each, one after another.
func (f *tensorFile) read(t tensor, rows, columns int64, row func(i int64) []float32) error {
	rowBytes := columns * t.dtype.bytes
	atOnce := max(1, readAtOnce/rowBytes)
	room := make([]byte, min(atOnce, rows)*rowBytes)
	for first := int64(0); first < rows; first += atOnce {
		count := min(atOnce, rows-first)
		part := room[:count*rowBytes]
		if _, err := f.ReadAt(part, t.begin+first*rowBytes); err != nil {
			return err
		}
		for i := range count {
			t.dtype.widen(row(first+i), part[i*rowBytes:][:rowBytes])
		}
	}
	return nil
}

func widenF32(to []float32, from []byte) {
	for i := range to {
		to[i] = math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:]))
	}
}

func widenBF16(to []float32, from []byte) {
	for i := range to {
		to[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(from[2*i:])) << 16)
	}
}

func widenF16(to []float32, from []byte) {
	for i := range to {
		to[i] = float16(binary.LittleEndian.Uint16(from[2*i:]))
	}
}

// float16 widens a half: 1 bit sign, 5 bits exponent, 10 bits fraction.
func float16(half uint16) float32 {
	sign, exponent, fraction := uint32(half>>15)<<31, uint32(half>>10)&31, uint32(half)&1023
	switch exponent {
	case 0: // zero, or too small for an exponent: fraction·2^-24
		return math.Float32frombits(math.Float32bits(float32(fraction)/(1<<24)) | sign)
	case 31:
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
