package trust

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// LegKind is which part of a request a leg is for.
type LegKind uint8

// The kinds.
const (
	LegPrefill LegKind = 1
	LegDecode  LegKind = 2
)

func (k LegKind) String() string {
	switch k {
	case LegPrefill:
		return "prefill"
	case LegDecode:
		return "decode"
	}
	return fmt.Sprintf("leg(%d)", uint8(k))
}

// Leg is one leg of a user's request as a gateway of this cell sent it: this
// engine may do this part of this request. The engine passes it on unread, and
// the engine's agent checks it.
//
//	u8 version │ u8 kind │ id 16 bytes │ u8 length, engine │ MAC 32 bytes
//
// One of a request that is traced is of version 2, with the trace before the MAC:
//
//	… engine │ trace id 16 bytes │ span id 8 bytes │ u8 flags, 1: sampled │ MAC
//
// One that says which request it is of is of version 3, and has a place for both; a
// trace of zeros is none:
//
//	… engine │ request id 16 bytes │ trace id 16 bytes │ span id 8 bytes │ u8 flags │ MAC
//
// One that says whose request it is, is of version 4, and has a place for all of these:
//
//	… engine │ request id 16 bytes │ trace id 16 bytes │ span id 8 bytes │ u8 flags │ u8 length, tenant │ MAC
//
// Agents of builds before do not read those, so no agent gets one unasked: an engine's
// record says which version its home reads.
// The MAC is HMAC-SHA256 under the cell's key for legs, of "meridian leg" and
// everything before.
type Leg struct {
	Kind   LegKind
	ID     [16]byte // the transfer's; zeros are none
	Engine string   // who may use it
	Trace  Trace    // what it is part of; zero for none
	// Request is the gateway's id of the request, by which logs and records of several
	// processes are brought together; zero for none.
	Request [16]byte
	// Tenant is whose request it is, as the gateway found by the API key; empty for none. It has
	// the shares of what tenants share.
	Tenant string
}

// Trace is where in a trace a leg stands, as W3C's trace context has it.
type Trace struct {
	ID      [16]byte
	Span    [8]byte // the leg's own
	Sampled bool
}

const (
	legVersion       = 1
	tracedLegVersion = 2
	// RequestLegVersion is the first that says which request a leg is of, TenantLegVersion whose.
	RequestLegVersion = 3
	TenantLegVersion  = 4
	// LegVersion is the newest that this build reads.
	LegVersion = TenantLegVersion
	legHead    = 1 + 1 + 16 + 1
	legRequest = 16
	legTrace   = 16 + 8 + 1
	// MaxTenantBytes bounds the name of a tenant.
	MaxTenantBytes = 64
	// MaxLegBytes bounds a sealed leg.
	MaxLegBytes = legHead + 255 + legRequest + legTrace + 1 + MaxTenantBytes + sha256.Size
)

// Seal writes the leg. It panics for one that no agent would open: an engine's id
// has 1 to 255 bytes, and a transfer's is not zero.
func (l Leg) Seal(key [keyBytes]byte) []byte {
	if err := l.validate(); err != nil {
		panic(err)
	}
	b := make([]byte, 0, MaxLegBytes)
	version := byte(legVersion)
	switch {
	case l.Tenant != "":
		version = TenantLegVersion
	case l.Request != [16]byte{}:
		version = RequestLegVersion
	case l.Trace != (Trace{}):
		version = tracedLegVersion
	}
	b = append(b, version, byte(l.Kind))
	b = append(b, l.ID[:]...)
	b = append(b, byte(len(l.Engine)))
	b = append(b, l.Engine...)
	if version >= RequestLegVersion {
		b = append(b, l.Request[:]...)
	}
	if version >= tracedLegVersion {
		b = append(b, l.Trace.ID[:]...)
		b = append(b, l.Trace.Span[:]...)
		b = append(b, l.Trace.flags())
	}
	if version == TenantLegVersion {
		b = append(b, byte(len(l.Tenant)))
		b = append(b, l.Tenant...)
	}
	return append(b, gatewayMAC(key, legLabel, b)...)
}

func (l Leg) validate() error {
	if l.Kind != LegPrefill && l.Kind != LegDecode {
		return because(ErrInvalid, fmt.Sprintf("a leg is for prefill or decode, not %v", l.Kind))
	}
	if len(l.Engine) < 1 || len(l.Engine) > 255 {
		return because(ErrInvalid, fmt.Sprintf("a leg names an engine of 1 to 255 bytes, not %d", len(l.Engine)))
	}
	if l.ID == [16]byte{} {
		return because(ErrInvalid, "a leg names the transfer that it is for")
	}
	if len(l.Tenant) > MaxTenantBytes {
		return because(ErrInvalid, fmt.Sprintf("a leg names a tenant of at most %d bytes, not %d", MaxTenantBytes, len(l.Tenant)))
	}
	if l.Trace != (Trace{}) && (l.Trace.ID == [16]byte{} || l.Trace.Span == [8]byte{}) {
		return because(ErrInvalid, "a leg of a trace names the trace and its own span")
	}
	return nil
}

func (t Trace) flags() byte {
	if t.Sampled {
		return 1
	}
	return 0
}

// OpenLeg reads a leg from a stranger.
func OpenLeg(b []byte, key [keyBytes]byte) (Leg, error) {
	refuse := func(why string) (Leg, error) {
		return Leg{}, &Error{Op: "open leg", Err: because(ErrProof, why), Hint: "legs are made by the gateway of the cell, with the key in " + CellKeyFile}
	}
	if len(b) < legHead+1+sha256.Size || len(b) > MaxLegBytes {
		return refuse(fmt.Sprintf("it has %d bytes", len(b)))
	}
	version := b[0]
	if version < legVersion || version > LegVersion {
		return refuse(fmt.Sprintf("it is of version %d, this build reads %d to %d", version, legVersion, LegVersion))
	}
	body, mac := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if !hmac.Equal(gatewayMAC(key, legLabel, body), mac) {
		return refuse("its seal is wrong")
	}
	l, rest := legOf(body)
	if rest == nil || len(rest) > 0 || l.lacks(version) || l.validate() != nil {
		return refuse("it is malformed")
	}
	return l, nil
}

// legOf reads what a leg of a version that is read says, and returns what is left; nil: it is cut
// off, or says what none does.
func legOf(body []byte) (l Leg, rest []byte) {
	version := body[0]
	l = Leg{Kind: LegKind(body[1]), ID: [16]byte(body[2:18])}
	engine, rest := int(body[legHead-1]), body[legHead:]
	if len(rest) < engine {
		return l, nil
	}
	l.Engine, rest = string(rest[:engine]), rest[engine:]
	if version >= RequestLegVersion {
		if len(rest) < legRequest {
			return l, nil
		}
		l.Request, rest = [16]byte(rest), rest[legRequest:]
	}
	if version >= tracedLegVersion {
		if len(rest) < legTrace || rest[legTrace-1] > 1 {
			return l, nil
		}
		l.Trace = Trace{ID: [16]byte(rest), Span: [8]byte(rest[16:]), Sampled: rest[legTrace-1] == 1}
		rest = rest[legTrace:]
	}
	if version >= TenantLegVersion {
		if len(rest) == 0 || len(rest) != 1+int(rest[0]) {
			return l, nil
		}
		l.Tenant, rest = string(rest[1:]), rest[len(rest):]
	}
	return l, rest
}

// lacks reports whether a leg does not say that for which it is of its version.
func (l Leg) lacks(version byte) bool {
	switch version {
	case tracedLegVersion:
		return l.Trace == (Trace{})
	case RequestLegVersion:
		return l.Request == [16]byte{}
	case TenantLegVersion:
		return l.Tenant == ""
	}
	return false
}

// Check says why a leg is not the one that is needed.
func (l Leg) Check(need Leg) error {
	refuse := func(what, has, wants string) error {
		return &Error{Op: "check leg", Err: because(ErrProof, fmt.Sprintf("it is for %s %s, here is %s", what, has, wants))}
	}
	switch {
	case l.Kind != need.Kind:
		return refuse("the part", l.Kind.String(), need.Kind.String())
	case l.Engine != need.Engine:
		return refuse("engine", l.Engine, need.Engine)
	case l.ID != need.ID || need.ID == [16]byte{}:
		return refuse("transfer", fmt.Sprintf("%x", l.ID), fmt.Sprintf("%x", need.ID))
	}
	return nil
}

// OpenLegFor reads a leg from a stranger, and holds it against the one that is needed. One for
// something else is returned with the error that says what differs.
func OpenLegFor(b []byte, key [keyBytes]byte, need Leg) (Leg, error) {
	l, err := OpenLeg(b, key)
	if err == nil {
		err = l.Check(need)
	}
	return l, err
}

// TenantOfKey is how a gateway calls the tenant of an API key that names none, by the key's digest:
// as all gateways of the cell do, and so that who reads it cannot try which key it is of.
func TenantOfKey(key, digest [keyBytes]byte) string {
	return "key-" + hex.EncodeToString(gatewayMAC(key, tenantLabel, digest[:])[:16])
}

const (
	legLabel    = "meridian leg"
	tenantLabel = "meridian tenant"
)

// gatewayMAC is what a gateway seals with. The label keeps one kind of word from
// being taken for another: their key is the same.
func gatewayMAC(key [keyBytes]byte, label string, body []byte) []byte {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(label))
	mac.Write(body)
	return mac.Sum(nil)
}
