package tun

import (
	"os"

	"golang.org/x/sys/unix"
)

// clonePath is the device from which TUN devices are made
// (Documentation/networking/tuntap.rst).
const clonePath = "/dev/net/tun"

// openClone opens the clone device in blocking mode.
func openClone() (int, error) {
	fd, err := unix.Open(clonePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, openError(&os.PathError{Op: "open", Path: clonePath, Err: err})
	}
	return fd, nil
}

// Supported returns nil if TUN devices with virtio-net headers are there and may be opened, and
// otherwise an error that says why not and what to do. Making an interface also needs
// CAP_NET_ADMIN (netns.NetAdmin).
func Supported() error {
	fd, err := openClone()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	features, err := unix.IoctlGetInt(fd, unix.TUNGETFEATURES)
	if err == nil && features&unix.IFF_VNET_HDR == 0 {
		err = unix.EOPNOTSUPP
	}
	if err != nil {
		return openError(&os.PathError{Op: "features of", Path: clonePath, Err: err})
	}
	return nil
}
