package kernel

// forms is one implementation of the loops.
type forms struct {
	name   string
	dots   func(out, w Rows, rows int, x Rows, vectors, n int)
	mix    func(out, p Rows, vectors int, v Rows, rows, n int)
	max    func(x []float32) float32
	expSum func(x []float32, shift float32) float32
	gate   func(gate, up []float32)
}

var portable = forms{"portable", portableDots, portableMix, portableMax, portableExpSum, portableGate}

// best is the fastest form that this machine can run.
var best = available()[0]

// Dots computes out[v][r] = w[r] · x[v] for rows r and vectors v of n elements.
func Dots(out, w Rows, rows int, x Rows, vectors, n int) {
	if rows == 0 || vectors == 0 {
		return
	}
	if n%Lanes != 0 || !w.holds(rows, n) || !x.holds(vectors, n) || !out.holds(vectors, rows) {
		panic("kernel: Dots out of range")
	}
	best.dots(out, w, rows, x, vectors, n)
}

// Square is the dot product of x with itself, for any length of x.
func Square(x []float32) float32 {
	whole := len(x) &^ (Lanes - 1)
	if whole == len(x) {
		return portableDot(x, x)
	}
	var last [Lanes]float32
	copy(last[:], x[whole:])
	var lanes [Lanes]float32
	accumulate(&lanes, x[:whole], x[:whole])
	accumulate(&lanes, last[:], last[:])
	return tree(&lanes)
}

// Mix adds p[i][j]·v[j] to out[i], for j from 0 to rows-1 in this order, so that
// several calls on consecutive rows equal one on all of them.
func Mix(out, p Rows, vectors int, v Rows, rows, n int) {
	if rows == 0 || vectors == 0 {
		return
	}
	if n%Lanes != 0 || !v.holds(rows, n) || !p.holds(vectors, rows) || !out.holds(vectors, n) {
		panic("kernel: Mix out of range")
	}
	best.mix(out, p, vectors, v, rows, n)
}

// Softmax replaces the scores by e^(score-max) and returns the sum of them, by
// which its caller divides. A score of -Inf weighs nothing.
func Softmax(scores []float32) float32 {
	if len(scores) == 0 || len(scores)%Lanes != 0 {
		panic("kernel: Softmax of broken lanes")
	}
	return best.expSum(scores, best.max(scores))
}

// Gate is the activation of a gated layer: gate = gate/(1+e^-gate) · up.
func Gate(gate, up []float32) {
	if len(gate) != len(up) || len(gate)%Lanes != 0 {
		panic("kernel: Gate of broken lanes")
	}
	best.gate(gate, up)
}

// Add adds y to x.
func Add(x, y []float32) {
	for i, v := range y[:len(x)] {
		x[i] += v
	}
}

// Scale sets out = x·scale·weight.
func Scale(out, x, weight []float32, scale float32) {
	out, weight = out[:len(x)], weight[:len(x)]
	for i, v := range x {
		out[i] = float32(v*scale) * weight[i]
	}
}
