package preload

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"testing"
)

// The library has no warnings, and the agent calls nothing outside its own file: the C library may
// use thread-local memory, or memory that is paged, for which the agent would wait for ever.
func TestAgentCallsNothing(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"agent", "start", "remap", "futex", "guard"} {
		object := filepath.Join(t.TempDir(), name+".o")
		args := []string{"-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-Ilib", "-I../../../node/rpc/c", "-O2", "-fPIC",
			"-fvisibility=hidden", "-fno-stack-protector", "-c", "lib/" + name + ".c", "-o", object}
		if out, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("cc: %v\n%s", err, out)
		}
		f, err := elf.Open(object)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		symbols, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		outside := 0
		for _, s := range symbols {
			if s.Section == elf.SHN_UNDEF && s.Name != "" && s.Name != "_GLOBAL_OFFSET_TABLE_" {
				if outside++; name == "agent" {
					t.Errorf("agent.c calls %s", s.Name)
				}
			}
		}
		if name == "start" && outside == 0 {
			t.Error("start.c calls nothing: the test finds no calls")
		}
	}
}
