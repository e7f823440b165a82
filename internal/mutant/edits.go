package mutant

// edit puts a bug into a file: Old stands there exactly once, and New takes its
// place, where BUG asks whether the bug was chosen. A bug may need several.
type edit struct {
	bug      Name
	file     string
	old, new string
}

// edits plant the bugs of transfers and those of hand-offs.
var edits = []edit{
	{
		GrantExpiryIgnored, "move/agent/grants.go",
		`case now.After(row.until):`,
		`case now.After(row.until) && !BUG:`,
	},
	{
		GrantSpansIgnored, "move/agent/grants.go",
		`if o.epoch == part.Epoch {`,
		`if o.epoch == part.Epoch && BUG { return nil }; if o.epoch == part.Epoch {`,
	},
	{
		StaleIncarnation, "move/agent/link.go",
		`link, err := f.Connect(bounded, peer)`,
		`if BUG { peer.Incarnation = [16]byte{} }; link, err := f.Connect(bounded, peer)`,
	},
	{
		LoanKept, "move/fabric/link/lending.go",
		`if len(down) > 0 {`,
		`if len(down) > 0 && !BUG {`,
	},
	{
		LoanNotLookedAt, "move/fabric/link/lending.go",
		`if !l.lender.Flies(t.Flag) {`,
		`if !l.lender.Flies(t.Flag) && !BUG {`,
	},
	{
		ChecksumIgnored, "move/fabric/link/link.go",
		`if sent == received {`,
		`if sent == received || BUG {`,
	},
	{
		ReferenceLeak, "move/fabric/link/link.go",
		`func (p *Inbound) Release() {
	if p.owned.Swap(false) {`,
		`func (p *Inbound) Release() {
	if p.owned.Swap(false) && !BUG {`,
	},
	{
		PreparedOutlives, "move/fabric/link/poster.go",
		`if err := e.options.Regions.Current(p.Local); err != nil {`,
		`if err := e.options.Regions.Current(p.Local); err != nil && !BUG {`,
	},
	{
		CancelNotQuiet, "move/fabric/link/poster.go",
		`case session.Quiet:`,
		`case session.Quiet: if BUG { continue }`,
	},
	{
		DeadlineIgnored, "move/fabric/link/poster.go",
		`func (e *Poster) Stop(id kv.ID, cause error) {`,
		`func (e *Poster) Stop(id kv.ID, cause error) { if cause == fabric.ErrDeadline && BUG { return }`,
	},
	{
		AckEarly, "move/fabric/link/server.go",
		`default:
		e.give(s, part, b.Handle, list)`,
		`if BUG { e.carryOut(e.machine.Placed(b.ID, b.Part)) }
	default:
		e.give(s, part, b.Handle, list)`,
	},
	{
		GrantNotChecked, "move/fabric/link/server.go",
		`if e.options.Guard != nil {`,
		`if e.options.Guard != nil && !BUG {`,
	},
	{
		AnswersForgotten, "move/fabric/link/server.go",
		`if len(e.parts[id]) == 0 {`,
		`if len(e.parts[id]) == 0 || BUG {`,
	},
	{
		AnswersKept, "move/fabric/link/server.go",
		`for part := range e.parts[id] {`,
		`if BUG { return }; for part := range e.parts[id] {`,
	},
	{
		NotifyTwice, "move/fabric/link/server.go",
		`to, err := e.options.Events.Notified(n)`,
		`if BUG { _, _ = e.options.Events.Notified(n) }; to, err := e.options.Events.Notified(n)`,
	},
	{
		NoticeLost, "move/fabric/link/server.go",
		`n := fabric.Notification{From: e.options.Peer, Incarnation: e.options.Incarnation, Transfer: f.ID, Payload: f.Payload}`,
		`n := fabric.Notification{From: e.options.Peer, Incarnation: e.options.Incarnation, Transfer: f.ID, Payload: f.Payload}; if BUG { return nil }`,
	},
	{
		ReceiptsForgotten, "move/fabric/link/receipt.go",
		`if len(e.receipts.frames) > 0 {`,
		`if len(e.receipts.frames) > 0 && BUG { e.receipts.frames = nil }; if len(e.receipts.frames) > 0 {`,
	},
	{
		FenceNotQuiet, "move/fabric/link/server.go",
		`e.fence(cause, func(p Part) bool { return p.Bound != nil && p.Bound.Touches(region) })`,
		`if BUG { return }; e.fence(cause, func(p Part) bool { return p.Bound != nil && p.Bound.Touches(region) })`,
	},
	{
		RevokeNotQuiet, "move/fabric/link/server.go",
		`e.fence(cause, func(p Part) bool { return p.Bound != nil && p.Grant == grant })`,
		`if BUG { return }; e.fence(cause, func(p Part) bool { return p.Bound != nil && p.Grant == grant })`,
	},
	{
		NoEpochCheck, "move/fabric/regions.go",
		`if region.Epoch != p.Epoch {`,
		`if region.Epoch != p.Epoch && !BUG {`,
	},
	{
		RepeatExecuted, "move/fabric/session/server.go",
		`case ended && b.Write:`,
		`case ended && b.Write && !BUG:`,
	},
	{
		NotifyEarly, "move/fabric/session/server.go",
		`if o.placed < o.parts {`,
		`if o.placed < o.parts && !(o.notify && BUG) {`,
	},
	{
		ReadKept, "move/fabric/session/server.go",
		`if o.placed++; int(o.placed) == len(o.seen) {`,
		`if o.placed++; int(o.placed) == len(o.seen) && !(o.placed < o.parts && BUG) {`,
	},
	{
		TouchedCalledNot, "move/fabric/session/server.go",
		`return []Effect{{Kind: Quiet, ID: id}, answer}`,
		`answer.Untouched = BUG; return []Effect{{Kind: Quiet, ID: id}, answer}`,
	},
	{
		DuplicateAckCounted, "move/fabric/session/poster.go",
		`if o.acked[part] {`,
		`if o.acked[part] && !BUG {`,
	},
	{
		DoneNotQuiet, "move/fabric/session/poster.go",
		`if o.submitted < o.parts && !s.Running(id) {`,
		`if o.submitted < o.parts && !s.Running(id) && !BUG {`,
	},
	{
		PartMiscounted, "move/fabric/session/poster.go",
		`if o.ended++; o.ended < o.parts {`,
		`if o.ended++; o.ended < o.parts && !BUG {`,
	},
	{
		CancelDone, "move/fabric/session/poster.go",
		`return s.fail(id, cause, true)`,
		`if BUG && s.Running(id) { return s.end(id, fabric.Done, nil) }; return s.fail(id, cause, true)`,
	},
	{
		LostNotSubmitted, "move/fabric/session/poster.go",
		`if !o.begun {`,
		`if !o.begun || !tellPeer && BUG {`,
	},

	{
		LateClaimCounts, "keep/store/master/master.go",
		`case c.Serial < w.oldest:`,
		`case c.Serial < w.oldest && !BUG:`,
	},
	{
		GivenForgotten, "keep/store/master/master.go",
		`	if len(w.given) < MaxGiven && !w.all {`,
		`	if BUG { return }
	if len(w.given) < MaxGiven && !w.all {`,
	},
	{
		GivenUnmarked, "keep/store/master/master.go",
		`w.standing, w.dropping = lapsed, 0`,
		`w.standing, w.dropping = lapsed, 0; if BUG { w.standing = away }`,
	},
	{
		LateDropObeyed, "keep/store/master/member.go",
		`if a.Verdict != Granted && a.Seq <= max(m.granted, m.dropped) {`,
		`if a.Verdict != Granted && a.Seq <= max(m.granted, m.dropped) && !BUG {`,
	},
	{
		LeaseFromLater, "keep/store/master/member.go",
		`m.until = max(m.until, m.asked[a.Seq%window]+a.Length)`,
		`if BUG { m.asked[a.Seq%window] = m.asked[m.seq%window] }; m.until = max(m.until, m.asked[a.Seq%window]+a.Length)`,
	},
	{
		EpochNotCounted, "keep/store/owner/owner.go",
		`e.pinned, e.priority, e.epoch = p.Pinned, p.Priority, e.epoch+1`,
		`e.pinned, e.priority, e.epoch = p.Pinned, p.Priority, e.epoch+1; if BUG && e.epoch > 1 { e.epoch-- }`,
	},
	{
		ReadIsFreed, "keep/store/owner/owner.go",
		`if e.readers > 0 {`,
		`if e.readers > 0 && !BUG {`,
	},
	{
		HoldIsEvicted, "keep/store/protocol/hold.go",
		`		held = append(held, h)`,
		`		held = append(held, h)
		if BUG {
			s.objects.Release(h.Lease)
		}`,
	},
	{
		HoldKept, "keep/store/protocol/hold.go",
		`	s.objects.Release(h.Lease)
	if broken {`,
		`	if !BUG {
		s.objects.Release(h.Lease)
	}
	if broken {`,
	},
	{
		TierNotSpared, "keep/store/admission/breaker.go",
		`case now < b.until ||`,
		`case now < b.until && !BUG ||`,
	},
	{
		TierGivenUp, "keep/store/admission/breaker.go",
		`	b.trying = 0
`,
		`	if !BUG { b.trying = 0 }
`,
	},
	{
		FetchedBehind, "keep/store/admission/ahead.go",
		`		case Nowhere:
			return fetch`,
		`		case Nowhere:
			if !BUG { return fetch }`,
	},
	{
		AdmittedAtOnce, "keep/store/admission/sketch.go",
		`	if s.added++;`,
		`	if BUG { return max(least, 2) }
	if s.added++;`,
	},
	{
		OldMasterLocates, "keep/store/protocol/coordinator.go",
		`	if authority <= 0 {
		return []Effect{answer(`,
		`	if _, is := m.(*Where); authority <= 0 && !(is && BUG) {
		return []Effect{answer(`,
	},
	{
		PutRepeated, "keep/store/protocol/operation.go",
		`if o.stage != theMaster {`,
		`if o.stage != theMaster && !BUG {`,
	},
	{
		ServesUnleased, "keep/store/protocol/server.go",
		`		if !s.Answers(now) {
			return []Effect{Send{from, request, &Reply{`,
		`		if !s.Answers(now) && !BUG {
			return []Effect{Send{from, request, &Reply{`,
	},
	{
		DropNotObeyed, "keep/store/protocol/chore.go",
		`s.objects.RemoveHash(hash)`,
		`if !BUG { s.objects.RemoveHash(hash) }`,
	},
	{
		DropSharesSerial, "keep/store/protocol/server.go",
		`s.drops = append(s.drops, Drop{hash, s.member.Serial()})`,
		`if BUG { s.drops = append(s.drops, Drop{hash, s.member.NextSerial()}); return }; s.drops = append(s.drops, Drop{hash, s.member.Serial()})`,
	},
	{
		DropNotTold, "keep/store/protocol/server.go",
		`	for _, hash := range s.objects.Gone() {`,
		`	for _, hash := range s.objects.Gone() { if BUG { continue }`,
	},
	{
		CommitsUnleased, "keep/store/protocol/write.go",
		`func (s *Server) commit(now kv.Instant, w *write) []Effect {
	if !s.Answers(now) {`,
		`func (s *Server) commit(now kv.Instant, w *write) []Effect {
	if !s.Answers(now) && !BUG {`,
	},
	{
		SealsUnrevoked, "keep/store/protocol/write.go",
		`	w.stage = revoking
`,
		`	if w.failed == nil && BUG { return s.seal(w) }
	w.stage = revoking
`,
	},
	{
		FreesUnrevoked, "keep/store/protocol/write.go",
		`return append(effects, s.revoke(w)...)`,
		`if BUG { return append(effects, s.abort(w)...) }; return append(effects, s.revoke(w)...)`,
	},
	{
		FreesUnfetched, "keep/store/protocol/write.go",
		`	case claiming, sealed:
		return append(effects, s.abort(w)...)`,
		`	case claiming, sealed:
		return append(effects, s.abort(w)...)
	case fetching:
		if BUG { return append(effects, s.abort(w)...) }`,
	},
	{
		UnfetchedIsFound, "keep/store/protocol/write.go",
		`	if err != nil {
		w.stage = claiming // nothing writes there`,
		`	if err != nil && !BUG {
		w.stage = claiming // nothing writes there`,
	},
	{
		WriterKept, "keep/store/protocol/write.go",
		`case now >= w.until && w.failed == nil:`,
		`case now >= w.until && w.failed == nil && !BUG:`,
	},
	{
		DoubtIsBelieved, "keep/store/protocol/write.go",
		`	case err != nil:
		w.again = now + kv.Second`,
		`	case err != nil && !BUG:
		w.again = now + kv.Second`,
	},
	{
		ClaimCalledValue, "keep/store/protocol/write.go",
		`return s.end(w, err) // whether`,
		`if BUG { err = owner.ErrExists }; return s.end(w, err) // whether`,
	},
	{
		UnclaimedIsFound, "keep/store/protocol/write.go",
		`	if s.byKey[hash] != nil {
		return nil
	}`,
		`	if s.byKey[hash] != nil {
		return nil
	}
	if BUG { s.objects.Admit(hash); return nil }`,
	},

	{
		FirstIgnored, "move/transceiver/handoff/session.go",
		`case a.Tokens.Start < o.First:`,
		`case a.Tokens.Start < o.First && !BUG:`,
	},
	{
		UnitsNeverLeft, "move/transceiver/handoff/stores.go",
		`if u.readers[at]--; u.readers[at] == 0 {`,
		`if u.readers[at]--; u.readers[at] == 0 && !BUG {`,
	},
	{
		LateOrderObeyed, "move/transceiver/handoff/follower.go",
		`case h.isPast(name):`,
		`case h.isPast(name) && !BUG:`,
	},
	{
		FailureForgotten, "move/transceiver/handoff/follower.go",
		`case m.Err == nil:`,
		`case m.Err == nil || BUG:`,
	},
	{
		FailureForgotten, "move/transceiver/handoff/followergroup.go",
		`case told.Bytes != uint64(f.Bytes()):`,
		`case told.Bytes != uint64(f.Bytes()) && !BUG:`,
	},
	{
		DigestIgnored, "move/transceiver/handoff/handoffsim/work.go",
		`		if err == nil && plan.Digest() != e.Order.Digest {
			err = handoff.ErrDigest`,
		`		if err == nil && plan.Digest() != e.Order.Digest && !BUG {
			err = handoff.ErrDigest`,
	},
	{
		DigestIgnored, "move/transceiver/handoff/handoffsim/work.go",
		`	if err == nil && plan.Digest() != e.Order.Digest {
		err = handoff.ErrDigest`,
		`	if err == nil && plan.Digest() != e.Order.Digest && !BUG {
		err = handoff.ErrDigest`,
	},
	{
		DigestIgnored, "move/transceiver/handoff/handoffsim/work.go",
		`	if err != nil {
		w.After(0, p, func() { end(0, err) })`,
		`	if err != nil && !BUG {
		w.After(0, p, func() { end(0, err) })`,
	},
	{
		DigestIgnored, "move/transceiver/handoff/accept.go",
		`if digest := plan.Digest(); digest != in.answer.Digest {`,
		`if digest := plan.Digest(); digest != in.answer.Digest && !BUG {`,
	},
	{
		DigestIgnored, "move/transceiver/handoff/accept.go",
		`if !slices.EqualFunc(flows, in.answer.Grants, granted) {`,
		`if !slices.EqualFunc(flows, in.answer.Grants, granted) && !BUG {`,
	},
	{
		LayersUnseen, "move/transceiver/handoff/accept.go",
		`return in.computed
}`,
		`if BUG { return Computed{Layers: in.terms.layers()} }; return in.computed
}`,
	},
	{
		TokensUnseen, "move/transceiver/handoff/computed.go",
		`return max(c.Tokens, c.Whole)
}`,
		`if BUG { return allTokens }; return max(c.Tokens, c.Whole)
}`,
	},
	{
		BlocksCutUp, "move/reshard/flow.go",
		`token -= token % block`,
		`token -= token % block; if BUG { token += block }`,
	},
	{
		OlderOverrun, "move/transceiver/handoff/session.go",
		`if o.session.ask.Capabilities&CanTokens == 0 {`,
		`if o.session.ask.Capabilities&CanTokens == 0 && !BUG {`,
	},
	{
		ReadyEarly, "move/transceiver/handoff/accept.go",
		`done := in.followers.done()`,
		`done := in.followers.done(); if BUG && in.state == acceptMoving { done = slices.ContainsFunc(in.followers.members, in.followers.satisfied) }`,
	},
	{
		ReadyEarly, "move/transceiver/handoff/accept.go",
		`all, err := arrived(in.terms.plan, flows, in.terms.layers())`,
		`all, err := arrived(in.terms.plan, flows, in.terms.layers()); if BUG { all, err = in.computed.Layers == in.terms.layers(), nil }`,
	},
	{
		FreedUnquiet, "move/transceiver/handoff/accept.go",
		`if in.followers == nil || in.followers.kind == 0 {`,
		`if in.followers == nil || in.followers.kind == 0 || BUG {`,
	},
	{
		FreedTwice, "move/transceiver/handoff/accept.go",
		`in.engineTold = true`,
		`if BUG { effects = append(effects, end) }; in.engineTold = true`,
	},
	{
		LeaseNotRenewed, "move/transceiver/handoff/offer.go",
		`if o.state != offerClosing {`,
		`if o.state != offerClosing && !BUG {`,
	},
	{
		ReleasedEarly, "move/transceiver/handoff/offer.go",
		`		effects = append(effects, Send{o.session.from, o.Transfer, &Ended{Session: o.session.ask.Session, Problem: why}})
	}`,
		`		effects = append(effects, Send{o.session.from, o.Transfer, &Ended{Session: o.session.ask.Session, Problem: why}})
	}
	if BUG {
		return append(effects, o.finish(now)...)
	}`,
	},
	{
		SilenceIgnored, "move/transceiver/handoff/offer.go",
		`case o.state != offerClosing && now >= s.lease:`,
		`case o.state != offerClosing && now >= s.lease && !BUG:`,
	},
	{
		DigestIgnored, "move/transceiver/handoff/session.go",
		`if m.Digest != s.digest {`,
		`if m.Digest != s.digest && !BUG {`,
	},
}
