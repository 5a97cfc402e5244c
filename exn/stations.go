package exn

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
)

const (
	// maxStations is how many stations are remembered behind one node. It bounds the
	// memory that a hostile node can take.
	maxStations = 1024
	// stationAge is how long a silent station is remembered (IEEE 802.1D, 7.9.2).
	stationAge = 5 * time.Minute
)

// Station is a MAC address that belongs to no node, but to a virtual machine, a container
// or a host on a bridge that a node's interface is attached to.
type Station struct {
	MAC  arp.MAC
	Node fabric.NodeID // the node that the station is behind
	Seen time.Time     // when it last sent a frame to this node
}

// stations is a switch's forwarding table, with nodes in place of ports.
//
// Concurrency: all methods may be called from many goroutines.
type stations struct {
	now func() time.Time // replaced in tests

	mu    sync.RWMutex
	known map[arp.MAC]*station  // +checklocks:mu
	count map[fabric.NodeID]int // +checklocks:mu
	// swept is when sweepLocked last ran for a node that had its share.
	swept map[fabric.NodeID]time.Time // +checklocks:mu
}

type station struct {
	node fabric.NodeID
	seen atomic.Int64 // Unix time in nanoseconds
}

func newStations() *stations {
	return &stations{
		now:   time.Now,
		known: make(map[arp.MAC]*station), count: make(map[fabric.NodeID]int), swept: make(map[fabric.NodeID]time.Time),
	}
}

func (s *station) isAged(now time.Time) bool { return now.UnixNano()-s.seen.Load() > int64(stationAge) }

// nodeOf returns the node that a station is behind, if known.
func (t *stations) nodeOf(mac arp.MAC) (fabric.NodeID, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.known[mac]
	if s == nil || s.isAged(t.now()) {
		return 0, false
	}
	return s.node, true
}

// addStation records that a station sent a frame through a node. It returns false if the node
// already has maxStations; then frames to the station go to all nodes.
func (t *stations) addStation(mac arp.MAC, node fabric.NodeID) bool {
	now := t.now()
	t.mu.RLock()
	s := t.known[mac]
	if s != nil && s.node == node {
		s.seen.Store(now.UnixNano())
		t.mu.RUnlock()
		return true
	}
	t.mu.RUnlock()

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count[node] >= maxStations {
		t.sweepLocked(node, now)
	}
	t.dropLocked(mac) // it may have moved
	if t.count[node] >= maxStations {
		return false
	}
	s = &station{node: node}
	s.seen.Store(now.UnixNano())
	t.known[mac] = s
	t.count[node]++
	return true
}

// sweepLocked forgets the old stations behind a node. It runs at most once a second for
// each node, as it visits every station.
//
// +checklocks:t.mu
func (t *stations) sweepLocked(node fabric.NodeID, now time.Time) {
	if now.Sub(t.swept[node]) < time.Second {
		return
	}
	t.swept[node] = now
	for mac, s := range t.known {
		if s.node == node && s.isAged(now) {
			t.dropLocked(mac)
		}
	}
}

// +checklocks:t.mu
func (t *stations) dropLocked(mac arp.MAC) {
	s := t.known[mac]
	if s == nil {
		return
	}
	delete(t.known, mac)
	if t.count[s.node]--; t.count[s.node] == 0 {
		delete(t.count, s.node)
		delete(t.swept, s.node)
	}
}

// dropNode drops the stations behind a node that is gone.
func (t *stations) dropNode(node fabric.NodeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for mac, s := range t.known {
		if s.node == node {
			t.dropLocked(mac)
		}
	}
}

// dropSilent forgets the stations that were silent for stationAge.
func (t *stations) dropSilent() {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for mac, s := range t.known {
		if s.isAged(now) {
			t.dropLocked(mac)
		}
	}
}

// all yields the stations, in no order.
func (t *stations) all(yield func(Station) bool) {
	var list []Station
	t.mu.RLock()
	for mac, s := range t.known {
		list = append(list, Station{mac, s.node, time.Unix(0, s.seen.Load())})
	}
	t.mu.RUnlock()
	for _, s := range list {
		if !yield(s) {
			return
		}
	}
}

// Stations yields the MAC addresses that were learned, in no order; none without
// Config.Ethernet.
func (i *Interface) Stations() iter.Seq[Station] {
	if i.stations == nil {
		return func(func(Station) bool) {}
	}
	return i.stations.all
}

// postForeign sends a frame to the node that a station is behind, or to all nodes if that is
// not known.
func (i *Interface) postForeign(dst arp.MAC, b *exteth.TxBuffer) error {
	node, ok := i.stations.nodeOf(dst)
	if !ok {
		i.stats.TxFlooded.Add(1)
		return i.sendOrQueue(queueKey{group: true}, b)
	}
	err := i.sendOrQueue(queueKey{node: node}, b)
	if exteth.Unreached(err) {
		i.stations.dropNode(node) // the next frame goes to all nodes
	}
	return err
}

// mayEnter reports whether node src may send a frame that begins with head. The frame's source
// must be the node's own MAC address or that of a station, which admit learns; it must not be
// another node's address or a group address.
func (i *Interface) mayEnter(src fabric.NodeID, head []byte) bool {
	if len(head) < exteth.EthernetHeaderLen {
		i.stats.RxForged.Add(1)
		return false
	}
	mac := arp.MAC(head[sourceOff:])
	node, err := i.cfg.MACPrefix.Node(mac)
	switch {
	case err == nil && node == src:
		return true
	case err == nil || mac.IsMulticast():
		i.stats.RxForged.Add(1)
		return false
	}
	if !i.stations.addStation(mac, src) {
		i.stats.RxUnlearned.Add(1)
	}
	return true
}

// sourceOff is the offset of the source MAC address in a frame.
const sourceOff = 6
