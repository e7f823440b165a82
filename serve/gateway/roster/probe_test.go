package roster

import "testing"

const hostileModel = `{"id":"m","owned_by":"meridian"}`

// Whatever an engine says of its models and of where it publishes is refused, or
// bounded.
func FuzzEngineTellsOfItself(f *testing.F) {
	for _, data := range []string{
		``, `{}`, `{"data":null}`, `{"data":[` + hostileModel + `]}`, `{"data":[{"id":"m","max_model_len":-1,"parent":"p"}]}`, `{"data":[{"id":""}]}`,
		`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}}`,
		`{"-1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"ipc:///x"}}`,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := About{ID: "e"}
		if _, err := a.list(data); err == nil && (len(a.Models) > maxModels || !a.Asked || a.MaxContext < 0 || a.Serves("")) {
			t.Fatalf("%+v", a)
		}
		sources, err := parseSources(data, "http://10.0.0.3:8000")
		if err == nil && len(sources) > maxRanks {
			t.Fatalf("%d ranks", len(sources))
		}
		for _, s := range sources {
			if s.events.IsLocal() || s.replay.IsLocal() {
				t.Fatalf("%v is a socket of this host", s)
			}
		}
	})
}
