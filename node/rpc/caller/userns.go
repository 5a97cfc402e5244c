package caller

import (
	"golang.org/x/sys/unix"
)

// maxNested is how deep user namespaces nest (user_namespaces(7)).
const maxNested = 32

// UserIn is the account of a user's process, whose directory in /proc is given: that of the user
// who has made the user namespace in which it is, the outermost one below this process's own, which
// inode is; 0: it is in this process's. Of one that may not be looked at it is the user's.
func UserIn(dir string, uid uint32) (of Account, inode uint64) {
	var own unix.Stat_t
	if unix.Stat("/proc/self/ns/user", &own) != nil {
		return Account(uid), 0
	}
	fd, err := unix.Open(dir+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ESRCH {
		return Gone, 0
	}
	if err != nil {
		return Account(uid), 0
	}
	defer func() { _ = unix.Close(fd) }()
	of = Account(uid)
	for range maxNested + 1 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Dev == own.Dev && st.Ino == own.Ino {
			break
		}
		parent, err := unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		if err != nil { // it is not below this process's
			return Account(uid), 0
		}
		if owner, err := unix.IoctlGetUint32(fd, unix.NS_GET_OWNER_UID); err == nil {
			of, inode = Account(owner), st.Ino
		}
		_ = unix.Close(fd)
		fd = parent
	}
	if of == Root {
		of = Guest
	}
	return of, inode
}
