package host

import (
	"fmt"
	"net"
	"sync"

	"meridian/fabric"
	"meridian/fabric/session"
	"meridian/kv"
	"meridian/mrdn"
)

// service is the serving side of a connection.
type service struct {
	fabric *Fabric
	hello  mrdn.Hello
	wire   *wire
	shelf  shelf
	source mrdn.Source // of the Begin that comes next; the reader's own

	mu      sync.Mutex // protects the rest
	machine *session.Incoming
	lender  lender
	jobs    map[kv.ID]*job
	gone    bool
}

// remembered is how many ends a service remembers: more than can be in flight.
const remembered = 8192

// serve answers a peer until the connection ends.
func (f *Fabric) serve(conn *net.UnixConn, hello mrdn.Hello) error {
	v := &service{
		fabric: f, hello: hello, machine: session.NewIncoming(f.options.MaxTransfers, remembered),
		lender: newLender(&f.flags), jobs: make(map[kv.ID]*job),
	}
	var err error
	if v.wire, err = newWire(conn, f.options.KeepAlive, v); err != nil {
		return err
	}
	if err := f.showBoard(v.wire); err != nil {
		return err
	}
	if err := f.keep(v); err != nil {
		v.wire.close()
		return err
	}
	v.wire.run()
	return nil
}

// frame hears the peer's requests.
func (v *service) frame(f mrdn.LinkFrame, body []byte) error {
	switch f {
	case mrdn.SourceFrame:
		source, err := mrdn.ParseSource(body)
		source.List = append([]byte(nil), source.List...) // body is valid during the call
		v.source = source
		return err
	case mrdn.BeginFrame:
		begin, err := mrdn.ParseBegin(body)
		if err != nil {
			return err
		}
		return v.hearBegin(begin)
	case mrdn.LendFrame:
		return v.hearLend(body)
	case mrdn.BorrowFrame:
		borrow, err := mrdn.ParseBorrow(body)
		if err != nil {
			return err
		}
		v.lend(borrow)
		return nil
	case mrdn.AskFrame:
		ask, err := mrdn.ParseAsk(body)
		if err != nil {
			return err
		}
		return v.hearAsk(ask)
	case mrdn.CancelFrame:
		cancel, err := mrdn.ParseCancel(body)
		if err != nil {
			return err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.carryOut(v.machine.Cancelled(cancel.ID))
		return nil
	case mrdn.NoticeFrame:
		notice, err := mrdn.ParseNotice(body)
		if err != nil {
			return err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.carryOut(v.machine.Noticed(notice))
		return nil
	}
	if known, err := hearLoan(v.wire, &v.shelf, f, body); known {
		return err
	}
	return fmt.Errorf("%w: type %d from the posting side", mrdn.ErrLinkFrame, f)
}

// hearLend takes a region for writes that will name it. One that cannot be
// mapped is not there when they do.
func (v *service) hearLend(body []byte) error {
	lend, err := mrdn.ParseLend(body)
	if err != nil {
		return err
	}
	fd, err := v.wire.claim()
	if err != nil {
		return err
	}
	if err := v.shelf.put(lend, fd); err != nil {
		v.fabric.options.Logger.Info("refused a loan", "from", v.hello.Agent, "error", err)
	}
	return nil
}

// lend answers a Borrow.
func (v *service) lend(b mrdn.Borrow) {
	name := fabric.Part{Region: b.Region, Epoch: b.Epoch}
	v.mu.Lock()
	defer v.mu.Unlock()
	var p parcel
	var bound *fabric.Bound
	err := v.permitted(b.Grant, fabric.Read, fabric.List{name})
	if err == nil {
		bound, err = v.fabric.regions.Bind(fabric.List{name})
	}
	if err == nil {
		err = v.lender.lend(&p, name, b.Grant, bound.Section(0))
		bound.Release()
	}
	if err != nil {
		refusal := mrdn.Lend{Region: b.Region, Epoch: b.Epoch, Grant: b.Grant}
		refusal.Code, refusal.Message = fabric.ToCode(err)
		p.frames = refusal.Append(nil)
	}
	v.wire.sendWith(p.frames, p.gifts)
}

// permitted asks the guard, if there is one.
func (v *service) permitted(grant kv.ID, op fabric.Op, list fabric.List) error {
	if v.fabric.options.Guard == nil {
		return nil
	}
	return v.fabric.options.Guard.Admit(fabric.Access{
		Peer: v.hello.Agent, Incarnation: v.hello.Incarnation, Grant: grant, Op: op, List: list,
	})
}

// hearAsk answers whether a read may be.
func (v *service) hearAsk(a mrdn.Ask) error {
	list, err := fabric.ParseList(a.List)
	if err != nil {
		return err // the wire cannot be trusted any more
	}
	permit := mrdn.Permit{ID: a.ID}
	permit.Code, permit.Message = fabric.ToCode(v.permitted(a.Grant, fabric.Read, list))
	v.wire.send(permit.Append(nil))
	return nil
}

// hearBegin admits a write: its lists must agree with each other, and what they
// name must be there, before a byte of it is placed.
func (v *service) hearBegin(b mrdn.Begin) error {
	source := v.source
	v.source = mrdn.Source{}
	to, err := fabric.ParseList(b.List)
	if err != nil {
		return err // the wire cannot be trusted any more
	}
	from, err := fabric.ParseList(source.List)
	if err != nil {
		return err
	}
	if !b.Write || b.Parts != 1 || source.Handle != b.Handle || to.Bytes() != b.Bytes || from.Bytes() != b.Bytes {
		return fmt.Errorf("%w: a begin that does not fit its source", mrdn.ErrLinkFrame)
	}
	if j := v.admit(b, source, from, to); j != nil {
		v.fabric.pool.do(j)
	}
	return nil
}

func (v *service) admit(b mrdn.Begin, source mrdn.Source, from, to fabric.List) *job {
	v.mu.Lock()
	defer v.mu.Unlock()
	effects, refused := v.machine.Begin(b)
	v.carryOut(effects)
	if refused != nil || v.gone {
		return nil
	}
	var bound *fabric.Bound
	err := v.permitted(b.Grant, fabric.Write, to)
	if err == nil {
		bound, err = v.fabric.regions.BindAs(to, true)
	}
	if err != nil {
		v.carryOut(v.machine.Refused(b.ID, b.Part, err))
		return nil
	}
	if b.Bytes == 0 {
		bound.Release()
		v.carryOut(v.machine.Placed(b.ID, b.Part))
		return nil
	}
	loans, err := v.borrowed(from, flag{source.Cell, source.Turn})
	if err != nil {
		bound.Release()
		v.carryOut(v.machine.Refused(b.ID, b.Part, err))
		return nil
	}
	j := &job{
		id: b.ID, grant: b.Grant, shelf: &v.shelf, loans: loans, write: flag{source.Cell, source.Turn}, to: bound, bytes: b.Bytes,
		fromWalk: from.Walk(), toWalk: to.Walk(), compare: !v.fabric.options.NoChecksums,
	}
	j.ended = func(err error) { v.placed(j, err) }
	v.jobs[b.ID] = j
	return j
}

// borrowed finds the source of a write among what its poster has lent.
func (v *service) borrowed(from fabric.List, write flag) ([]*loan, error) {
	loans, missing, err := v.shelf.take(from)
	switch {
	case err != nil:
		return nil, err
	case len(missing) > 0:
		return nil, fmt.Errorf("%w: the source, region %d, is not lent", fabric.ErrRefused, missing[0].Region)
	case !loans[0].board.fits(write):
		v.shelf.release(loans)
		return nil, fmt.Errorf("%w: a write without a flag", fabric.ErrRefused)
	}
	return loans, nil
}

// placed ends the copying of a write.
func (v *service) placed(j *job, err error) {
	j.to.Release()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.jobs[j.id] != j {
		return // it was made quiet, and its end is known
	}
	delete(v.jobs, j.id)
	if err != nil {
		v.carryOut(v.machine.Failed(j.id, 0, err))
		return
	}
	v.carryOut(v.machine.Placed(j.id, 0))
}

// carryOut does what the machine asks. mu is held.
func (v *service) carryOut(effects []session.Effect) {
	for i := 0; i < len(effects); i++ {
		e := effects[i]
		switch e.Kind {
		case session.Quiet:
			if j := v.jobs[e.ID]; j != nil {
				delete(v.jobs, e.ID)
				j.quiet()
			}
		case session.SendAck:
			ack := mrdn.Ack{ID: e.ID, Part: e.Part, Untouched: e.Untouched}
			ack.Code, ack.Message = fabric.ToCode(e.Err)
			v.wire.send(ack.Append(nil))
		case session.Deliver:
			err := v.fabric.options.Events.Notified(fabric.Notification{
				From: v.hello.Agent, Incarnation: v.hello.Incarnation, Transfer: e.ID, Payload: e.Payload,
			})
			effects = append(effects, v.machine.Delivered(e.ID, e.Part, err)...)
		}
	}
}

// revoke stops every write under a grant. A read under it that has begun is
// the peer's own doing; a fence ends it.
func (v *service) revoke(grant kv.ID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, j := range v.jobs {
		if j.grant == grant {
			v.carryOut(v.machine.Failed(id, 0, fabric.ErrGrantRevoked))
		}
	}
}

// fence stops everything that is placed in a region, and recalls it.
func (v *service) fence(region uint64, cause error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, j := range v.jobs {
		if j.to.Touches(region) {
			v.carryOut(v.machine.Failed(id, 0, cause))
		}
	}
	if recall := v.lender.recall(region); recall != nil {
		v.wire.send(recall)
	}
}

func (v *service) settle(f flag) { v.shelf.settle(f) }

func (v *service) hangUp() { _ = v.wire.conn.CloseWrite() }

// lost ends the service: nothing of the peer's touches memory any more.
func (v *service) lost(error) {
	v.mu.Lock()
	if v.gone {
		v.mu.Unlock()
		return
	}
	v.gone = true
	v.carryOut(v.machine.Lost())
	v.mu.Unlock()
	v.wire.close()
	v.shelf.close()
	v.fabric.forget(v)
}
