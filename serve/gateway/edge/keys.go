package edge

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync/atomic"

	"meridian/serve/openai"
)

// Keys let people in, where there are any.
type Keys struct {
	digests atomic.Pointer[[]digest]
}

// digest stands for a key.
type digest [sha256.Size]byte

// Replace lets in who has one of these from now on.
func (k *Keys) Replace(all []string) {
	digests := make([]digest, 0, len(all))
	for _, key := range all {
		digests = append(digests, sha256.Sum256([]byte(key)))
	}
	k.digests.Store(&digests)
}

// Any tells whether keys are asked for.
func (k *Keys) Any() bool { return len(*k.digests.Load()) > 0 }

// has compares with every key, in a time that tells nothing of it.
func (k *Keys) has(given string) bool {
	sent := sha256.Sum256([]byte(given))
	match := 0
	for _, key := range *k.digests.Load() {
		match |= subtle.ConstantTimeCompare(sent[:], key[:])
	}
	return match == 1
}

// Guard lets in who has an API key, where keys are asked for.
func (k *Keys) Guard(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if isIn := k.has(given); k.Any() && (!isBearer || !isIn) {
			fault := openai.Invalid("", "an API key is needed: send it as the header Authorization: Bearer KEY")
			fault.Type, fault.Status = openai.TypeAuth, http.StatusUnauthorized
			fault.WithCode(openai.CodeInvalidKey).Write(w)
			return
		}
		handle(w, r)
	}
}
