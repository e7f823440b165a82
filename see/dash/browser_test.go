//go:build real

package dash

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"meridian/decide/placement"
	"meridian/internal/require"
	"meridian/see/history"
	"meridian/serve/gateway"
)

// browser is a Chromium without a screen that shows the page. What it complains of,
// and whom it asks, is remembered.
type browser struct {
	ctx context.Context

	mu         sync.Mutex // protects the rest
	complaints []string
	asked      map[string]bool // hosts
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(require.Program(t, "chromium")))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, leave := chromedp.NewContext(allocator)
	b := &browser{ctx: ctx, asked: make(map[string]bool)}
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	messages, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	var wait sync.WaitGroup
	wait.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.complaints = append(b.complaints, string(m.Type)+": "+m.Text+" "+m.URL)
			b.mu.Unlock()
		}
	})
	wait.Go(func() {
		for e, err := range requests {
			if err != nil {
				return
			}
			if at, err := url.Parse(e.Request.URL); err == nil && at.Scheme != "data" {
				b.mu.Lock()
				b.asked[at.Host] = true
				b.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		leave()
		stop()
		wait.Wait()
	})
	return b
}

func (b *browser) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// is waits until something is true of the page.
func (b *browser) is(t *testing.T, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	// In the background a page draws no frames: it is asked by the clock.
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(0))); err != nil {
		t.Fatalf("never true: %s: %v", expression, err)
	}
}

func value[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// site serves a page at an address, and can be stopped and started.
type site struct {
	address string
	page    *Page
	server  *http.Server
	served  chan struct{}
}

func (s *site) start(t *testing.T, c Cell) {
	t.Helper()
	p, err := Open(t.Context(), Options{Cell: c, Interval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if s.address == "" {
		s.address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.address, s.page, s.server, s.served = listener.Addr().String(), p, &http.Server{Handler: p}, make(chan struct{})
	go func() {
		defer close(s.served)
		_ = s.server.Serve(listener)
	}()
}

func (s *site) stop() {
	_ = s.page.Close(context.Background())
	_ = s.server.Close()
	<-s.served
}

const frames = `Number(document.getElementById("state").dataset.frames || 0)`

// A person looks at a busy cell: a hundred hand-offs each tenth of a second.
func TestRealBrowser(t *testing.T) {
	b := openBrowser(t)
	c := &fakeCell{perLook: 100}
	var s site
	s.start(t, c)
	t.Cleanup(func() { s.stop() })
	b.do(t, chromedp.EmulateViewport(1280, 900), chromedp.Navigate("http://"+s.address+Prefix))
	b.is(t, `document.querySelectorAll("#handoffs tbody tr").length > 0`)

	t.Run("goes on under load, and does not grow", func(t *testing.T) {
		b.is(t, frames+" >= 20")
		before := value[int](t, b, `document.querySelectorAll("*").length`)
		began, first := time.Now(), value[int](t, b, frames)
		b.is(t, frames+" >= 60")
		if n := value[int](t, b, `document.querySelectorAll("*").length`); n > before+200 || n > 15000 {
			t.Errorf("the page grew from %d to %d elements", before, n)
		}
		if rows := value[int](t, b, `document.querySelectorAll("#handoffs tbody tr").length`); rows != 300 {
			t.Errorf("%d hand-offs are listed", rows)
		}
		t.Logf("%d frames in %v", 60-first, time.Since(began).Round(time.Millisecond))
		b.is(t, `document.getElementById("matrix-note").textContent.includes("from p0, rank 0, to d0, rank 1")`)
		b.is(t, `document.getElementById("handoffs-note").textContent.includes("most of it in data, 75 %")`)
	})

	t.Run("tells what happens to a worker", func(t *testing.T) {
		c.set(func(c *fakeCell) { c.down, c.perLook = true, 1 })
		b.is(t, `document.getElementById("events").textContent.includes("worker d0 does not answer")`)
		b.is(t, `document.getElementById("tiles").textContent.includes("1 of 2")`)
		c.set(func(c *fakeCell) { c.down = false })
		b.is(t, `document.getElementById("events").textContent.includes("worker d0 answers")`)
	})

	t.Run("tells the story of one", func(t *testing.T) {
		b.do(t, chromedp.SendKeys("#query", "abc\r"), chromedp.WaitVisible("#story-body pre"))
		b.is(t, `document.querySelectorAll("#story-body svg").length === 2 && document.querySelectorAll("#story-body path.flow").length === 2`)
		for _, part := range []string{"data", "rank 0 sends 2.00 MiB", "request abc: finished", "c: does not answer", "checksums right", "tcp: preference 1"} {
			b.is(t, `document.getElementById("story-body").textContent.includes(`+"`"+part+"`"+`)`)
		}
		if title := value[string](t, b, "document.title"); title != "Meridian" {
			t.Errorf("what a process wrote has become markup: %q", title)
		}
		b.do(t, chromedp.KeyEvent("\x1b"), chromedp.WaitNotVisible("#story-body"))
		// The list moves on while the reader walks it with keys: what had the focus keeps it.
		b.is(t, `(document.querySelector("#requests tbody button.link").focus(), true)`)
		before := value[int](t, b, frames)
		b.is(t, frames+" > "+strconv.Itoa(before+2))
		b.is(t, `document.activeElement.closest("#requests") !== null`)
		b.do(t, chromedp.KeyEvent("\r"), chromedp.WaitVisible("#story-body pre"), chromedp.KeyEvent("\x1b"))
	})

	t.Run("shows where caches are kept, and one of them", func(t *testing.T) {
		b.is(t, `document.getElementById("cache").hidden`)
		c.set(func(c *fakeCell) {
			c.objects = &Objects{Master: true, Tiers: []history.TierCounts{{Name: "memory", Used: 1 << 20, Total: 4 << 20, Objects: 3, Hits: 3, Misses: 1}, {Name: "disk<b>", Down: true, Used: 1 << 30, Total: 2 << 30, Objects: 9}, {Name: "s3", Used: 5 << 30, Objects: 7}}}
		})
		b.is(t, `!document.getElementById("cache").hidden && document.querySelectorAll("#owners tbody tr").length === 3`)
		for _, part := range []string{"b (master)", "1.00 MiB of 4.00 MiB", "75.0 %", "disk<b> ✕ left alone", "5.00 GiB"} {
			b.is(t, `document.getElementById("owners").textContent.includes(`+"`"+part+"`"+`)`)
		}
		b.is(t, `document.getElementById("cache-note").textContent.includes("Engines asked for 200 tokens of prompts, and 150 (75.0 %) were kept")`)
		b.is(t, `(document.getElementById("query").value = "", true)`)
		b.do(t, chromedp.SendKeys("#query", "kv/0123\r"), chromedp.WaitVisible("#story-body pre"))
		b.is(t, `document.querySelector("#story-body pre").textContent.startsWith("kv/0123\n  owner     b\n<script>")`)
		if title := value[string](t, b, "document.title"); title != "Meridian" {
			t.Errorf("what a process wrote has become markup: %q", title)
		}
		b.do(t, chromedp.KeyEvent("\x1b"), chromedp.WaitNotVisible("#story-body"))
	})

	t.Run("goes on after the server was started again", func(t *testing.T) {
		if n := value[int](t, b, `document.querySelectorAll("#requests tbody tr").length`); n == 0 {
			t.Fatal("nothing to remember")
		}
		s.stop()
		b.is(t, `document.getElementById("state").textContent.includes("no answer")`)
		s.start(t, c)
		b.is(t, `document.getElementById("state").dataset.restarts === "1" && document.getElementById("state").className === "live"`)
		before := value[int](t, b, frames)
		b.is(t, frames+" > "+strconv.Itoa(before+3))
	})

	t.Run("fits a phone, and the dark", func(t *testing.T) {
		b.do(t, chromedp.EmulateViewport(390, 844))
		b.is(t, `document.documentElement.scrollWidth <= 390`)
		if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}); err != nil {
			t.Fatal(err)
		}
		b.is(t, `document.documentElement.dataset.theme === "dark" && getComputedStyle(document.body).backgroundColor === "rgb(16, 19, 24)"`)
		before := value[int](t, b, frames)
		b.is(t, frames+" > "+strconv.Itoa(before+2))
	})

	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.complaints {
		// While the server was away the browser says so, as it should.
		if !strings.Contains(complaint, "net::ERR_") {
			t.Errorf("the browser complains: %s", complaint)
		}
	}
	if len(b.asked) != 1 || !b.asked[s.address] {
		t.Errorf("it asked %v, the page is at %s", b.asked, s.address)
	}
}

// Where the admin listener asks for a key, a browser that has it shows the page live, and
// stories; without the key it shows nothing.
func TestRealBrowserWithAKey(t *testing.T) {
	const key = "the key of an operator"
	b := openBrowser(t)
	p, err := Open(t.Context(), Options{Cell: &fakeCell{perLook: 1}, Interval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.Open(t.Context(), gateway.Options{
		Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", AdminKeys: []string{key}, Backends: []gateway.Backend{{URL: "http://127.0.0.1:1", Role: placement.Both}}, Page: p, PagePath: Prefix,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close(context.Background())
		_ = g.Close(context.Background())
	})
	at := url.URL{Scheme: "http", Host: g.AdminAddr(), Path: Prefix}
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(at.String())); err == nil || !strings.Contains(err.Error(), "ERR_INVALID_AUTH_CREDENTIALS") {
		t.Fatalf("without a key: %v", err)
	}
	watches := func() {
		t.Helper()
		b.is(t, frames+" > 3")
		b.is(t, `(openStory("abc"), true)`)
		b.is(t, `document.getElementById("story-body").textContent.includes("request abc: finished")`)
	}
	// As a bookmark has it, and from then on as the browser remembers it.
	at.User = url.UserPassword("operator", key)
	b.do(t, chromedp.Navigate(at.String()))
	watches()
	at.User = nil
	b.do(t, chromedp.Navigate(at.String()))
	watches()
}
