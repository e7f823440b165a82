package mrdn

// AppendBlob answers a Hello that came to fetch the metadata.
func AppendBlob(dst, blob []byte) []byte {
	w := begin(dst, BlobFrame)
	w.b = append(w.b, blob...)
	return w.finish()
}
