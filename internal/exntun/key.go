package exntun

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/identity"
)

const keyHelp = `Usage: exn-tun key ca   --fabric NAME --out BASE [--days N]
       exn-tun key node --fabric NAME --node ID --out BASE [--ca BASE]
                        [--days N]
       exn-tun key sign --ca BASE [--days N] FILE...
       exn-tun key show FILE...

Makes the keys by which nodes on different hosts know each other: BASE.key,
which stays secret (mode 0600), and BASE.crt, the certificate, which may be
given away. Keys are ed25519.

  ca      the authority of a fabric: who has its key decides who is a node
  node    a node's key. With --ca its certificate is signed; without, the key
          signs it itself, for an authority to sign later, or for pinning
  sign    puts certificates that an authority has signed in the place of those
          in the files: of keys that were made elsewhere, or to renew them
  show    what is in a certificate, and the line that pins its key

A trust file says who is believed (exn-tun up --trust): the certificates of
authorities, and lines such as

  node 2 SHA256:...    this key is node 2
  deny SHA256:...      this key is nobody, whoever signed it

Examples:
  exn-tun key ca --fabric lab --out lab-ca
  exn-tun key node --fabric lab --node 1 --ca lab-ca --out node1
  exn-tun up --key node1.key --trust lab-ca.crt --listen :4791 ...
      an authority's fabric: lab-ca.crt, node1.key and node1.crt go to host 1
  exn-tun key node --fabric lab --node 2 --out node2
  exn-tun key sign --ca lab-ca node2.crt
      the key of node 2 never leaves host 2, its certificate goes there and back
  exn-tun key show node1.crt node2.crt | grep ^node > trust
      a fabric without an authority: every node has the trust file

Flags:
  --fabric NAME        name of the fabric (lab)
  --node ID            ID of the node that the key is for
  --out BASE           name of the files without .key and .crt
  --ca BASE            the files of the authority
  --days N             how long the certificate is good: 365, and 3650 for an
                       authority and for a certificate that its key has signed
`

// Default and longest life of a certificate.
const (
	day      = 24 * time.Hour
	signed   = 365 * day
	unsigned = 3650 * day
	maxDays  = 36500
)

// keyOptions is what the command line of "exn-tun key" asks for.
type keyOptions struct {
	fabric string
	node   *fabric.NodeID
	out    string
	ca     string
	life   time.Duration
	files  []string
}

func runKey(_ context.Context, p program, args []string) error {
	verbs := map[string]func(io.Writer, keyOptions) error{"ca": keyCA, "node": keyNode, "sign": keySign, "show": keyShow}
	if len(args) > 0 && (args[0] == "-h" || args[0] == "-help" || args[0] == "--help") {
		fmt.Fprint(p.stdout, keyHelp)
		return nil
	}
	if len(args) == 0 || verbs[args[0]] == nil {
		return usageError{errors.New("say what to do: ca, node, sign or show")}
	}
	o, err := parseKey(args[0], args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, keyHelp)
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	return verbs[args[0]](p.stdout, o)
}

func parseKey(verb string, args []string) (keyOptions, error) {
	o := keyOptions{fabric: "lab"}
	fs := flag.NewFlagSet(verb, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	days := 0
	if verb == "ca" || verb == "node" {
		fs.Func("fabric", "", func(s string) error {
			o.fabric = s
			return emp.CheckName(s)
		})
		fs.StringVar(&o.out, "out", "", "")
	}
	if verb == "node" {
		nodeFlag(fs, &o.node)
	}
	if verb == "node" || verb == "sign" {
		fs.StringVar(&o.ca, "ca", "", "")
	}
	if verb != "show" {
		number(fs, "days", &days, 1, maxDays)
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.files = fs.Args()
	o.life = signed
	if verb == "ca" || verb == "node" && o.ca == "" {
		o.life = unsigned
	}
	if days > 0 {
		o.life = time.Duration(days) * day
	}
	makes := verb == "ca" || verb == "node"
	switch {
	case makes && len(o.files) > 0:
		return o, noArguments(fs)
	case makes && o.out == "":
		return o, errors.New("--out is missing: name the files, without .key and .crt")
	case verb == "node" && o.node == nil:
		return o, errors.New("--node is missing: say which node the key is for")
	case verb == "sign" && o.ca == "":
		return o, errors.New("--ca is missing: name the files of the authority")
	case !makes && len(o.files) == 0:
		return o, errors.New("name one or more certificates")
	}
	return o, nil
}

func keyCA(w io.Writer, o keyOptions) error {
	return save(w, o, identity.Name{Fabric: o.fabric, Authority: true}, nil)
}

func keyNode(w io.Writer, o keyOptions) error {
	var by *identity.Pair
	if o.ca != "" {
		var err error
		if by, err = identity.Load(o.ca); err != nil {
			return err
		}
	}
	return save(w, o, identity.Name{Fabric: o.fabric, Node: *o.node}, by)
}

// save makes a pair and says what it has made.
func save(w io.Writer, o keyOptions, name identity.Name, by *identity.Pair) error {
	pair, err := identity.Create(name, by, o.life)
	if err != nil {
		return err
	}
	if err := pair.Save(o.out); err != nil {
		return err
	}
	key, cert := identity.Paths(o.out)
	fmt.Fprintf(w, "%s (secret), %s: %v, until %s, %s\n", key, cert, name, date(pair.Cert.NotAfter), pair.Fingerprint())
	return nil
}

func date(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func keySign(w io.Writer, o keyOptions) error {
	by, err := identity.Load(o.ca)
	if err != nil {
		return err
	}
	for _, f := range o.files {
		_, path := identity.Paths(f)
		request, name, err := identity.LoadCert(path)
		if err != nil {
			return err
		}
		cert, err := identity.Sign(by, request, o.life)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := identity.Replace(path, cert); err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: %v, until %s, %s\n", path, name, date(cert.NotAfter), identity.Fingerprint(cert))
	}
	return nil
}

// keyShow writes lines that a trust file takes: what is no pin is a comment.
func keyShow(w io.Writer, o keyOptions) error {
	for _, f := range o.files {
		_, path := identity.Paths(f)
		cert, name, err := identity.LoadCert(path)
		if err != nil {
			return err
		}
		if name.Authority {
			fmt.Fprintf(w, "# %s: %v, until %s, %s\n", path, name, date(cert.NotAfter), identity.Fingerprint(cert))
			continue
		}
		by := "signed by " + cert.Issuer.CommonName
		if cert.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature) == nil {
			by = "signed by itself"
		}
		fmt.Fprintf(w, "node %d %s # %s: fabric %s, until %s, %s\n", name.Node, identity.Fingerprint(cert), path, name.Fabric, date(cert.NotAfter), by)
	}
	return nil
}
