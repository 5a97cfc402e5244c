package report

import (
	"fmt"
	"math"
	"strings"

	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
	"exnet/internal/stats"
)

// What each figure shows, in a sentence or two, from its own rows. A path that was
// not measured is not spoken of.

// largest returns the row of a path with the largest median.
func (d *Data) largest(part, path string) (best *result.Row) {
	for _, r := range d.part(part) {
		if r.Path == path && (best == nil || r.Median > best.Median) {
			best = &r
		}
	}
	return best
}

// least returns the row of a path with the smallest median.
func (d *Data) least(part, path string) (least *result.Row) {
	for _, r := range d.part(part) {
		if r.Path == path && (least == nil || r.Median < least.Median) {
			least = &r
		}
	}
	return least
}

func (d *Data) sayBandwidth() string {
	const size = 64 << 10
	at := func(path string) *result.Row { return d.row(PartStream1, path, size) }
	var exn, modes, direct, two string
	if v := versus(at("exn:napi"), first(at("veth"), at("lo")), 1, gbits); v != "" {
		exn = "With 64 KiB messages one connection over exn0 moves " + v + "; the thesis's EXN reached 63 (7.9 GB/s) on a 100G network."
	}
	if irq, napi := at("exn:interrupt"), at("exn:napi"); irq != nil && napi != nil {
		switch {
		case math.Abs(irq.Median/napi.Median-1) < 0.1:
			modes = "Interrupts and NAPI are within a tenth of each other, as in the thesis."
		case unclear(irq, napi):
			modes = fmt.Sprintf("With an interrupt for each frame it is %s of that of NAPI%s.", ratioText(irq.Median/napi.Median), overlap)
		default:
			modes = fmt.Sprintf("With an interrupt for each frame it is %s of that of NAPI.", ratioText(irq.Median/napi.Median))
		}
	}
	if v := versus(at("ds"), at("lo"), 1, gbits); v != "" {
		direct = "Direct sockets move " + v
		if z := versus(at("ds-zcopy"), at("ds"), 1, gbits); z != "" {
			direct += ", without a copy " + z
		}
		direct += "."
	}
	// The two are measured one after the other: the control says what changed meanwhile.
	grows := func(path string) string {
		a, b := d.row(PartStream1, path, size), d.row(PartStream2, path, size)
		if a == nil || b == nil || a.Median == 0 {
			return ""
		}
		return ratioText(b.Median / a.Median)
	}
	if v := grows("exn:napi"); v != "" {
		two = "Two connections, measured after one, move " + v + " times as much over exn0"
		if lo := grows("lo"); lo != "" {
			two += ", and " + lo + " times over lo"
		}
		two += "."
	}
	return sentences(exn, modes, direct, two)
}

func (d *Data) sayTuning() string {
	var all []string
	for _, t := range []struct{ part, what string }{
		{PartCPUs, "the CPUs of the ends over exn0"}, {PartMTU, "the MTU"}, {PartBuffers, "the socket buffers"},
		{PartCoalesce, "coalescing"}, {PartEager, "the eager threshold"},
	} {
		rows := d.part(t.part)
		if len(rows) < 2 {
			continue
		}
		all = append(all, t.what+" "+spreadOf(rows))
	}
	if len(all) == 0 {
		return ""
	}
	text := "Between the worst and the best value tried there is, for "
	for i, s := range all {
		if i > 0 {
			text += "; for "
		}
		text += s
	}
	if one, two := d.row(PartDSCPUs, "ds, one CPU", 64<<10), d.row(PartDSCPUs, "ds, two CPUs", 64<<10); one != nil && two != nil {
		noise := ""
		if unclear(one, two) {
			noise = overlap
		}
		text += fmt.Sprintf(". Direct sockets move %s Gbit/s between two CPUs and %s with both ends on one (the CPUs are %s)%s",
			display.Number(two.Median), display.Number(one.Median), two.Cores, noise)
		text += d.sayRing(one, two)
	}
	return text + ". The thesis saw 42 to 63 Gbit/s (5.3 to 7.9 GB/s) by the choice of the CPU socket, and 66 with sysctl set."
}

// sayRing compares direct sockets with what bounds them, on one CPU and on two.
func (d *Data) sayRing(one, two *result.Row) string {
	ringOne, ringTwo := d.row(PartDSCPUs, "ring, one CPU", 64<<10), d.row(PartDSCPUs, "ring, two CPUs", 64<<10)
	if ringOne == nil || ringTwo == nil || ringOne.Median == 0 || ringTwo.Median == 0 {
		return ""
	}
	return fmt.Sprintf("; that is %s and %s of what a bare ring does, a copy in and a copy out",
		display.Number(two.Median/ringTwo.Median), display.Number(one.Median/ringOne.Median))
}

// clearly is the least difference, as a share, that a sentence speaks of.
const clearly = 0.05

// spreadOf says what a setting matters: the factor between the worst and the best of
// its values, if that is more than noise.
func spreadOf(rows []result.Row) string {
	low, high := rows[0], rows[0]
	for _, r := range rows {
		if r.Median < low.Median {
			low = r
		}
		if r.Median > high.Median {
			high = r
		}
	}
	if !stats.Differ(low.Values, high.Values, clearly).Beyond {
		return "no more than the noise"
	}
	text := fmt.Sprintf("a factor of %.1f", high.Median/low.Median)
	for _, r := range rows {
		if r.Path != high.Path && !stats.Differ(r.Values, high.Values, clearly).Beyond {
			return text // more than one value is as good
		}
	}
	return text + fmt.Sprintf(" (best: %s)", high.Path)
}

func (d *Data) sayLatency() string {
	at := func(path string) *result.Row { return d.row(PartLatency, path, 64) }
	var exn, direct, raw string
	if v := versus(at("exn:napi"), first(at("veth"), at("lo")), 1, micros); v != "" {
		exn = "Half a round trip of 64 bytes over exn0 takes " + v + "; the thesis's EXN took 5.7 to 8.6 µs, between two machines."
	}
	if r := at("ds"); r != nil {
		direct = "Over direct sockets it takes " + measured(r, " "+micros)
		if lo := at("lo"); lo != nil {
			direct = "Over direct sockets it takes " + versus(r, lo, 1, micros)
		}
		direct += fmt.Sprintf(", with %s at p99 and %s at p99.9; the thesis's AF_EXTL took 0.85 to 1.3.", result.Optional(r.P99), result.Optional(r.P999))
	}
	if r := at("velo-shm"); r != nil {
		raw = d.sayRaw(r)
	}
	return sentences(exn, direct, raw, d.sayIdle())
}

// sayIdle compares exn0 with veth where all that waits for a message sleeps.
func (d *Data) sayIdle() string {
	exn := d.row(PartIdle, "exn:napi", 64)
	v := versus(exn, d.row(PartIdle, "veth", 64), 1, micros)
	if v == "" {
		return ""
	}
	return fmt.Sprintf("After %s of rest it takes %s over exn0, half of the round trips between the marks.", spanText(exn.Rest), v)
}

// sayRaw compares a bare VELO message with what carries bytes above it.
func (d *Data) sayRaw(raw *result.Row) string {
	text := "A bare VELO message takes " + measured(raw, " "+micros)
	best := raw
	for _, r := range d.part(PartLatency) {
		if r.Size == raw.Size && r.Path != raw.Path && r.Median < best.Median {
			best = &r
		}
	}
	switch {
	case best == raw:
		return text + "; nothing above it was faster in this run."
	case !stats.Differ(raw.Values, best.Values, clearly).Beyond:
		return text + fmt.Sprintf("; %s took %s, which is within the noise of it.", best.Path, display.Number(best.Median))
	}
	return text + fmt.Sprintf("; %s took only %s.", best.Path, display.Number(best.Median))
}

func (d *Data) sayCPU() string {
	rows := d.part(PartCPU)
	worst, at, unsure := 0.0, "", ""
	var small, large *result.Row
	for _, r := range rows {
		irq := d.row(PartCPU, "exn:interrupt", r.Size)
		if r.Path != "exn:napi" || irq == nil {
			continue
		}
		if share := r.Median / irq.Median; share > worst {
			if worst, at, unsure = share, sizeText(r.Size), ""; unclear(&r, irq) {
				unsure = overlap
			}
		}
		if small == nil {
			small = &r
		}
		large = &r
	}
	if small == nil || large == nil {
		return ""
	}
	order := fmt.Sprintf("NAPI never takes more CPU time than an interrupt for each frame (at most %s of it, at %s%s)", ratioText(worst), at, unsure)
	if worst > 1 {
		order = fmt.Sprintf("NAPI takes at most %s times the CPU time of an interrupt for each frame (at %s%s)", ratioText(worst), at, unsure)
	}
	size := fmt.Sprintf("A gigabyte in messages of %s takes %s s, in messages of %s %s s", sizeText(small.Size), display.Number(small.Median), sizeText(large.Size), display.Number(large.Median))
	if large.Median < small.Median {
		size += ": with larger frames each byte costs less, as in the thesis"
	}
	return sentences(order+".", size+".", d.sayITR())
}

// interrupts are rows whose figure is the interrupts for a gigabyte, of the paths that count them.
func (d *Data) interrupts() (rows []result.Row) {
	for _, r := range d.part(PartCPU) {
		if n := r.InterruptsPerGB; n != nil && *n > 0 {
			r.Median, r.Min, r.Max = *n, *n, *n
			rows = append(rows, r)
		}
	}
	return rows
}

// sayInterrupts compares how many interrupts NAPI and the dynamic ITR leave of those of the mode
// with one for each frame.
func (d *Data) sayInterrupts() string {
	var says []string
	for _, p := range []struct{ path, name string }{{"exn:napi", "with NAPI"}, {"exn:adaptive", "with the dynamic ITR"}} {
		var low, high float64
		var lowSize, highSize int
		for _, r := range d.interrupts() {
			irq := d.row(PartCPU, "exn:interrupt", r.Size)
			if r.Path != p.path || irq == nil || irq.InterruptsPerGB == nil {
				continue
			}
			share := r.Median / *irq.InterruptsPerGB
			if low == 0 || share < low {
				low, lowSize = share, r.Size
			}
			if share > high {
				high, highSize = share, r.Size
			}
		}
		if low > 0 {
			says = append(says, fmt.Sprintf("%s %s (%s) to %s (%s)", p.name,
				ratioText(low), sizeText(lowSize), ratioText(high), sizeText(highSize)))
		}
	}
	if len(says) == 0 {
		return ""
	}
	return "For a gigabyte the NICs raise, as a share of the interrupts of a mode with one for each frame: " +
		strings.Join(says, ", ") + "."
}

// sayITR compares the dynamic ITR with the better of an interrupt for each frame and NAPI, at every
// size.
func (d *Data) sayITR() string {
	better := func(part string, size int) *result.Row {
		irq, napi := d.row(part, "exn:interrupt", size), d.row(part, "exn:napi", size)
		if irq == nil || napi == nil || irq.Median < napi.Median {
			return first(irq, napi)
		}
		return napi
	}
	var low, high float64
	var lowSize, highSize, clear int
	for _, r := range d.part(PartCPU) {
		base := better(PartCPU, r.Size)
		if r.Path != "exn:adaptive" || base == nil || base.Median == 0 {
			continue
		}
		share := r.Median / base.Median
		if low == 0 || share < low {
			low, lowSize = share, r.Size
		}
		if share > high {
			high, highSize = share, r.Size
		}
		if !unclear(&r, base) {
			clear++
		}
	}
	if low == 0 {
		return ""
	}
	shares := fmt.Sprintf("%s (%s)", ratioText(low), sizeText(lowSize))
	if highSize != lowSize {
		shares += fmt.Sprintf(" to %s (%s)", ratioText(high), sizeText(highSize))
	}
	text := "The dynamic ITR takes " + shares + " times the CPU time of the cheaper of both"
	if clear == 0 {
		text += overlap
	}
	if r, base := d.row(PartLatency, "exn:adaptive", 64), better(PartLatency, 64); r != nil && base != nil {
		text += fmt.Sprintf("; with round trips of 64 bytes it is %s", times(r, base))
	}
	return text + "."
}

func (d *Data) sayOSULatency() string {
	const size = 64 << 10
	if v := versus(d.row(PartOSULat, "ds", size), d.row(PartOSULat, "lo", size), 1, micros); v != "" {
		return "64 KiB to the other end and back take " + v + " each way over direct sockets." + d.sayCopies("ds")
	}
	if v := versus(d.row(PartOSULat, "exn:napi", size), d.row(PartOSULat, "lo", size), 1, micros); v != "" {
		return "64 KiB take " + v + " one way over exn0." + d.sayCopies("exn:napi")
	}
	return ""
}

// sayCopies compares that with the smallest message.
func (d *Data) sayCopies(path string) string {
	small, large := d.row(PartOSULat, path, 8), d.row(PartOSULat, path, 64<<10)
	if small == nil || large == nil {
		return ""
	}
	return fmt.Sprintf(" Of that %s µs are what 8 bytes take, too; the rest is moving the data.", display.Number(min(small.Median, large.Median)))
}

func (d *Data) sayOSUBandwidth() string {
	raw := d.largest(PartOSUBW, "rma-shm")
	if raw == nil {
		return ""
	}
	text := fmt.Sprintf("One RMA GET after the other between two processes moves up to %s Gbit/s (at %s), one copy; ", display.Number(raw.Median), sizeText(raw.Size))
	if ds := d.largest(PartOSUBW, "ds"); ds != nil {
		text += fmt.Sprintf("direct sockets, with two, up to %s; ", display.Number(ds.Median))
	}
	if zero := d.largest(PartOSUBW, "ds-zcopy"); zero != nil {
		text += fmt.Sprintf("between registered buffers up to %s; ", display.Number(zero.Median))
	}
	if exn := d.largest(PartOSUBW, "exn-shm"); exn != nil {
		text += fmt.Sprintf("TCP over exn0, with two more and the kernel's TCP at both ends, up to %s; ", display.Number(exn.Median))
	}
	last := raw
	for _, r := range d.part(PartOSUBW) {
		if r.Path == raw.Path {
			last = &r
		}
	}
	if last.Median < 0.8*raw.Median {
		return text + fmt.Sprintf("with %s it moves %s of the most.", sizeText(last.Size), ratioText(last.Median/raw.Median))
	}
	return strings.TrimSuffix(text, "; ") + "."
}

func (d *Data) sayRate() string {
	at := func(path string) *result.Row { return d.row(PartRate, path, 64) }
	var direct, exn string
	if v := versus(at("ds"), at("lo"), 1, "million messages"); v != "" {
		direct = "Direct sockets carry " + v + " of 64 bytes a second."
	}
	if v := versus(at("exn:napi"), first(at("veth"), at("lo")), 1, "million"); v != "" {
		exn = "Over exn0 it is " + v + "."
		if least := d.least(PartRate, "exn:napi"); least.Median < 0.9*at("exn:napi").Median {
			exn += fmt.Sprintf(" At the slowest size, %s, it is %s; the thesis's rate is level from 32 bytes to 8 KiB.", sizeText(least.Size), measured(least, " million"))
		}
	}
	return sentences(direct, exn)
}

// sayMPI compares an MPI's paths, at the smallest size of latency and rate, the largest of
// bandwidth.
func (d *Data) sayMPI(part, name string) string {
	rows := d.part(part)
	size, unit := rows[0].Size, unitText(rows[0].Unit)
	for _, r := range rows {
		if strings.HasSuffix(part, mpiBandwidth) {
			size = max(size, r.Size)
		} else {
			size = min(size, r.Size)
		}
	}
	at := func(path string) *result.Row { return d.row(part, path, size) }
	var all []string
	for _, p := range []struct{ path, control, text string }{
		{"ds", "lo", "direct sockets"}, {"exn", "veth", "TCP on exn0"}, {"ds-exn", "veth", "direct sockets between two nodes"},
	} {
		if v := versus(at(p.path), at(p.control), 1, unit); v != "" {
			all = append(all, p.text+" "+v)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%s, messages of %s: %s.", name, sizeText(size), strings.Join(all, ", "))
}

func (d *Data) sayPrograms() string {
	pairs := d.programPairs()
	if len(pairs) == 0 {
		return ""
	}
	text := "Unmodified programs over loopback, without exn-run and with it: "
	for i, s := range pairs {
		if i > 0 {
			text += "; "
		}
		text += s.name + " " + measured(&s.tcp, behindNumber(s.tcp.Unit)) + " and " + measured(&s.direct, behindNumber(s.direct.Unit))
	}
	return text + "."
}

func (d *Data) sayCRR() string {
	at := func(path string) *result.Row { return d.row(PartCRR, path, 64) }
	var exn, direct string
	if v := versus(at("exn:napi"), first(at("veth"), at("lo")), 1, "connections"); v != "" {
		exn = "Over exn0 " + v + " a second are made, used for one request and closed."
	}
	// Direct sockets are Go's here: package net is their control, not a program in C.
	if v := versus(at("ds"), first(at("net"), at("lo")), 1, "connections"); v != "" {
		direct = "With direct sockets it is " + v + ": a connection for one request stays on TCP."
	}
	if v := versus(at("ds-exn"), at("net-exn"), 1, "connections"); v != "" {
		direct += " Over exn0 it is " + v + "."
	}
	return sentences(exn, direct)
}
