// Package mark is the text in a binary that says that exn-go built it.
//
// Concurrency: all functions may be called from many goroutines.
package mark

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"exnet/internal/elffile"
	"exnet/internal/infile"
)

// begin and end enclose the text.
const (
	begin = "exn-go built this: "
	end   = " :exn-go"
)

// Text is what a binary has to contain to say that it was built with a version.
func Text(version string) string { return begin + version + end }

// Read returns the version of exn-go that a binary was built with; "": none.
func Read(name string) (string, error) {
	f, err := infile.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return Find(f)
}

// module has the Go package of direct sockets.
const module = "exnet"

// Direct reports whether a binary has direct sockets of its own: exn-go built it, or it uses the
// package of this module.
func Direct(name string) bool {
	if version, err := Read(name); err == nil && version != "" {
		return true
	}
	f, err := elffile.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	modules, err := f.Modules()
	return err == nil && slices.Contains(modules, module)
}

// maxMark bounds the version.
const maxMark = 200

// Find looks for the mark of exn-go in a binary.
func Find(r io.Reader) (string, error) {
	buf := make([]byte, 1<<20)
	have := 0
	for {
		n, err := io.ReadFull(r, buf[have:])
		have += n
		if text, ok := in(buf[:have]); ok {
			return text, nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
			return "", err
		}
		keep := len(begin) + maxMark + len(end)
		have = copy(buf, buf[have-keep:have])
	}
}

func in(b []byte) (string, bool) {
	for {
		_, rest, found := bytes.Cut(b, []byte(begin))
		if !found {
			return "", false
		}
		// exn-go's own binary has the two words, too, but not so near to each other.
		if text, _, ok := bytes.Cut(rest[:min(len(rest), maxMark+len(end))], []byte(end)); ok && printable(text) {
			return string(text), true
		}
		b = rest
	}
}

func printable(b []byte) bool {
	return !bytes.ContainsFunc(b, func(c rune) bool { return c < ' ' || c > '~' })
}
