package exntun

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/identity"
	"exnet/internal/cli"
	"exnet/internal/command"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Default and longest life of a certificate.
const (
	day      = 24 * time.Hour
	signed   = 365 * day
	unsigned = 3650 * day
	maxDays  = 36500
)

// keyOptions are the flags and arguments of "exn-tun key".
type keyOptions struct {
	fabric string
	node   *fabric.NodeID
	out    string
	ca     string
	days   int // 0: the default
	life   time.Duration
	files  []string
}

const keyText = `Makes the keys by which nodes on different hosts recognise each other: BASE.key,
which stays secret (mode 0600), and BASE.crt, the certificate, which may be
given away. Keys are ed25519.`

const keyEnd = `A trust file says who is believed (exn-tun up --trust): the certificates of
authorities, and lines such as

  node 2 SHA256:...    this key is node 2
  deny SHA256:...      this key is nobody, whoever signed it`

const keyExamples = `exn-tun key ca --fabric lab -o lab-ca
exn-tun key node --fabric lab --node 1 --ca lab-ca -o node1
exn-tun up --key node1.key --trust lab-ca.crt --listen :4791 ...
    an authority's fabric: lab-ca.crt, node1.key and node1.crt go to host 1
exn-tun key node --fabric lab --node 2 -o node2
exn-tun key sign --ca lab-ca node2.crt
    the key of node 2 never leaves host 2, its certificate goes there and back
exn-tun key show node1.crt node2.crt | grep ^node > trust
    a fabric without an authority: every node has the trust file`

func newKey() *cobra.Command {
	c := &cobra.Command{
		Use: "key COMMAND [flags]", Short: "make keys for nodes of different hosts",
		Long: keyText, Example: keyExamples, Annotations: map[string]string{command.EndKey: keyEnd},
		RunE: command.Choose,
	}
	c.AddCommand(
		newKeyCommand("ca", "[flags]", "the authority of a fabric",
			"Makes the authority of a fabric: who has its key decides who is a node.", keyCA, (*keyOptions).fabricFlag, (*keyOptions).outFlag),
		newKeyCommand("node", "[flags]", "a node's key",
			`Makes a node's key. With --ca its certificate is signed; without, the key signs
it itself, for an authority to sign later, or for pinning.`, keyNode, (*keyOptions).fabricFlag, (*keyOptions).idFlag, (*keyOptions).outFlag, (*keyOptions).caFlag),
		newKeyCommand("sign", "[flags] FILE...", "sign certificates",
			`Puts certificates that an authority has signed in the place of those in the
files: of keys that were made elsewhere, or to renew them.`, keySign, (*keyOptions).caFlag),
		newKeyCommand("show", "FILE...", "what is in a certificate",
			"Shows what is in a certificate, and the line that pins its key.", keyShow),
	)
	return c
}

// newKeyCommand returns one of the commands of "exn-tun key".
func newKeyCommand(verb, use, short, long string, run func(io.Writer, keyOptions) error, define ...func(*keyOptions, *pflag.FlagSet)) *cobra.Command {
	o := keyOptions{fabric: "lab"}
	c := &cobra.Command{
		Use: verb + " " + use, Short: short, Long: long,
		Args: func(_ *cobra.Command, args []string) error { return o.setArgs(verb, args) },
		RunE: func(c *cobra.Command, _ []string) error { return run(c.OutOrStdout(), o) },
	}
	for _, d := range define {
		d(&o, c.Flags())
	}
	if verb != "show" {
		cli.Number(c.Flags(), &o.days, "days", 1, maxDays,
			"`N` how long the certificate is good: 365, and 3650 for an authority and for a certificate that its key has signed")
	}
	return c
}

func (o *keyOptions) fabricFlag(fs *pflag.FlagSet) {
	fs.Func("fabric", "`NAME` name of the fabric (lab)", func(s string) error {
		o.fabric = s
		return emp.CheckName(s)
	})
}

func (o *keyOptions) idFlag(fs *pflag.FlagSet) {
	nodeFlag(fs, &o.node, "`ID` of the node that the key is for")
}

func (o *keyOptions) outFlag(fs *pflag.FlagSet) {
	fs.StringVarP(&o.out, "output", "o", "", "`BASE` name of the files without .key and .crt")
	fs.StringVar(&o.out, "out", "", "the former name of --output")
	_ = fs.MarkHidden("out") // it fails for a flag that is not there
}

func (o *keyOptions) caFlag(fs *pflag.FlagSet) {
	fs.StringVar(&o.ca, "ca", "", "`BASE` the files of the authority")
}

// setArgs stores the arguments, and returns an error if they or the flags are wrong.
func (o *keyOptions) setArgs(verb string, args []string) error {
	o.files = args
	o.life = signed
	if verb == "ca" || verb == "node" && o.ca == "" {
		o.life = unsigned
	}
	if o.days > 0 {
		o.life = time.Duration(o.days) * day
	}
	makes := verb == "ca" || verb == "node"
	switch {
	case makes && len(o.files) > 0:
		return command.NoArgs(nil, args)
	case makes && o.out == "":
		return cli.Usagef("--output is missing: name the files, without .key and .crt")
	case verb == "node" && o.node == nil:
		return cli.Usagef("--node is missing: say which node the key is for")
	case verb == "sign" && o.ca == "":
		return cli.Usagef("--ca is missing: name the files of the authority")
	case !makes && len(o.files) == 0:
		return cli.Usagef("name one or more certificates")
	}
	return nil
}

func keyCA(w io.Writer, o keyOptions) error {
	return savePair(w, o, identity.Name{Fabric: o.fabric, Authority: true}, nil)
}

func keyNode(w io.Writer, o keyOptions) error {
	var by *identity.Pair
	if o.ca != "" {
		var err error
		if by, err = o.readAuthority(); err != nil {
			return err
		}
	}
	return savePair(w, o, identity.Name{Fabric: o.fabric, Node: *o.node}, by)
}

// readAuthority reads the files that --ca names.
func (o keyOptions) readAuthority() (*identity.Pair, error) {
	by, err := identity.Load(o.ca)
	if missing, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--ca: %s does not exist: make it with exn-tun key ca", missing.Path)
	}
	return by, err
}

// savePair makes a pair of files and prints what it made.
func savePair(w io.Writer, o keyOptions, name identity.Name, by *identity.Pair) error {
	pair, err := identity.Create(name, by, o.life)
	if err != nil {
		return err
	}
	if err := pair.Save(o.out); err != nil {
		return err
	}
	key, cert := identity.Paths(o.out)
	fmt.Fprintf(w, "%s (secret), %s: %v, until %s, %s\n", key, cert, name, formatDate(pair.Cert.NotAfter), pair.Fingerprint())
	return nil
}

func formatDate(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func keySign(w io.Writer, o keyOptions) error {
	by, err := o.readAuthority()
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
		fmt.Fprintf(w, "%s: %v, until %s, %s\n", path, name, formatDate(cert.NotAfter), identity.Fingerprint(cert))
	}
	return nil
}

// keyShow writes lines for a trust file: pins of keys, and all else as comments.
func keyShow(w io.Writer, o keyOptions) error {
	for _, f := range o.files {
		_, path := identity.Paths(f)
		cert, name, err := identity.LoadCert(path)
		if err != nil {
			return err
		}
		if name.Authority {
			fmt.Fprintf(w, "# %s: %v, until %s, %s\n", path, name, formatDate(cert.NotAfter), identity.Fingerprint(cert))
			continue
		}
		by := "signed by " + cert.Issuer.CommonName
		if cert.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature) == nil {
			by = "signed by itself"
		}
		fmt.Fprintf(w, "node %d %s # %s: fabric %s, until %s, %s\n", name.Node, identity.Fingerprint(cert), path, name.Fabric, formatDate(cert.NotAfter), by)
	}
	return nil
}
