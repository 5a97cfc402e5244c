package exnrun

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/fabric/emp"
	"exnet/fabric/pattern/pfprof"
	"exnet/internal/outfile"
	"exnet/node/control"
)

// Files in the directory of --profile: what each exn-run has seen, and the matrix of all.
const (
	profileSeen   = ".seen" // end of the names
	profileMatrix = "profile.json"
)

// maxSeen bounds what is read of a file in that directory.
const maxSeen = 64 << 20

// profiled is a process, as a profile has it, with its ends of connections.
type profiled struct {
	Host    string   `json:"host"`
	Net     uint64   `json:"net"` // inode of the network namespace
	Node    *int     `json:"node,omitempty"`
	PID     int      `json:"pid"`
	Program string   `json:"program"`
	Rank    *int     `json:"rank,omitempty"` // as an MPI library has set it
	Seconds float64  `json:"seconds"`
	Ends    []sentBy `json:"connections"`

	read int // how many were read before it
}

// sentBy is one end of a connection: what the process has sent.
type sentBy struct {
	Local    netip.AddrPort `json:"local"`
	Remote   netip.AddrPort `json:"remote"`
	Since    time.Time      `json:"since"`
	Bytes    uint64         `json:"bytes"`
	Messages uint64         `json:"messages"`
}

// profiler notes what is known of processes only while they run.
//
// Concurrency: note may be called from many goroutines.
type profiler struct {
	dir   string
	began time.Time
	mu    sync.Mutex
	// +checklocks:mu
	ranks map[int]int // by process ID
}

// newProfiler makes the directory.
func newProfiler(dir string) (*profiler, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	return &profiler{dir: dir, began: time.Now(), ranks: make(map[int]int)}, nil
}

// rankVariables have the rank in the environment of an MPI process.
var rankVariables = []string{"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK="}

// notePID looks for the rank of a process that has said HELLO.
func (p *profiler) notePID(pid int) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return // it has ended, or is another user's
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return
	}
	for v := range strings.SplitSeq(string(text), "\x00") {
		for _, name := range rankVariables {
			if n, err := strconv.Atoi(strings.TrimPrefix(v, name)); err == nil && strings.HasPrefix(v, name) && n >= 0 {
				p.mu.Lock()
				p.ranks[pid] = n
				p.mu.Unlock()
				return
			}
		}
	}
}

// addSeen adds what this exn-run has seen to the directory, and makes the matrix anew.
func (p *profiler) addSeen(o options, w *watch) error {
	seen := p.seenProcesses(w)
	here, node := networkOf(o)
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, s := range seen {
		s.Host, s.Net, s.Node = host, here, node
		if err := json.NewEncoder(&text).Encode(s); err != nil {
			return err
		}
	}
	lock, err := os.OpenFile(filepath.Join(p.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	name := fmt.Sprintf("%s-%d-%d%s", strings.ReplaceAll(host, "/", "_"), os.Getpid(), p.began.UnixNano(), profileSeen)
	if err := outfile.WriteText(filepath.Join(p.dir, name), text.Bytes()); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	all, err := readSeen(p.dir)
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	if err := outfile.Write(filepath.Join(p.dir, profileMatrix), func(w io.Writer) error { return pfprof.WriteJSON(w, matrixOf(all)) }); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	return nil
}

// networkOf returns the inode of this network namespace, and the node that is there, if any.
func networkOf(o options) (inode uint64, node *int) {
	var here unix.Stat_t
	if unix.Stat("/proc/self/ns/net", &here) != nil {
		return 0, nil
	}
	dir := o.dir
	if dir == "" {
		var err error
		if dir, err = emp.DefaultDir(o.fabric); err != nil {
			return here.Ino, nil
		}
	}
	nodes, err := control.Nodes(dir)
	if err != nil {
		return here.Ino, nil
	}
	for _, n := range nodes {
		c, err := control.Dial(dir, n)
		if err != nil {
			continue
		}
		s, err := c.Status()
		c.Close()
		var there unix.Stat_t
		if err == nil && unix.Stat(s.NetNS, &there) == nil && there.Ino == here.Ino && there.Dev == here.Dev {
			return here.Ino, new(int(n.Node))
		}
	}
	return here.Ino, nil
}

// seenProcesses returns the processes that were seen, with their connections.
func (p *profiler) seenProcesses(w *watch) []*profiled {
	var list []*profiled
	at := make(map[int]*profiled)
	process := func(pid int, program string) *profiled {
		s := at[pid]
		if s == nil {
			s = &profiled{PID: pid, Seconds: time.Since(p.began).Seconds()}
			p.mu.Lock()
			if r, ok := p.ranks[pid]; ok {
				s.Rank = new(r)
			}
			p.mu.Unlock()
			at[pid] = s
			list = append(list, s)
		}
		s.Program = program
		return s
	}
	w.eachProcess(func(program string, pid int) {
		p.mu.Lock()
		_, ok := p.ranks[pid]
		p.mu.Unlock()
		if ok { // a rank, also if it was silent
			process(pid, program)
		}
	})
	for _, c := range w.listConnections() {
		s := process(c.PID, c.Program)
		s.Ends = append(s.Ends, sentBy{c.Local, c.Remote, c.Since, c.Sent.DirectBytes + c.Sent.ShadowBytes, messagesOf(c.Sent)})
	}
	return list
}

// messagesOf is how many messages of the units went one way: a send is one up to a VELO
// threshold, and one for each chunk beyond.
func messagesOf(t connstats.Traffic) uint64 { return t.VELOLast + t.RMAInfo }

// readSeen reads what all have added.
func readSeen(dir string) (all []*profiled, err error) {
	names, err := fs.Glob(os.DirFS(dir), "*"+profileSeen) // dir may have a * or [ in its name
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		name = filepath.Join(dir, name)
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = func() error {
			defer f.Close()
			for lines := json.NewDecoder(io.LimitReader(f, maxSeen)); ; {
				s := new(profiled)
				if err := lines.Decode(s); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return fmt.Errorf("%s: %w: remove it", name, err)
				}
				s.read = len(all)
				all = append(all, s)
			}
		}()
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b *profiled) int { // a stable sort would take 4 KB of code
		return cmp.Or(cmp.Compare(a.rankOrder(), b.rankOrder()), cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID), a.read-b.read)
	})
	return all, nil
}

// rankOrder puts the ranks of MPI first, by number.
func (s *profiled) rankOrder() int {
	if s.Rank != nil {
		return *s.Rank
	}
	return pfprof.MaxRanks
}

// flowKey tells connections apart. Loopback addresses mean something else in each
// network namespace.
type flowKey struct {
	net           uint64
	local, remote netip.AddrPort
}

func (s *profiled) flowOf(local, remote netip.AddrPort) flowKey {
	k := flowKey{local: local, remote: remote}
	if local.Addr().IsLoopback() || local.Addr() == remote.Addr() {
		k.net = s.Net
	}
	return k
}

// matrixOf joins the two ends of connections: PFProf's form, a rank for each process. What
// has its other end in no process that was seen is left out.
func matrixOf(all []*profiled) []pfprof.Process {
	type end struct {
		rank  int
		since time.Time
	}
	ends := make(map[flowKey][]end)
	list := make([]pfprof.Process, len(all))
	for i, s := range all {
		for _, c := range s.Ends {
			k := s.flowOf(c.Local, c.Remote)
			ends[k] = append(ends[k], end{i, c.Since})
		}
		zeros := func() []uint64 { return make([]uint64, len(all)) }
		list[i] = pfprof.Process{
			Description: "exn-run --profile", Rank: i, Procs: len(all), Name: fmt.Sprintf("%s %s[%d]", s.Host, s.Program, s.PID),
			Duration: s.Seconds, Node: s.Node, TxBytes: zeros(), RxBytes: zeros(), TxMessages: zeros(), RxMessages: zeros(),
			TxSizes: []pfprof.SizeCount{}, RxSizes: []pfprof.SizeCount{},
		}
	}
	for i, s := range all {
		for _, c := range s.Ends {
			others := ends[s.flowOf(c.Remote, c.Local)]
			if len(others) == 0 {
				continue
			}
			// A port that was used again: the connection of that time.
			to := slices.MinFunc(others, func(a, b end) int {
				return cmp.Compare(a.since.Sub(c.Since).Abs(), b.since.Sub(c.Since).Abs())
			}).rank
			list[i].TxBytes[to] += c.Bytes
			list[i].TxMessages[to] += c.Messages
			list[i].Events += c.Messages
			list[to].RxBytes[i] += c.Bytes
			list[to].RxMessages[i] += c.Messages
		}
	}
	return list
}
