package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, kept as it was typed.
type Size struct {
	Bytes uint64
	Text  string
}

func (s Size) String() string { return s.Text }

var sizeUnits = []struct {
	suffix string
	bytes  uint64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}}

// UnmarshalText reads a number with B, KiB, MiB or GiB behind it.
func (s *Size) UnmarshalText(text []byte) error {
	for _, unit := range sizeUnits {
		digits, found := strings.CutSuffix(string(text), unit.suffix)
		if !found {
			continue
		}
		count, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || count == 0 || count > math.MaxInt64/unit.bytes {
			break
		}
		*s = Size{Bytes: count * unit.bytes, Text: string(text)}
		return nil
	}
	return fmt.Errorf("%q is not a size; write it like 512B, 16KiB, 1MiB or 2GiB", text)
}
