package mrdn

// AppendFetch asks, instead of a Hello, for the metadata of whoever listens.
func AppendFetch(dst []byte) []byte {
	w := begin(dst, FetchFrame)
	return w.finish()
}

// AppendBlob answers a fetch.
func AppendBlob(dst, blob []byte) []byte {
	w := begin(dst, BlobFrame)
	w.b = append(w.b, blob...)
	return w.finish()
}
