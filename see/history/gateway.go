package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/agent/peerquery"
	"meridian/see/ledger"
	"meridian/see/telemetry"
)

// GatewayBook is what a gateway tells others of the requests that it remembers.
type GatewayBook struct {
	Records *ledger.Ledger
	// Dir is the state directory in which they are written down.
	Dir     string
	Build   telemetry.Build
	Started time.Time

	mu sync.Mutex // held while files are read
}

// Answer finds what a question is about. Transfers, hand-offs, objects and what the
// shared cache did are the agents'.
func (b *GatewayBook) Answer(_ context.Context, q peerquery.Question) (peerquery.Answer, error) {
	switch q.Kind {
	case peerquery.About:
		return peerquery.Found(q, []About{{Kind: GatewayMember, Version: b.Build.Version, Commit: b.Build.Commit, UpMs: float64(time.Since(b.Started)) / float64(time.Millisecond)}}), nil
	case peerquery.Requests:
		return b.requests(q)
	case peerquery.Transfers, peerquery.HandOffs, peerquery.Objects, peerquery.Prefixes:
		return peerquery.Answer{}, nil
	}
	return peerquery.Answer{}, fmt.Errorf("this gateway, of version %s, knows nothing of kind %d", b.Build.Version, q.Kind)
}

func (b *GatewayBook) requests(q peerquery.Question) (peerquery.Answer, error) {
	records, first, end := b.Records.Since(q.After, math.MaxInt32)
	p := peerquery.NewPage(q, first, end)
	for _, r := range records {
		if q.Beginning != "" && !isCalled(r, q.Beginning) {
			p.Pass()
		} else if !p.Add(shown(r)) {
			break
		}
	}
	answer := p.Answer()
	if _, err := kv.ParseID(q.Beginning); err == nil && len(answer.Records) == 0 && q.After == 0 {
		return b.written(q)
	}
	return answer, nil
}

// written looks for a request that is not in memory any more.
func (b *GatewayBook) written(q peerquery.Question) (peerquery.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, err := ledger.FindIn(b.Dir, q.Beginning)
	if errors.Is(err, ledger.ErrNoRecord) {
		if r, err = ledger.OfTransferIn(b.Dir, q.Beginning); errors.Is(err, ledger.ErrNoRecord) {
			return peerquery.Answer{}, nil
		}
	}
	if err != nil {
		return peerquery.Answer{}, err
	}
	return peerquery.Found(q, []*ledger.Record{shown(r)}), nil
}

// isCalled tells whether a request is meant: by how its id begins, by what its client
// called it, or by a transfer that it took part in.
func isCalled(r *ledger.Record, text string) bool {
	return strings.HasPrefix(r.ID, text) || r.ClientID == text || slices.ContainsFunc(r.Legs, func(l ledger.Leg) bool { return l.Transfer == text })
}

// shown is a record without what only a workload needs.
func shown(r *ledger.Record) *ledger.Record {
	c := *r
	c.Shape = ledger.Shape{}
	return &c
}
