package arena

import "testing"

// What a process loses against another that maps the same memory is counted, there and
// only there.
func TestLostSwapsAreCounted(t *testing.T) {
	b := make([]byte, 1<<20)
	one, err := Format(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := one.Reserve(HashKey([]byte("k")), 10, 1, PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if !other.Swap(r.Index, r.Header.Word, MakeWord(Dead, r.Header.Word.Epoch())) {
		t.Fatal("it cannot be changed, though no other has")
	}
	if one.Write(&r, []byte("k"), make([]byte, 10)) {
		t.Fatal("what was taken back became ready")
	}
	if one.CASFailures() != 1 || other.CASFailures() != 0 {
		t.Errorf("one lost %d, the other %d", one.CASFailures(), other.CASFailures())
	}
}
