//go:build !amd64

package kernel

// available lists the forms that this machine can run, fastest first.
func available() []forms { return []forms{portable} }
