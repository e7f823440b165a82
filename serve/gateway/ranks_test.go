package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"meridian/member/directory"
	"meridian/member/trust"
	"meridian/serve/openai"
)

// legTo is the engine that the leg in a request's body was sealed for.
func legTo(t *testing.T, key [32]byte, body string) string {
	t.Helper()
	var asked struct {
		Params struct {
			Leg []byte `json:"meridian_leg"`
		} `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal([]byte(body), &asked); err != nil {
		t.Fatal(err)
	}
	leg, err := trust.OpenLeg(asked.Params.Leg, key)
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return leg.Engine
}

// Two data-parallel ranks of one vLLM server, behind one address: each is asked for
// by its number, and gets the legs that are sealed for it. A rank that has an
// address of its own is not told which it is.
func TestLegsReachTheirRank(t *testing.T) {
	// With hybrid load balancing the ranks of a second host are numbered on, and
	// its server counts them from 0.
	for _, first := range []int{0, 2} {
		t.Run(fmt.Sprintf("from %d", first), func(t *testing.T) {
			prefill, decode := newFakeVLLM(t), newFakeVLLM(t)
			prefill.ticket, decode.whole = `{"do_remote_prefill":true,"meridian_ticket":"eA=="}`, `{"choices":[{"index":0,"text":"x"}]}`
			d := openDirectory(t)
			c := newCell(t, 0, 0, func(o *Options) { o.Directory = d })
			engine := func(id, role string, at *fakeVLLM) {
				publish(t, d, directory.EngineRecord{ID: id, Incarnation: "1", URL: at.server.URL, Role: role, Model: "m", BlockTokens: 16, Blocks: 100})
			}
			engine("prefill_dp1", "prefill", prefill)
			engine(fmt.Sprintf("decode_dp%d", first), "decode", decode)
			engine(fmt.Sprintf("decode_dp%d", first+1), "decode", decode)
			c.until("all serve", func() bool {
				return c.Metrics().Engines["decode"].Up == 2 && c.Metrics().Engines["prefill"].Up == 1
			})
			prompt := "a prompt of more than sixteen tokens, however the tokens of it are to be counted here: "
			for i := range 8 {
				if r := c.post(openai.PathCompletions, fmt.Sprintf(`{"model":"m","prompt":"%d %s","max_tokens":4}`, i, prompt)); r.status != http.StatusOK {
					t.Fatalf("%d %s", r.status, r.body)
				}
			}
			key := [32]byte{7}
			for i, body := range decode.seen() {
				to := legTo(t, key, body)
				rank, err := strconv.Atoi(to[strings.LastIndex(to, "_dp")+len("_dp"):])
				if err != nil || fmt.Sprint(rank-first) != decode.ranks[i] {
					t.Errorf("a leg for %s went to rank %q", to, decode.ranks[i])
				}
			}
			if !slices.Contains(decode.ranks, "0") || !slices.Contains(decode.ranks, "1") {
				t.Errorf("ranks %q were asked: both should be", decode.ranks)
			}
			for i, body := range prefill.seen() {
				if to := legTo(t, key, body); to != "prefill_dp1" || prefill.ranks[i] != "" {
					t.Errorf("a leg for %s, alone at its address, was for rank %q", to, prefill.ranks[i])
				}
			}
			if len(prefill.seen()) == 0 {
				t.Error("nothing was prefilled")
			}
		})
	}
}
