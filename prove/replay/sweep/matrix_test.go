package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func someJobs() []job {
	var jobs []job
	for _, load := range []float64{0.5, 0.9} {
		for seed := range uint64(8) {
			jobs = append(jobs, job{Candidate{Name: "p"}, load, seed})
		}
	}
	return jobs
}

func TestResultsAreInTheOrderOfJobs(t *testing.T) {
	for workers := 1; workers <= 5; workers++ {
		var told []Progress
		m := &matrix{jobs: someJobs(), progress: func(p Progress) { told = append(told, p) }}
		got, err := each(t.Context(), workers, m, func(_ context.Context, j job, part func(float64)) (string, error) {
			part(0.5)
			return j.String(), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, j := range m.jobs {
			if got[i] != j.String() {
				t.Fatalf("%d workers: result %d is of %s, want %v", workers, i, got[i], j)
			}
		}
		if last := told[len(told)-1]; last.Done != len(m.jobs) || last.Part < 0.999 {
			t.Errorf("at the end: %+v", last)
		}
		if !slices.IsSortedFunc(told, func(a, b Progress) int { return a.Done - b.Done }) {
			t.Error("progress goes backwards")
		}
	}
}

func TestAnErrorEndsAllAndSaysWhere(t *testing.T) {
	broken := errors.New("broken")
	m := &matrix{jobs: someJobs()}
	_, err := each(t.Context(), 3, m, func(ctx context.Context, j job, _ func(float64)) (int, error) {
		if j.seed == 3 && j.load == 0.9 {
			return 0, broken
		}
		if j.load == 0.5 {
			<-ctx.Done() // others go on until the first error
			return 0, ctx.Err()
		}
		return 0, nil
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "p at load 0.9, seed 3") {
		t.Errorf("%v", err)
	}
}

func TestInterruptionSaysWhatWasNotDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &matrix{jobs: someJobs()}
	var once sync.Once
	_, err := each(ctx, 2, m, func(ctx context.Context, j job, _ func(float64)) (int, error) {
		if j.load == 0.5 {
			once.Do(cancel)
			return 0, ctx.Err()
		}
		return 0, nil
	})
	if !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), fmt.Sprintf("%d of %d runs were not done: p at load 0.5, seed 0", 8, 16)) {
		t.Errorf("%v", err)
	}
}
