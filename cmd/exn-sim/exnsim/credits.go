package exnsim

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/study/credit"
)

// What the tables of credits compare (figures 36 to 38).
var (
	bulks    = []int{1, 10, 50}
	payloads = []int{1, 5, 10, 20}
	pools    = []int{16, 32, 64, 128, 256, 512}
)

const poolPayload = 10 // of the table by pools

func newCredits() *cobra.Command {
	credits, packets := 256, 100000
	c := &cobra.Command{
		Use: "credits [flags]", Short: "compare how credits return on a link",
		Long: `Prints how fast packets of 64 bytes go over 10 Gbit/s Ethernet (HyperTransport
over Ethernet, with a credit for each buffer of the receiver): by packets in a
frame, and by credits in a frame that returns them. It also prints the parts of
a packet's latency.`,
		Example: "exn-sim credits --credits 128",
		Args:    command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if packets < 1 {
				return cli.Usagef("%d packets: send at least 1", packets)
			}
			return creditTables(c.OutOrStdout(), credits, packets)
		},
	}
	c.Flags().IntVar(&credits, "credits", credits, "`N` buffers of the receiver for a channel (256)")
	c.Flags().IntVar(&packets, "packets", packets, "`N` packets to send (100000)")
	return c
}

func creditTables(w io.Writer, credits, packets int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "With %d credits (figures 36 to 38):\n", credits)
	fmt.Fprintln(t, "NOPs\tpackets\tdata Gbit/s\tlink\tback\tmean credits\tout ns\tin ns")
	for _, b := range bulks {
		for _, p := range payloads {
			r, err := credit.Run(postedSender(p, b, credits, packets))
			if err != nil {
				return err
			}
			fmt.Fprintf(t, "%d\t%d\t%.2f\t%s\t%s\t%.1f\t%.0f\t%.0f\n",
				b, p, r.GoodputGbps, formatPercent(r.UseGbps), formatPercent(r.ReturnGbps), r.Credits, r.OutNs, r.InNs)
		}
	}
	fmt.Fprintf(t, "\nData in Gbit/s by credits, %d packets in a frame:\nNOPs", poolPayload)
	for _, n := range pools {
		fmt.Fprintf(t, "\t%d", n)
	}
	for _, b := range bulks {
		fmt.Fprintf(t, "\n%d", b)
		for _, n := range pools {
			c := postedSender(poolPayload, b, n, packets)
			if c.Verify() != nil { // too few for a full frame and a full bulk
				fmt.Fprint(t, "\t-")
				continue
			}
			r, err := credit.Run(c)
			if err != nil {
				return err
			}
			fmt.Fprintf(t, "\t%.2f", r.GoodputGbps)
		}
	}
	fmt.Fprintln(t, "\n\nWhere nobody takes posted packets from the receiver:\nchannel\tpackets\ttaken")
	c := postedSender(poolPayload, bulks[1], credits, packets)
	for v := range credit.VCs {
		c.Packets[v] = packets
	}
	c.Stalled[credit.Posted] = true
	r, err := credit.Run(c)
	if err != nil {
		return err
	}
	for v := range credit.VCs {
		fmt.Fprintf(t, "%v\t%d\t%d\n", v, r.Sent[v], r.Done[v])
	}
	printParts(t, "Remote access without transmission (table 8)", credit.Access())
	printParts(t, "One packet (table 9)", credit.Packet())
	return t.Flush()
}

// postedSender is a sender of posted packets.
func postedSender(payload, bulk, credits, packets int) credit.Config {
	c := credit.Config{Payload: payload, Bulk: bulk, Credits: credits}
	c.Packets[credit.Posted] = packets
	return c
}

func formatPercent(gbps float64) string { return display.Percent(gbps * 1e9 / credit.LinkRate) }

func printParts(w io.Writer, title string, all []credit.Part) {
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, p := range all {
		fmt.Fprintf(w, "%s\t%d ns\n", p.Name, p.Ns)
	}
	fmt.Fprintf(w, "sum\t%d ns\n", credit.Sum(all))
}
