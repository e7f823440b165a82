package reshard

import "slices"

// Shapes keeps the shapes of sides that met before, so that a request between
// two known engines costs only its own part. It keeps at most so many, the
// oldest goes first. It belongs to one caller at a time.
type Shapes struct {
	limit int
	known []*Shape // oldest first
}

// NewShapes returns an empty collection of at most limit shapes.
func NewShapes(limit int) *Shapes { return &Shapes{limit: max(1, limit)} }

// Find returns the shape of two sides, or nil if it is not known. Sides are
// compared, not hashed, the newest first: that is the faster.
func (s *Shapes) Find(src, dst Side) *Shape {
	for _, shape := range slices.Backward(s.known) {
		if shape.src.equal(src) && shape.dst.equal(dst) {
			return shape
		}
	}
	return nil
}

// Add keeps a shape.
func (s *Shapes) Add(shape *Shape) {
	if len(s.known) == s.limit {
		s.known = slices.Delete(s.known, 0, 1)
	}
	s.known = append(s.known, shape)
}

// Prepare is Prepare, unless the same two sides are known already.
func (s *Shapes) Prepare(src, dst Side) (*Shape, error) {
	if shape := s.Find(src, dst); shape != nil {
		return shape, nil
	}
	shape, err := Prepare(src, dst)
	if err == nil {
		s.Add(shape)
	}
	return shape, err
}
