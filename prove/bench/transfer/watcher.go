package transfer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meridian/see/dash"
)

// Seen is what came to the watcher: proof that something did.
type Seen struct {
	// Frames of the page, and HandOffs that they told of, sampled ones included.
	Frames   uint64 `json:"frames"`
	HandOffs uint64 `json:"handoffs"`
	// Batches of spans that the collector took, and their bytes.
	Batches   uint64 `json:"span_batches"`
	SpanBytes uint64 `json:"span_bytes"`
}

// watcher is who looks at a cell from outside: a collector of spans, and a user
// who has the page open. It does with what comes no more than it must: what is
// measured is the cell.
type watcher struct {
	listener net.Listener
	server   *http.Server
	served   chan error
	stop     context.CancelFunc // of the page that is open; nil while none is
	reading  sync.WaitGroup

	frames, handOffs, batches, spanBytes atomic.Uint64
}

func openWatcher(ctx context.Context) (*watcher, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &watcher{listener: listener, served: make(chan error, 1)}
	w.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		bytes, _ := io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/v1/traces" {
			w.batches.Add(1)
			w.spanBytes.Add(uint64(bytes))
		}
		answer.Header().Set("Content-Type", "application/x-protobuf")
	})}
	go func() { w.served <- w.server.Serve(listener) }()
	return w, nil
}

func (w *watcher) address() string { return "http://" + w.listener.Addr().String() }

// maxFrame is more than the page sends in one event.
const maxFrame = 16 << 20

// watch opens the page, and reads what it is sent as a browser does. It returns when
// the first of it has come.
func (w *watcher) watch(ctx context.Context, admin string) error {
	life, stop := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(life, http.MethodGet, "http://"+admin+dash.Prefix+"events", nil)
	if err != nil {
		stop()
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		stop()
		return fmt.Errorf("bench: the page: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		stop()
		return errors.Join(fmt.Errorf("bench: the page answers %s", response.Status), response.Body.Close())
	}
	w.stop = stop
	first := make(chan struct{}) // closed when something has come
	var told sync.Once
	w.reading.Go(func() {
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, maxFrame)
		for lines.Scan() {
			data, isData := strings.CutPrefix(lines.Text(), "data: ")
			var frame struct {
				HandOffs []json.RawMessage `json:"handoffs"`
				LeftOut  dash.LeftOut      `json:"left_out"`
			}
			if !isData || json.Unmarshal([]byte(data), &frame) != nil {
				continue
			}
			w.handOffs.Add(uint64(len(frame.HandOffs)) + frame.LeftOut.HandOffs)
			w.frames.Add(1)
			told.Do(func() { close(first) })
		}
	})
	select {
	case <-first:
		return nil
	case <-ctx.Done():
		w.leave()
		return fmt.Errorf("bench: the page tells nothing: %w", ctx.Err())
	}
}

// leave closes the page, if it is open, and tells what has come so far.
func (w *watcher) leave() Seen {
	if w.stop != nil {
		w.stop()
		w.reading.Wait()
		w.stop = nil
	}
	return Seen{Frames: w.frames.Load(), HandOffs: w.handOffs.Load(), Batches: w.batches.Load(), SpanBytes: w.spanBytes.Load()}
}

func (w *watcher) close(ctx context.Context) error {
	w.leave()
	err := w.server.Shutdown(ctx)
	if served := <-w.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
