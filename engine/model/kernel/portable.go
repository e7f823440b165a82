package kernel

// The portable forms: what every other form must equal, bit for bit. The
// conversions float32(a * b) are not idle: they forbid the compiler to fuse a
// product with the sum it goes into.

// tree adds up the lanes.
func tree(l *[Lanes]float32) float32 {
	for half := Lanes / 2; half > 0; half /= 2 {
		for i := range half {
			l[i] += l[i+half]
		}
	}
	return l[0]
}

func portableDot(a, b []float32) float32 {
	var lanes [Lanes]float32
	accumulate(&lanes, a, b)
	return tree(&lanes)
}

// accumulate adds the products of whole lanes, half of the lanes at a time: so
// many sums fit into registers.
func accumulate(lanes *[Lanes]float32, a, b []float32) {
	const half = Lanes / 2
	b = b[:len(a)]
	for first := 0; first < Lanes; first += half {
		l := (*[half]float32)(lanes[first:])
		l0, l1, l2, l3, l4, l5, l6, l7 := l[0], l[1], l[2], l[3], l[4], l[5], l[6], l[7]
		for i := first; i+half <= len(a); i += Lanes {
			x, y := (*[half]float32)(a[i:]), (*[half]float32)(b[i:])
			l0 += float32(x[0] * y[0])
			l1 += float32(x[1] * y[1])
			l2 += float32(x[2] * y[2])
			l3 += float32(x[3] * y[3])
			l4 += float32(x[4] * y[4])
			l5 += float32(x[5] * y[5])
			l6 += float32(x[6] * y[6])
			l7 += float32(x[7] * y[7])
		}
		*l = [half]float32{l0, l1, l2, l3, l4, l5, l6, l7}
	}
}

func portableDots(out, w Rows, rows int, x Rows, vectors, n int) {
	for r := range rows {
		row := w.Row(r, n)
		for v := range vectors {
			out.Data[v*out.Stride+r] = portableDot(row, x.Row(v, n))
		}
	}
}

func portableMix(out, p Rows, vectors int, v Rows, rows, n int) {
	for i := range vectors {
		sum := out.Row(i, n)
		for j, weight := range p.Row(i, rows) {
			for d, value := range v.Row(j, n) {
				sum[d] += float32(weight * value)
			}
		}
	}
}

func portableMax(x []float32) float32 {
	most := x[0]
	for _, v := range x {
		if v > most {
			most = v
		}
	}
	return most
}

func portableExpSum(x []float32, shift float32) float32 {
	var lanes [Lanes]float32
	for i := range x {
		x[i] = exp(x[i] - shift)
		lanes[i%Lanes] += x[i]
	}
	return tree(&lanes)
}

func portableGate(gate, up []float32) {
	for i, g := range gate {
		gate[i] = float32(g/(1+exp(-g))) * up[i]
	}
}
