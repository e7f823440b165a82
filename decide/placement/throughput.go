package placement

// Throughput is how fast an engine computes tokens of prompts and how fast it fetches them from
// the cell's object cache, as its answers tell. It is for one goroutine at a time.
type Throughput struct{ computes, fetches rate }

// rate is time for tokens. Each answer takes a sixteenth off what was before, so that it
// goes with the engine's load, and long prompts count for more than short ones.
type rate struct {
	tokens, micros float64
	answers        int
}

const (
	rateFade = 15.0 / 16
	// fewAnswers say nothing yet, and of a prompt with few tokens most is not their time.
	fewAnswers = 4
	fewTokens  = 32
	// maxTook, an hour in microseconds, is more than any prompt takes: an engine that says so is not believed.
	maxTook = 3_600_000_000
)

func (r *rate) add(tokens int, micros int64) {
	if tokens < fewTokens || micros <= 0 || micros > maxTook {
		return
	}
	r.tokens = r.tokens*rateFade + float64(tokens)
	r.micros = r.micros*rateFade + float64(micros)
	r.answers = min(r.answers+1, fewAnswers)
}

// Computed says that an engine has computed so many tokens of a prompt, in so many
// microseconds.
func (p *Throughput) Computed(tokens int, micros int64) { p.computes.add(tokens, micros) }

// Fetched says that it has fetched so many.
func (p *Throughput) Fetched(tokens int, micros int64) { p.fetches.add(tokens, micros) }

// StoredWeight is what a fetched token costs against a computed one, 1 at most: then
// nothing is gained by fetching. It is 0 while that is not known.
func (p *Throughput) StoredWeight() float64 {
	c, f := &p.computes, &p.fetches
	if c.answers < fewAnswers || f.answers < fewAnswers || c.micros == 0 {
		return 0
	}
	return min(max(f.micros/f.tokens/(c.micros/c.tokens), leastWeight), 1)
}

// leastWeight keeps an engine that holds a prompt ahead of one that would fetch it.
const leastWeight = 0.01
