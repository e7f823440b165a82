package handoff

import (
	"bytes"
	"fmt"

	"meridian/internal/fields"
	"meridian/kv"
	"meridian/move/mrdn"
)

// Messages between homes and to followers begin with
//
//	"MRDH" │ u8 form │ u8 kind │ transfer id │ the kind's own
const (
	// Magic is what agents tell them by among notifications.
	Magic = "MRDH"
	// plainForm is what builds of any age read. placesForm has a block stride and
	// offsets at the end of every side, and is used where a side has them.
	// tokensForm has that too, and tokens beside the layers that are computed; it is
	// used where there is something to say of them, to who has CanTokens.
	plainForm  = 1
	placesForm = 2
	tokensForm = 3
	// MaxMessageBytes is what a notification can carry.
	MaxMessageBytes = mrdn.MaxLinkFrame - 1<<10
)

// The versions of the conversation that this build speaks. A home names its
// range when it asks; the answer names the one to use.
const (
	LowVersion  = 1
	HighVersion = 1
)

// Message is one thing that is said.
type Message interface {
	kind() uint8
	// each goes through the fields, to write or to read them.
	each(fields.Codec)
}

// blank makes an empty message of a kind, or nil.
func blank(kind uint8) Message {
	switch kind {
	case 1:
		return &Ask{}
	case 2:
		return &Answer{}
	case 3:
		return &Refusal{}
	case 4:
		return &Heartbeat{}
	case 5:
		return &Progress{}
	case 6:
		return &Push{}
	case 7:
		return &Pushed{}
	case 8:
		return &End{}
	case 9:
		return &Ended{}
	case 10:
		return &Order{}
	case 11:
		return &Report{}
	}
	return nil
}

func (*Ask) kind() uint8       { return 1 }
func (*Answer) kind() uint8    { return 2 }
func (*Refusal) kind() uint8   { return 3 }
func (*Heartbeat) kind() uint8 { return 4 }
func (*Progress) kind() uint8  { return 5 }
func (*Push) kind() uint8      { return 6 }
func (*Pushed) kind() uint8    { return 7 }
func (*End) kind() uint8       { return 8 }
func (*Ended) kind() uint8     { return 9 }
func (*Order) kind() uint8     { return 10 }
func (*Report) kind() uint8    { return 11 }

// formOf is the form that a message needs.
func formOf(m Message) uint8 {
	var parties []*Party
	var computed Computed
	switch m := m.(type) {
	case *Ask:
		parties = []*Party{&m.Dst}
	case *Answer:
		parties, computed = []*Party{&m.Src}, m.Computed
	case *Heartbeat:
		computed = m.Computed
	case *Progress:
		computed = m.Computed
	case *Order:
		computed = m.Computed
		if m.Terms != nil {
			parties = []*Party{&m.Terms.Src, &m.Terms.Dst}
		}
	}
	if computed.steps() {
		return tokensForm
	}
	for _, p := range parties {
		if p.Engine.IsStore() || len(p.Engine.Side.Offsets) > 0 {
			return placesForm
		}
	}
	return plainForm
}

// AppendMessage appends a message in wire form.
func AppendMessage(dst []byte, transfer kv.ID, m Message) []byte {
	w := fields.Writer{B: append(dst, Magic...), Form: formOf(m)}
	w.U8(w.Form)
	w.U8(m.kind())
	w.ID(transfer)
	m.each(fields.Writing(&w))
	return w.B
}

// ParseMessage reads what AppendMessage wrote, from a stranger. What it returns
// shares no memory with b.
func ParseMessage(b []byte) (kv.ID, Message, error) {
	rest, ours := bytes.CutPrefix(b, []byte(Magic))
	if !ours {
		return kv.ID{}, nil, fmt.Errorf("%w: it does not begin as one", ErrMessage)
	}
	r := fields.Reader{B: bytes.Clone(rest)}
	if r.Form = r.U8(); r.Form < plainForm || r.Form > tokensForm {
		return kv.ID{}, nil, fmt.Errorf("%w: form %d, this build reads %d to %d", ErrMessage, r.Form, plainForm, tokensForm)
	}
	kind := r.U8()
	m := blank(kind)
	if m == nil {
		return kv.ID{}, nil, fmt.Errorf("%w: unknown kind %d", ErrMessage, kind)
	}
	transfer := r.ID()
	m.each(fields.Reading(&r))
	return transfer, m, whole(&r, fmt.Sprintf("%T", m))
}
