package roster

import (
	"bytes"
	"testing"
)

// An engine elsewhere does not have the gateway open sockets of its own host.
func TestEngineElsewhereNamesALocalSocket(t *testing.T) {
	told := []byte(`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"ipc:///run/docker.sock"}}`)
	if sources, err := parseSources(told, "http://10.0.0.3:8000"); err == nil {
		t.Errorf("%v are followed", sources)
	}
	if _, err := parseSources(told, "http://127.0.0.1:8000"); err != nil {
		t.Error(err)
	}
	if _, err := parseSources(bytes.ReplaceAll(told, []byte("ipc:///run/docker.sock"), []byte("tcp://*:5557")), "http://10.0.0.3:8000"); err != nil {
		t.Error(err)
	}
}

func TestWhereCachesAreTold(t *testing.T) {
	for _, c := range []CacheEvents{{Events: "http://x"}, {Events: "ipc:///x", Ranks: 2}, {Events: "tcp://h:1", Replay: "x"}} {
		if _, err := c.sources("http://127.0.0.1:1"); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
	two, err := CacheEvents{Events: "tcp://*:5557", Replay: "tcp://*:5657", Ranks: 2}.sources("http://10.0.0.3:8000")
	if err != nil || len(two) != 2 || two[1].events.String() != "tcp://10.0.0.3:5558" || two[1].replay.String() != "tcp://10.0.0.3:5658" {
		t.Errorf("got %v, %v", two, err)
	}
}
