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
		GrantExpiryIgnored, "agent/grants.go",
		`case now.After(row.until):`,
		`case now.After(row.until) && !BUG:`,
	},
	{
		GrantSpansIgnored, "agent/grants.go",
		`if o.epoch == part.Epoch {`,
		`if o.epoch == part.Epoch && BUG { return nil }; if o.epoch == part.Epoch {`,
	},
	{
		StaleIncarnation, "agent/link.go",
		`link, err := f.Connect(bounded, peer)`,
		`if BUG { peer.Incarnation = [16]byte{} }; link, err := f.Connect(bounded, peer)`,
	},
	{
		LoanKept, "fabric/link/lending.go",
		`if len(down) > 0 {`,
		`if len(down) > 0 && !BUG {`,
	},
	{
		LoanNotLookedAt, "fabric/link/lending.go",
		`if !l.lender.Flies(t.Flag) {`,
		`if !l.lender.Flies(t.Flag) && !BUG {`,
	},
	{
		ChecksumIgnored, "fabric/link/link.go",
		`if sent == received {`,
		`if sent == received || BUG {`,
	},
	{
		ReferenceLeak, "fabric/link/link.go",
		`func (p *Inbound) Release() {
	if p.owned.Swap(false) {`,
		`func (p *Inbound) Release() {
	if p.owned.Swap(false) && !BUG {`,
	},
	{
		PreparedOutlives, "fabric/link/poster.go",
		`if err := e.options.Regions.Current(p.Local); err != nil {`,
		`if err := e.options.Regions.Current(p.Local); err != nil && !BUG {`,
	},
	{
		CancelNotQuiet, "fabric/link/poster.go",
		`case session.Quiet:`,
		`case session.Quiet: if BUG { continue }`,
	},
	{
		DeadlineIgnored, "fabric/link/poster.go",
		`func (e *Poster) Stop(id kv.ID, cause error) {`,
		`func (e *Poster) Stop(id kv.ID, cause error) { if cause == fabric.ErrDeadline && BUG { return }`,
	},
	{
		AckEarly, "fabric/link/server.go",
		`default:
		e.give(s, part, b.Handle, list)`,
		`if BUG { e.carryOut(e.machine.Placed(b.ID, b.Part)) }
	default:
		e.give(s, part, b.Handle, list)`,
	},
	{
		GrantNotChecked, "fabric/link/server.go",
		`if e.options.Guard != nil {`,
		`if e.options.Guard != nil && !BUG {`,
	},
	{
		AnswersForgotten, "fabric/link/server.go",
		`if len(e.parts[id]) == 0 {`,
		`if len(e.parts[id]) == 0 || BUG {`,
	},
	{
		AnswersKept, "fabric/link/server.go",
		`for part := range e.parts[id] {`,
		`if BUG { return }; for part := range e.parts[id] {`,
	},
	{
		NotifyTwice, "fabric/link/server.go",
		`to, err := e.options.Events.Notified(n)`,
		`if BUG { _, _ = e.options.Events.Notified(n) }; to, err := e.options.Events.Notified(n)`,
	},
	{
		NoticeLost, "fabric/link/server.go",
		`n := fabric.Notification{From: e.options.Peer, Incarnation: e.options.Incarnation, Transfer: f.ID, Payload: f.Payload}`,
		`n := fabric.Notification{From: e.options.Peer, Incarnation: e.options.Incarnation, Transfer: f.ID, Payload: f.Payload}; if BUG { return nil }`,
	},
	{
		ReceiptsForgotten, "fabric/link/receipt.go",
		`if len(e.receipts.frames) > 0 {`,
		`if len(e.receipts.frames) > 0 && BUG { e.receipts.frames = nil }; if len(e.receipts.frames) > 0 {`,
	},
	{
		FenceNotQuiet, "fabric/link/server.go",
		`e.fence(cause, func(p Part) bool { return p.Bound != nil && p.Bound.Touches(region) })`,
		`if BUG { return }; e.fence(cause, func(p Part) bool { return p.Bound != nil && p.Bound.Touches(region) })`,
	},
	{
		RevokeNotQuiet, "fabric/link/server.go",
		`e.fence(cause, func(p Part) bool { return p.Bound != nil && p.Grant == grant })`,
		`if BUG { return }; e.fence(cause, func(p Part) bool { return p.Bound != nil && p.Grant == grant })`,
	},
	{
		NoEpochCheck, "fabric/regions.go",
		`if region.Epoch != p.Epoch {`,
		`if region.Epoch != p.Epoch && !BUG {`,
	},
	{
		RepeatExecuted, "fabric/session/incoming.go",
		`case ended && b.Write:`,
		`case ended && b.Write && !BUG:`,
	},
	{
		NotifyEarly, "fabric/session/incoming.go",
		`if o.placed < o.parts {`,
		`if o.placed < o.parts && !(o.notify && BUG) {`,
	},
	{
		ReadKept, "fabric/session/incoming.go",
		`if o.placed++; int(o.placed) == len(o.seen) {`,
		`if o.placed++; int(o.placed) == len(o.seen) && !(o.placed < o.parts && BUG) {`,
	},
	{
		TouchedCalledNot, "fabric/session/incoming.go",
		`return []Effect{{Kind: Quiet, ID: id}, answer}`,
		`answer.Untouched = BUG; return []Effect{{Kind: Quiet, ID: id}, answer}`,
	},
	{
		DuplicateAckCounted, "fabric/session/outgoing.go",
		`if o.acked[part] {`,
		`if o.acked[part] && !BUG {`,
	},
	{
		DoneNotQuiet, "fabric/session/outgoing.go",
		`if o.submitted < o.parts && !s.Running(id) {`,
		`if o.submitted < o.parts && !s.Running(id) && !BUG {`,
	},
	{
		PartMiscounted, "fabric/session/outgoing.go",
		`if o.ended++; o.ended < o.parts {`,
		`if o.ended++; o.ended < o.parts && !BUG {`,
	},
	{
		CancelDone, "fabric/session/outgoing.go",
		`return s.fail(id, cause, true)`,
		`if BUG && s.Running(id) { return s.end(id, fabric.Done, nil) }; return s.fail(id, cause, true)`,
	},
	{
		LostNotSubmitted, "fabric/session/outgoing.go",
		`if !o.begun {`,
		`if !o.begun || !tellPeer && BUG {`,
	},

	{
		LateClaimCounts, "store/master/master.go",
		`case c.Serial < w.oldest:`,
		`case c.Serial < w.oldest && !BUG:`,
	},
	{
		GivenForgotten, "store/master/master.go",
		`	if len(w.given) < MaxGiven && !w.all {`,
		`	if BUG { return }
	if len(w.given) < MaxGiven && !w.all {`,
	},
	{
		GivenUnmarked, "store/master/master.go",
		`w.standing, w.dropping = lapsed, 0`,
		`w.standing, w.dropping = lapsed, 0; if BUG { w.standing = away }`,
	},
	{
		LateDropObeyed, "store/master/member.go",
		`if a.Verdict != Granted && a.Seq <= max(m.granted, m.dropped) {`,
		`if a.Verdict != Granted && a.Seq <= max(m.granted, m.dropped) && !BUG {`,
	},
	{
		LeaseFromLater, "store/master/member.go",
		`m.until = max(m.until, m.asked[a.Seq%window]+a.Length)`,
		`if BUG { m.asked[a.Seq%window] = m.asked[m.seq%window] }; m.until = max(m.until, m.asked[a.Seq%window]+a.Length)`,
	},
	{
		EpochNotCounted, "store/owner/owner.go",
		`e.pinned, e.priority, e.epoch = p.Pinned, p.Priority, e.epoch+1`,
		`e.pinned, e.priority, e.epoch = p.Pinned, p.Priority, e.epoch+1; if BUG && e.epoch > 1 { e.epoch-- }`,
	},
	{
		ReadIsFreed, "store/owner/owner.go",
		`if e.readers > 0 {`,
		`if e.readers > 0 && !BUG {`,
	},
	{
		HoldIsEvicted, "store/protocol/hold.go",
		`		held = append(held, h)`,
		`		held = append(held, h)
		if BUG {
			s.objects.Release(h.Lease)
		}`,
	},
	{
		HoldKept, "store/protocol/hold.go",
		`	s.objects.Release(h.Lease)
	if broken {`,
		`	if !BUG {
		s.objects.Release(h.Lease)
	}
	if broken {`,
	},
	{
		TierNotSpared, "store/admission/breaker.go",
		`case now < b.until ||`,
		`case now < b.until && !BUG ||`,
	},
	{
		TierGivenUp, "store/admission/breaker.go",
		`	b.trying = 0
`,
		`	if !BUG { b.trying = 0 }
`,
	},
	{
		FetchedBehind, "store/admission/ahead.go",
		`		case Nowhere:
			return fetch`,
		`		case Nowhere:
			if !BUG { return fetch }`,
	},
	{
		AdmittedAtOnce, "store/admission/sketch.go",
		`	if s.added++;`,
		`	if BUG { return max(least, 2) }
	if s.added++;`,
	},
	{
		OldMasterLocates, "store/protocol/coordinator.go",
		`	if authority <= 0 {
		return []Effect{answer(`,
		`	if _, is := m.(*Where); authority <= 0 && !(is && BUG) {
		return []Effect{answer(`,
	},
	{
		PutRepeated, "store/protocol/operation.go",
		`if o.stage != theMaster {`,
		`if o.stage != theMaster && !BUG {`,
	},
	{
		ServesUnleased, "store/protocol/server.go",
		`		if !s.Answers(now) {
			return []Effect{Send{from, request, &Reply{`,
		`		if !s.Answers(now) && !BUG {
			return []Effect{Send{from, request, &Reply{`,
	},
	{
		DropNotObeyed, "store/protocol/server.go",
		`s.objects.RemoveHash(hash)`,
		`if !BUG { s.objects.RemoveHash(hash) }`,
	},
	{
		DropSharesSerial, "store/protocol/server.go",
		`s.drops = append(s.drops, Drop{hash, s.member.Serial()})`,
		`if BUG { s.drops = append(s.drops, Drop{hash, s.member.NextSerial()}); return }; s.drops = append(s.drops, Drop{hash, s.member.Serial()})`,
	},
	{
		DropNotTold, "store/protocol/server.go",
		`	for _, hash := range s.objects.Gone() {`,
		`	for _, hash := range s.objects.Gone() { if BUG { continue }`,
	},
	{
		CommitsUnleased, "store/protocol/write.go",
		`func (s *Server) commit(now kv.Instant, w *write) []Effect {
	if !s.Answers(now) {`,
		`func (s *Server) commit(now kv.Instant, w *write) []Effect {
	if !s.Answers(now) && !BUG {`,
	},
	{
		SealsUnrevoked, "store/protocol/write.go",
		`	w.stage = revoking
`,
		`	if w.failed == nil && BUG { return s.seal(w) }
	w.stage = revoking
`,
	},
	{
		FreesUnrevoked, "store/protocol/write.go",
		`return append(effects, s.revoke(w)...)`,
		`if BUG { return append(effects, s.abort(w)...) }; return append(effects, s.revoke(w)...)`,
	},
	{
		FreesUnfetched, "store/protocol/write.go",
		`	case claiming, sealed:
		return append(effects, s.abort(w)...)`,
		`	case claiming, sealed:
		return append(effects, s.abort(w)...)
	case fetching:
		if BUG { return append(effects, s.abort(w)...) }`,
	},
	{
		UnfetchedIsFound, "store/protocol/write.go",
		`	if err != nil {
		w.stage = claiming // nothing writes there`,
		`	if err != nil && !BUG {
		w.stage = claiming // nothing writes there`,
	},
	{
		WriterKept, "store/protocol/write.go",
		`case now >= w.until && w.failed == nil:`,
		`case now >= w.until && w.failed == nil && !BUG:`,
	},
	{
		DoubtIsBelieved, "store/protocol/write.go",
		`	case err != nil:
		w.again = now + kv.Second`,
		`	case err != nil && !BUG:
		w.again = now + kv.Second`,
	},
	{
		ClaimCalledValue, "store/protocol/write.go",
		`return s.end(w, err) // whether`,
		`if BUG { err = owner.ErrExists }; return s.end(w, err) // whether`,
	},
	{
		UnclaimedIsFound, "store/protocol/write.go",
		`	if s.byKey[hash] != nil {
		return nil
	}`,
		`	if s.byKey[hash] != nil {
		return nil
	}
	if BUG { s.objects.Admit(hash); return nil }`,
	},

	{
		FirstIgnored, "transceiver/handoff/session.go",
		`case a.Tokens.Start < o.First:`,
		`case a.Tokens.Start < o.First && !BUG:`,
	},
	{
		UnitsNeverLeft, "transceiver/handoff/stores.go",
		`if u.readers[at]--; u.readers[at] == 0 {`,
		`if u.readers[at]--; u.readers[at] == 0 && !BUG {`,
	},
	{
		LateOrderObeyed, "transceiver/handoff/follower.go",
		`case h.isPast(name):`,
		`case h.isPast(name) && !BUG:`,
	},
	{
		FailureForgotten, "transceiver/handoff/follower.go",
		`case m.Err == nil:`,
		`case m.Err == nil || BUG:`,
	},
	{
		FailureForgotten, "transceiver/handoff/followergroup.go",
		`case told.Bytes != uint64(f.Bytes()):`,
		`case told.Bytes != uint64(f.Bytes()) && !BUG:`,
	},
	{
		DigestIgnored, "transceiver/handoff/handoffsim/work.go",
		`		if err == nil && plan.Digest() != e.Order.Digest {
			err = handoff.ErrDigest`,
		`		if err == nil && plan.Digest() != e.Order.Digest && !BUG {
			err = handoff.ErrDigest`,
	},
	{
		DigestIgnored, "transceiver/handoff/handoffsim/work.go",
		`	if err == nil && plan.Digest() != e.Order.Digest {
		err = handoff.ErrDigest`,
		`	if err == nil && plan.Digest() != e.Order.Digest && !BUG {
		err = handoff.ErrDigest`,
	},
	{
		DigestIgnored, "transceiver/handoff/handoffsim/work.go",
		`	if err != nil {
		w.after(0, p, func() { end(0, err) })`,
		`	if err != nil && !BUG {
		w.after(0, p, func() { end(0, err) })`,
	},
	{
		DigestIgnored, "transceiver/handoff/intake.go",
		`if digest := plan.Digest(); digest != in.answer.Digest {`,
		`if digest := plan.Digest(); digest != in.answer.Digest && !BUG {`,
	},
	{
		DigestIgnored, "transceiver/handoff/intake.go",
		`if !slices.EqualFunc(flows, in.answer.Grants, granted) {`,
		`if !slices.EqualFunc(flows, in.answer.Grants, granted) && !BUG {`,
	},
	{
		LayersUnseen, "transceiver/handoff/intake.go",
		`return in.computed
}`,
		`if BUG { return Computed{Layers: in.terms.layers()} }; return in.computed
}`,
	},
	{
		TokensUnseen, "transceiver/handoff/computed.go",
		`return max(c.Tokens, c.Whole)
}`,
		`if BUG { return allTokens }; return max(c.Tokens, c.Whole)
}`,
	},
	{
		BlocksCutUp, "reshard/flow.go",
		`token -= token % block`,
		`token -= token % block; if BUG { token += block }`,
	},
	{
		OlderOverrun, "transceiver/handoff/session.go",
		`if o.session.ask.Capabilities&CanTokens == 0 {`,
		`if o.session.ask.Capabilities&CanTokens == 0 && !BUG {`,
	},
	{
		ReadyEarly, "transceiver/handoff/intake.go",
		`done := in.followers.done()`,
		`done := in.followers.done(); if BUG && in.state == intakeMoving { done = slices.ContainsFunc(in.followers.members, in.followers.satisfied) }`,
	},
	{
		ReadyEarly, "transceiver/handoff/intake.go",
		`all, err := arrived(in.terms.plan, flows, in.terms.layers())`,
		`all, err := arrived(in.terms.plan, flows, in.terms.layers()); if BUG { all, err = in.computed.Layers == in.terms.layers(), nil }`,
	},
	{
		FreedUnquiet, "transceiver/handoff/intake.go",
		`if in.followers == nil || in.followers.kind == 0 {`,
		`if in.followers == nil || in.followers.kind == 0 || BUG {`,
	},
	{
		FreedTwice, "transceiver/handoff/intake.go",
		`in.engineTold = true`,
		`if BUG { effects = append(effects, end) }; in.engineTold = true`,
	},
	{
		LeaseNotRenewed, "transceiver/handoff/offer.go",
		`if o.state != offerClosing {`,
		`if o.state != offerClosing && !BUG {`,
	},
	{
		ReleasedEarly, "transceiver/handoff/offer.go",
		`		effects = append(effects, Send{o.session.from, o.Transfer, &Ended{Session: o.session.ask.Session, Problem: why}})
	}`,
		`		effects = append(effects, Send{o.session.from, o.Transfer, &Ended{Session: o.session.ask.Session, Problem: why}})
	}
	if BUG {
		return append(effects, o.finish(now)...)
	}`,
	},
	{
		SilenceIgnored, "transceiver/handoff/offer.go",
		`case o.state != offerClosing && now >= s.lease:`,
		`case o.state != offerClosing && now >= s.lease && !BUG:`,
	},
	{
		DigestIgnored, "transceiver/handoff/session.go",
		`if m.Digest != s.digest {`,
		`if m.Digest != s.digest && !BUG {`,
	},
}
