package dsbench

import "io"

// conn is a connection as the ends of a measurement use it.
type conn interface {
	read(b []byte) (int, error)  // what there is, at least a byte; io.EOF at the end
	write(b []byte) (int, error) // at least a byte
	close()
}

// readFull fills b; io.EOF if the connection ended before its first byte.
func readFull(c conn, b []byte) error {
	for done := 0; done < len(b); {
		n, err := c.read(b[done:])
		if err == io.EOF && done > 0 {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		done += n
	}
	return nil
}

// writeFull writes all of b.
func writeFull(c conn, b []byte) error {
	for done := 0; done < len(b); {
		n, err := c.write(b[done:])
		if err != nil {
			return err
		}
		done += n
	}
	return nil
}

func closeAll(conns []conn) {
	for _, c := range conns {
		c.close()
	}
}
