//go:build amd64 || arm64

package inject

import (
	"bytes"
	"encoding/binary"
	"os"
)

// Bounds of what the library is told of the program's environment.
const (
	maxEnviron  = 64 << 10
	maxVariable = 4096
)

// startBlock returns what the kernel has put on the stack of a program at its start, for an
// address: an argument, the environment without what is no variable of the library, and the
// auxiliary vector. The program may have written over its own.
func (r *running) startBlock(at uint64) ([]byte, error) {
	environ, err := readSome(r.procPath("environ"), maxEnviron)
	if err != nil {
		return nil, err
	}
	auxv, err := os.ReadFile(r.procPath("auxv"))
	if err != nil {
		return nil, err
	}
	texts := [][]byte{[]byte("program\x00")}
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		ours := bytes.HasPrefix(v, []byte("EXNET")) || bytes.HasPrefix(v, []byte("XDG_RUNTIME_DIR="))
		if ours && len(v) < maxVariable {
			texts = append(texts, append(bytes.Clone(v), 0))
		}
	}
	words := binary.LittleEndian.AppendUint64(nil, 1)
	head := uint64(8*(1+len(texts)+2) + len(auxv))
	for i, text := range texts {
		words = binary.LittleEndian.AppendUint64(words, at+head)
		head += uint64(len(text))
		if i == 0 {
			words = binary.LittleEndian.AppendUint64(words, 0)
		}
	}
	words = binary.LittleEndian.AppendUint64(words, 0)
	return append(append(words, auxv...), bytes.Join(texts, nil)...), nil
}

// readSome returns at most n bytes of a file.
func readSome(path string, n int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, n)
	for have := 0; ; {
		k, err := f.Read(b[have:])
		if have += k; err != nil || k == 0 {
			return b[:have], nil // what there is
		}
	}
}
