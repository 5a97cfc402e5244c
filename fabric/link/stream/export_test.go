package stream

// Carried returns how many bytes each connection has sent.
func (l *Link) Carried() (bytes []uint64) {
	for _, c := range l.conns {
		bytes = append(bytes, c.carried.Load())
	}
	return bytes
}
