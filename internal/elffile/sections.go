package elffile

import "bytes"

// sections are a file's section headers, and the section that has their names. There are none in a
// file without sections, or with damaged ones.
type sections struct {
	n              int
	headers, names []byte
}

// readSections reads them, the first time that it is called.
func (e *File) readSections() sections {
	if e.sections != nil {
		return *e.sections
	}
	e.sections = new(sections)
	h := e.head
	least := map[int]int{32: 40, 64: 64}[e.Bits]
	if h.shentsize < least || h.shstrndx >= h.shnum {
		return sections{}
	}
	headers, err := e.readAt(h.shoff, uint64(h.shnum*h.shentsize))
	if err != nil {
		return sections{}
	}
	_, off, size := e.sectionAt(headers, h.shstrndx)
	names, err := e.readAt(off, size)
	if err != nil {
		return sections{}
	}
	*e.sections = sections{h.shnum, headers, names}
	return *e.sections
}

// sectionAt returns where the i-th section is, by the headers.
func (e *File) sectionAt(headers []byte, i int) (addr, off, size uint64) {
	word := func(n int) uint64 { return e.parseWord(headers[i*e.head.shentsize+8+n*e.Bits/8:]) }
	return word(1), word(2), word(3)
}

// Place returns where a section is in memory and in the file.
func (e *File) Place(name string) (addr, off, size uint64, ok bool) {
	s := e.readSections()
	for i := range s.n {
		if at := e.order.Uint32(s.headers[i*e.head.shentsize:]); uint64(at) < uint64(len(s.names)) {
			if got, _, _ := bytes.Cut(s.names[at:], []byte{0}); string(got) == name {
				addr, off, size = e.sectionAt(s.headers, i)
				return addr, off, size, true
			}
		}
	}
	return 0, 0, 0, false
}

// Section returns the bytes of a section; nil: there is none.
func (e *File) Section(name string) ([]byte, error) {
	_, off, size, ok := e.Place(name)
	if !ok {
		return nil, nil
	}
	return e.readAt(off, size)
}
