package gateway

import (
	"hash/maphash"
	"net/http"
	"strconv"
	"time"

	"meridian/see/ledger"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

const (
	// shapeTokens is how much of a prompt one number in a record stands for.
	shapeTokens = 512
	// shapeBits is what every reader of JSON keeps of a number.
	shapeBits = 1<<53 - 1
)

// shape is what records tell of who sent a request and how its prompt begins. A
// hash of a text alone would tell a reader who guesses the text that it was said, so
// these are made with a key that never leaves the process.
func (g *Gateway) shape(c *request.Request, r *http.Request) ledger.Shape {
	s := ledger.Shape{PromptAbout: c.Tokens}
	authorization, user := r.Header.Get("Authorization"), ""
	_ = c.Body.Read("user", &user) // one that is no text is no user's name
	if authorization != "" || user != "" || c.Salt != "" {
		s.Tenant = max(1, maphash.Comparable(g.shapes, [3]string{authorization, user, c.Salt})&shapeBits)
	}
	if c.Prefix.TokensPerHash == 0 || c.Whole {
		return s
	}
	stride := max(1, shapeTokens/c.Prefix.TokensPerHash)
	for i := stride - 1; i < len(c.Prefix.Hashes) && len(s.Prefix) < ledger.MaxPrefix; i += stride {
		s.Prefix = append(s.Prefix, maphash.Comparable(g.shapes, c.Prefix.Hashes[i])&shapeBits)
	}
	if len(s.Prefix) > 0 {
		s.PrefixTokens = shapeTokens
	}
	return s
}

// recordsShown is how many records one answer tells of.
const recordsShown = 512

// Records is what the admin listener answers to GET /debug/records?after=N:
// records of requests in the order in which they ended.
type Records struct {
	// First is the number of the first record here; after it was asked for, if
	// none is lost. Next is what to ask for next.
	First uint64 `json:"first"`
	Next  uint64 `json:"next"`
	// Oldest is when the oldest request that still runs began, or else now: no
	// request that began before it will be told of later.
	Oldest  time.Time        `json:"oldest"`
	Records []*ledger.Record `json:"records"`
}

// debugRecords tells records to a client that follows them, without an end.
func (g *Gateway) debugRecords(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		openai.Invalid("after", "after is the number of a record, such as 0").Write(w)
		return
	}
	// What runs is looked at first: a request that ends meanwhile is told of.
	answer := Records{Oldest: time.Now()}
	if running := g.running.list(); len(running) > 0 {
		answer.Oldest = running[0].Began
	}
	answer.Records, answer.First, answer.Next = g.ledger.Since(after, recordsShown)
	edge.WriteJSON(w, http.StatusOK, answer)
}
