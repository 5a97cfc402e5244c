package suites

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"exnet/cmd/exn-run/exnrun"
)

// traffic is what programs under exn-run reported.
type traffic struct {
	Connections int            `json:"connections"`  // ends of connections
	Direct      int            `json:"direct"`       // those that had bytes over the segment
	DirectBytes uint64         `json:"direct_bytes"` // sent and received, together
	TCPBytes    uint64         `json:"tcp_bytes"`
	Because     map[string]int `json:"because,omitempty"` // why the others were not direct
}

// add adds what other counted.
func (t *traffic) add(other traffic) {
	t.Connections += other.Connections
	t.Direct += other.Direct
	t.DirectBytes += other.DirectBytes
	t.TCPBytes += other.TCPBytes
	for why, n := range other.Because {
		if t.Because == nil {
			t.Because = make(map[string]int)
		}
		t.Because[why] += n
	}
}

// because says why connections were not direct, the most common reason first.
func (t *traffic) because() string {
	var parts []string
	reasons := slices.Collect(maps.Keys(t.Because))
	slices.SortFunc(reasons, func(a, b string) int { return cmp.Or(t.Because[b]-t.Because[a], strings.Compare(a, b)) })
	for _, why := range reasons {
		parts = append(parts, fmt.Sprintf("%d %s", t.Because[why], cmp.Or(why, "(no reason)")))
	}
	return strings.Join(parts, "; ")
}

// traffic reads what the programs of a box that have ended reported. A program that did not live to
// report is left out.
func (b *box) traffic() (traffic, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sum traffic
	for _, path := range b.reports {
		t, err := readReport(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sum, err
		}
		sum.add(t)
	}
	return sum, nil
}

// readReport reads what exn-run --report wrote.
func readReport(path string) (traffic, error) {
	var t traffic
	f, err := os.Open(path)
	if err != nil {
		return t, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r exnrun.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return t, fmt.Errorf("%s: %q: %w", path, lines.Text(), err)
		}
		one := traffic{Connections: 1, DirectBytes: r.Sent.DirectBytes + r.Received.DirectBytes, TCPBytes: r.Sent.ShadowBytes + r.Received.ShadowBytes}
		if r.Path == "direct" {
			one.Direct = 1
		} else {
			one.Because = map[string]int{r.Reason: 1}
		}
		t.add(one)
	}
	return t, lines.Err()
}

// bytesText writes a number of bytes for people.
func bytesText(n uint64) string {
	switch {
	case n >= 10e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 10e6:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	case n >= 10e3:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}
