//go:build !amd64

package entropy

// available lists the forms that this machine can run, fastest first.
func available() []implementation { return []implementation{portable} }

func (f implementation) sum(block []float32, most float32, lanes *laneSums) {
	portableSum(block, most, lanes)
}

func (f implementation) loadF32(block, from []float32) (float32, bool) {
	return portableLoad(block, from)
}

func (f implementation) loadBF16(block []float32, from []BF16) (float32, bool) {
	return portableLoad(block, from)
}

func (f implementation) loadF16(block []float32, from []F16) (float32, bool) {
	return portableLoad(block, from)
}
