package kv

import "fmt"

// DType is the element type of a KV cache.
type DType uint8

// The element types engines store KV in. Byte-sized types only: formats that
// pack two elements into a byte carry scales beside them and are not a plain
// grid of elements any more.
const (
	InvalidDType DType = iota
	Float32
	Float16
	BFloat16
	Float8E4M3
	Float8E5M2
	Int8
)

var dtypes = [...]struct {
	name  string
	bytes int
}{
	InvalidDType: {"invalid", 0},
	Float32:      {"fp32", 4},
	Float16:      {"fp16", 2},
	BFloat16:     {"bf16", 2},
	Float8E4M3:   {"fp8_e4m3", 1},
	Float8E5M2:   {"fp8_e5m2", 1},
	Int8:         {"int8", 1},
}

// Bytes returns the size of one element.
func (d DType) Bytes() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].bytes
}

func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// ParseDType reads the name that String writes.
func ParseDType(name string) (DType, error) {
	for d, entry := range dtypes {
		if entry.name == name && DType(d) != InvalidDType {
			return DType(d), nil
		}
	}
	return InvalidDType, fmt.Errorf("kv: unknown dtype %q: use fp32, fp16, bf16, fp8_e4m3, fp8_e5m2 or int8", name)
}
