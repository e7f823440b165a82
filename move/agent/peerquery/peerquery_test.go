package peerquery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/member/directory/memdir"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/fabric/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book has numbered records, from gone on.
type book struct {
	gone, end uint64
	pad       string
	entered   chan struct{} // where given, a question waits for goOn
	goOn      chan struct{}
	takesLong string // where given, questions of this beginning end with their time
}

func (b *book) Answer(ctx context.Context, q Question) (Answer, error) {
	if b.goOn != nil {
		b.entered <- struct{}{}
		select {
		case <-b.goOn:
		case <-ctx.Done():
		}
	}
	if b.takesLong != "" && q.Beginning == b.takesLong {
		<-ctx.Done()
	}
	if q.Kind != Transfers {
		return Answer{}, fmt.Errorf("nothing of kind %d", q.Kind)
	}
	p := NewPage(q, max(q.After, b.gone), b.end)
	for n := p.answer.First; n < b.end; n++ {
		id := fmt.Sprintf("%04d", n)
		if !strings.HasPrefix(id, q.Beginning) {
			p.Pass()
		} else if !p.Add(map[string]string{"id": id, "pad": b.pad}) {
			break
		}
	}
	return p.Answer(), nil
}

type cell struct {
	directory *memdir.Client
	key       trust.CellKey
}

func newCell(t *testing.T) *cell {
	t.Helper()
	key, err := trust.OpenCellKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return &cell{d, key}
}

func (c *cell) open(t *testing.T, name string, b Source) (*Service, *agent.Agent) {
	t.Helper()
	return c.openWith(t, name, Options{Book: b})
}

func (c *cell) openWith(t *testing.T, name string, o Options) (*Service, *agent.Agent) {
	t.Helper()
	a, err := agent.Open(t.Context(), agent.Options{Name: name, Directory: c.directory, Fabrics: []agent.Opener{
		func(ctx context.Context, self agent.Self) (fabric.Fabric, error) {
			return tcp.Open(ctx, tcp.Options{
				Agent: self.Name, Incarnation: self.Incarnation, Events: self.Events, Guard: self.Guard, Metadata: self.Metadata,
				Listen: "127.0.0.1:0", Key: &c.key,
			})
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	o.Agent = a
	d, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(context.Background()), a.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return d, a
}

func member(a *agent.Agent) kv.Member {
	return kv.Member{Name: a.Name(), Incarnation: a.Incarnation()}
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// all asks page after page.
func all(t *testing.T, d *Service, to kv.Member, q Question) (ids []string, pages int) {
	t.Helper()
	for {
		a, err := d.Ask(soon(t), to, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range a.Records {
			var one struct{ ID string }
			if err := json.Unmarshal(r, &one); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, one.ID)
		}
		if pages++; !a.More() {
			return ids, pages
		}
		q.After = a.Next
	}
}

func TestAskedOverALink(t *testing.T) {
	c := newCell(t)
	d, _ := c.open(t, "asks", nil)
	_, b := c.open(t, "tells", &book{gone: 8, end: 12})
	ids, _ := all(t, d, member(b), Question{Kind: Transfers, After: 3})
	if diff := cmp.Diff([]string{"0008", "0009", "0010", "0011"}, ids); diff != "" {
		t.Error(diff)
	}
	ids, _ = all(t, d, member(b), Question{Kind: Transfers, Beginning: "001"})
	if diff := cmp.Diff([]string{"0010", "0011"}, ids); diff != "" {
		t.Error(diff)
	}
	if _, err := d.Ask(soon(t), member(b), Question{Kind: About}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "nothing of kind 1") {
		t.Errorf("got %v", err)
	}
}

// What does not fit one message comes in several, and none is missed or told twice.
func TestPages(t *testing.T) {
	c := newCell(t)
	d, _ := c.open(t, "asks", nil)
	_, b := c.open(t, "tells", &book{end: 40, pad: strings.Repeat("x", 10<<10)})
	ids, pages := all(t, d, member(b), Question{Kind: Transfers})
	if len(ids) != 40 || ids[39] != "0039" || pages != 4 {
		t.Errorf("%d records in %d pages, the last %s", len(ids), pages, ids[len(ids)-1])
	}
	ids, pages = all(t, d, member(b), Question{Kind: Transfers, Most: 5})
	if len(ids) != 40 || pages != 8 {
		t.Errorf("%d records in %d pages of 5", len(ids), pages)
	}
}

// An agent is asked about itself without a message.
func TestAskedOfItself(t *testing.T) {
	c := newCell(t)
	d, a := c.open(t, "self", &book{end: 3})
	if ids, _ := all(t, d, member(a), Question{Kind: Transfers}); len(ids) != 3 {
		t.Errorf("got %v", ids)
	}
}

// Who keeps silent costs the asker its deadline, no more; and who asks too much at
// a time is not answered.
func TestSilence(t *testing.T) {
	c := newCell(t)
	d, _ := c.open(t, "asks", nil)
	const asked = queuedOfPeer + 8
	slow := &book{end: 1, entered: make(chan struct{}, asked), goOn: make(chan struct{})}
	other, b := c.open(t, "tells", slow)
	ctx, cancel := context.WithCancel(soon(t))
	ended := make(chan error, asked)
	for range asked {
		go func() {
			_, err := d.Ask(ctx, member(b), Question{Kind: Transfers})
			ended <- err
		}()
	}
	until.Well(t, "eight are dropped", func() string {
		if dropped := other.unanswered.Load(); dropped != 8 {
			return fmt.Sprintf("%d were", dropped)
		}
		return ""
	})
	cancel()
	for range asked {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	close(slow.goOn)
	if n := d.calls.Waiting(); n != 0 {
		t.Errorf("%d questions are remembered", n)
	}
}

// A peer whose questions take long, or that does not take its answers, keeps waiting none
// but itself.
func TestASlowPeerKeepsNoOtherWaiting(t *testing.T) {
	const takesLong = "takes long"
	unreachable := func(ctx context.Context, _ string) (*agent.Peer, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, question := range map[string]Question{
		"its questions take long": {Kind: Transfers, Beginning: takesLong},
		"it takes no answers":     {Kind: Transfers},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t)
			fast, f := c.open(t, "fast", nil)
			b := &book{end: 1, takesLong: takesLong}
			asked, a := c.openWith(t, "asked", Options{Book: b, Find: unreachable})
			if _, err := asked.options.Agent.Find(soon(t), f.Name()); err != nil { // it is known, and the slow one is not
				t.Fatal(err)
			}
			slow := kv.Member{Name: "slow", Incarnation: kv.ID{1}}
			for number := range uint64(queuedOfPeer) {
				asked.receive(fabric.Notification{From: slow.Name, Incarnation: slow.Incarnation, Payload: appendQuestion(number, question)})
			}
			ctx, cancel := context.WithTimeout(t.Context(), lookTimeout+replyTimeout)
			defer cancel()
			if answer, err := fast.Ask(ctx, member(a), Question{Kind: Transfers}); err != nil || len(answer.Records) != 1 {
				t.Errorf("beside a slow peer: %+v, %v", answer, err)
			}
		})
	}
}

// What waits is bounded, whichever peer asks.
func TestTurnsAreBounded(t *testing.T) {
	all := turns{of: make(map[string][]queuedQuestion)}
	taken := 0
	for peer := range 2 * queued {
		for number := range uint64(2) {
			q := queuedQuestion{by: kv.Member{Name: fmt.Sprint(peer)}, number: number}
			if first, is := all.add(q); is {
				if taken++; first != (number == 0) {
					t.Errorf("question %d of peer %d: first %t", number, peer, first)
				}
			}
		}
	}
	if taken != queued {
		t.Errorf("%d questions wait", taken)
	}
	if q, is := all.next("0"); !is || q.number != 1 {
		t.Errorf("after the first: %+v, %t", q, is)
	}
	if _, is := all.next("0"); is || all.waiting != queued-2 || all.of["0"] != nil {
		t.Errorf("%d wait, %d of the peer that has none", all.waiting, len(all.of["0"]))
	}
}

// Only who was asked can answer.
func TestOthersDoNotAnswer(t *testing.T) {
	c := newCell(t)
	d, a := c.open(t, "asks", nil)
	slow := &book{end: 1, entered: make(chan struct{}, 1), goOn: make(chan struct{})}
	_, b := c.open(t, "tells", slow)
	liar, _ := c.open(t, "lies", nil)
	got := make(chan Answer, 1)
	go func() {
		answer, err := d.Ask(soon(t), member(b), Question{Kind: Transfers})
		if err != nil {
			t.Error(err)
		}
		got <- answer
	}()
	<-slow.entered
	for number := range uint64(8) {
		if err := liar.peers.Tell(soon(t), member(a), appendAnswer(number, Answer{Problem: "a lie"})); err != nil {
			t.Fatal(err)
		}
	}
	close(slow.goOn)
	if answer := <-got; len(answer.Records) != 1 {
		t.Errorf("got %+v", answer)
	}
}

func TestMessages(t *testing.T) {
	q := Question{Kind: HandOffs, Beginning: "ab", After: 1 << 40, Most: 7}
	number, asked, none, err := parse(appendQuestion(9, q))
	if err != nil || number != 9 || none != nil || *asked != q {
		t.Errorf("%d, %+v, %v", number, asked, err)
	}
	a := Answer{Records: [][]byte{[]byte(`{"a":1}`), {}}, First: 3, Next: 5, End: 9}
	number, asked, told, err := parse(appendAnswer(1<<60, a))
	if err != nil || number != 1<<60 || asked != nil {
		t.Fatalf("%d, %v", number, err)
	}
	if diff := cmp.Diff(a, *told); diff != "" {
		t.Error(diff)
	}
	whole := appendAnswer(1, a)
	for cut := range whole {
		if _, _, _, err := parse(whole[:cut]); !errors.Is(err, ErrMessage) {
			t.Fatalf("the first %d bytes: %v", cut, err)
		}
	}
	for name, b := range map[string][]byte{
		"left over":        append(appendQuestion(1, q), 0),
		"another form":     append([]byte(Magic), 2, 1, 0),
		"kind":             append([]byte(Magic), 1, 3, 0),
		"too many":         appendQuestion(1, Question{Most: MaxRecords + 1}),
		"long beginning":   appendQuestion(1, Question{Beginning: strings.Repeat("x", maxBeginning+1)}),
		"numbers backward": appendAnswer(1, Answer{First: 2, Next: 1, End: 3}),
		"too large":        appendAnswer(1, Answer{Records: [][]byte{make([]byte, MaxPageBytes), {1}}}),
	} {
		if _, _, _, err := parse(b); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzMessage: whatever a stranger sends is refused or within bounds, and what is
// read is what would be written.
func FuzzMessage(f *testing.F) {
	f.Add(appendQuestion(1, Question{Kind: About, Beginning: "x"}))
	f.Add(appendAnswer(2, Answer{Records: [][]byte{[]byte("{}")}, Next: 1, End: 2, Problem: "p"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		number, q, a, err := parse(b)
		if err != nil {
			return
		}
		if q != nil {
			if len(q.Beginning) > maxBeginning || q.Most > MaxRecords {
				t.Fatalf("beyond bounds: %+v", q)
			}
			again, q2, _, err := parse(appendQuestion(number, *q))
			if err != nil || again != number || *q2 != *q {
				t.Fatalf("%+v became %+v, %v", q, q2, err)
			}
			return
		}
		if total := len(bytes.Join(a.Records, nil)); total > MaxPageBytes || len(a.Records) > MaxRecords {
			t.Fatalf("%d records of %d bytes", len(a.Records), total)
		}
	})
}
