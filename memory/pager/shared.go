package pager

// unparkPages has pages tried again that could not be moved, not in each tick: all may be
// locked. Those that are shared with children wait until there are none; then the process makes
// them its own.
func (g *Pager) unparkPages(p *process) {
	p.unparkIn--
	again := p.unparkIn <= 0
	if again {
		p.unparkIn = rescanTicks
		p.parked = p.requeuePages(p.parked)
	}
	switch {
	case len(p.shared) == 0 || p.busy != 0:
	case p.forks > 0:
		if again { // it may have written to some meanwhile
			p.shared = p.requeuePages(p.shared)
		}
	default:
		g.ownPages(p)
	}
}

// requeuePages puts pages into the queue again. It returns the empty list.
func (p *process) requeuePages(numbers []uint64) []uint64 {
	p.barren = false
	for _, number := range numbers {
		if page := p.pages.getPage(number); page != nil && page.state == resident && page.flags&parked != 0 {
			p.queue.pushPage(number, page)
		}
	}
	return numbers[:0]
}

// ownPages has the agent make shared pages the process's own, as many as go into a command.
func (g *Pager) ownPages(p *process) {
	var entries []entry
	taken := 0
	for _, number := range p.shared {
		page := p.pages.getPage(number)
		if page == nil || page.state != resident || page.flags&parked == 0 {
			taken++
			continue
		}
		last := len(entries) - 1
		follows := last >= 0 && entries[last].address+uint64(entries[last].count)*pageSize == number*pageSize
		if !follows && len(entries) == wireEntries {
			break
		}
		if follows {
			entries[last].count++
		} else {
			entries = append(entries, entry{number * pageSize, 0, 1})
		}
		taken++
		// The agent's write is one: it is not to wait for the pager in each page.
		if page.flags&dirty == 0 && p.uffd.WriteProtect(number*pageSize, pageSize, false) == nil {
			page.flags |= dirty
		}
	}
	p.shared = p.shared[:copy(p.shared, p.shared[taken:])]
	if len(entries) > 0 && p.sendCommand(opOwn, entries) != nil {
		g.dropProcess(p)
	}
}

// noteOwned puts pages into the queue that are the process's own now.
func (g *Pager) noteOwned(p *process, entries []entry, all []done) {
	for i, e := range entries {
		g.counts.Owned += uint64(all[i].count)
		for i := range e.count {
			p.requeuePages([]uint64{e.address/pageSize + uint64(i)})
		}
	}
}

// noteOrphan notes that the parent of a child has ended: what they shared is the child's.
func (p *process) noteOrphan() {
	p.parent, p.child = nil, false
	for at, c := range p.pages.chunks {
		for i := range c {
			if page := &c[i]; page.flags&inherited != 0 {
				page.flags &^= inherited
				if page.state == resident {
					p.resident++
					p.queue.pushPage(at*chunkPages+uint64(i), page)
				}
			}
		}
	}
}
