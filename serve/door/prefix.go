package door

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"meridian/kv"
	"meridian/serve/door/doorpb"
)

// Bounds of Keep and Find, which docs/wire.md names.
const (
	// MaxPrefixTokens is how many tokens one of them has.
	MaxPrefixTokens = 256 << 10
	// MaxKeptBlocks is how many blocks the tables of a Keep name in all.
	MaxKeptBlocks = 1 << 20
	// MaxFinds is how many may be under way on a connection.
	MaxFinds = 64
)

// CacheTerms is what an engine goes by that keeps and finds prefixes.
type CacheTerms struct {
	// BlockTokens is how many tokens a piece of a prefix has; what is shorter is
	// not kept.
	BlockTokens int
	// FindWait is how long a scheduler may stand still for an answer.
	FindWait time.Duration
}

// Message is the terms as an agent says them.
func (t CacheTerms) Message() *doorpb.CacheTerms {
	return &doorpb.CacheTerms{BlockTokens: uint32(t.BlockTokens), FindWaitUs: microseconds(t.FindWait)}
}

func parseCacheTerms(m *doorpb.CacheTerms) CacheTerms {
	return CacheTerms{BlockTokens: int(m.GetBlockTokens()), FindWait: time.Duration(m.GetFindWaitUs()) * time.Microsecond}
}

// microseconds is a time as messages have it: at least one, unless there is none.
func microseconds(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(min(max(d.Microseconds(), 1), math.MaxUint32))
}

// Keep says that the cache of these tokens, of which all layers are computed, may be
// kept for engines that find it. The blocks are not the engine's until the event Freed.
type Keep struct {
	Transfer [16]byte // a new one for every Keep
	Scope    kv.Scope // what is not the publication's
	Tokens   []uint32
	Tables   [][]uint32 // one for each group of layers, or one for all
	DP       int
	Request  string // what the request is called, for people
	Leg      []byte // what a gateway made, if there is one: it says of whose share it takes
}

func (k *Keep) message() *doorpb.Keep {
	return &doorpb.Keep{
		Transfer: k.Transfer[:], Scope: scopeMessage(k.Scope), Tokens: k.Tokens, Tables: tableMessages(k.Tables), Dp: uint32(k.DP), RequestId: k.Request, Leg: k.Leg,
	}
}

// ParseKeep reads what an engine lets be kept.
func ParseKeep(m *doorpb.Keep) (Keep, error) {
	transfer, err := ParseTransfer(m.GetTransfer())
	return Keep{
		Transfer: transfer, Scope: parseScope(m.GetScope()), Tokens: m.GetTokens(), Tables: parseTables(m.GetTables()), DP: int(m.GetDp()), Request: m.GetRequestId(), Leg: m.GetLeg(),
	}, err
}

// Find asks which prefix of these tokens the cell has.
type Find struct {
	Scope   kv.Scope // what is not the publication's
	Tokens  []uint32
	Present int           // tokens that the engine has already
	Within  time.Duration // how long to look at most; 0: the agent's default
	// TokenTime is what computing one token of a prompt takes the engine; 0: not known.
	TokenTime time.Duration
	// Request is what the request is called, for people.
	Request string
	Leg     []byte // what a gateway made, if there is one
}

// ParseFind reads what an engine looks for.
func ParseFind(m *doorpb.Find) Find {
	return Find{
		Scope: parseScope(m.GetScope()), Tokens: m.GetTokens(), Present: int(m.GetPresentTokens()),
		Within: time.Duration(m.GetDeadlineUs()) * time.Microsecond, TokenTime: time.Duration(m.GetTokenNs()), Request: m.GetRequestId(), Leg: m.GetLeg(),
	}
}

// Found is what the cell has.
type Found struct {
	// Tokens is how many there are from the first on; 0: compute them.
	Tokens int
	// Ticket is for Accept of just so many tokens, or for Cancel as unused.
	Ticket []byte
	// Reason says why there are none, or not more.
	Reason string
}

// foundMagic begins the tickets of what was found: M R D F │ u8 1 │ transfer id.
const foundMagic = "MRDF\x01"

// FoundTicket is the ticket of what was found for an engine, which its agent
// remembers under the transfer's id.
func FoundTicket(transfer kv.ID) []byte { return append([]byte(foundMagic), transfer[:]...) }

// ParseFoundTicket tells such a ticket from others.
func ParseFoundTicket(ticket []byte) (transfer kv.ID, is bool) {
	if len(ticket) != len(foundMagic)+len(transfer) || !bytes.HasPrefix(ticket, []byte(foundMagic)) {
		return transfer, false
	}
	return kv.ID(ticket[len(foundMagic):]), true
}

// ErrNoCache means that the agent keeps no prefixes, or is older than that.
var ErrNoCache = errors.New("door: the agent keeps no prefixes")

// Cache is the terms of the agent that the engine is registered with; false: it keeps
// no prefixes.
func (c *Client) Cache() (CacheTerms, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || len(c.session.links) == 0 || !slices.Contains(c.session.links[0].features, FeatureCache) {
		return CacheTerms{}, false
	}
	return c.session.links[0].cache, true
}

// Keep lets a prefix be kept. After an error the blocks are the engine's; but after
// ErrNoAnswer they are so with the event Freed. Where the agent was lost while it was
// asked, Freed may come beside the error.
func (c *Client) Keep(ctx context.Context, k Keep) error {
	s, err := c.cacheSession()
	if err != nil {
		return err
	}
	h, m := handOff{transfer: k.Transfer}, k.message()
	first := c.begin(h)
	_, err = s.ask(ctx, doorpb.FrameType_FRAME_TYPE_KEEP, func(request uint64) proto.Message { m.Request = request; return m }, nil)
	if err != nil {
		if first && !errors.Is(err, ErrNoAnswer) {
			c.end(h)
		}
		return fmt.Errorf("keep %x: %w", k.Transfer, err)
	}
	return nil
}

// Find asks for a prefix. Where it returns an error there is none.
func (c *Client) Find(ctx context.Context, f Find) (Found, error) {
	s, err := c.cacheSession()
	if err != nil {
		return Found{}, err
	}
	m := &doorpb.Find{
		Scope: scopeMessage(f.Scope), Tokens: f.Tokens, PresentTokens: uint32(f.Present), DeadlineUs: microseconds(f.Within),
		TokenNs: uint32(min(max(f.TokenTime, 0), math.MaxUint32)), RequestId: f.Request, Leg: f.Leg,
	}
	reply, err := s.ask(ctx, doorpb.FrameType_FRAME_TYPE_FIND, func(request uint64) proto.Message { m.Request = request; return m }, nil)
	if err != nil {
		return Found{}, fmt.Errorf("find: %w", err)
	}
	found := reply.GetFound()
	if n := found.GetTokens(); int(n) > len(f.Tokens) || n > 0 && len(found.GetTicket()) == 0 {
		return Found{}, fmt.Errorf("find: %w: the agent's answer is %d of %d tokens, with a ticket of %d bytes", ErrFrame, n, len(f.Tokens), len(found.GetTicket()))
	}
	return Found{Tokens: int(found.GetTokens()), Ticket: found.GetTicket(), Reason: found.GetReason()}, nil
}

// cacheSession is the session to ask in, of an agent that keeps prefixes.
func (c *Client) cacheSession() (*session, error) {
	s, err := c.current(true)
	if err == nil && !slices.Contains(s.links[0].features, FeatureCache) {
		err = ErrNoCache
	}
	return s, err
}
