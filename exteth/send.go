package exteth

import (
	"errors"
	"fmt"
	"math"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// Send sends the frame in b to node dst. It takes b, unless it returns
// ErrAgain: then dst gets nothing of it and b stays with the caller. Any other
// error is final for the frame.
func (p *Port) Send(dst fabric.NodeID, b *TxBuffer) error {
	err := p.Post(dst, b)
	p.Flush()
	return err
}

// Post is Send for a frame that others follow at once: dst is interrupted only
// by the next Flush, for all of them (netdev_xmit_more). A caller that gets
// ErrAgain flushes before it waits for credit.
func (p *Port) Post(dst fabric.NodeID, b *TxBuffer) error {
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

// sendEager splits the frame into VELO messages (figure 5.8).
func (p *Port) sendEager(dst fabric.NodeID, b *TxBuffer, hasChecksum bool) error {
	frame := b.Frame()
	n := (len(frame) + velo.MaxPayload - 1) / velo.MaxPayload
	p.tx.Lock()
	if p.velo.Credits(dst, p.cfg.VPID) < n {
		p.unlockTx()
		return p.refused(dst, b, n)
	}
	d := velo.Descriptor{Dst: dst, VPID: p.cfg.VPID, Class: b.Class, Quiet: true}
	sent, err := p.sendMessages(&d, frame, 0, hasChecksum)
	p.bells.add(p.peers.get(dst))
	p.unlockTx()
	if err != nil {
		// A full mailbox, which the credits of many senders may cause, or a
		// peer that went away in between. In the first case the frame is sent
		// from its beginning again; the receiver drops the part it has.
		if sent > 0 {
			p.stats.TxEagerCut.Add(1)
		}
		if errors.Is(err, ErrAgain) {
			p.stats.TxAgain.Add(1)
			return ErrAgain
		}
		p.gone(dst, b)
		return err
	}
	p.stats.TxEager.Add(1)
	p.stats.TxBytes.Add(uint64(len(frame)))
	p.Free(b)
	return nil
}

// refused handles an eager frame whose peer had fewer credits than its n
// messages need: for good, or for now. In the latter case it makes the fabric
// call OnCredit. If credit came in between, or the peer never gives as many
// credits as that, nobody would call: the frame goes by rendezvous.
func (p *Port) refused(dst fabric.NodeID, b *TxBuffer, n int) error {
	ok, err := p.velo.WantCredits(dst, p.cfg.VPID, n)
	switch {
	case err != nil:
		p.gone(dst, b)
		return err
	case ok:
		return p.sendRendezvous(dst, b)
	}
	p.stats.TxAgain.Add(1)
	return ErrAgain
}

// sendMessages sends frame[from:] as eager messages and returns how far it got.
// The caller holds tx.
func (p *Port) sendMessages(d *velo.Descriptor, frame []byte, from int, hasChecksum bool) (int, error) {
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
		if d.Multicast {
			err = p.velo.SendMulticastTo(*d, p.audience, frame[from:end])
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
	size, class := len(b.Frame()), b.Class // b may be gone when the advert is sent
	pr := p.peers.get(dst)
	b.deadline = p.now() + int64(p.cfg.TransferTimeout)
	start, err := pr.lend(b, p.peerBuffers())
	switch {
	case errors.Is(err, errShare):
		p.stats.TxAgain.Add(1)
		return ErrAgain
	case err != nil: // the Port is closed
		p.gone(dst, b)
		return err
	}
	p.outstanding.Add(1)
	if err = p.advertise(dst, Advert{NLA: start, Length: uint32(size), Offload: b.Offload, Class: class}); err == nil {
		p.stats.TxRendezvous.Add(1)
		p.stats.TxBytes.Add(uint64(size))
		return nil
	}
	if !p.takeBack(pr, rma.LastFragment(start, size)) {
		return errGone
	}
	if errors.Is(err, ErrAgain) {
		p.stats.TxAgain.Add(1)
		return ErrAgain
	}
	p.gone(dst, b)
	return err
}

// gone drops the frame in b, whose peer is not there, and takes back what the
// peer was to fetch.
func (p *Port) gone(dst fabric.NodeID, b *TxBuffer) {
	p.stats.TxNoRoute.Add(1)
	p.Free(b)
	pr := p.peers.get(dst)
	for _, last := range pr.late(math.MaxInt64) {
		if p.release(pr, last) {
			p.stats.TxNotRead.Add(1)
		}
	}
}

// errGone says that a frame was lost before it was advertised: a peer that
// guessed its address reads it, or the transfer timeout was over. Its loan ends
// as any other's, and is counted then.
var errGone = errors.New("exteth: frame lost before it was advertised")

func (p *Port) advertise(dst fabric.NodeID, a Advert) error {
	var msg [AdvertLen]byte
	if _, err := a.AppendBinary(msg[:0]); err != nil {
		return err
	}
	p.tx.Lock()
	err := p.velo.Send(velo.Descriptor{Dst: dst, VPID: p.cfg.VPID, Type: TypeAdvert, Class: a.Class, Quiet: true}, msg[:])
	p.bells.add(p.peers.get(dst))
	p.unlockTx()
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
		p.onCredit(pr.node)
	}
	return true
}

// takeBack ends a loan whose buffer stays with the caller. It reports false if
// there is none any more, or a GET runs on it.
func (p *Port) takeBack(pr *peer, last atu.NLA) bool {
	b, freed := pr.take(last, p.peerBuffers())
	if b == nil {
		return false
	}
	p.outstanding.Add(-1)
	if freed {
		p.onCredit(pr.node)
	}
	return true
}

// peerBuffers is how many buffers one peer may hold at a time.
func (p *Port) peerBuffers() int { return min(max(1, p.cfg.Buffers/8), maxPeerLoans) }
