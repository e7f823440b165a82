package governing

import "slices"

// tenants are those of an engine by number, which policies go by. Clients choose their
// names, so that there is no end of them: when there is no number left, those without
// sequences are forgotten, and what they were served with them.
type tenants struct {
	numbers map[string]int32
	here    []int32 // sequences of each number
	busy    int     // numbers that have any
	free    []int32
}

// join is the number of a tenant that has one more sequence. Where all have sequences,
// those beyond the bound share the last.
func (t *tenants) join(name string, forget func(number int32)) int32 {
	number, known := t.numbers[name]
	if !known {
		if t.busy >= maxTenants {
			return maxTenants
		}
		number = t.number(forget)
		if t.numbers == nil {
			t.numbers = make(map[string]int32)
		}
		t.numbers[name] = number
	}
	if t.here[number] == 0 {
		t.busy++
	}
	t.here[number]++
	return number
}

// number is one that no tenant has.
func (t *tenants) number(forget func(number int32)) int32 {
	if len(t.here) < maxTenants {
		t.here = append(t.here, 0)
		return int32(len(t.here) - 1)
	}
	if len(t.free) == 0 {
		for name, number := range t.numbers {
			if t.here[number] == 0 {
				delete(t.numbers, name)
				forget(number)
				t.free = append(t.free, number)
			}
		}
		slices.Sort(t.free)
	}
	number := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	return number
}

// leave is for one that joined.
func (t *tenants) leave(number int32) {
	if number >= maxTenants {
		return
	}
	if t.here[number]--; t.here[number] == 0 {
		t.busy--
	}
}
