package policy

// victims are those who may lose their blocks in a step, in the order in which
// they do: of the last class first, the least recently served of it, and of
// those the last in order. They are found for the first who lacks blocks, as
// many as may go, and are taken from the front.
//
// A class gives nothing to itself but to the earlier ones that go on, so of the
// class that is being served the last in order goes first. Requests ask in
// order: who is not behind the one that asks now is not behind the next one
// either, and leaves the line at its end. So a step looks for victims once, and
// not once for each who asks.
type victims struct {
	// line has places in the ranking's order.
	line []int32
	// blocks[n] is what the first n of the line hold.
	blocks []int64
	// own is the class that is being served, once one of it has asked; -1 before.
	own int32
	// others is a heap of the places of those in classes behind the first that
	// asked.
	others []int32
	// looks counts how often a request was looked at for this.
	looks int
}

func (v *victims) reset() {
	v.line, v.blocks, v.others = v.line[:0], append(v.blocks[:0], 0), v.others[:0]
	v.own, v.looks = -1, 0
}

func (v *victims) keep(n int) { v.line, v.blocks = v.line[:n], v.blocks[:n+1] }

// obtainable is how many blocks those behind the one that asks hold who may
// still go.
func (k *ranking) obtainable() int64 {
	v := &k.victims
	if class := k.class[k.order[k.next]]; v.own != int32(class) {
		k.lineUp(class)
	}
	k.shorten(k.next)
	return v.blocks[len(v.line)] - v.blocks[k.lost]
}

// shorten sends those away whose places are up to this one, and who have not gone.
func (k *ranking) shorten(place int) {
	v := &k.victims
	n := len(v.line)
	for ; n > int(k.lost) && int(v.line[n-1]) <= place; n-- {
		v.looks++
	}
	v.keep(n)
}

// lineUp puts those into line who may go for the class that is being served.
func (k *ranking) lineUp(class uint8) {
	v, most := &k.victims, int(k.mayLose)
	end := k.next
	for end < len(k.order) && k.class[k.order[end]]&^gone == class {
		end++
	}
	if v.own < 0 {
		k.gather(end)
		for len(v.line) < most && len(v.others) > 0 {
			k.pop()
		}
	}
	v.own = int32(class)
	v.looks += end - k.next
	k.shorten(end - 1)
	for place := end - 1; place > k.next && len(v.line) < most; place-- {
		if k.mayGo(k.order[place]) {
			k.add(int32(place))
		}
	}
}

// add puts one at the end of the line.
func (k *ranking) add(place int32) {
	v := &k.victims
	v.line = append(v.line, place)
	v.blocks = append(v.blocks, v.blocks[len(v.blocks)-1]+int64(k.s.Requests[k.order[place]].Blocks))
}

// mayGo says whether request i can be a victim.
func (k *ranking) mayGo(i int32) bool {
	r := &k.s.Requests[i]
	return r.Holds() && r.Blocks > 0 && k.class[i]&gone == 0 && r.owed() == 0
}

// gather makes a heap of those from a place on who can be victims.
func (k *ranking) gather(from int) {
	v := &k.victims
	for place := from; place < len(k.order); place++ {
		if k.mayGo(k.order[place]) {
			v.others = append(v.others, int32(place))
		}
	}
	v.looks += len(k.order) - from
	for at := len(v.others)/2 - 1; at >= 0; at-- {
		k.sift(at)
	}
}

// pop moves the first of the heap into the line.
func (k *ranking) pop() {
	v := &k.victims
	first, last := v.others[0], len(v.others)-1
	v.others[0] = v.others[last]
	v.others = v.others[:last]
	k.sift(0)
	k.add(first)
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

// before says that the one at place a is a victim rather than the one at b.
func (k *ranking) before(a, b int32) bool {
	x, y := k.order[a], k.order[b]
	if k.class[x] != k.class[y] {
		return k.class[x] > k.class[y]
	}
	if x, y := k.s.Requests[x].LastServed, k.s.Requests[y].LastServed; x != y && !k.backwards {
		return x < y
	}
	return a > b
}
