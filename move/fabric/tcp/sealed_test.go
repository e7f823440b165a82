package tcp

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"meridian/member/trust"
	"meridian/move/fabric"
)

// sealing makes options of two agents that speak TLS.
func sealing(t testing.TB) func(name string) *trust.Source {
	t.Helper()
	ca, err := trust.CreateAuthority(trust.AuthorityOptions{Dir: filepath.Join(t.TempDir(), "certificates")})
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) *trust.Source {
		files, err := ca.Issue(trust.Request{Name: name, Renew: true})
		if err != nil {
			t.Fatal(err)
		}
		source, err := trust.Open(trust.Options{Files: files, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
}

// cpuTime is what this process has used, on all cores: unlike the wall clock it
// says the same on a busy machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSealed compares what TLS costs, in processor time of both sides, with
// the least it can cost: the same transfer in the clear, and one seal and one
// open of every byte.
func BenchmarkSealed(b *testing.B) {
	const total, record = 32 << 20, 16 << 10
	source := sealing(b)
	for _, block := range []uint64{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", block>>10), func(b *testing.B) {
			plain, sealed := newPair(b, 2*total, Options{}), newPair(b, 2*total, Options{}, source)
			move := func(p *pair) {
				prepared, err := p.link.Prepare(fabric.Write, scattered(total, block, 1), scattered(total, block, 2))
				if err != nil {
					b.Fatal(err)
				}
				defer prepared.Release()
				t, err := p.link.Post(b.Context(), prepared, fabric.PostOptions{ID: newID()})
				if err == nil {
					err = t.Await(b.Context())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			key, err := aes.NewCipher(make([]byte, 16))
			if err != nil {
				b.Fatal(err)
			}
			gcm, err := cipher.NewGCM(key)
			if err != nil {
				b.Fatal(err)
			}
			text, nonce := make([]byte, record, record+64), make([]byte, gcm.NonceSize())
			crypt := func() {
				for range total / record {
					out := gcm.Seal(text[:0], nonce, text, nil)
					if _, err := gcm.Open(text[:0], nonce, out, nil); err != nil {
						b.Fatal(err)
					}
				}
			}
			var spent [3]time.Duration
			for b.Loop() {
				for i, work := range []func(){func() { move(plain) }, func() { move(sealed) }, crypt} {
					start := cpuTime(b)
					work()
					spent[i] += cpuTime(b) - start
				}
			}
			each := func(d time.Duration) float64 { return float64(d) / float64(b.N) / (total >> 10) }
			b.ReportMetric(each(spent[0]), "ns/KiB-plain")
			b.ReportMetric(each(spent[1]), "ns/KiB-tls")
			b.ReportMetric(each(spent[2]), "ns/KiB-seal+open")
			b.ReportMetric(float64(spent[0]+spent[2])/float64(spent[1]), "of-bound")
		})
	}
}
