//go:build accel

package cuda

import _ "embed"

// kernelsPTX is what kernels.sh made of kernels.cu.
//
//go:embed kernels.ptx
var kernelsPTX string
