package killmatrix

import (
	"os"
	"strconv"
	"syscall"
)

func inodeOf(st os.FileInfo) string {
	return strconv.FormatUint(st.Sys().(*syscall.Stat_t).Ino, 10)
}
