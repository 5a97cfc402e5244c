package exteth

import (
	"errors"
	"fmt"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// Send sends the frame in b to node dst. It takes b, unless it returns
// ErrAgain: then nothing was sent and b stays with the caller. Any other error
// is final for the frame.
func (p *Port) Send(dst fabric.NodeID, b *TxBuffer) error {
	frame := b.Frame()
	if err := p.checkSize(frame); err != nil {
		p.Free(b)
		return err
	}
	if len(frame) <= p.cfg.EagerThreshold {
		if hasChecksum, ok := b.Offload.eagerForm(b.Packet()); ok {
			return p.sendEager(dst, b, hasChecksum)
		}
	}
	return p.sendRendezvous(dst, b)
}

func (p *Port) checkSize(frame []byte) error {
	if len(frame) < EthernetHeaderLen || len(frame) > p.cfg.MaxFrame {
		p.stats.TxBadSize.Add(1)
		return fmt.Errorf("%w: %d bytes, want %d to %d", ErrFrameSize, len(frame), EthernetHeaderLen, p.cfg.MaxFrame)
	}
	return nil
}

// sendEager splits the frame into VELO messages (figure 5.8). All are put into
// the mailbox before the receiver is interrupted, and after the lock is given
// up, since its receive path may run in this goroutine and send in its turn.
func (p *Port) sendEager(dst fabric.NodeID, b *TxBuffer, hasChecksum bool) error {
	frame := b.Frame()
	n := (len(frame) + velo.MaxPayload - 1) / velo.MaxPayload
	p.tx.Lock()
	if p.velo.Credits(dst, p.cfg.VPID) < n {
		p.tx.Unlock()
		return p.refused(dst, b, n)
	}
	d := velo.Descriptor{Dst: dst, VPID: p.cfg.VPID, Quiet: true}
	sent, err := p.sendMessages(&d, frame, 0, hasChecksum, false)
	p.tx.Unlock()
	p.velo.Interrupt(dst, p.cfg.VPID)
	if err != nil {
		// Only a full mailbox, which credits of many senders may cause, or a
		// peer that went away in between.
		if errors.Is(err, ErrAgain) && sent == 0 {
			return err
		}
		p.Free(b)
		p.stats.TxEagerCut.Add(1)
		return err
	}
	p.stats.TxEager.Add(1)
	p.stats.TxBytes.Add(uint64(len(frame)))
	p.Free(b)
	return nil
}

// refused tells why a peer has fewer credits than n messages need: for good,
// or for now. It makes the fabric call OnCredit in the latter case.
func (p *Port) refused(dst fabric.NodeID, b *TxBuffer, n int) error {
	if _, err := p.velo.WantCredits(dst, p.cfg.VPID, n); err != nil {
		p.Free(b)
		p.stats.TxNoRoute.Add(1)
		return err
	}
	p.stats.TxAgain.Add(1)
	return ErrAgain
}

// sendMessages sends frame[from:] as eager messages and returns how far it got.
// With skip, members of a group that have no credit are left out.
func (p *Port) sendMessages(d *velo.Descriptor, frame []byte, from int, hasChecksum, skip bool) (int, error) {
	for from < len(frame) {
		end := min(from+velo.MaxPayload, len(frame))
		d.Type, d.Tag = TypeEager, uint8(from/velo.MaxPayload)&tagIndexMask
		if from == 0 {
			d.Tag |= tagFirst
		}
		if hasChecksum {
			d.Tag |= tagChecksum
		}
		if end == len(frame) {
			d.Type = TypeEagerLast
		}
		var err error
		if skip {
			_, err = p.velo.SendMulticastSkip(*d, frame[from:end])
		} else {
			err = p.velo.Send(*d, frame[from:end])
		}
		if err != nil {
			return from, err
		}
		from = end
	}
	return from, nil
}

// sendRendezvous lends the frame to dst and advertises it (figure 5.9).
func (p *Port) sendRendezvous(dst fabric.NodeID, b *TxBuffer) error {
	frame := b.Frame()
	nla, err := b.region.Lend(dst)
	if err != nil {
		p.Free(b)
		return fmt.Errorf("exteth: lend buffer: %w", err)
	}
	start := nla + (Headroom - EthernetHeaderLen)
	advert := Advert{NLA: start, Length: uint32(len(frame)), Offload: b.Offload}
	var msg [AdvertLen]byte
	if _, err := advert.AppendBinary(msg[:0]); err != nil {
		b.region.Revoke()
		p.Free(b)
		return err
	}
	last := rma.LastFragment(start, len(frame))
	pr := p.peers.get(dst)
	b.deadline = p.now() + int64(p.cfg.TransferTimeout)
	if !pr.lend(last, b, p.peerBuffers()) {
		b.region.Revoke()
		p.stats.TxAgain.Add(1)
		return ErrAgain
	}
	p.outstanding.Add(1)

	size := uint64(len(frame)) // b may be gone when Send returns
	p.tx.Lock()
	err = p.velo.Send(velo.Descriptor{Dst: dst, VPID: p.cfg.VPID, Type: TypeAdvert, Quiet: true}, msg[:])
	p.tx.Unlock()
	if err == nil {
		p.stats.TxRendezvous.Add(1)
		p.stats.TxBytes.Add(size)
		p.velo.Interrupt(dst, p.cfg.VPID)
		return nil
	}
	pr.take(last, p.peerBuffers())
	p.outstanding.Add(-1)
	if errors.Is(err, ErrAgain) {
		p.stats.TxAgain.Add(1)
		return ErrAgain
	}
	p.stats.TxNoRoute.Add(1)
	p.Free(b)
	return err
}

// SendGroup sends the frame in b, of any size, to every member of a fabric
// group but this node, as VELO multicast messages. It takes b, unless it
// returns ErrAgain: then b stays with the caller, part of it may have been
// sent, and no other group frame can be sent before it. A later call goes on
// with the rest. With skip, members without credit miss the frame instead,
// which the fabric counts.
func (p *Port) SendGroup(g fabric.GroupID, b *TxBuffer, skip bool) error {
	frame := b.Frame()
	if err := p.checkSize(frame); err != nil {
		p.Free(b)
		return err
	}
	hasChecksum, ok := b.Offload.eagerForm(b.Packet())
	if !ok {
		off, err := b.Offload.Complete(b.Packet())
		if err == nil && off.GSOType != GSONone {
			err = ErrGroupGSO
		}
		if err != nil {
			p.stats.TxBadGroup.Add(1)
			p.Free(b)
			return err
		}
		b.Offload = off
	}
	d := velo.Descriptor{Group: g, Multicast: true, VPID: p.cfg.VPID, Quiet: true}
	p.tx.Lock()
	if p.groupFrame != nil && p.groupFrame != b {
		p.tx.Unlock()
		return ErrAgain
	}
	sent, err := p.sendMessages(&d, frame, b.sent, hasChecksum, skip)
	b.sent, p.groupFrame = sent, nil
	if errors.Is(err, ErrAgain) {
		p.groupFrame = b
	}
	p.tx.Unlock()
	p.velo.InterruptGroup(g, p.cfg.VPID)
	switch {
	case err == nil:
		p.stats.TxGroup.Add(1)
		p.stats.TxBytes.Add(uint64(len(frame)))
	case errors.Is(err, ErrAgain):
		p.stats.TxAgain.Add(1)
		return ErrAgain
	default:
		p.stats.TxNoRoute.Add(1)
	}
	p.Free(b)
	return err
}

// Expire takes back the buffers that their peers did not GET in time. A GET
// that comes later is refused by the ATU, since the buffer has a new
// generation.
func (p *Port) Expire() {
	if p.outstanding.Load() == 0 {
		return
	}
	now := p.now()
	p.peers.each(func(pr *peer) {
		for _, last := range pr.late(now) {
			if p.release(pr, last) {
				p.stats.TxTimeout.Add(1)
			}
		}
	})
}

// release frees the buffer lent to a peer whose last RMA packet is at last, and
// reports whether there was one.
func (p *Port) release(pr *peer, last atu.NLA) bool {
	b, freed := pr.take(last, p.peerBuffers())
	if b == nil {
		return false
	}
	p.outstanding.Add(-1)
	p.Free(b)
	if freed {
		p.cfg.OnCredit(pr.node)
	}
	return true
}

// peerBuffers is how many buffers one peer may hold at a time.
func (p *Port) peerBuffers() int { return max(1, p.cfg.Buffers/8) }
