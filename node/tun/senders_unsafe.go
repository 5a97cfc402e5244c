package tun

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Senders counts the packets that this host sends through a device, by CPU. A filter program in
// the kernel, which lets every packet pass (TUNSETFILTEREBPF), counts them in memory that is
// mapped here.
//
// Concurrency: Main, Sent, Take and Close have one caller at a time.
type Senders struct {
	mem  []byte
	cpus int
	seen [maxCPUs]uint64
}

const (
	maxCPUs   = 63 // packets of further CPUs are counted together, after these
	cpuStride = 64 // bytes for each, a cache line
	countLen  = (maxCPUs + 1) * cpuStride
	// stampOffset is where the time of the first packet since the last Take is, after the counter;
	// 0: there was none.
	stampOffset = 8
)

// WatchSenders starts to count the packets of d, until d is closed. It fails where the kernel
// has no BPF or does not let this process load a program (CAP_BPF).
func (d *Device) WatchSenders() (*Senders, error) {
	s := &Senders{cpus: min(possibleCPUs(), maxCPUs)}
	if err := s.attachTo(d); err != nil {
		return nil, fmt.Errorf("tun: counting the senders of %s: %w", d.name, err)
	}
	return s, nil
}

// Main returns the CPU that sent more than half of the packets since the last call;
// -1 if none has.
func (s *Senders) Main() int {
	main, most, all := -1, uint64(0), uint64(0)
	for cpu := range s.cpus {
		now := s.countOf(cpu)
		n := now - s.seen[cpu]
		s.seen[cpu] = now
		if all += n; n > most {
			main, most = cpu, n
		}
	}
	if most <= all/2 {
		return -1
	}
	return main
}

// Sent returns how many packets were sent. One is counted before it can be read, and then may
// be dropped. So as long as Sent does not change, an empty queue stays empty, except for packets
// that are just on their way into it.
func (s *Senders) Sent() (packets uint64) {
	for cpu := range s.cpus {
		packets += s.countOf(cpu)
	}
	if s.cpus == maxCPUs {
		packets += s.countOf(maxCPUs)
	}
	return packets
}

// Take returns the CPU that has sent packets since the last call (-1: none, or several), and when
// the first of these was sent, in nanoseconds of CLOCK_MONOTONIC (0: none). The time of a packet
// that is sent meanwhile may be lost.
func (s *Senders) Take() (cpu int, first uint64) {
	cpu = -1
	for i := range s.cpus {
		stamp := s.wordAt(i*cpuStride + stampOffset)
		at := stamp.Load()
		if at == 0 {
			continue
		}
		stamp.Store(0)
		if first == 0 {
			cpu, first = i, at
			continue
		}
		cpu, first = -1, min(first, at)
	}
	return cpu, first
}

func (s *Senders) wordAt(offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&s.mem[offset]))
}

func (s *Senders) countOf(cpu int) uint64 {
	return s.wordAt(cpu * cpuStride).Load()
}

// Close unmaps the counters. The kernel counts until the device is closed.
func (s *Senders) Close() error { return unix.Munmap(s.mem) }

func (s *Senders) attachTo(d *Device) error {
	array, err := s.newArray()
	if err != nil {
		return err
	}
	defer unix.Close(array) // the program has it
	prog, err := loadFilter(s.filterProgram(array))
	if err != nil {
		return err
	}
	defer unix.Close(prog) // the device has it
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return ErrClosed
	}
	if s.mem, err = unix.Mmap(array, 0, countLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	if err := unix.IoctlSetPointerInt(d.fd, unix.TUNSETFILTEREBPF, prog); err != nil {
		_ = s.Close() // the first error says more
		return fmt.Errorf("TUNSETFILTEREBPF: %w", err)
	}
	return nil
}

// possibleCPUs returns how many CPUs there may ever be; many if the kernel does not say. It is not
// runtime.NumCPU, which leaves out those that this process may not use.
func possibleCPUs() int {
	text, err := os.ReadFile("/sys/devices/system/cpu/possible") // such as 0-3
	if err != nil {
		return maxCPUs
	}
	last := strings.TrimSpace(string(text))
	last = last[strings.LastIndexAny(last, ",-")+1:]
	n, err := strconv.Atoi(last)
	if err != nil {
		return maxCPUs
	}
	return n + 1
}

// newArray makes a BPF array whose only value holds all counters.
func (s *Senders) newArray() (fd int, err error) {
	attr := struct{ kind, keySize, valueSize, entries, flags uint32 }{
		unix.BPF_MAP_TYPE_ARRAY, 4, countLen, 1, unix.BPF_F_MMAPABLE,
	}
	return bpf(unix.BPF_MAP_CREATE, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
}

// filterProgram returns the filter:
//
//	r0 = min(CPU, maxCPUs)
//	counter of r0 += 1
//	stamp of r0 = now, unless it has one
//	return all of the packet
func (s *Senders) filterProgram(array int) []uint64 {
	const getTime, getCPU = 5, 8 // BPF_FUNC_ktime_get_ns, BPF_FUNC_get_smp_processor_id
	return []uint64{
		encodeInstruction(unix.BPF_JMP|unix.BPF_CALL, 0, 0, 0, getCPU),
		encodeInstruction(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, 0, 0, 1, maxCPUs),
		encodeInstruction(unix.BPF_JMP|unix.BPF_JA, 0, 0, 1, 0),
		encodeInstruction(unix.BPF_ALU64|unix.BPF_MOV|unix.BPF_K, 0, 0, 0, maxCPUs),
		encodeInstruction(unix.BPF_ALU64|unix.BPF_LSH|unix.BPF_K, 0, 0, 0, 6), // * cpuStride
		encodeInstruction(unix.BPF_LD|unix.BPF_DW|unix.BPF_IMM, 1, unix.BPF_PSEUDO_MAP_VALUE, 0, int32(array)), 0,
		encodeInstruction(unix.BPF_ALU64|unix.BPF_ADD|unix.BPF_X, 1, 0, 0, 0),
		encodeInstruction(unix.BPF_ALU64|unix.BPF_MOV|unix.BPF_K, 2, 0, 0, 1),
		encodeInstruction(unix.BPF_STX|unix.BPF_DW|unix.BPF_XADD, 1, 2, 0, 0),
		encodeInstruction(unix.BPF_LDX|unix.BPF_DW|unix.BPF_MEM, 2, 1, stampOffset, 0),
		encodeInstruction(unix.BPF_JMP|unix.BPF_JNE|unix.BPF_K, 2, 0, 3, 0),
		encodeInstruction(unix.BPF_ALU64|unix.BPF_MOV|unix.BPF_X, 6, 1, 0, 0),
		encodeInstruction(unix.BPF_JMP|unix.BPF_CALL, 0, 0, 0, getTime),
		encodeInstruction(unix.BPF_STX|unix.BPF_DW|unix.BPF_MEM, 6, 0, stampOffset, 0),
		encodeInstruction(unix.BPF_ALU|unix.BPF_MOV|unix.BPF_K, 0, 0, 0, -1), // more than any packet has
		encodeInstruction(unix.BPF_JMP|unix.BPF_EXIT, 0, 0, 0, 0),
	}
}

// encodeInstruction is a struct bpf_insn (linux/bpf.h).
func encodeInstruction(op, dst, src uint8, off int16, imm int32) uint64 {
	return uint64(op) | uint64(src<<4|dst)<<8 | uint64(uint16(off))<<16 | uint64(uint32(imm))<<32
}

func loadFilter(program []uint64) (fd int, err error) {
	license := []byte("GPL\x00") // for the helper
	attr := struct {
		kind, count      uint32
		program, license uintptr
		level, size      uint32
		log              uintptr
		version, flags   uint32
	}{
		kind: unix.BPF_PROG_TYPE_SOCKET_FILTER, count: uint32(len(program)),
		program: uintptr(unsafe.Pointer(unsafe.SliceData(program))),
		license: uintptr(unsafe.Pointer(unsafe.SliceData(license))),
	}
	fd, err = bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	runtime.KeepAlive(program)
	runtime.KeepAlive(license)
	return fd, err
}

func bpf(cmd int, attr unsafe.Pointer, size uintptr) (fd int, err error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(cmd), uintptr(attr), size)
	if errno != 0 {
		return -1, fmt.Errorf("bpf: command %d: %w", cmd, errno)
	}
	return int(n), nil
}
