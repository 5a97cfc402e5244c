package pager

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// errOther says that a process is not what it was when it connected.
var errOther = errors.New("the process has another program, with other rights")

// isStill checks that a process, of which dir is the folder in /proc, is who it was when it
// connected. Otherwise it has executed a set-user-ID program since, or one with capabilities of its
// own, or its ID is another process's by now: its memory is not for those who may be at the socket.
func isStill(dir *os.Root, peer *unix.Ucred) error {
	text, err := dir.ReadFile("status")
	if err != nil {
		return err
	}
	info, err := dir.Stat(".")
	if err != nil {
		return err
	}
	// The folder is root's if the process's memory is not for its user: so it is after such a
	// program began, and after the process gave up root, when it has no capabilities.
	hidden := info.Sys().(*syscall.Stat_t).Uid != peer.Uid
	var user, group uint64
	var caps string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(value)
		switch {
		case key == "Uid" && len(fields) == 4: // proc(5): real, effective, saved, file system
			user, err = strconv.ParseUint(fields[1], 10, 32)
		case key == "Gid" && len(fields) == 4:
			group, err = strconv.ParseUint(fields[1], 10, 32)
		case key == "CapPrm" && len(fields) == 1:
			caps = strings.Trim(fields[0], "0")
		}
		if err != nil {
			return fmt.Errorf("status of process %d: %w", peer.Pid, err)
		}
	}
	if uint32(user) != peer.Uid || uint32(group) != peer.Gid || hidden && caps != "" {
		return fmt.Errorf("process %d: %w", peer.Pid, errOther)
	}
	return nil
}
