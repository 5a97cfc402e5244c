package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// block is a block of commands of a document.
type block struct {
	where string // file:line
	text  string
	lines []string // where each line of text stands, file:line
	why   string   // it is not run, "": it is
	after bool     // it goes on in the namespaces of the block before it
	edit  string   // a script of sed by which it is run as something smaller, "": as it is
	bare  bool     // not said to be one, though it looks like one
}

// goesOn is the line before a block that goes on where the one before it has ended.
const goesOn = "<!-- goes on -->"

var (
	notRun = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
	runAs  = regexp.MustCompile(`^<!-- run as: sed '(.+)' -->$`)
	// Commands of ours wherever they are, others where a line begins, maybe with a prompt or
	// variables.
	ourCommand = regexp.MustCompile(`(^|[ ($"#])(exn-(tun|run|go|sim|cni)|dsbench)( \S| $)` +
		`|^(\S*[$#] )?(\w+=\S* )*(go (run|install|test|build)|[\w./-]+\.sh|\./[\w-]+|ip netns|apt(-get)? install|podman|docker) `)
)

// add appends a line of text, that stands there.
func (b *block) add(where, line string) {
	b.text += line + "\n"
	b.lines = append(b.lines, where)
}

// blocksOf returns the blocks of a document: fences with sh, and what is fenced or indented and has
// a command of ours. The line before a block may say that it is not run, and why.
func blocksOf(file, text string) (found []block) {
	var now *block
	fence, lang := false, ""
	var next block // with what a comment says about it
	end := func() {
		if now != nil && (lang == "sh" || slices.ContainsFunc(strings.Split(now.text, "\n"), func(s string) bool {
			return lang == "" && ourCommand.MatchString(s+" ")
		})) {
			now.bare = lang != "sh"
			found = append(found, *now)
		}
		if now != nil {
			now, next = nil, block{}
		}
	}
	for i, line := range strings.Split(text, "\n") {
		where := fmt.Sprintf("%s:%d", file, i+1)
		code, indented := strings.CutPrefix(line, "    ")
		if l, ok := strings.CutPrefix(line, "```"); ok {
			end()
			if fence = !fence; fence {
				lang, now = l, &block{where: where, why: next.why, after: next.after, edit: next.edit}
			}
			continue
		}
		if !fence && (!indented || now != nil && lang != "") {
			end()
		}
		switch {
		case fence:
			now.add(where, line)
		case indented:
			if now == nil {
				lang, now = "", &block{where: where, why: next.why, after: next.after, edit: next.edit}
			}
			now.add(where, code)
		case line != "":
			next = block{after: line == goesOn}
			if m := notRun.FindStringSubmatch(line); m != nil {
				next.why = m[1]
			}
			if m := runAs.FindStringSubmatch(line); m != nil {
				next.edit = m[1]
			}
		}
	}
	end()
	return found
}

// ground makes a place for a block: an empty /run, /opt and /dev/shm, a loopback device, and the
// checkout as it is, in which what is written goes to memory.
const ground = `set -e
mount -t tmpfs none /run && mkdir -p /run/netns /run/lock
mount -t tmpfs -o mode=1777 none /dev/shm
mount -t tmpfs none /opt
mkdir /run/checkout && mount -t tmpfs none /run/checkout && mkdir /run/checkout/up /run/checkout/work
mount -t overlay overlay -o lowerdir="$1",upperdir=/run/checkout/up,workdir=/run/checkout/work "$1"
ip link set lo up && cd "$1"
exec bash -euo pipefail -c "$3$2"`

// verdict goes before a block, on its first line: the shell says at which line of the block it
// ends, and ends at what is no command even where a loop would try it for ever.
const verdict = `trap 'echo "-- line $LINENO"' ERR; trap 'exit 127' USR1; ` +
	`command_not_found_handle() { echo "$1: command not found"; echo "-- line ${BASH_LINENO[0]}"; kill -USR1 $$; return 127; }; `

var endedAt = regexp.MustCompile(`(?m)^-- line (\d+)$`)

// runBlock runs a block's text as it is written, in namespaces of its own; with its last process
// ends what it has begun.
func runBlock(ctx context.Context, root, bin, text string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "unshare", "-n", "-m", "-p", "-i", "--fork", "--kill-child", "--mount-proc",
		"bash", "-c", ground, "ground", root, text, verdict)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOBIN="+filepath.Join(bin, "installed"), "TERM=dumb")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
	err := cmd.Run()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("it does not end: %w", ctx.Err())
	}
	return out.Bytes(), err
}

// shrink makes what is run of a block smaller, as its edit says. Each line stays where it is.
func (b *block) shrink(t *testing.T) {
	t.Helper()
	if b.edit == "" {
		return
	}
	sed := exec.Command("sed", b.edit)
	sed.Stdin = strings.NewReader(b.text)
	out, err := sed.CombinedOutput()
	if err != nil || string(out) == b.text || bytes.Count(out, []byte("\n")) != len(b.lines) {
		t.Fatalf("%s: sed '%s': %v, and it has to change the block and to keep its lines:\n%s", b.where, b.edit, err, out)
	}
	b.text = string(out)
}

// blame names the line of the block that failed, and what was said, the last of it.
func (b block) blame(out []byte, err error) error {
	where, line := b.where, "the block"
	if at := endedAt.FindAllSubmatch(out, -1); at != nil {
		if n, _ := strconv.Atoi(string(at[len(at)-1][1])); 1 <= n && n <= len(b.lines) {
			where, line = b.lines[n-1], strings.TrimSpace(strings.Split(b.text, "\n")[n-1])
		}
	}
	said := bytes.TrimSpace(endedAt.ReplaceAll(out, nil))
	return fmt.Errorf("%s: %s: %w\n%s", where, line, err, said[max(0, len(said)-2000):])
}

// requireGround skips where a block cannot be given its place.
func requireGround(t *testing.T, root string) {
	t.Helper()
	testlab.RequireTUN(t)
	if out, err := runBlock(t.Context(), root, "", "true"); err != nil {
		t.Skipf("no namespaces or overlay mount here: %v: %s", err, out)
	}
}

// whole joins the blocks that go on where another ends with it, the last one before them that runs.
func whole(t *testing.T, blocks []block) (joined []block) {
	t.Helper()
	last := -1
	for _, b := range blocks {
		switch {
		case b.after && (last < 0 || b.why != ""):
			t.Errorf("%s: there is nothing that it can go on with", b.where)
		case b.after:
			joined[last].add(b.where, "echo '-- "+b.where+"'")
			joined[last].text += b.text
			joined[last].lines = append(joined[last].lines, b.lines...)
			joined[last].bare = joined[last].bare || b.bare
		default:
			joined = append(joined, b)
			if b.why == "" {
				last = len(joined) - 1
			}
		}
	}
	return joined
}

// Each block of commands of README and the documents works as it is written, or smaller, as the
// line before it says. One that is not run says why. For one document, ending at the first failure:
//
//	go test -v -failfast -run 'TestRootBlocks/of/README.md' ./test
func TestRootBlocks(t *testing.T) {
	longtest.Skip(t)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	requireGround(t, root)
	bin, err := testlab.Build("exn-tun", "exn-run", "exn-go", "exn-mem", "exn-sim", "exn-cni", "dsbench")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	var docs []string
	for _, folder := range []string{"docs", "docs/design", "docs/results"} {
		pages, err := filepath.Glob(filepath.Join(root, folder, "[a-z]*.md"))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, pages...)
	}
	var blocks []block
	left := 0
	for _, doc := range append([]string{filepath.Join(root, "README.md")}, docs...) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range whole(t, blocksOf(filepath.Base(doc), string(text))) {
			switch {
			case b.why != "":
				left++
				t.Logf("%s is not run: %s", b.where, b.why)
			case b.bare:
				t.Errorf("%s: a block with commands is neither said to be sh nor not to be run", b.where)
			default:
				b.shrink(t)
				blocks = append(blocks, b)
			}
		}
	}
	t.Logf("%d blocks run, %d not", len(blocks), left)
	if len(blocks) < 12 {
		t.Errorf("only %d blocks are run", len(blocks))
	}
	failfast := flag.Lookup("test.failfast").Value.String() == "true"
	var failed atomic.Bool
	t.Run("of", func(t *testing.T) { // ends with the last of them
		for _, b := range blocks {
			t.Run(b.where, func(t *testing.T) {
				t.Parallel() // most of them wait more than they compute
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if failfast && failed.Load() {
					t.Skip("another has failed")
				}
				begin := time.Now()
				if out, err := runBlock(ctx, root, bin, b.text); err != nil {
					failed.Store(true)
					t.Error(b.blame(out, err))
				}
				t.Logf("%.1f s", time.Since(begin).Seconds())
			})
		}
	})
}

// What is no command is found, wherever it is, and what a block leaves behind ends with it.
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
	for text, want := range map[string]string{
		good: "",
		strings.Replace(good, "status", "stauts", 1): "x.md:6: exn-tun stauts: exit status 2\n",
		strings.Replace(good, "add a\n", "add\n", 1): "x.md:4: ip netns add: exit status 1\n",
		"exn-tun stauts | cat\n" + good:              "x.md:4: exn-tun stauts | cat: exit status 2\n",
		"id\nuntil exn-tnu demo\ndo sleep 1; done\n": "exn-tnu demo: exit status 127\n",
		"touch README.md.new && ls README.md.new\n":  "",
	} {
		blocks := blocksOf("x.md", "# X\n\n```sh\n"+text+"```\n")
		if len(blocks) != 1 || blocks[0].where != "x.md:3" {
			t.Fatalf("%q: blocks %v", text, blocks)
		}
		out, err := runBlock(t.Context(), root, bin, blocks[0].text)
		if err != nil {
			err = blocks[0].blame(out, err)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "README.md.new")); err == nil {
		t.Error("a block writes into the checkout")
	}
}

// Blocks are found in every form, with the reason why one is not run.
func TestBlocksOf(t *testing.T) {
	const text = "a\n\n    exn-tun status\n    more\n\nb\n```\noutput\n```\n<!-- not run: it is long -->\n```sh\nls\n```\n" +
		"```sh\nid\n```\n\nc\n\n<!-- goes on -->\n```sh\npwd\n```\n" +
		"```\nexn-run x\n```\n<!-- not run: hardware -->\n\n    dsbench stream\n\n```go\nexn-run x\n```\n" +
		"```\nunder exn-run    and not\n```\n```\nhost1# exn-tun up\n```\n```\nA=b ./exn-rsh x\n```\n" +
		"<!-- run as: sed 's/100/1/' -->\n```sh\nexn-run 100\n```\n"
	var got []string
	for _, b := range whole(t, blocksOf("d", text)) {
		b.shrink(t)
		got = append(got, fmt.Sprintf("%s %q %q %v", b.where, b.text, b.why, b.bare))
	}
	want := []string{`d:3 "exn-tun status\nmore\n" "" true`, `d:11 "ls\n" "it is long" false`, `d:14 "id\necho '-- d:21'\npwd\n" "" false`,
		`d:24 "exn-run x\n" "" true`, `d:29 "dsbench stream\n" "hardware" true`,
		`d:37 "host1# exn-tun up\n" "" true`, `d:40 "A=b ./exn-rsh x\n" "" true`, `d:44 "exn-run 1\n" "" false`}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
