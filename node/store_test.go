package node

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"meridian/meta/memdir"
	"meridian/store"
	"meridian/telemetry"
)

func TestStoreNeedsADirectory(t *testing.T) {
	_, err := OpenAgent(t.Context(), AgentOptions{Name: "a", StateDir: t.TempDir(), Listen: "127.0.0.1:0", NoDirectory: true, Store: &Store{}})
	if !errors.Is(err, ErrNoDirectory) {
		t.Fatalf("got %v", err)
	}
}

func TestStoreShowsItsNumbers(t *testing.T) {
	state := t.TempDir()
	n := open(t, AgentOptions{Name: "a", StateDir: state})
	if _, err := Cache(t.Context(), state, "a"); !errors.Is(err, ErrNoRecord) {
		t.Errorf("an agent without a part in the cache tells of it: %v", err)
	}
	directory, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Directory = directory
	if err := n.openStore(t.Context(), AgentOptions{Store: &Store{Owner: &store.OwnerOptions{Bytes: 4 << 20}, Candidate: true}}); err != nil {
		t.Fatal(err)
	}
	for len(n.Store.Owners()) == 0 { // it hears of itself by the directory
		time.Sleep(time.Millisecond)
	}
	if err := n.Store.Put(t.Context(), "key", []byte("value"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	status, err := Cache(t.Context(), state, "a")
	if err != nil {
		t.Fatal(err)
	}
	if status.Master != "a" || status.Serving() != 1 || status.Owners[0].Ready != 1 || status.Owners[0].HeapUsed == 0 {
		t.Errorf("asked how the cache stands, the agent says %+v", status)
	}
	numbers, err := telemetry.Open(t.Context(), telemetry.Options{Listen: "127.0.0.1:0", Sources: n.sources()})
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + numbers.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close(), numbers.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", response.StatusCode, text)
	}
	for _, line := range []string{
		`meridian_store_objects\{state="ready"\} 1`, `meridian_store_operations_total\{end="done",op="put"\} 1`, `meridian_store_bytes_total\{direction="in"\} 5`,
		`meridian_store_heap_bytes\{what="used"\} [1-9]`, `meridian_store_owners 1`, `meridian_store_master 1`, `meridian_store_terms_total 1`,
	} {
		if !regexp.MustCompile("(?m)^" + line).Match(text) {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}
