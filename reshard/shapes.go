package reshard

import "meridian/kv"

// Shapes keeps the shapes of sides that met before, so that a request between
// two known engines costs only its own part. It keeps at most so many, the
// oldest goes first. It belongs to one caller at a time.
type Shapes struct {
	limit int
	known map[kv.Hash]*Shape
	order []kv.Hash
}

// NewShapes returns an empty collection of at most limit shapes.
func NewShapes(limit int) *Shapes {
	return &Shapes{limit: max(1, limit), known: make(map[kv.Hash]*Shape)}
}

// Prepare is Prepare, unless the same two sides are known already.
func (s *Shapes) Prepare(src, dst Side) (*Shape, error) {
	key := shapeDigest(src, dst)
	if shape, known := s.known[key]; known {
		return shape, nil
	}
	shape, err := Prepare(src, dst)
	if err != nil {
		return nil, err
	}
	if len(s.order) == s.limit {
		delete(s.known, s.order[0])
		s.order = s.order[1:]
	}
	s.known[key] = shape
	s.order = append(s.order, key)
	return shape, nil
}
