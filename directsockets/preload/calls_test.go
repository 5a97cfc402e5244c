package preload

import (
	"debug/elf"
	"strings"
	"testing"
)

// borrowed are the C library's functions that the library calls by name. Another preload library
// may stand before each of them and hold a lock while it calls this one; so none here has a reason
// to be replaced by one that takes a lock. What asks the kernel is in segment/kernel.h. The last
// line is about streams, which are the C library's.
const borrowed = `_ITM_deregisterTMCloneTable _ITM_registerTMCloneTable __cxa_finalize __gmon_start__ __register_atfork __cxa_at_quick_exit
	__environ environ __errno_location __libc_single_threaded _r_debug abort dlopen dlsym getauxval getenv getpagesize
	memchr memcmp memcpy memmem memset stpcpy strchr strcmp strcspn strlen strncmp strncpy strnlen strrchr strspn strstr
	strtol strtoul strtoull snprintf clock_getres clock_gettime gnu_get_libc_version sched_getcpu time
	pthread_setcancelstate pthread_setcanceltype pthread_sigmask pthread_testcancel raise sigfillset
	fflush fileno fopencookie free vasprintf`

// The library makes its own system calls by itself.
func TestBorrowedFunctions(t *testing.T) {
	f, err := elf.Open(testLibrary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil || len(symbols) < 20 {
		t.Fatalf("%d symbols (%v)", len(symbols), err)
	}
	known := " " + strings.Join(strings.Fields(borrowed), " ") + " "
	for _, s := range symbols {
		if !strings.Contains(known, " "+s.Name+" ") {
			t.Errorf("%s is the C library's, or another preload library's", s.Name)
		}
	}
}
