package main

import (
	"reflect"
	"testing"
)

func TestSums(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"b": "", "a": "abc"})
	sums, err := sumDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	// The test vectors of FIPS 180-2 for "abc" and for nothing.
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n" +
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
	if sums.String() != want {
		t.Errorf("got\n%swant\n%s", sums, want)
	}
}

func TestDifferences(t *testing.T) {
	base := Sums{"same": "1", "changed": "2", "lost": "3"}
	got := base.Differences(Sums{"same": "1", "changed": "4", "added": "5"})
	if want := []string{"added", "changed", "lost"}; !reflect.DeepEqual(got, want) {
		t.Errorf("differences %v, want %v", got, want)
	}
	if got := base.Differences(base); len(got) > 0 {
		t.Errorf("differs from itself in %v", got)
	}
}
