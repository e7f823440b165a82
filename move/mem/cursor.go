package mem

// Cursor walks Spans in order. Two cursors over lists that are cut differently
// move in step by asking each for no more than the other has left.
type Cursor struct {
	runs  []Run
	piece uint64 // index within the current run
	taken uint64 // bytes of the current piece already handed out
	left  uint64
}

// Cursor starts at the first byte.
func (s *Spans) Cursor() Cursor { return Cursor{runs: s.runs, left: s.bytes} }

// Left is how many bytes have not been handed out.
func (c *Cursor) Left() uint64 { return c.left }

// Next hands out the next contiguous piece, at most limit bytes of it. A length
// of zero means the end.
func (c *Cursor) Next(limit uint64) (offset, length uint64) {
	if c.left == 0 || limit == 0 {
		return 0, 0
	}
	r := &c.runs[0]
	offset = r.Offset + c.piece*r.Stride + c.taken
	length = min(limit, r.Length-c.taken)
	c.advance(length)
	return offset, length
}

// Run is what Next would hand out, piece by piece, up to the end of the run: pieces at
// equal distances, or the rest of one.
func (c *Cursor) Run() Run {
	if c.left == 0 {
		return Run{}
	}
	r := c.runs[0]
	r.Offset += c.piece*r.Stride + c.taken
	if r.Count -= c.piece; c.taken > 0 || r.Count == 1 {
		return Run{Offset: r.Offset, Length: r.Length - c.taken, Count: 1}
	}
	return r
}

// Whole is the runs from here on, if none of the first one was handed out; they belong
// to the spans. Long lists are walked through it.
func (c *Cursor) Whole() []Run {
	if c.piece != 0 || c.taken != 0 {
		return nil
	}
	return c.runs
}

// PassWhole moves past so many runs of Whole, of so many bytes in all.
func (c *Cursor) PassWhole(runs int, bytes uint64) {
	c.runs = c.runs[runs:]
	c.left -= bytes
}

// Pass moves past at most limit bytes in at most so many runs, and says how many of
// both.
func (c *Cursor) Pass(limit uint64, runs int) (bytes uint64, passed int) {
	for ; passed < runs && bytes < limit && c.left > 0; passed++ {
		r := &c.runs[0]
		if size := r.Length * r.Count; c.piece == 0 && c.taken == 0 && size <= limit-bytes {
			bytes += size
			c.left -= size
			c.runs = c.runs[1:]
			continue
		}
		rest := c.Run()
		step := min(rest.Length*rest.Count, limit-bytes)
		c.Skip(step)
		bytes += step
	}
	return bytes, passed
}

func (c *Cursor) advance(length uint64) {
	r := &c.runs[0]
	c.left -= length
	if c.taken += length; c.taken < r.Length {
		return
	}
	c.taken = 0
	if c.piece++; c.piece < r.Count {
		return
	}
	c.piece = 0
	c.runs = c.runs[1:]
}

// Skip moves past bytes without handing them out.
func (c *Cursor) Skip(bytes uint64) {
	for bytes > 0 && c.left > 0 {
		r := &c.runs[0]
		if c.taken == 0 && c.piece < r.Count {
			if whole := min(bytes/r.Length, r.Count-c.piece); whole > 1 {
				// Leave the last piece to advance, which knows how a run ends.
				c.piece += whole - 1
				c.left -= (whole - 1) * r.Length
				bytes -= (whole - 1) * r.Length
			}
		}
		step := min(bytes, r.Length-c.taken)
		c.advance(step)
		bytes -= step
	}
}
