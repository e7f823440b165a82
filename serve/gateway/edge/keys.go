package edge

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"meridian/serve/openai"
)

// Keys let people in, where there are any.
type Keys struct {
	keys atomic.Pointer[[]keyOf]
}

// keyOf stands for a key.
type keyOf struct {
	digest [sha256.Size]byte
	tenant string // whose it is; empty where its line names none
}

// MaxTenantBytes bounds the name of a tenant.
const MaxTenantBytes = 64

// SplitKey reads a line that lets in who has a key: the key, and behind a space or a tab the name
// of the tenant whose it is.
func SplitKey(line string) (key, tenant string, err error) {
	key = line
	if at := strings.IndexAny(line, " \t"); at >= 0 {
		key, tenant = line[:at], strings.TrimSpace(line[at:])
	}
	switch {
	case key == "":
		return "", "", errors.New("an API key is empty, which would let in clients that send none")
	case len(tenant) > MaxTenantBytes:
		return "", "", fmt.Errorf("the name of a key's tenant has %d bytes, at most %d", len(tenant), MaxTenantBytes)
	case !utf8.ValidString(tenant) || strings.ContainsFunc(tenant, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }):
		return "", "", fmt.Errorf("the name of a key's tenant, %q, is not one word: a line has a key and at most one word behind it", tenant)
	}
	return key, tenant, nil
}

// Replace lets in who has one of these from now on.
func (k *Keys) Replace(all []string) {
	keys := make([]keyOf, 0, len(all))
	for _, key := range all {
		keys = append(keys, keyOf{digest: sha256.Sum256([]byte(key))})
	}
	k.keys.Store(&keys)
}

// ReplaceLines is Replace with lines that SplitKey reads; those that it cannot let none in.
func (k *Keys) ReplaceLines(lines []string) {
	keys := make([]keyOf, 0, len(lines))
	for _, line := range lines {
		if key, tenant, err := SplitKey(line); err == nil {
			keys = append(keys, keyOf{sha256.Sum256([]byte(key)), tenant})
		}
	}
	k.keys.Store(&keys)
}

// Any tells whether keys are asked for.
func (k *Keys) Any() bool { return len(*k.keys.Load()) > 0 }

// find compares with every key, in a time that tells nothing of it.
func (k *Keys) find(given string) (found keyOf, is bool) {
	sent, at := sha256.Sum256([]byte(given)), -1
	keys := *k.keys.Load()
	for i := range keys {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sent[:], keys[i].digest[:]), i, at)
	}
	if at < 0 {
		return found, false
	}
	return keys[at], true
}

func (k *Keys) has(given string) bool {
	_, is := k.find(given)
	return is
}

// sentKey is the key that a request comes with.
func sentKey(r *http.Request) (key string, has bool) {
	return strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// TenantOf is whose key a request comes with: by the name that its line gives, or else by the
// key's digest, one for each key. Ok is false where no keys are asked for, or it has none of them.
func (k *Keys) TenantOf(r *http.Request) (name string, digest [sha256.Size]byte, ok bool) {
	given, isBearer := sentKey(r)
	key, is := k.find(given)
	return key.tenant, key.digest, is && isBearer
}

// Guard lets in who has an API key, where keys are asked for.
func (k *Keys) Guard(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		given, isBearer := sentKey(r)
		if isIn := k.has(given); k.Any() && (!isBearer || !isIn) {
			fault := openai.Invalid("", "an API key is needed: send it as the header Authorization: Bearer KEY")
			fault.Type, fault.Status = openai.TypeAuth, http.StatusUnauthorized
			fault.WithCode(openai.CodeInvalidKey).Write(w)
			return
		}
		handle(w, r)
	}
}
