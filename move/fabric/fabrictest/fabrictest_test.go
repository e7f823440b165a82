package fabrictest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/move/fabric"
)

func toyOptions(n *toyNetwork) Options {
	return Options{
		Open: func(_ testing.TB, self fabric.Peer, events fabric.Events, guard fabric.Guard) fabric.Fabric {
			return n.open(self, events, guard)
		},
		Kill:  func(f fabric.Fabric) { _ = f.Close(context.Background()) },
		Stall: func(_, _ fabric.Fabric) func() { return n.stall() },
	}
}

// A fabric without a fault passes: the suite demands no more than the contract.
// The rounds are played by real fabrics.
func TestToyPasses(t *testing.T) {
	o := toyOptions(newToyNetwork(""))
	o.Brief = true
	Run(t, o)
}

// recorder is a test that may fail without failing the test.
type recorder struct {
	testing.TB

	mu       sync.Mutex // protects the rest
	failed   bool
	skipped  bool
	messages []string
}

func (r *recorder) note(failed bool, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.messages = append(r.messages, strings.TrimSpace(message))
}

func (r *recorder) Error(args ...any)                 { r.note(true, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(true, fmt.Sprintf(format, args...)) }
func (r *recorder) Log(args ...any)                   { r.note(false, fmt.Sprintln(args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.note(false, fmt.Sprintf(format, args...)) }

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any) {
	r.Log(args...)
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) { r.Skip(fmt.Sprintf(format, args...)) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// played runs one case of the suite and tells what it said.
func played(t *testing.T, name string, o Options) *recorder {
	t.Helper()
	all := allPlays()
	at := slices.IndexFunc(all, func(p testCase) bool { return p.name == name })
	if at < 0 {
		t.Fatalf("the suite has no case %q", name)
	}
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		perform(r, o.withDefaults(t), all[at])
	}()
	<-ended
	if r.skipped {
		t.Fatalf("%s was skipped: %v", name, r.messages)
	}
	return r
}

// Every fault is found by the case that is there for it.
func TestSuiteFindsFaults(t *testing.T) {
	const slow = 50 * time.Microsecond
	for _, c := range []struct {
		fault fault
		play  string
		says  string
		slow  time.Duration
	}{
		{fault: "drops the last byte", play: "contents", says: "1 of "},
		{fault: "swaps two blocks", play: "contents", says: "bytes are wrong"},
		{fault: "touches a guard byte", play: "contents", says: "1 of "},
		{fault: "changes the source", play: "contents", says: "1 of "},
		{fault: "keeps a reference", play: "contents", says: "references are back"},
		{fault: "leaves a goroutine", play: "contents", says: "goroutines were left"},
		{fault: "notifies after Close", play: "contents", says: "after Close"},
		{fault: "ignores lengths", play: "different lengths", says: "want " + fabric.ErrLengths.Error()},
		{fault: "ignores overlaps", play: "overlapping destination", says: "want " + fabric.ErrOverlap.Error()},
		{fault: "ignores local bounds", play: "out of bounds", says: "local out of bounds"},
		{fault: "ignores remote bounds", play: "out of bounds", says: "remote out of bounds"},
		{fault: "ignores regions", play: "unregistered region", says: "want " + fabric.ErrUnknownRegion.Error()},
		{fault: "ignores epochs", play: "stale epoch", says: "want " + fabric.ErrStaleEpoch.Error()},
		{fault: "runs what was prepared before a fence", play: "prepared before a fence", says: "want " + fabric.ErrUnknownRegion.Error()},
		{fault: "takes any incarnation", play: "who answers", says: "want " + fabric.ErrStalePeer.Error()},
		{fault: "estimates nothing", play: "estimate", says: "estimated"},
		{fault: "deregister only forgets the name", play: "deregister near memory while it is read into", says: "bytes", slow: slow},
		{fault: "deregister only forgets the name", play: "deregister far memory while it is written to", says: "bytes", slow: slow},
		{fault: "deregister does not wait", play: "deregister near memory while it is read into", says: "bytes", slow: slow},
		{fault: "revoke stops only writes", play: "revoke while it is read from", says: "bytes", slow: slow},
		{fault: "revoke stops only reads", play: "revoke while it is written to", says: "bytes", slow: slow},
		{fault: "asks no guard", play: "revoked before it is posted", says: "want not submitted"},
		{fault: "goes on after a stop", play: "cancel a read at any moment", says: "bytes", slow: slow},
		{fault: "goes on after a stop", play: "cancel a write at any moment", says: "bytes", slow: slow},
		{fault: "goes on after a stop", play: "deregister near memory while it is read into", says: "bytes", slow: slow},
		{fault: "says done when stopped", play: "cancel a read at any moment", says: "not all its bytes are in place", slow: slow},
		{fault: "denies what is in doubt", play: "cancel a read at any moment", says: "not submitted, but bytes have changed", slow: slow},
		{fault: "denies what is in doubt", play: "peer dies while it is written to", says: "bytes", slow: slow},
		{fault: "hangs when stopped", play: "cancel what is stalled", says: "cancel"},
		{fault: "ignores deadlines", play: "deadline of what is stalled", says: "after"},
		{fault: "does not notice a death", play: "peer dies while stalled", says: "after"},
		{fault: "does not say why it ended", play: "peer dies while stalled", says: "want one of"},
		{fault: "does not tell of a lost link", play: "peer dies before and after", says: "LinkLost"},
		{fault: "notifies before the data", play: "notified after the data is in place", says: "came before its data"},
		{fault: "notifies twice", play: "notified after the data is in place", says: "notified 2 times"},
		{fault: "loses empty notifications", play: "notified after the data is in place", says: "notified 0 times"},
		{fault: "forges the sender", play: "notified without data", says: "forger"},
		{fault: "hurries Notify", play: "notified in order", says: "", slow: slow},
		{fault: "swallows a refusal", play: "notified into a full queue", says: "refused"},
		{fault: "denies data whose notification was refused", play: "notified into a full queue", says: "bytes are wrong"},
		{fault: "repeats what is posted again", play: "post again while running", says: "another transfer"},
		{fault: "repeats what is posted again", play: "post again when done", says: "notified 2 times"},
		{fault: "repeats what is posted again", play: "post at the same time", says: "notified"},
		{fault: "refuses without a name", play: "more than there is room for", says: "want nil or " + fabric.ErrBusy.Error()},
	} {
		t.Run(string(c.fault)+"/"+c.play, func(t *testing.T) {
			var r *recorder
			// Some faults hang, which takes the suite all its patience; on a busy
			// machine little patience may end before the fault had its turn.
			for _, patience := range []time.Duration{500 * time.Millisecond, 5 * time.Second, time.Minute} {
				n := newToyNetwork(c.fault)
				n.slow = c.slow
				o := toyOptions(n)
				o.Patience = patience
				r = played(t, c.play, o)
				if r.failed && strings.Contains(strings.Join(r.messages, "\n"), c.says) {
					return
				}
			}
			t.Errorf("failed: %v; it said:\n%s", r.failed, strings.Join(r.messages, "\n"))
		})
	}
}

func TestSeedRepeats(t *testing.T) {
	draw := func(seed uint64) string {
		var shapes []string
		o := toyOptions(newToyNetwork(""))
		o.Seed = seed
		perform(t, o.withDefaults(t), testCase{name: "seeded", rounds: 2, run: func(s *fixture) {
			m := s.memory(s.near, 10_000)
			for _, p := range s.cut(2000, []*memory{m}, s.anyShape()) {
				shapes = append(shapes, fmt.Sprint(p.offset, p.length))
			}
			shapes = append(shapes, s.id().String(), fmt.Sprintf("%x", m.image[:32]))
		}})
		return strings.Join(shapes, " ")
	}
	first, again, other := draw(7), draw(7), draw(8)
	if first != again {
		t.Error("the same seed played another case")
	}
	if first == other {
		t.Error("the seed does not matter")
	}
}
