// Package pfprof has the form of PFProf's recordings: who has sent how much to whom, an
// object in JSON for each rank (K. Takahashi, 2019, section 2.3.2). Package pattern reads them.
//
// # Architecture
//
//	Process, a rank ... ──▶ WriteJSON ──▶ one array, a rank on each line
//
// # Concurrency
//
// Everything here is a value.
//
// # Limits
//
// Archives (.tar.gz) are package pattern's: programs that only write an array, such as exn-run, do
// without them.
package pfprof

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// MaxRanks bounds the ranks of a recording.
const MaxRanks = 1 << 20

// Process is what one rank has sent and received, in PFProf's form. Slices are by the
// other's rank.
type Process struct {
	Description string      `json:"description"`
	Rank        int         `json:"rank"`
	Procs       int         `json:"n_procs"`
	Name        string      `json:"processor_name"`
	Duration    float64     `json:"duration"` // seconds
	Events      uint64      `json:"n_events"`
	TxBytes     []uint64    `json:"tx_bytes"`
	RxBytes     []uint64    `json:"rx_bytes"`
	TxMessages  []uint64    `json:"tx_messages"`
	RxMessages  []uint64    `json:"rx_messages"`
	TxSizes     []SizeCount `json:"tx_message_sizes"`
	RxSizes     []SizeCount `json:"rx_message_sizes"`
	// Ours: PFProf's tools skip them.
	Node        *int         `json:"node,omitempty"` // of the fabric
	VPID        *int         `json:"vpid,omitempty"`
	WireBytes   []uint64     `json:"tx_wire_bytes,omitempty"` // as links count them, with headers
	WirePackets []uint64     `json:"tx_packets,omitempty"`
	Classes     []ClassCount `json:"tx_classes,omitempty"`    // in the matrix, too
	Trees       []TreeCount  `json:"tx_multicasts,omitempty"` // not in the matrix
	// Place is the file and line that it was read from; "": none.
	Place string `json:"-"`
}

// SizeCount is how many messages had a size.
type SizeCount struct {
	Size  uint64 `json:"message_size"`
	Count uint64 `json:"frequency"`
}

// ClassCount is what had a traffic class, by the other's rank.
type ClassCount struct {
	Class    int      `json:"class"`
	Bytes    []uint64 `json:"bytes"`
	Messages []uint64 `json:"messages"`
}

// TreeCount is what a node has sent to a set of nodes at once.
type TreeCount struct {
	Members  []int  `json:"members"` // node IDs
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
}

// WriteJSON writes a recording as one array, a rank on each line.
func WriteJSON(w io.Writer, all []Process) error {
	for i, p := range all {
		line, err := json.Marshal(p)
		if err != nil {
			return err
		}
		open := ",\n"
		if i == 0 {
			open = "[\n"
		}
		if _, err := fmt.Fprintf(w, "%s%s", open, line); err != nil {
			return err
		}
	}
	end := "\n]\n"
	if len(all) == 0 {
		end = "[]\n"
	}
	_, err := io.WriteString(w, end)
	return err
}

// Sizes makes a histogram's list of a map, ascending.
func Sizes(count map[uint64]uint64) []SizeCount {
	list := make([]SizeCount, 0, len(count))
	for s, n := range count {
		list = append(list, SizeCount{s, n})
	}
	slices.SortFunc(list, func(a, b SizeCount) int {
		if a.Size < b.Size {
			return -1
		}
		return 1
	})
	return list
}
