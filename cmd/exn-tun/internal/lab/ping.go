package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"exnet/internal/netns"
)

// PingSpec says what to send.
type PingSpec struct {
	Count    int
	Interval time.Duration
}

// timeout returns how long all answers may take to arrive.
func (s PingSpec) timeout() time.Duration {
	return time.Duration(s.Count)*s.Interval + 10*time.Second
}

// Pinger sends ICMP echo requests and returns the round trips of those that
// were answered.
type Pinger struct {
	Name string
	Ping func(ctx context.Context, ns *netns.NS, to netip.Addr, s PingSpec) ([]time.Duration, error)
}

// NewPinger chooses the system's ping if it is that of iputils, whose options and output are
// known, else echoPing.
func NewPinger() Pinger {
	program, err := exec.LookPath("ping")
	if err == nil {
		out, err := exec.Command(program, "-V").Output()
		if err == nil && bytes.Contains(out, []byte("iputils")) {
			return Pinger{program, programPinger(program)}
		}
	}
	return Pinger{"built-in", echoPing}
}

// programPinger returns a function that runs the program ping of iputils.
func programPinger(program string) func(context.Context, *netns.NS, netip.Addr, PingSpec) ([]time.Duration, error) {
	return func(ctx context.Context, ns *netns.NS, to netip.Addr, s PingSpec) ([]time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, s.timeout()+time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "-n",
			"-c", strconv.Itoa(s.Count),
			"-i", strconv.FormatFloat(s.Interval.Seconds(), 'f', -1, 64),
			"-w", strconv.Itoa(int(s.timeout()/time.Second)),
			to.String())
		cmd.Env = append(cmd.Environ(), "LC_ALL=C")
		// Out of the terminal's process group: Ctrl-C is for exn-tun.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		var out, complaint bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &complaint
		err := ns.Run(cmd)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// Exit status 1 says that answers are missing; the caller counts them.
		var exit *exec.ExitError
		if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
			return nil, fmt.Errorf("%s: %w%s", program, err, lastLine(complaint.String()))
		}
		return parsePing(out.String())
	}
}

// answerLine is a line of ping's output: "64 bytes from 10.2.0.2: icmp_seq=1
// ttl=64 time=0.034 ms".
var answerLine = regexp.MustCompile(`icmp_seq=(\d+) .*time=([0-9.]+) ms( \(DUP!\))?`)

// parsePing returns the round trips that the program ping printed.
func parsePing(out string) ([]time.Duration, error) {
	var trips []time.Duration
	for _, m := range answerLine.FindAllStringSubmatch(out, -1) {
		if m[3] != "" {
			return nil, fmt.Errorf("request %s was answered twice", m[1])
		}
		ms, err := strconv.ParseFloat(m[2], 64)
		if err != nil || ms > float64(time.Hour/time.Millisecond) { // no ping waits so long
			return nil, fmt.Errorf("ping printed %q", m[0])
		}
		trips = append(trips, time.Duration(ms*float64(time.Millisecond)))
	}
	return trips, nil
}

// lastLine returns the last line of text after a colon, "" if there is none.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndexByte(text, '\n')+1:]
}
