package sched

// victims are those who may lose their blocks in a step, in the order in which
// they do: of the last class first, the least recently served of it, and of
// those the last to have come. They are found for the first who lacks blocks, as
// many as may go, and are taken from the front.
//
// A class gives nothing to itself but to the earlier ones that go on, so of the
// class that is being served the last to have come goes first. Who asks comes by
// class and arrival: whoever is not behind the one that asks now is not behind
// the next one either, and leaves the line at its end. So a step looks for
// victims once, and not once for each who asks.
type victims struct {
	line []int32
	// blocks[n] is what the first n of the line hold.
	blocks []int64
	// own is the class that is being served, once one of it has asked; -1 before.
	own int32
	// others is a heap of those in classes behind the first that asked.
	others []int32
	// looks counts how often a request was looked at for this.
	looks int
}

func (v *victims) reset() {
	v.line, v.blocks, v.others = v.line[:0], append(v.blocks[:0], 0), v.others[:0]
	v.own, v.looks = -1, 0
}

func (v *victims) add(i, blocks int32) {
	v.line = append(v.line, i)
	v.blocks = append(v.blocks, v.blocks[len(v.blocks)-1]+int64(blocks))
}

func (v *victims) keep(n int) { v.line, v.blocks = v.line[:n], v.blocks[:n+1] }

// obtainable is how many blocks those behind request i hold that may still go.
func (k *ranking) obtainable(i int32) int64 {
	v, c := &k.victims, k.class[i]
	if v.own != int32(c) {
		k.lineUp(c)
	}
	n := len(v.line)
	for ; n > int(k.lost) && k.class[v.line[n-1]] == c && v.line[n-1] <= i; n-- {
		v.looks++
	}
	v.keep(n)
	return v.blocks[n] - v.blocks[k.lost]
}

// lineUp puts those into line who may go for the class that is being served.
func (k *ranking) lineUp(class uint8) {
	v, most := &k.victims, int(k.mayLose)
	end := k.next
	for end < len(k.order) && k.class[k.order[end]]&^gone == class {
		end++
	}
	if v.own < 0 {
		k.gather(k.order[end:])
		for len(v.line) < most && len(v.others) > 0 {
			k.pop()
		}
	}
	v.own = int32(class)
	n := len(v.line)
	for n > int(k.lost) && k.class[v.line[n-1]] <= class {
		n--
	}
	v.looks += end - k.next + len(v.line) - n
	v.keep(n)
	for at := end - 1; at > k.next && len(v.line) < most; at-- {
		if i := k.order[at]; k.mayGo(i) {
			v.add(i, k.s.Requests[i].Blocks)
		}
	}
}

// mayGo says whether request i can be a victim.
func (k *ranking) mayGo(i int32) bool {
	r := &k.s.Requests[i]
	return r.Holds() && r.Blocks > 0 && k.class[i]&gone == 0 && r.owed() == 0
}

// gather makes a heap of those who can be victims.
func (k *ranking) gather(from []int32) {
	v := &k.victims
	for _, i := range from {
		if k.mayGo(i) {
			v.others = append(v.others, i)
		}
	}
	v.looks += len(from)
	for at := len(v.others)/2 - 1; at >= 0; at-- {
		k.sift(at)
	}
}

// pop moves the first of the heap into the line.
func (k *ranking) pop() {
	v := &k.victims
	i, last := v.others[0], len(v.others)-1
	v.others[0] = v.others[last]
	v.others = v.others[:last]
	k.sift(0)
	v.add(i, k.s.Requests[i].Blocks)
}

// sift lets the one at a place of the heap sink to where it belongs.
func (k *ranking) sift(at int) {
	heap := k.victims.others
	for {
		k.victims.looks++
		child := 2*at + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && k.before(heap[child+1], heap[child]) {
			child++
		}
		if !k.before(heap[child], heap[at]) {
			return
		}
		heap[at], heap[child] = heap[child], heap[at]
		at = child
	}
}

// before says that a is a victim rather than b.
func (k *ranking) before(a, b int32) bool {
	if k.class[a] != k.class[b] {
		return k.class[a] > k.class[b]
	}
	if x, y := k.s.Requests[a].LastServed, k.s.Requests[b].LastServed; x != y {
		return x < y
	}
	return a > b
}
