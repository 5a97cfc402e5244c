package topo

// dimensionOrder sets ports[i] to the output port of the node at a position
// towards nodes[i]: along x until that is right, then y, then z.
func (r *Routes) dimensionOrder(at int32, ports []Port) {
	d := r.topo.dims
	own := d.coordsOf(int(at))
	var dir [3][]Port // by coordinate of the destination
	for dim, size := range d {
		dir[dim] = make([]Port, size)
		for to := range dir[dim] {
			dir[dim][to] = r.portTowards(dim, own[dim], to)
		}
	}
	i := 0
	for z := range d[2] {
		for y := range d[1] {
			rest := dir[1][y]
			if rest == PortHost {
				rest = dir[2][z]
			}
			for x := range d[0] {
				ports[i] = dir[0][x]
				if ports[i] == PortHost {
					ports[i] = rest
				}
				i++
			}
		}
	}
}

// portTowards returns the port that leads from one coordinate to another, or PortHost.
func (r *Routes) portTowards(dim, from, to int) Port {
	size := r.topo.dims[dim]
	plus := Port(2 * dim)
	ahead := to - from // steps in + direction
	if r.topo.kind == KindMesh || size == 2 {
		switch {
		case ahead == 0:
			return PortHost
		case ahead > 0:
			return plus
		}
		return plus + 1
	}
	ahead = (ahead + size) % size
	switch {
	case ahead == 0:
		return PortHost
	case 2*ahead < size, 2*ahead == size && from%2 == 0:
		return plus
	}
	return plus + 1
}

// keepIntact restores dimension order where that path crosses no cut link. The path is
// as short as any. Its rest is intact at the next node, too, so packets come closer
// with every hop, whichever of the two paths each node takes.
func (r *Routes) keepIntact(at int32, ports []Port) {
	order := make([]Port, len(ports))
	r.dimensionOrder(at, order)
	for i := range ports {
		if r.isIntact(at, int32(i)) {
			ports[i] = order[i]
		}
	}
}

// isIntact reports whether the path in dimension order crosses no cut link.
func (r *Routes) isIntact(at, to int32) bool {
	d := r.topo.dims
	c, dst := d.coordsOf(int(at)), d.coordsOf(int(to))
	for dim := range d {
		p := r.portTowards(dim, c[dim], dst[dim])
		for c[dim] != dst[dim] {
			h := r.topo.hopAt(at, p)
			if r.down[h.channel/2] {
				return false
			}
			at = h.node
			c[dim] = d.coordsOf(int(at))[dim]
		}
	}
	return true
}

// shortestPorts sets ports[i] to the first port on a shortest path from the node at a
// position to nodes[i], the lowest port first. Every node does so independently. The
// rest of a shortest path is a shortest path, so packets come closer with every hop.
func (r *Routes) shortestPorts(at int32, ports []Port) {
	for i := range ports {
		ports[i] = PortNone
	}
	ports[at] = PortHost
	queue := make([]int32, 1, len(ports))
	queue[0] = at
	for len(queue) > 0 {
		from := queue[0]
		queue = queue[1:]
		for p := range Ports {
			h := r.topo.hopAt(from, p)
			if h.node < 0 || r.Down(int(h.channel/2)) || ports[h.node] != PortNone {
				continue
			}
			ports[h.node] = ports[from]
			if from == at {
				ports[h.node] = p
			}
			queue = append(queue, h.node)
		}
	}
}

// numberComponents numbers the connected parts of t without the links that are down.
func numberComponents(t *Topology, down []bool) []int32 {
	part := make([]int32, len(t.nodes))
	for i := range part {
		part[i] = -1
	}
	next := int32(0)
	var stack []int32
	for i := range part {
		if part[i] >= 0 {
			continue
		}
		part[i] = next
		stack = append(stack, int32(i))
		for len(stack) > 0 {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for p := range Ports {
				h := t.hopAt(at, p)
				if h.node < 0 || part[h.node] >= 0 || down != nil && down[h.channel/2] {
					continue
				}
				part[h.node] = next
				stack = append(stack, h.node)
			}
		}
		next++
	}
	return part
}
