package doorserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/transceiver/handoff"
	"meridian/serve/door"
)

// Ranks of one engine may be at several agents. Those meet in the directory,
// under the engine's id:
//
//	ranks/ID/home      the agent of control: who speaks for the engine, and under
//	                   which registration
//	ranks/ID/INDEX     one rank, by the agent that it is at, for that registration
//	ranks/ID/serving   the home: all ranks are there
//
// Each is leased by the agent that wrote it. When one of them vanishes, so does the
// engine, at every agent. A directory that does not answer means nothing.
const ranksPrefix = "ranks/"

const (
	homeRecord    = "home"
	servingRecord = "serving"
)

// member is what an agent says of its part of an engine.
type member struct {
	Agent        string           `json:"agent"`
	Incarnation  string           `json:"incarnation"`
	Registration string           `json:"registration"` // the home's, of the engine
	Memory       []handoff.Extent `json:"memory,omitempty"`
	// Places: its build knows object caches (handoff.CanPlaces). One that does not would
	// let every Keep and Find of the engine wait for an answer.
	Places bool `json:"places,omitempty"`
	// Tokens: its build moves chunks of a prompt as they are computed (handoff.CanTokens).
	// One that does not is ordered to move layers of all tokens alone.
	Tokens bool `json:"tokens,omitempty"`
}

// capabilities are those of the agent's build.
func (m *member) capabilities() uint64 {
	if m.Tokens {
		return handoff.CanTokens
	}
	return 0
}

// parseMember reads what an agent, or another writer of the directory, left of its
// part of an engine.
func parseMember(value []byte) (m member, agent kv.Member, err error) {
	if len(value) > directory.MaxValueBytes {
		return m, agent, fmt.Errorf("a member's record of %d bytes, at most %d", len(value), directory.MaxValueBytes)
	}
	if err := json.Unmarshal(value, &m); err != nil {
		return member{}, agent, err
	}
	if agent.Incarnation, err = kv.ParseID(m.Incarnation); err == nil {
		_, err = kv.ParseID(m.Registration)
	}
	if agent.Name = m.Agent; err == nil && (agent.Name == "" || len(agent.Name) > 255) {
		err = fmt.Errorf("a member's agent has a name of 1 to 255 bytes, not %d", len(agent.Name))
	}
	if err != nil {
		return member{}, kv.Member{}, err
	}
	return m, agent, nil
}

// rankNumber reads a rank's number as ranksKey writes it, and in no other form: one
// rank has one record.
func rankNumber(text string) (index int, ok bool) {
	index, err := strconv.Atoi(text)
	return index, err == nil && index >= 0 && strconv.Itoa(index) == text
}

func ranksKey(engine, what string) string { return ranksPrefix + engine + "/" + what }

// findMembers begins to look for the members of an engine that are elsewhere, once. mu is
// held.
func (s *Server) findMembers(e *engine) {
	if s.options.Directory == nil {
		return
	}
	if e.control != nil && !e.homePublished {
		e.homePublished = true
		s.publishMember(e, homeRecord, e.incarnation.String(), nil)
	}
	if e.members == nil {
		e.members = &directory.View{}
		s.wait.Go(func() { s.watchMembers(e) })
	}
}

// publishMember keeps one record for the other agents of an engine. mu is held.
func (s *Server) publishMember(e *engine, what, registration string, memory handoff.Memory) {
	value, err := json.Marshal(member{
		Agent: s.self.Name, Incarnation: s.self.Incarnation.String(), Registration: registration, Memory: memory, Places: true, Tokens: true,
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	own := func(standing []byte) error {
		if m, _, err := parseMember(standing); err == nil && m.Agent != s.self.Name {
			return fmt.Errorf("agent %s has it", m.Agent)
		}
		return nil
	}
	s.wait.Go(func() { s.keepRecord(e.life, ranksKey(e.id, what), value, own) })
}

// watchMembers follows what other agents say of an engine, until it is lost.
func (s *Server) watchMembers(e *engine) {
	for pause := firstRecordPause; e.life.Err() == nil; pause = min(2*pause, lastRecordPause) {
		w, err := s.options.Directory.Watch(e.life, ranksKey(e.id, ""), 0)
		if err == nil {
			for event := range w.Events() {
				s.membersChanged(e, event)
			}
			w.Close()
		}
		select {
		case <-time.After(pause):
		case <-e.life.Done():
		}
	}
}

// membersChanged compares an engine with what the directory says of its members.
func (s *Server) membersChanged(e *engine, event directory.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.members.Apply(event)
	switch {
	case e.state == fencing || !e.members.Known():
	case e.control != nil:
		s.checkRanks(e, e.members)
	default:
		s.checkHome(e, e.members)
	}
}

// checkRanks is the home's: which ranks of this registration are elsewhere. mu is
// held.
func (s *Server) checkRanks(e *engine, known *directory.View) {
	elsewhere := make(map[int]handoff.Rank)
	older := ""
	for _, r := range known.Records() {
		index, isRank := rankNumber(strings.TrimPrefix(r.Key, ranksKey(e.id, "")))
		if !isRank {
			continue
		}
		m, agent, err := parseMember(r.Value)
		if err != nil || m.Registration != e.incarnation.String() {
			continue // no record of a rank, or one of an earlier registration
		}
		if agent != s.self {
			elsewhere[index] = handoff.Rank{Agent: agent, Memory: m.Memory, Capabilities: m.capabilities()}
			if !m.Places {
				older = agent.Name
			}
		}
	}
	for index, was := range e.remoteRanks {
		is := elsewhere[index]
		if e.state == serving && (is.Agent != was.Agent || !slices.Equal(is.Memory, was.Memory)) {
			s.fence(e, fmt.Sprintf("rank %d, at another agent, was lost", index))
			return
		}
	}
	e.remoteRanks, e.older = elsewhere, older
	if p := s.tryServe(e); p != nil {
		s.options.Logger.Warn("an engine whose ranks are all there cannot serve", "engine", e.id, "code", p.Code, "reason", p.Message)
	}
}

// checkHome is for agents that are not the home: which agent speaks for the
// engine. mu is held.
func (s *Server) checkHome(e *engine, known *directory.View) {
	var home member
	record, there := known.Get(ranksKey(e.id, homeRecord))
	if there {
		var err error
		if home, _, err = parseMember(record.Value); err != nil || home.Agent == s.self.Name {
			return
		}
	}
	switch {
	case e.home != "" && (!there || home.Registration != e.registration):
		s.fence(e, "its home is gone, or has begun anew")
		return
	case !there:
		return
	}
	if err := s.followHome(e, home); err != nil {
		s.options.Logger.Warn("ranks cannot work for their home", "engine", e.id, "home", home.Agent, "error", err)
		return
	}
	record, there = known.Get(ranksKey(e.id, servingRecord))
	if all, _, err := parseMember(record.Value); e.state == gathering && there && err == nil && all.Registration == e.registration {
		e.state = serving
		for _, c := range e.conns() {
			c.sendEvent(door.Event{Kind: door.Serving})
		}
	}
}

// followHome makes the ranks that are complete work for their home, and then says so.
// Until the home has all ranks nothing is asked of them, so that more may come.
func (s *Server) followHome(e *engine, home member) error {
	memory := make(map[int]handoff.Memory)
	for index, r := range e.ranks {
		if r.complete {
			memory[index] = r.memory
		}
	}
	if e.home != "" && len(memory) == e.followed || len(memory) == 0 {
		return nil
	}
	if e.state == serving {
		return errors.New("the engine serves already, without them")
	}
	if err := s.options.Transceiver.Serve(e.id, home.Agent, memory); err != nil {
		return err
	}
	e.joined, e.home, e.registration, e.followed = true, home.Agent, home.Registration, len(memory)
	for index, r := range e.ranks {
		if r.complete && !r.told {
			r.told = true
			s.publishMember(e, strconv.Itoa(index), home.Registration, r.memory)
		}
	}
	return nil
}
