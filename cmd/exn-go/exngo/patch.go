package exngo

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// ErrPatch says that a package of a Go release, net or runtime, is not what exn-go expects. The
// text names the file and what is different.
var ErrPatch = errors.New("the standard library is not what exn-go expects")

// guard is put at the beginning of a function; the rest of it is for plain connections.
type guard struct{ file, signature, text string }

// guards are what the functions of package net do before anything else.
var guards = []guard{
	{"tcpsock.go", "func (c *TCPConn) SyscallConn() (syscall.RawConn, error)", "if c.exnOn() { return c.exnSyscallConn() };"},
	{"tcpsock.go", "func (c *TCPConn) ReadFrom(r io.Reader) (int64, error)", "if c.exnOn() { return c.exnReadFrom(r) };"},
	{"tcpsock.go", "func (c *TCPConn) WriteTo(w io.Writer) (int64, error)", "if c.exnOn() { return c.exnWriteTo(w) };"},
	{"tcpsock.go", "func (c *TCPConn) CloseRead() error", "if c.exnOn() { return c.exnCloseRead() };"},
	{"tcpsock.go", "func (c *TCPConn) CloseWrite() error", "if c.exnOn() { return c.exnCloseWrite() };"},
	{"tcpsock.go", "func (c *TCPConn) SetLinger(sec int) error", "if c.exnOn() { return c.exnSetLinger(sec) };"},
	{"udpsock.go", "func (c *UDPConn) SyscallConn() (syscall.RawConn, error)", "if c.exnOn() { return c.exnSyscallConn() };"},
	{"splice_linux.go", "func spliceFrom(c *netFD, r io.Reader) (written int64, err error, handled bool)", "if exnFrom(r) { return exnSpliceFrom(c, r) };"},
}

type renaming struct{ file, signature, name string }

// renamed functions are called by those of std/net/exn.go that take their names.
var renamed = []renaming{
	{"tcpsock_posix.go", "func (sd *sysDialer) doDialTCPProto(ctx context.Context, laddr, raddr *TCPAddr, proto int) (*TCPConn, error)", "exnPlainDoDialTCPProto"},
	{"tcpsock_posix.go", "func (ln *TCPListener) accept() (*TCPConn, error)", "exnPlainAccept"},
	{"tcpsock_posix.go", "func (ln *TCPListener) close() error", "exnPlainClose"},
	{"tcpsock_posix.go", "func (sl *sysListener) listenTCPProto(ctx context.Context, laddr *TCPAddr, proto int) (*TCPListener, error)", "exnPlainListenTCPProto"},
	{"file_posix.go", "func fileListener(f *os.File) (Listener, error)", "exnPlainFileListener"},
	{"udpsock_posix.go", "func (sd *sysDialer) dialUDP(ctx context.Context, laddr, raddr *UDPAddr) (*UDPConn, error)", "exnPlainDialUDP"},
	{"udpsock_posix.go", "func (sl *sysListener) listenUDP(ctx context.Context, laddr *UDPAddr) (*UDPConn, error)", "exnPlainListenUDP"},
	{"udpsock_posix.go", "func (c *UDPConn) readFrom(b []byte, addr *UDPAddr) (int, *UDPAddr, error)", "exnPlainReadFrom"},
	{"udpsock_posix.go", "func (c *UDPConn) readFromAddrPort(b []byte) (n int, addr netip.AddrPort, err error)", "exnPlainReadFromAddrPort"},
	{"udpsock_posix.go", "func (c *UDPConn) readMsg(b, oob []byte) (n, oobn, flags int, addr netip.AddrPort, err error)", "exnPlainReadMsg"},
	{"udpsock_posix.go", "func (c *UDPConn) writeTo(b []byte, addr *UDPAddr) (int, error)", "exnPlainWriteTo"},
	{"udpsock_posix.go", "func (c *UDPConn) writeToAddrPort(b []byte, addr netip.AddrPort) (int, error)", "exnPlainWriteToAddrPort"},
	{"udpsock_posix.go", "func (c *UDPConn) writeMsg(b, oob []byte, addr *UDPAddr) (n, oobn int, err error)", "exnPlainWriteMsg"},
	{"udpsock_posix.go", "func (c *UDPConn) writeMsgAddrPort(b, oob []byte, addr netip.AddrPort) (n, oobn int, err error)", "exnPlainWriteMsgAddrPort"},
}

// structs have fields, and get another one.
var structs = []struct{ file, name, fields, added string }{
	{"tcpsock.go", "TCPConn", "conn", "exn exnConn"},
	{"tcpsock.go", "TCPListener", "fd *netFD; lc ListenConfig", "exn exnListener"},
	{"udpsock.go", "UDPConn", "conn", "exn exnPacket"},
	{"net.go", "conn", "fd *netFD", ""},
}

// literals are replaced: they name no fields.
var literals = []struct{ file, text, replacement string }{
	{"tcpsock.go", "TCPConn{conn{fd}}", "TCPConn{conn: conn{fd}}"},
	{"udpsock.go", "UDPConn{conn{fd}}", "UDPConn{conn: conn{fd}}"},
}

// variables are set to something else in the beginning.
var variables = []struct{ file, name, value, replacement string }{
	{"splice_linux.go", "pollSplice", "poll.Splice", "exnPollSplice(poll.Splice)"},
}

// methods are all that a type has, by its releases. A method that is not known here may
// use the descriptor of a direct connection.
var methods = map[string]string{
	"conn":    "Close File LocalAddr Read RemoteAddr SetDeadline SetReadBuffer SetReadDeadline SetWriteBuffer SetWriteDeadline Write ok writeBuffers",
	"TCPConn": "CloseRead CloseWrite MultipathTCP ReadFrom SetKeepAlive SetKeepAliveConfig SetKeepAlivePeriod SetLinger SetNoDelay SyscallConn WriteTo readFrom writeTo",
	"UDPConn": "ReadFrom ReadFromUDP ReadFromUDPAddrPort ReadMsgUDP ReadMsgUDPAddrPort SyscallConn WriteMsgUDP WriteMsgUDPAddrPort WriteTo WriteToUDP WriteToUDPAddrPort " +
		"readFrom readFromAddrPort readFromUDP readMsg writeMsg writeMsgAddrPort writeTo writeToAddrPort",
	"TCPListener": "Accept AcceptTCP Addr Close File SetDeadline SyscallConn accept close file ok",
}

// knows are the functions, but for methods of it, that look into a TCPConn.
var knows = []string{"spliceFrom"}

// runtimeRenamed are called by those of std/runtime that take their names.
var runtimeRenamed = []renaming{
	{"netpoll_epoll.go", "func netpoll(delay int64) (gList, int32)", "exnPlainNetpoll"},
	{"netpoll_epoll.go", "func netpollopen(fd uintptr, pd *pollDesc) uintptr", "exnPlainNetpollopen"},
}

// runtimeUsed are functions that those of std/runtime call.
var runtimeUsed = []struct{ file, signature string }{
	{"netpoll.go", "func netpollready(toRun *gList, pd *pollDesc, mode int32) int32"},
	{"traceback.go", "func isSystemGoroutine(gp *g, fixed bool) bool"},
}

// runtimeCalls is what the path of the package begins with by which package runtime calls Linux.
const runtimeCalls = "internal/runtime/syscall"

// patchRuntime is patchNet for files of package runtime, and returns the package by which they
// call Linux.
func patchRuntime(files map[string][]byte) (out map[string][]byte, calls string, err error) {
	p, err := newPatcher(files)
	if err != nil {
		return nil, "", err
	}
	p.rename(runtimeRenamed)
	for _, u := range runtimeUsed {
		p.findFunction(u.file, u.signature)
	}
	if f := p.files["netpoll_epoll.go"]; f != nil {
		for _, spec := range f.tree.Imports {
			if path := importPath(spec); strings.HasPrefix(path, runtimeCalls) {
				calls = path
			}
		}
	}
	if calls == "" {
		p.fail("netpoll_epoll.go", "it imports no %s", runtimeCalls)
	}
	out, err = p.changedFiles()
	return out, calls, err
}

// patcher makes a package's files.
type patcher struct {
	files  map[string]*goFile // by base name
	edits  map[string][]edit
	errors []error
}

// patchNet returns the files of package net that are different with direct sockets. files
// are those of the release that Linux uses. All that does not fit is reported.
func patchNet(files map[string][]byte) (map[string][]byte, error) {
	p, err := newPatcher(files)
	if err != nil {
		return nil, err
	}
	for _, g := range guards {
		if d := p.findFunction(g.file, g.signature); d != nil {
			at := p.files[g.file].offsetOf(d.Body.Lbrace) + 1
			p.addEdit(g.file, edit{at, at, " " + g.text})
		}
	}
	p.rename(renamed)
	p.patchStructs()
	p.patchLiterals()
	p.patchVariables()
	p.patchMethods()
	p.findTypeChecks()
	return p.changedFiles()
}

func newPatcher(files map[string][]byte) (*patcher, error) {
	p := &patcher{files: make(map[string]*goFile), edits: make(map[string][]edit)}
	for name, src := range files {
		f, err := parseGoFile(name, src)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPatch, err)
		}
		p.files[name] = f
	}
	return p, nil
}

func (p *patcher) rename(list []renaming) {
	for _, r := range list {
		if d := p.findFunction(r.file, r.signature); d != nil {
			p.addEdit(r.file, p.files[r.file].replaceNode(d.Name, r.name))
		}
	}
}

// changedFiles is the files that are different.
func (p *patcher) changedFiles() (map[string][]byte, error) {
	if len(p.errors) > 0 {
		slices.SortFunc(p.errors, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, errors.Join(p.errors...)
	}
	out := make(map[string][]byte)
	for name, edits := range p.edits {
		out[name] = applyEdits(p.files[name].src, edits)
	}
	return out, nil
}

func (p *patcher) addEdit(file string, e edit) { p.edits[file] = append(p.edits[file], e) }

func (p *patcher) fail(file, format string, args ...any) {
	p.errors = append(p.errors, fmt.Errorf("%w: %s: %s", ErrPatch, filepath.Base(file), fmt.Sprintf(format, args...)))
}

// findFunction finds the function with a signature.
func (p *patcher) findFunction(file, signature string) *ast.FuncDecl {
	f := p.files[file]
	if f == nil {
		p.fail(file, "there is no such file")
		return nil
	}
	name := nameOf(signature)
	for _, d := range f.tree.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || d.Body == nil || declName(d) != name {
			continue
		}
		head := *d
		head.Body, head.Doc = nil, nil
		if got := nodeText(f.set, &head); got != signature {
			p.fail(file, "%s, want %s", got, signature)
			return nil
		}
		return d
	}
	p.fail(file, "no %s", signature)
	return nil
}

// nameOf is declName of the function with a signature.
func nameOf(signature string) string {
	s := strings.TrimPrefix(signature, "func ")
	recv := ""
	if strings.HasPrefix(s, "(") {
		end := strings.Index(s, ")")
		_, recv, _ = strings.Cut(s[1:end], " ")
		recv, s = strings.TrimPrefix(recv, "*")+".", s[end+2:]
	}
	name, _, _ := strings.Cut(s, "(")
	return recv + name
}

// declName is a function's name, with its receiver's type.
func declName(d *ast.FuncDecl) string {
	if r := receiverOf(d); r != "" {
		return r + "." + d.Name.Name
	}
	return d.Name.Name
}

func receiverOf(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	t := d.Recv.List[0].Type
	if s, ok := t.(*ast.StarExpr); ok {
		t = s.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// nodeText prints a node in one line.
func nodeText(set *token.FileSet, n any) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, set, n); err != nil { // of a bytes.Buffer
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func (p *patcher) patchStructs() {
	for _, s := range structs {
		f := p.files[s.file]
		if f == nil {
			p.fail(s.file, "there is no such file")
			continue
		}
		found := false
		ast.Inspect(f.tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != s.name {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			found = true
			var fields []string
			for _, field := range st.Fields.List {
				text := nodeText(f.set, field.Type)
				if len(field.Names) > 0 {
					text = field.Names[0].Name + " " + text
				}
				fields = append(fields, text)
			}
			if got := strings.Join(fields, "; "); got != s.fields {
				p.fail(s.file, "type %s has %s, want %s", s.name, got, s.fields)
			} else if s.added != "" {
				at := f.offsetOf(st.Fields.List[len(fields)-1].End())
				p.addEdit(s.file, edit{at, at, "; " + s.added})
			}
			return false
		})
		if !found {
			p.fail(s.file, "no struct %s", s.name)
		}
	}
}

func (p *patcher) patchLiterals() {
	for _, l := range literals {
		count := 0
		for name, f := range p.files {
			typ, _, _ := strings.Cut(l.text, "{")
			ast.Inspect(f.tree, func(n ast.Node) bool {
				lit, ok := n.(*ast.CompositeLit)
				if !ok {
					return true
				}
				if id, ok := lit.Type.(*ast.Ident); !ok || id.Name != typ {
					return true
				}
				if got := nodeText(f.set, lit); name != l.file || got != l.text {
					p.fail(name, "%s", got)
					return true
				}
				count++
				p.addEdit(name, f.replaceNode(lit, l.replacement))
				return true
			})
		}
		if count != 1 {
			p.fail(l.file, "%s occurs %d times, want 1", l.text, count)
		}
	}
}

func (p *patcher) patchVariables() {
	for _, v := range variables {
		f := p.files[v.file]
		if f == nil {
			p.fail(v.file, "there is no such file")
			continue
		}
		found := false
		for _, d := range f.tree.Decls {
			d, ok := d.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				if spec := spec.(*ast.ValueSpec); nodeText(f.set, spec) == v.name+" = "+v.value {
					found = true
					p.addEdit(v.file, f.replaceNode(spec.Values[0], v.replacement))
				}
			}
		}
		if !found {
			p.fail(v.file, "no var %s = %s", v.name, v.value)
		}
	}
}

func (p *patcher) patchMethods() {
	have := make(map[string][]string)
	for _, f := range p.files {
		for _, d := range f.tree.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && methods[receiverOf(d)] != "" {
				have[receiverOf(d)] = append(have[receiverOf(d)], d.Name.Name)
			}
		}
	}
	for typ, want := range methods {
		got := slices.Sorted(slices.Values(have[typ]))
		for _, m := range got {
			if !slices.Contains(strings.Fields(want), m) {
				p.fail("net", "%s has a method %s, which exn-go does not know", typ, m)
			}
		}
		for _, m := range strings.Fields(want) {
			if !slices.Contains(got, m) {
				p.fail("net", "%s has no method %s", typ, m)
			}
		}
	}
}

// findTypeChecks looks for type switches and assertions to *TCPConn.
func (p *patcher) findTypeChecks() {
	for name, f := range p.files {
		for _, d := range f.tree.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || slices.Contains(knows, declName(d)) {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				var types []ast.Expr
				switch n := n.(type) {
				case *ast.TypeAssertExpr:
					types = []ast.Expr{n.Type}
				case *ast.CaseClause:
					types = n.List
				}
				for _, t := range types {
					if t == nil { // x.(type)
						continue
					}
					if s := nodeText(f.set, t); s == "*TCPConn" || s == "tcpConnWithoutWriteTo" {
						p.fail(name, "%s looks into a TCPConn", declName(d))
					}
				}
				return true
			})
		}
	}
}
