package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/test/testlab"
)

// block is a block of commands of a document.
type block struct {
	where string // file:line
	text  string
	why   string // it is not run, "": it is
	bare  bool   // not said to be one, though it looks like one
}

var (
	notRun     = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
	ourCommand = regexp.MustCompile(`^(exn-(tun|run|go|sim|cni)|dsbench|go (run|install|test|build)|\./\w+\.sh|ip netns) `)
)

// blocksOf returns the blocks of a document: fences with sh, and what is fenced or indented and has
// a command of ours. The line before a block may say that it is not run, and why.
func blocksOf(file, text string) (found []block) {
	var now *block
	fence, lang, why := false, "", ""
	end := func() {
		if now != nil && (lang == "sh" || slices.ContainsFunc(strings.Split(now.text, "\n"), func(s string) bool {
			return lang == "" && ourCommand.MatchString(s+" ")
		})) {
			now.bare = lang != "sh"
			found = append(found, *now)
		}
		if now != nil {
			now, why = nil, ""
		}
	}
	for i, line := range strings.Split(text, "\n") {
		code, indented := strings.CutPrefix(line, "    ")
		if l, ok := strings.CutPrefix(line, "```"); ok {
			end()
			if fence = !fence; fence {
				lang, now = l, &block{where: fmt.Sprintf("%s:%d", file, i+1), why: why}
			}
			continue
		}
		if !fence && (!indented || now != nil && lang != "") {
			end()
		}
		switch {
		case fence:
			now.text += line + "\n"
		case indented:
			if now == nil {
				lang, now = "", &block{where: fmt.Sprintf("%s:%d", file, i+1), why: why}
			}
			now.text += code + "\n"
		case line != "":
			why = ""
			if m := notRun.FindStringSubmatch(line); m != nil {
				why = m[1]
			}
		}
	}
	end()
	return found
}

// ground makes a place for a block: an empty /run and /dev/shm, a loopback device, and the checkout
// as it is, in which what is written goes to memory.
const ground = `set -e
mount -t tmpfs none /run && mkdir -p /run/netns /run/lock
mount -t tmpfs -o mode=1777 none /dev/shm
mkdir /run/checkout && mount -t tmpfs none /run/checkout && mkdir /run/checkout/up /run/checkout/work
mount -t overlay overlay -o lowerdir="$1",upperdir=/run/checkout/up,workdir=/run/checkout/work "$1"
ip link set lo up && cd "$1"
exec bash -euo pipefail -c "$2"`

// runBlock runs a block as it is written, in namespaces of its own; with its last process ends what
// it has begun.
func runBlock(ctx context.Context, root, bin, text string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "unshare", "-n", "-m", "-p", "-i", "--fork", "--kill-child", "--mount-proc",
		"bash", "-c", ground, "ground", root, text)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOBIN="+filepath.Join(bin, "installed"), "TERM=dumb")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
	err := cmd.Run()
	return out.Bytes(), err
}

// requireGround skips where a block cannot be given its place.
func requireGround(t *testing.T, root string) {
	t.Helper()
	testlab.RequireTUN(t)
	if out, err := runBlock(t.Context(), root, "", "true"); err != nil {
		t.Skipf("no namespaces or overlay mount here: %v: %s", err, out)
	}
}

// Each block of commands of README and the documents works as it is written. One that is not run says
// why, and README's all are.
func TestRootBlocks(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	requireGround(t, root)
	bin, err := testlab.Build("exn-tun", "exn-run", "exn-go", "exn-sim", "exn-cni", "dsbench")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	run, left := 0, 0
	for _, doc := range append([]string{filepath.Join(root, "README.md")}, docs...) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocksOf(filepath.Base(doc), string(text)) {
			if b.why != "" {
				left++
				t.Logf("%s is not run: %s", b.where, b.why)
				continue
			}
			if b.bare {
				t.Errorf("%s: a block with commands is neither said to be sh nor not to be run", b.where)
				continue
			}
			run++
			t.Run(b.where, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				begin := time.Now()
				if out, err := runBlock(ctx, root, bin, b.text); err != nil {
					t.Errorf("%s: %v\n%s\n%s", b.where, err, b.text, out[max(0, len(out)-2000):])
				}
				t.Logf("%.1f s", time.Since(begin).Seconds())
			})
		}
	}
	t.Logf("%d blocks run, %d not", run, left)
	if run < 12 {
		t.Errorf("only %d blocks are run", run)
	}
}

// What is no command is found, wherever it stands, and what a block leaves behind ends with it.
func TestRootBlocksFindTypos(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	requireGround(t, root)
	bin, err := testlab.Build("exn-tun")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	const good = "ip netns add a\nexn-tun up --netns a --addr 10.2.0.1/24 --detach\nexn-tun status\nsleep 1000 &\n"
	for text, works := range map[string]bool{
		good: true,
		strings.Replace(good, "status", "stauts", 1): false,
		strings.Replace(good, "add a\n", "add\n", 1): false,
		"exn-tun stauts | cat\n" + good:              false,
		"touch README.md.new && ls README.md.new\n":  true,
	} {
		blocks := blocksOf("x.md", "# X\n\n```sh\n"+text+"```\n")
		if len(blocks) != 1 || blocks[0].where != "x.md:3" {
			t.Fatalf("%q: blocks %v", text, blocks)
		}
		out, err := runBlock(t.Context(), root, bin, blocks[0].text)
		if (err == nil) != works {
			t.Errorf("%q: %v\n%s", text, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "README.md.new")); err == nil {
		t.Error("a block writes into the checkout")
	}
}

// Blocks are found in every form, with the reason why one is not run.
func TestBlocksOf(t *testing.T) {
	const text = "a\n\n    exn-tun status\n    more\n\nb\n```\noutput\n```\n<!-- not run: it is long -->\n```sh\nls\n```\n```sh\nid\n```\n" +
		"```\nexn-run x\n```\n<!-- not run: hardware -->\n\n    dsbench stream\n\n```go\nexn-run x\n```\n"
	var got []string
	for _, b := range blocksOf("d", text) {
		got = append(got, fmt.Sprintf("%s %q %q %v", b.where, b.text, b.why, b.bare))
	}
	want := []string{`d:3 "exn-tun status\nmore\n" "" true`, `d:11 "ls\n" "it is long" false`, `d:14 "id\n" "" false`,
		`d:17 "exn-run x\n" "" true`, `d:22 "dsbench stream\n" "hardware" true`}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
