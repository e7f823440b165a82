package host

import (
	"fmt"

	"meridian/fabric"
	"meridian/kv"
	"meridian/mrdn"
)

// frame hears what the serving side says.
func (c *connection) frame(f mrdn.LinkFrame, body []byte) error {
	switch f {
	case mrdn.AckFrame:
		return c.hearAck(body)
	case mrdn.LendFrame:
		return c.hearLend(body)
	case mrdn.PermitFrame:
		return c.hearPermit(body)
	}
	if known, err := hearLoan(c.wire, &c.shelf, f, body); known {
		return err
	}
	return fmt.Errorf("%w: type %d from the serving side", mrdn.ErrLinkFrame, f)
}

// hearLoan handles what either side may say of its memory.
func hearLoan(w *wire, s *shelf, f mrdn.LinkFrame, body []byte) (known bool, err error) {
	switch f {
	case mrdn.BoardFrame:
		b, err := mrdn.ParseBoard(body)
		if err != nil {
			return true, err
		}
		fd, err := w.claim()
		if err != nil {
			return true, err
		}
		return true, s.putBoard(b, fd)
	case mrdn.RecallFrame:
		r, err := mrdn.ParseRecall(body)
		if err == nil {
			s.recall(r)
		}
		return true, err
	}
	return false, nil
}

func (c *connection) hearAck(body []byte) error {
	ack, err := mrdn.ParseAck(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.notices[ack.ID]; answer != nil && ack.Part == mrdn.NoticeAck {
		delete(c.notices, ack.ID)
		answer <- fabric.FromCode(ack.Code, ack.Message)
		return nil
	}
	c.carryOut(c.machine.Acked(ack))
	return nil
}

// hearLend lets reads start that waited for a region, or fails them.
func (c *connection) hearLend(body []byte) error {
	lend, err := mrdn.ParseLend(body)
	if err != nil {
		return err
	}
	refused := fabric.FromCode(lend.Code, lend.Message)
	if refused == nil {
		fd, err := c.wire.claim()
		if err != nil {
			return err
		}
		refused = c.shelf.put(lend, fd)
	}
	for _, j := range c.resume(lend, refused) {
		c.link.fabric.pool.do(j)
	}
	return nil
}

// hearPermit lets a read start that waited for its permission, or fails it.
func (c *connection) hearPermit(body []byte) error {
	permit, err := mrdn.ParsePermit(body)
	if err != nil {
		return err
	}
	if j := c.allow(permit.ID, fabric.FromCode(permit.Code, permit.Message)); j != nil {
		c.link.fabric.pool.do(j)
	}
	return nil
}

func (c *connection) allow(id kv.ID, refused error) *job {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.posted[id]
	switch {
	case p == nil || p.prepared.Op != fabric.Read || p.job != nil:
		return nil // it has ended meanwhile
	case refused != nil:
		c.carryOut(c.machine.Failed(id, refused))
		return nil
	}
	p.allowed = true
	return c.startRead(id, p)
}

func (c *connection) resume(lend mrdn.Lend, refused error) (ready []*job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := mrdn.Borrow{Region: lend.Region, Epoch: lend.Epoch, Grant: lend.Grant}
	delete(c.asked, asked)
	for id, p := range c.posted {
		if p.prepared.Op != fabric.Read || p.job != nil || p.grant != asked.Grant || !names(p.prepared.Remote, asked) {
			continue
		}
		if refused != nil {
			c.carryOut(c.machine.Failed(id, refused))
		} else if j := c.startRead(id, p); j != nil {
			ready = append(ready, j)
		}
	}
	return ready
}

func names(l fabric.List, b mrdn.Borrow) bool {
	for i := range l {
		if l[i].Region == b.Region && l[i].Epoch == b.Epoch {
			return true
		}
	}
	return false
}
