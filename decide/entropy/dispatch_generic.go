//go:build !amd64

package probe

// available lists the forms that this machine can run, fastest first.
func available() []form { return []form{portable} }

func (f form) sum(block []float32, most float32, lanes *laneSums) { portableSum(block, most, lanes) }

func (f form) loadF32(block, from []float32) (float32, bool) { return portableLoad(block, from) }

func (f form) loadBF16(block []float32, from []BF16) (float32, bool) {
	return portableLoad(block, from)
}

func (f form) loadF16(block []float32, from []F16) (float32, bool) { return portableLoad(block, from) }
