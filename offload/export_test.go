package offload

// MaxVerified is how many bytes are looked at for finders at a time.
const MaxVerified = maxVerified

// Verify takes a part of what may be looked at for finders, until it is given back.
func (c *Cache) Verify(bytes uint64) (giveBack func(), ok bool) {
	ok = c.enter(&c.verifying, bytes)
	return func() { c.leave(&c.verifying, bytes) }, ok
}
