package reshard

import "meridian/kv"

// Shape is what the plan was made with.
func (p *Plan) Shape() *Shape { return p.shape }

// Src is the side that sends, Dst the one that receives.
func (s *Shape) Src() Side { return s.src }
func (s *Shape) Dst() Side { return s.dst }

// Digest is of both sides. It names the shape.
func (s *Shape) Digest() kv.Hash { return s.digest }
