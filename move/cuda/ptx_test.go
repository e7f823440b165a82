package cuda

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
)

// What the driver compiles was made of the source that is read here, and has the
// kernels that are asked for.
func TestPTXIsOfItsSource(t *testing.T) {
	source, err := os.ReadFile("kernels.cu")
	if err != nil {
		t.Fatal(err)
	}
	ptx, err := os.ReadFile("kernels.ptx")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("sha256 %x\n", sha256.Sum256(source)); !bytes.Contains(ptx, []byte(want)) {
		t.Error("kernels.ptx was made of another kernels.cu: run kernels.sh where nvcc is")
	}
	var names []string
	for _, match := range regexp.MustCompile(`\.visible \.entry (\w+)`).FindAllSubmatch(ptx, -1) {
		names = append(names, string(match[1]))
	}
	want := slices.Clone(kernelNames)
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("kernels.ptx has %v, and asked for are %v", names, want)
	}
}
