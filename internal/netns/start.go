package netns

import (
	"fmt"
	"os/exec"
	"syscall"

	"exnet/internal/sched"

	"golang.org/x/sys/unix"
)

// Start starts cmd in the namespace; the caller waits for it with cmd.Wait, as usual. Like "ip
// netns exec" it gives the program a mount namespace of its own in which /sys shows the
// interfaces of the network namespace, where that is allowed.
//
// The program is killed when the namespace is closed or this process dies,
// unless cmd.SysProcAttr.Pdeathsig names another signal. (The kernel forgets
// this for programs that are set-user-ID or have file capabilities, and for
// the program's own children.)
func (n *NS) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if cmd.SysProcAttr.Pdeathsig == 0 {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	requests, err := n.spawner()
	if err != nil {
		return err
	}
	r := spawnRequest{cmd: cmd, err: make(chan error, 1)}
	select {
	case requests <- r:
		return <-r.err
	case <-n.closed:
		return fmt.Errorf("netns: starting %s: %w", cmd.Path, ErrClosed)
	}
}

// Run starts cmd in the namespace and waits for it.
func (n *NS) Run(cmd *exec.Cmd) error {
	if err := n.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// spawner returns the channel of the thread that starts the namespace's
// programs, and makes the thread at the first call. It must outlive the
// programs: the kernel sends Pdeathsig when the thread that forked ends.
func (n *NS) spawner() (chan<- spawnRequest, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isClosed {
		return nil, fmt.Errorf("netns: %w", ErrClosed)
	}
	if n.spawn != nil {
		return n.spawn, nil
	}
	requests := make(chan spawnRequest)
	ready := make(chan error, 1)
	go onThread(func() bool {
		if err := n.enterThread(); err != nil {
			ready <- err
			return true
		}
		mountSys()
		// What this thread starts must not inherit the data path's priority.
		if err := sched.Fair(); err != nil {
			ready <- err
			return false
		}
		ready <- nil
		for {
			select {
			case r := <-requests:
				r.err <- r.cmd.Start()
			case <-n.closed:
				return false
			}
		}
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	n.spawn = requests
	return requests, nil
}

// mountSys gives the calling thread a mount namespace of its own with the /sys of its network
// namespace. Mounts made in it do not reach the host (MS_SLAVE), those of the host still
// arrive. It skips what is not allowed.
func mountSys() {
	if unix.Unshare(unix.CLONE_NEWNS) != nil {
		return
	}
	if unix.Mount("", "/", "none", unix.MS_SLAVE|unix.MS_REC, "") != nil {
		return // a mount on /sys would show on the host
	}
	// Without root this may be refused; /sys then stays the host's.
	_ = unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}
