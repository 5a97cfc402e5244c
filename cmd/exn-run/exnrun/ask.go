package exnrun

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
)

// agentTime is how long an agent may take to make a broker: one that is slower finds the program on
// TCP.
const agentTime = 2 * time.Second

// askAgent has the agent of this host make the broker of this network namespace, before the
// program starts, and returns its path. An agent serves a namespace while a process there has the
// library loaded, so this process keeps it mapped, until release. "": no broker came.
//
// A program that starts without a tap asks by itself, and waits (SPEC.md, 6). One behind a tap
// cannot: the tap is a broker for it, and one that has no broker of its own.
func askAgent(library string) (path string, release func() error, err error) {
	file, err := os.Open(library)
	if err != nil {
		return "", nil, err
	}
	defer file.Close() // the mapping stays
	mapped, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return "", nil, os.NewSyscallError("mmap", err)
	}
	release = func() error { return unix.Munmap(mapped) }
	client.HasAgent() // tells it of this process
	for end := time.Now().Add(agentTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if path, err = client.Find(); err == nil {
			return path, release, nil
		}
		if !errors.Is(err, client.ErrNoBroker) {
			break // one that is not to be trusted
		}
	}
	return "", release, nil
}
