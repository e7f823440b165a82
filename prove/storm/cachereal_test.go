//go:build real

package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/internal/require"
	"meridian/internal/until"
	"meridian/run/cell/openaiclient"
	"meridian/serve/door"
	"meridian/serve/openai"
)

// cacheCell is engines of different splits that keep and find prefixes at agents with
// little memory: one with a disk and a bucket, one with a bucket alone, one without
// objects. An engine that has no agent knows the answers.
//
//	engine-a ─ a: memory, disk, S3 ──┐
//	engine-b ─ b: memory, S3 ────────┼─ bucket: a proxy that can be bad ─ versitygw
//	engine-c ─ c: no objects ────────┘
type cacheCell struct {
	dir, disk string
	bucket    *bucket
	directory *part
	agents    []*part // a, b and c
	metrics   []string
	engines   []*part
	clients   []*openaiclient.Client
	alone     *openaiclient.Client
	random    *rand.Rand
	past      counts // of processes that were killed
	questions []Question
}

// askWithin is the longest that a request may take, whatever breaks: what is worse than
// computing is given up within store.find_timeout_ms and the engine's own deadline, and a
// busy machine takes its time.
const askWithin = 30 * time.Second

// startCacheCell starts one whose splits are drawn from a seed.
func startCacheCell(t *testing.T, seed uint64) *cacheCell {
	t.Helper()
	bin := program(t)
	if os.Geteuid() != 0 {
		require.Skip(t, "root", "mounting a small file system")
	}
	dir, err := os.MkdirTemp("", "mrd") // short enough for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &cacheCell{dir: dir, disk: filepath.Join(dir, "disk"), random: rand.New(rand.NewPCG(seed, 3)), past: counts{}}
	if err := os.Mkdir(c.disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", c.disk, "tmpfs", 0, "size=160m"); err != nil {
		require.Skip(t, "root", "mounting a small file system: "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(c.disk, syscall.MNT_DETACH) })
	c.bucket = startBucket(t, filepath.Join(dir, "s3"))
	env := []string{"MERIDIAN_STATE=" + dir, "MERIDIAN_TELEMETRY_PROMETHEUS_LISTEN=", "MERIDIAN_LOGGING_LEVEL=warn", "MERIDIAN_STORE_ENABLED=true", "MERIDIAN_STORE_WRITE_TIMEOUT_MS=5000"}
	s3 := []string{
		"MERIDIAN_STORE_S3_ENDPOINT=http://" + c.bucket.address(), "MERIDIAN_STORE_S3_BUCKET=" + bucketName, "MERIDIAN_STORE_S3_BYTES=268435456",
		"AWS_ACCESS_KEY_ID=" + bucketKey, "AWS_SECRET_ACCESS_KEY=" + bucketSecret,
	}
	disk := []string{"MERIDIAN_STORE_DISK_DIR=" + c.disk, "MERIDIAN_STORE_DISK_BYTES=134217728"}
	c.directory = c.start(t, "directory", env, bin, "directory")
	for i, more := range [][]string{append(s3, disk...), s3, {"MERIDIAN_STORE_BYTES=0"}} {
		name, metrics := string(rune('a'+i)), freeAddress(t)
		args := []string{bin, "agent", "--name", name, "--metrics", metrics}
		if i < 2 {
			args = append(args, "--store", "6MiB")
		}
		c.metrics = append(c.metrics, metrics)
		c.agents = append(c.agents, c.start(t, name, append(env[:len(env):len(env)], more...), args...))
	}
	c.alone = &openaiclient.Client{URL: c.engine(t, env, bin, "--no-door", "--id", "alone", "--blocks", "512")}
	for _, agent := range c.agents {
		cut := c.cut()
		t.Logf("the engine at %s: %s", agent.name, strings.Join(cut, " "))
		url := c.engine(t, env, append([]string{bin, "--agent", agent.name, "--id", "engine-" + agent.name}, cut...)...)
		c.clients = append(c.clients, &openaiclient.Client{URL: url})
	}
	t.Cleanup(func() { report(t, append(c.engines, append(c.agents, c.directory)...)...) })
	await(t, "every engine has its agent", func() error {
		for i := range c.clients {
			if s, err := c.engineStats(i); err != nil || s.Door != "serving" {
				return fmt.Errorf("%+v: %w", s, err)
			}
		}
		return nil
	})
	return c
}

// cut draws how an engine lies in memory: so few blocks that it soon forgets, and has to
// find what it had.
func (c *cacheCell) cut() []string {
	block := []int{8, 16, 24, 32, 48, 64}[c.random.IntN(6)]
	return []string{
		"--tp", strconv.Itoa(1 << c.random.IntN(3)), "--pp", strconv.Itoa(1 << c.random.IntN(3)), "--block", strconv.Itoa(block), "--blocks", strconv.Itoa(6000 / block),
		"--layout", []string{"LBHNC", "BLHNC", "LBNHC", "BLFHND"}[c.random.IntN(4)],
	}
}

func (c *cacheCell) start(t *testing.T, name string, env []string, args ...string) *part {
	t.Helper()
	p := &part{name: name, owner: -1, args: args, env: env}
	p.start(t)
	t.Cleanup(func() { p.kill() })
	return p
}

// engine starts one, and returns where it serves.
func (c *cacheCell) engine(t *testing.T, env []string, args ...string) string {
	t.Helper()
	address := freeAddress(t)
	args = append([]string{args[0], "engine", "--model", model, "--listen", address, "--handoff-deadline", "5s"}, args[1:]...)
	p := c.start(t, strings.Join(args[6:], " "), env, args...)
	c.engines = append(c.engines, p)
	client := &openaiclient.Client{URL: "http://" + address}
	await(t, "an engine serves", func() error {
		_, err := client.Models(t.Context())
		return err
	})
	return client.URL
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// know makes questions that were not asked before, and has them answered by the engine
// that is alone. They begin alike, for 0 to 900 tokens.
func (c *cacheCell) know(t *testing.T, count int) {
	t.Helper()
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz ,.\n"[c.random.IntN(30)]
		}
		return string(b)
	}
	shared := []string{text(900), text(900), text(900), text(500)}
	fresh := make([]Question, count)
	for i := range fresh {
		prefix := shared[c.random.IntN(len(shared))]
		r := openai.CompletionRequest{Prompt: openai.Prompt{Texts: []string{prefix[:c.random.IntN(len(prefix)+1)] + text(1+c.random.IntN(60))}}}
		tokens, temperature, seed := 1+c.random.IntN(16), float64(i%2), c.random.Int64N(1<<31)
		r.Model, r.Stream, r.ReturnTokenIDs = model, true, true
		r.MaxTokens, r.Temperature, r.Seed = &tokens, &temperature, &seed
		fresh[i] = Question{Request: r}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := Know(ctx, c.alone, fresh); err != nil {
		t.Fatal(err)
	}
	c.questions = append(c.questions, fresh...)
	c.questions = c.questions[max(0, len(c.questions)-maxQuestions):]
}

// maxQuestions are asked at a time: the newest, and as many older ones as make arenas
// too small.
const maxQuestions = 180

// ask has every engine asked for a while, and until done: no answer may be wrong or
// late, and none may fail, for an engine that can find nothing computes.
func (c *cacheCell) ask(t *testing.T, during time.Duration, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	tallies := make([]*Tally, len(c.clients))
	for i, client := range c.clients {
		crowd := Crowd{Client: client, Questions: c.questions, Clients: 3, Ask: askWithin, Seed: c.random.Uint64()}
		all.Go(func() { tallies[i] = crowd.Run(ctx) })
	}
	least := time.Now().Add(during)
	until.Within(2*patience).True(t, "it is asked long enough", func() bool {
		return ctx.Err() != nil || time.Now().After(least) && done()
	})
	cancel()
	all.Wait()
	for i, tally := range tallies {
		if tally.WrongCount > 0 || tally.Failures() > 0 || tally.Right == 0 {
			t.Errorf("the engine at %s: %v", c.agents[i].name, tally)
		}
	}
}

// counts are what agents count, by the name of a series and its labels.
type counts map[string]float64

var series = regexp.MustCompile(`(?m)^(meridian_[a-z_0-9]+(?:\{[^}]*\})?) (\S+)$`)

// scrape is what an agent counts in this life; nothing, while it does not answer.
func (c *cacheCell) scrape(agent int) counts {
	found := counts{}
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get("http://" + c.metrics[agent] + "/metrics")
	if err != nil {
		return found
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return found
	}
	for _, m := range series.FindAllStringSubmatch(string(text), -1) {
		if value, err := strconv.ParseFloat(m[2], 64); err == nil {
			found[m[1]] = value
		}
	}
	return found
}

// sum adds up the series of a name that have all labels.
func (n counts) sum(name string, labels ...string) (sum float64) {
	for series, value := range n {
		base, rest, _ := strings.Cut(series, "{")
		has := base == name
		for _, l := range labels {
			has = has && strings.Contains(rest, l)
		}
		if has {
			sum += value
		}
	}
	return sum
}

// counted is what all agents have counted, in all of their lives.
func (c *cacheCell) counted() counts {
	all := counts{}
	for series, value := range c.past {
		all[series] += value
	}
	for i := range c.agents {
		for series, value := range c.scrape(i) {
			all[series] += value
		}
	}
	return all
}

// kill ends an agent as a crash would, and starts it again; what it has counted stays.
func (c *cacheCell) kill(t *testing.T, agent int) {
	t.Helper()
	t.Logf("kill -9 %s", c.agents[agent].name)
	for series, value := range c.scrape(agent) {
		if !strings.Contains(series, "_total") {
			continue
		}
		c.past[series] += value
	}
	c.agents[agent].kill()
	c.agents[agent].start(t)
}

// master is the agent that is it, or the first.
func (c *cacheCell) master() int {
	for i := range c.agents {
		if c.scrape(i).sum("meridian_store_master") == 1 {
			return i
		}
	}
	return 0
}

// engineStats is what is looked at of what an engine says of itself.
type engineStats struct {
	Running, Fetching, Waiting int
	Door                       string
	Blocks                     struct{ Total, Free, Cached, Held int }
	Counters                   struct {
		Finished, Kept, Unkept, Found, Missed            uint64
		Told, Late, Forced, Recalled, Stopped, Preempted uint64
		CopiedOut                                        uint64 `json:"copied_out"`
		FailedOpen                                       uint64 `json:"failed_open"`
	}
}

func (c *cacheCell) engineStats(i int) (engineStats, error) { return readEngine(c.clients[i].URL) }

// readEngine is what the engine at url says of itself.
func readEngine(url string) (s engineStats, err error) {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(url + "/stats")
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	return s, json.NewDecoder(answer.Body).Decode(&s)
}

// unsettled says what is held for requests although no client asks for anything.
func (c *cacheCell) unsettled() (err error) {
	for i := range c.clients {
		s, failed := c.engineStats(i)
		if failed != nil || s.Running+s.Waiting+s.Fetching+s.Blocks.Held > 0 || s.Blocks.Free+s.Blocks.Cached != s.Blocks.Total || s.Door != "serving" {
			err = errors.Join(err, failed, fmt.Errorf("%+v", s))
		}
	}
	for i, agent := range c.agents {
		n := c.scrape(i)
		for _, gauge := range []string{"meridian_cache_held_runs", "meridian_cache_in_flight_bytes", "meridian_handoff_running"} {
			if _, some := n[gauge]; len(n) == 0 || n.sum(gauge) != 0 {
				err = errors.Join(err, fmt.Errorf("%s: %s is %v (%t, of %d series)", agent.name, gauge, n.sum(gauge), some, len(n)))
			}
		}
	}
	return err
}

// empty takes everything out of memory: what a lease is left on would stay.
func (c *cacheCell) empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	cache, err := door.OpenStore(ctx, door.StoreOptions{Socket: filepath.Join(c.dir, "door-c.sock")})
	if err != nil {
		return err
	}
	defer cache.Close()
	if _, err := cache.Evict(ctx, 0); err != nil {
		return err
	}
	stats, err := cache.Stats(ctx)
	if len(stats) != 2 {
		err = errors.Join(err, fmt.Errorf("%d owners", len(stats)))
	}
	for _, o := range stats {
		if o.Problem != "" || o.HeapUsed != 0 || o.Ready != 0 || o.Writing != 0 {
			err = errors.Join(err, fmt.Errorf("%+v", o))
		}
	}
	return err
}
