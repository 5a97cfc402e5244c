package exnrun

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/internal/cli"
	"exnet/node/control"
	"exnet/node/rpc/caller"
)

// brokerCommand makes exn-run start the broker of its network namespace, and
// serveCommand makes it be that.
const (
	brokerCommand = "broker"
	serveCommand  = "serve-broker"
)

// IdleTime is how long that broker stays after its last client.
const IdleTime = 5 * time.Second

// startTime is how long a broker may take to be there, and to answer: only one that hangs takes as
// long, and then the program runs on TCP.
const startTime = 20 * time.Second

// prepareBroker returns the path of the broker of this network namespace, which it
// starts if there is none and start is set.
func prepareBroker(start bool) (path string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		var kept bool
		if path, err = client.Find(); err == nil {
			kept, err = keepBroker(path)
		}
		switch {
		case kept:
			return path, nil
		case errors.Is(err, caller.ErrUntrusted): // to start another one would not help
			return "", err
		case err == nil: // it is just ending
			err = client.ErrNoBroker
		case os.Getenv(client.PathEnv) != "": // one that is started would be at another place
			return "", noBroker{os.Getenv(client.PathEnv)}
		case !start && client.HasAgent():
			return "", errLater
		case !start:
			return "", noBroker{""}
		default:
			if err = startBroker(); err != nil {
				return "", err
			}
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// errLater says that the program's start has an agent make the broker.
var errLater = fmt.Errorf("%w yet: the agent of this host starts one now, and connections made before that stay on TCP", client.ErrNoBroker)

// noBroker is a client.ErrNoBroker with what to do about it.
type noBroker struct{ named string }

func (e noBroker) Error() string {
	if e.named != "" {
		return fmt.Sprintf("no broker serves %s, which %s names: unset that, or start the broker", e.named, client.PathEnv)
	}
	return "no broker serves this network namespace, start a node (exn-tun up) or use --loopback"
}
func (noBroker) Unwrap() error { return client.ErrNoBroker }

// startBroker starts a process that serves this namespace, and waits until it does. It is not a
// child of this process: the program that this one becomes must have no child that it did not
// start.
func startBroker() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"exn-run", brokerCommand}, Dir: "/", Stdout: w}
	err = cmd.Run()
	w.Close()
	if err != nil {
		return fmt.Errorf("starting a broker: %w", err)
	}
	_ = r.SetReadDeadline(time.Now().Add(startTime))
	answer, err := bufio.NewReader(r).ReadString('\n')
	if answer == brokerReady {
		return nil
	}
	if answer = strings.TrimSpace(answer); answer != "" {
		return errors.New(answer)
	}
	return fmt.Errorf("starting a broker: %w", err)
}

// detachBroker is "exn-run broker": it leaves the broker to init. That process belongs to no
// terminal.
func detachBroker() error {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"exn-run", serveCommand}, Stdout: os.Stdout,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// brokerReady is what a broker writes when it can be used.
const brokerReady = "ready\n"

// runBroker is "exn-run serve-broker".
func runBroker() error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE)
	err := serveBroker(ctx, broker.Config{}, IdleTime, func() {
		fmt.Print(brokerReady)
		// Who started it may wait for the end of its output.
		if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
			_ = unix.Dup3(int(null.Fd()), 1, 0)
			_ = unix.Dup3(int(null.Fd()), 2, 0)
			null.Close()
		}
	})
	if err != nil {
		fmt.Println(cli.Text(err))
		return cli.ExitStatus(exitFailure)
	}
	return nil
}

// serveBroker runs a broker until ctx is cancelled, or an agent is to serve the namespace, or there
// has been no client and nobody to keep it for idle. ready is called when it can be used, or
// another one can.
func serveBroker(ctx context.Context, cfg broker.Config, idle time.Duration, ready func()) error {
	cfg.Switch = new(broker.Switch)
	s, err := broker.New(cfg)
	if errors.Is(err, broker.ErrInUse) {
		ready()
		return nil
	}
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	k, err := newKeeper(control.Beside(s.Path(), client.KeepSuffix))
	if err != nil {
		return errors.Join(err, s.Close())
	}
	t, err := control.NewTeller(s, control.Whose{}, nil)
	if err != nil {
		return errors.Join(err, k.close(), s.Close())
	}
	stopped := make(chan *os.File, 1)
	sw, err := control.NewBrokerSwitch(s, cfg.Switch, func(asked *os.File) {
		select {
		case stopped <- asked:
		default: // it is ending
			asked.Close()
		}
	})
	if err != nil {
		return errors.Join(err, t.Close(), k.close(), s.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	ready()
	for tick := time.NewTicker(max(idle/10, time.Millisecond)); ; {
		select {
		case err := <-ended:
			return errors.Join(err, sw.Close(), t.Close(), k.close(), s.Close())
		case asked := <-stopped:
			defer asked.Close()
		case <-tick.C:
			kept := k.idleTime() // always: it forgets programs that have ended
			if s.Idle() <= idle || kept <= idle {
				continue
			}
		}
		tick.Stop()
		err := errors.Join(sw.Close(), t.Close(), k.close()) // from now on no exn-run relies on it
		stop()
		return errors.Join(err, <-ended, s.Close())
	}
}

// keepBroker tells the broker to stay as long as this process, whatever program it
// becomes. A daemon's broker need not be told. false: it is about to end. It waits only for what
// root or this user has made; caller.ErrUntrusted: that is another's.
func keepBroker(path string) (kept bool, err error) {
	path = control.Beside(path, client.KeepSuffix)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, nil
	}
	defer conn.Close()
	if err := caller.Trusted(conn); err != nil {
		return false, fmt.Errorf("%s, by which a broker is kept: %w", path, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(startTime))
	n, _ := conn.Read(make([]byte, 1))
	return n == 1, nil
}
