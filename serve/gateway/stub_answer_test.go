package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"meridian/serve/openai"
)

// What a stub answers, and how it breaks while it does.

func (j *work) report() string {
	return fmt.Sprintf(`"meridian":{"engine":%q,"queue_ms":0.5,"prefill_ms":1.5,"handoff_ms":2.5,"kv":%q,"kv_reason":%q%s}`, j.s.id, j.kv, j.why, j.h.spared)
}

func (j *work) whole() {
	for range j.max {
		if j.h.slow > 0 {
			select {
			case <-time.After(j.h.slow):
			case <-j.r.Context().Done():
				j.s.canceled.Add(1)
				return
			}
		}
	}
	text := textOf(tokensOf(j.prompt, j.seed, j.max))
	if j.h.dieAfter > 0 {
		j.w.Header().Set("Content-Length", "100000")
		fmt.Fprint(j.w, `{"id":"x","choices":`)
		panic(http.ErrAbortHandler)
	}
	j.w.Header().Set("Content-Type", "application/json")
	part := fmt.Sprintf(`"text":%q`, text)
	if j.chat {
		part = fmt.Sprintf(`"message":{"role":"assistant","content":%q}`, text)
	}
	finish := `"length"`
	if j.h.leaveAfter > 0 {
		finish = `"` + openai.FinishMoved + `"`
	}
	if j.h.leavesFirst {
		finish += `},{"index":1,"text":"","message":{},"finish_reason":"stop"`
	}
	fmt.Fprintf(j.w, `{"id":"x-%s","created":5,"model":"m","choices":[{"index":0,%s,"finish_reason":%s}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d%s},%s}`,
		j.s.id, part, finish, len(j.prompt), j.max, len(j.prompt)+j.max, j.h.cached, j.report())
}

// event writes one chunk; rest is put in at its end.
func (j *work) event(text *string, thought bool, ids []uint32, finish, rest string) {
	var choice string
	switch {
	case !j.chat:
		shown := ""
		if text != nil {
			shown = *text
		}
		choice = fmt.Sprintf(`"index":0,"text":%q,"logprobs":null`, shown)
	case text == nil:
		choice = `"index":0,"delta":{"role":"assistant","content":""}`
	case thought:
		choice = fmt.Sprintf(`"index":0,"delta":{"reasoning_content":%q}`, *text)
	default:
		choice = fmt.Sprintf(`"index":0,"delta":{"content":%q}`, *text)
	}
	choice += `,"finish_reason":` + finish
	if j.ids {
		choice += `,"token_ids":` + string(openai.AppendIDs(nil, ids))
	}
	event := fmt.Sprintf("data: {\"id\":\"x-%s\",\"created\":%d,\"model\":\"m\",\"choices\":[{%s}]%s}\n\n", j.s.id, len(j.s.id), choice, rest)
	fmt.Fprint(j.w, event)
	j.w.(http.Flusher).Flush()
}

// shownIDs are what a stub of vLLM calls its answer's tokens: beyond the
// prompt's, so that the two can be told apart.
func (j *work) shownIDs(ids []uint32) []uint32 {
	if j.s.owner == openai.OwnedByMeridian {
		return ids
	}
	shown := make([]uint32, len(ids))
	for i := range ids {
		shown[i] = ids[i] + 1000
	}
	return shown
}

func (j *work) streamed() {
	j.w.Header().Set("Content-Type", "text/event-stream")
	if j.chat || j.ids {
		prompt := ""
		if j.ids {
			prompt = `,"prompt_token_ids":` + string(openai.AppendIDs(nil, promptIDs(j.prompt)))
		}
		if j.chat {
			j.event(nil, false, nil, "null", prompt)
		} else {
			fmt.Fprintf(j.w, "data: {\"id\":\"x-%s\",\"created\":%d,\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":[]}]%s}\n\n", j.s.id, len(j.s.id), prompt)
		}
	}
	sent := 0
	var pending []uint32 // text that the stub's former life held back, too
	if n := len(j.resume); j.h.holdBack && n%2 == 1 && j.s.owner == openai.OwnedByMeridian {
		pending = append(pending, j.resume[n-1])
	}
	for i := len(j.resume); i < j.max; i++ {
		if j.breaks(sent) || sent > 0 && j.leaves(i) {
			return
		}
		if !j.pause() {
			return
		}
		sent++
		token := tokenAt(j.prompt, j.seed, i)
		pending = append(pending, token)
		text := textOf(pending)
		if j.h.holdBack && i%2 == 0 && i+1 < j.max {
			text = ""
		} else {
			pending = nil
		}
		finish := "null"
		if i+1 == j.max && j.h.afterEnd != "unsaid" {
			finish = `"length"`
		}
		j.event(&text, i < j.think, j.shownIDs([]uint32{token}), finish, "")
	}
	if j.h.afterEnd != "" {
		j.breakAfterEnd()
		return
	}
	j.tail()
}

func (j *work) pause() bool {
	if j.h.slow == 0 && j.r.Context().Err() == nil {
		return true
	}
	select {
	case <-time.After(j.h.slow):
		return true
	case <-j.r.Context().Done():
		j.s.canceled.Add(1)
		return false
	}
}

// breaks does what the stub is told to after sent tokens.
func (j *work) breaks(sent int) bool {
	switch {
	case j.h.dieAfter > 0 && sent == j.h.dieAfter:
		if j.h.cutWithin {
			fmt.Fprint(j.w, `data: {"id":"x","choices":[{"text":"half`)
			j.w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	case j.h.hangAfter > 0 && sent == j.h.hangAfter:
		<-j.r.Context().Done()
		j.s.canceled.Add(1)
		return true
	case j.h.faultAfter > 0 && sent == j.h.faultAfter:
		fmt.Fprint(j.w, "data: {\"error\":{\"message\":\"out of order\",\"type\":\"server_error\"}}\n\n")
		return true
	case j.h.leaveAfter > 0 && sent == j.h.leaveAfter:
		text := ""
		finish := `"\u006doved"`
		if j.h.leavesFirst {
			finish += `},{"index":1,"text":"","delta":{},"finish_reason":"stop"`
		}
		j.event(&text, false, nil, finish, "")
		fmt.Fprintf(j.w, "data: %s\n\n", openai.Done)
		return true
	}
	return false
}

// move asks a stream to leave.
func (s *stub) move(w http.ResponseWriter, r *http.Request) {
	var in openai.Move
	h := s.habit()
	err := json.NewDecoder(r.Body).Decode(&in)
	switch {
	case h.muteMoves:
		s.mutely.Add(1)
		<-r.Context().Done()
		return
	case err != nil || !h.moves && !h.keepsAll:
		w.WriteHeader(http.StatusNotFound)
		return
	case h.moves:
		s.leaving.Store(in.Transfer, true)
	}
	fmt.Fprint(w, `{"moves":true}`)
}

// leaves ends a stream that was asked to leave, with a ticket for all but its last token.
func (j *work) leaves(answered int) bool {
	if _, asked := j.s.leaving.Load(j.move); !asked || j.move == "" {
		return false
	}
	ticket := fmt.Sprintf("ticket of %s for %s", j.s.id, j.move)
	j.s.shared.mu.Lock()
	j.s.shared.used[ticket] = false
	j.s.shared.mu.Unlock()
	text := ""
	j.event(&text, false, nil, `"moved"`, fmt.Sprintf(`,"kv_transfer_params":{"do_remote_prefill":true,"meridian_ticket":%q,"meridian_tokens":%d,"extra":[1]}`,
		base64.StdEncoding.EncodeToString([]byte(ticket)), len(j.prompt)+answered-1))
	fmt.Fprintf(j.w, "data: %s\n\n", openai.Done)
	return true
}

func (j *work) breakAfterEnd() {
	switch j.h.afterEnd {
	case "hang":
		<-j.r.Context().Done()
	case "fault":
		fmt.Fprint(j.w, "data: {\"error\":{\"message\":\"out of order\",\"type\":\"server_error\"}}\n\n")
	case "cut", "unsaid":
		panic(http.ErrAbortHandler)
	case "reset":
		conn, _, err := http.NewResponseController(j.w).Hijack()
		if err != nil {
			j.s.t.Error(err)
			return
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

func (j *work) tail() {
	usage := ""
	if j.usage {
		prompt, completion := len(j.prompt), j.max
		if j.s.owner != openai.OwnedByMeridian { // what came as prompt counts as prompt
			prompt, completion = prompt+len(j.resume), completion-len(j.resume)
		}
		usage = fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d%s}`, prompt, completion, prompt+completion, j.h.cached)
	}
	report := ""
	if j.s.owner == openai.OwnedByMeridian {
		report = "," + j.report()
	}
	if usage != "" || report != "" {
		fmt.Fprintf(j.w, "data: {\"id\":\"x-%s\",\"created\":%d,\"choices\":[]%s%s}\n\n", j.s.id, len(j.s.id), usage, report)
	}
	if !j.h.noDone {
		fmt.Fprint(j.w, "data: [DONE]\n\n")
	}
}
