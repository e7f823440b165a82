package policy

// Stock is the scheduler of vLLM V1: those who run go on, in the order in which
// they came, prefill in chunks; a request that lacks a block takes those of the last
// that came, which is computed anew later; newcomers are admitted, in order,
// when none had to go and all they must compute fits.
//
// No request waits for ever: the first to have come is never a victim, so it ends,
// and then another is the first.
type Stock struct {
	step      draft
	chunkFree bool
}

// Name is "stock".
func (p *Stock) Name() string { return "stock" }

// Decide implements Policy.
func (p *Stock) Decide(s *Snapshot, d *Decision) {
	t := &p.step
	t.begin(s, d)
	if p.chunkFree {
		t.cut()
	}
	last := int32(len(s.Requests)) // those from here on that held blocks are victims
	waiting := int32(-1)
	for i := int32(0); i < last; i++ {
		r := &s.Requests[i]
		if !r.Holds() {
			if r.State == Waiting && waiting < 0 {
				waiting = i
			}
			continue
		}
		if t.full() || t.share(r) <= 0 {
			continue
		}
		for !t.run(i) {
			for last--; !s.Requests[last].Holds(); last-- {
			}
			d.Victims = append(d.Victims, Victim{Request: last, Reclaim: Recompute, Reason: LastCame})
			t.blocks += s.Requests[last].Blocks
			if last == i {
				break
			}
		}
	}
	if len(d.Victims) > 0 {
		return
	}
	admitted := false
	for i := waiting; i >= 0 && i < int32(len(s.Requests)) && !t.full(); i++ {
		if s.Requests[i].State == Waiting {
			if !t.fits(&s.Requests[i]) || !t.run(i) {
				break
			}
			admitted = true
		}
	}
	if !admitted {
		d.Steps = t.steps()
	}
}
