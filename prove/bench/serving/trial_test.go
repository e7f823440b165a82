package serving

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meridian/prove/bench"
	"meridian/serve/openai"
)

func TestSidesTakeTurns(t *testing.T) {
	var got []string
	note := func(round int, side string) error {
		got = append(got, fmt.Sprint(round, side))
		return nil
	}
	if err := inTurn(2, []string{"a", "b", "c"}, note); err != nil || strings.Join(got, " ") != "0a 0b 0c 1b 1c 1a 2c 2a 2b" {
		t.Errorf("%v, %v", got, err)
	}
	broken := errors.New("broken")
	if err := inTurn(2, []string{"a"}, func(int, string) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestRowsTellWhereTheyAre(t *testing.T) {
	var told []bench.Progress
	s := &bench.Setting{Progress: func(p bench.Progress) { told = append(told, p) }}
	got, err := rows(s, "%d tokens", []int{16, 32}, 3, func(length int, progress func(int, string)) (int, error) {
		progress(1, "it")
		return 2 * length, nil
	})
	want := bench.Progress{Row: 2, Rows: 2, What: "32 tokens", Round: 1, Rounds: 3, Who: "it"}
	if err != nil || fmt.Sprint(got) != "[32 64]" || len(told) != 2 || told[1] != want {
		t.Errorf("%v, %v, %+v", got, err, told)
	}
	(&bench.Setting{}).Tell(want) // to none
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		if err := await(t.Context(), func() (string, error) { asked++; return strings.Repeat("x", 3-asked), nil }); err != nil || asked != 3 {
			t.Errorf("%d times, %v", asked, err)
		}
		if err := await(t.Context(), func() (string, error) { return "it is late", nil }); err == nil || err.Error() != "it is late" {
			t.Error(err)
		}
		broken := errors.New("broken")
		if err := await(t.Context(), func() (string, error) { return "", broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := await(ctx, func() (string, error) { return "it is late", nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestStream(t *testing.T) {
	for text, want := range map[string]string{
		"data: {\"choices\":[{\"token_ids\":[1,2]}]}\n\ndata: {\"choices\":[{\"token_ids\":[3]}]}\n\ndata: [DONE]\n\n": "[1 2 3] <nil>",
		"data: {\"error\":{\"message\":\"full\"}}\n\n":                                                                 "the stream has",
		"data: {\"choices\":[{\"token_ids\":[1]}]}\n\n":                                                                "EOF",
	} {
		var tokens []uint32
		err := stream(strings.NewReader(text), func(c *openai.Chunk) error {
			tokens = append(tokens, c.Tokens...)
			return nil
		})
		if got := fmt.Sprint(tokens, " ", err); !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestLetters(t *testing.T) {
	for _, id := range letters(rand.New(rand.NewPCG(1, 2)), 100) {
		if id < 'a' || id > 'z' {
			t.Errorf("token %d", id)
		}
	}
}
