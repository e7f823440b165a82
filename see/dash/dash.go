package dash

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

//go:embed web
var web embed.FS

// Prefix is where the page is.
const Prefix = "/dash/"

// Options configures Open.
type Options struct {
	Cell Cell
	// Interval is how often the cell is looked at; default a second.
	Interval time.Duration
	// Linger is for how long it still is when no browser watches; default half a minute.
	Linger time.Duration
	// Watchers bounds who watches at a time; default 16.
	Watchers int
	Logger   *slog.Logger
}

// Page serves the page and what it shows. It checks no Host and no key: who mounts it
// does.
type Page struct {
	options Options
	feed    *feed
	mux     *http.ServeMux
	places  chan struct{}
	stop    context.CancelFunc
}

// Open makes a page. Nothing is looked at before a browser watches.
func Open(_ context.Context, o Options) (*Page, error) {
	if o.Cell == nil {
		return nil, errors.New("dash: Options needs a Cell to show")
	}
	o.Interval, o.Linger = cmp.Or(o.Interval, time.Second), cmp.Or(o.Linger, 30*time.Second)
	o.Watchers = cmp.Or(o.Watchers, 16)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	life, stop := context.WithCancel(context.Background())
	p := &Page{
		options: o, places: make(chan struct{}, o.Watchers), stop: stop, mux: http.NewServeMux(),
		feed: &feed{cell: o.Cell, boot: rand.Text(), interval: o.Interval, linger: o.Linger, life: life, now: time.Now, changed: make(chan struct{})},
	}
	files, err := fs.Sub(web, "web")
	if err != nil {
		return nil, err
	}
	p.mux.HandleFunc("GET "+Prefix+"events", p.events)
	p.mux.HandleFunc("GET "+Prefix+"explain", p.explain)
	p.mux.Handle("GET "+Prefix, http.StripPrefix(Prefix, http.FileServerFS(files)))
	return p, nil
}

// policy lets the page reach the server that it came from, and no other.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	p.mux.ServeHTTP(w, r)
}

// writeWait is how long a watcher may take to take what it is sent.
const writeWait = 10 * time.Second

// events sends what happens, from where the watcher was when it was here before.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, "so many watch already that no more are let in; close a page that is open elsewhere", http.StatusServiceUnavailable)
		return
	}
	p.feed.watch()
	defer p.feed.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	send := func(text []byte) error {
		_ = control.SetWriteDeadline(time.Now().Add(writeWait)) // a recorder in a test has none
		if _, err := w.Write(text); err != nil {
			return err
		}
		return control.Flush()
	}
	if send([]byte("retry: 1000\n\n")) != nil {
		return
	}
	at := parseCursor(cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
	for {
		text, next, wait := p.feed.read(at)
		at = next
		if wait == nil {
			if send(text) != nil {
				return
			}
			continue
		}
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		case <-p.feed.life.Done():
			return
		}
	}
}

// parseCursor reads what a browser remembers, or whatever a stranger sends.
func parseCursor(text string) cursor {
	boot, number, _ := strings.Cut(text, ".")
	next, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return cursor{}
	}
	return cursor{boot, next}
}

const (
	maxIDBytes     = 256
	explainTimeout = 10 * time.Second
)

// explain tells the story of an id.
func (p *Page) explain(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimSpace(r.URL.Query().Get("id"))
	if id == "" || len(id) > maxIDBytes {
		http.Error(w, "name an id of at most 256 bytes", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), explainTimeout)
	defer cancel()
	story, err := p.options.Cell.Explain(ctx, id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(story); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		p.options.Logger.Debug("a story was not delivered", "error", err)
	}
}

// Looks tells whether the cell is being looked at: a browser watches, or did a moment ago.
func (p *Page) Looks() bool {
	p.feed.mu.Lock()
	defer p.feed.mu.Unlock()
	return p.feed.running
}

// Close ends what watchers are sent, and waits until nothing is looked at.
func (p *Page) Close(context.Context) error {
	p.stop()
	p.feed.close()
	return nil
}
