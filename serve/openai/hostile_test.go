package openai

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// bodyBytes is as much as a gateway takes from a client.
const bodyBytes = 8 << 20

// allocated is how many bytes are taken from memory while work runs: work that
// grows with the square of its input does so in memory or in comparisons, and
// this one can be counted on a busy machine.
func allocated(work func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	work()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func manyMembers(size int) string {
	var b strings.Builder
	b.WriteString(`{"prompt":"x"`)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `,"k%06d":null`, i)
	}
	return b.String() + "}"
}

func TestMembersOfABodyAreBounded(t *testing.T) {
	body := []byte(manyMembers(bodyBytes))
	var fault *Error
	spent := allocated(func() { _, fault = ParseBody(body) })
	if fault == nil || fault.Status != 400 || !strings.Contains(fault.Message, "more than 512 members") {
		t.Errorf("got %v", fault)
	}
	if spent > 1<<20 {
		t.Errorf("%d bytes were taken before it was refused", spent)
	}
	just := `{"a":0`
	for i := range MaxMembers - 1 {
		just += fmt.Sprintf(`,"k%d":0`, i)
	}
	if _, fault := ParseBody([]byte(just + "}")); fault != nil {
		t.Errorf("as many members as may be: %v", fault)
	}
}

// What json folds to one name is one name: an engine in Go reads ſtream as
// stream.
func TestNamesAreOneInEverySpelling(t *testing.T) {
	for _, text := range []string{`{"stream":true,"Stream":false}`, `{"stream":true,"ſtream":false}`, `{"top_k":1,"top_\u212a":2}`} {
		if _, fault := ParseBody([]byte(text)); fault == nil || !strings.Contains(fault.Message, "twice") {
			t.Errorf("%s: %v", text, fault)
		}
	}
}

// What is wrong is told in a few words, however many the client used.
func TestMessagesAreShort(t *testing.T) {
	long := strings.Repeat("9", 1<<20)
	parsed, fault := ParseBody([]byte(`{"n":` + long + `}`))
	if fault != nil {
		t.Fatal(fault)
	}
	_, twice := ParseBody([]byte(`{"` + long + `":1,"` + long + `":2}`))
	for name, fault := range map[string]*Error{
		"a number": parsed.Read("n", new(int)), "a name twice": twice, "a model": UnknownModel(long, []string{"m"}),
	} {
		if text := string(fault.JSON()); len(text) > 2<<10 || fault.Message == "" {
			t.Errorf("%s: the error has %d bytes", name, len(text))
		}
	}
}

// Long lists cost a few times their size.
func TestLongListsAreReadOnce(t *testing.T) {
	const size = 1 << 20
	list := func(element string) string {
		return "[" + strings.Repeat(element+",", size/(len(element)+1)) + element + "]"
	}
	for name, test := range map[string]struct {
		text string
		into json.Unmarshaler
		says string // "" where it is taken
	}{
		"ids":        {list("1"), new(Prompt), ""},
		"ids, a few": {list("1")[:size] + `"x"]`, new(Prompt), "prompt must be"},
		"nothings":   {list("null"), new(Prompt), "prompt must be"},
		"lists":      {list("[1]"), new(Prompt), "more than 4096 prompts"},
		"texts":      {list(`""`), new(Prompt), "more than 4096 prompts"},
		"stops":      {list(`""`), new(Stop), "more than 1024 texts"},
		"parts":      {list(`{"type":"text","text":"word word "}`), new(Content), ""},
	} {
		var err error
		spent := allocated(func() { err = test.into.UnmarshalJSON([]byte(test.text)) })
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
		if spent > 16*size {
			t.Errorf("%s: %d MiB were taken for 1 MiB", name, spent>>20)
		}
	}
}

// Nothing is kept of an object whose members are only looked at.
func TestMembersAreFoundOneByOne(t *testing.T) {
	body := []byte(manyMembers(bodyBytes))
	count := 0
	spent := allocated(func() {
		for name := range Members(body) {
			if name != "" {
				count++
			}
		}
	})
	if count < 400_000 || spent > 2*bodyBytes {
		t.Errorf("%d members, %d bytes", count, spent)
	}
}

// Names are found at every depth, in one pass.
func TestMembersAnywhere(t *testing.T) {
	var names []string
	for name, rest := range MembersAnywhere([]byte(`{"a":[{"b" : "c\":1"},{"d\u0065":{"f":null}}],"":2}`)) {
		names = append(names, name+" "+string(rest[:1]))
	}
	if got := fmt.Sprint(names); got != `[a [ b " de { f n  2]` {
		t.Errorf("got %s", got)
	}
	deep := strings.Repeat(`{"a":`, 9_000)
	count := 0
	for range MembersAnywhere([]byte(deep)) {
		count++
	}
	if count != 9_000 {
		t.Errorf("%d members", count)
	}
	for _, torn := range []string{`"`, `{"a`, `{"a":`, `{"a":"\`} {
		for range MembersAnywhere([]byte(torn)) {
			count++ // and no panic
		}
	}
}
