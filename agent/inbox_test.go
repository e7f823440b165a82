package agent

import "testing"

func TestInboxBytes(t *testing.T) {
	var i inboxBytes
	const half = maxInboxBytes / 2
	for waiting := range 2 {
		if !i.admits(half, waiting) {
			t.Fatalf("half of it beside %d", waiting)
		}
		i.add(half)
	}
	if i.admits(1, 2) {
		t.Error("a byte beyond the bound")
	}
	if !i.admits(half, 1) { // one was taken
		t.Error("no room after one was taken")
	}
	if i.admits(half+1, 1) {
		t.Error("more than the room that one left")
	}
	if !i.admits(maxInboxBytes, 0) || i.bytes != 0 {
		t.Errorf("an empty inbox holds %d bytes", i.bytes)
	}
}
