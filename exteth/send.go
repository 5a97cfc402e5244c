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

// Send sends the frame in b to node dst. It takes b, unless it returns ErrAgain or an error that
// Unreached reports: then b stays with the caller, and dst has received no whole frame. Any other
// error means that the frame was dropped.
func (p *Port) Send(dst fabric.NodeID, b *TxBuffer) error {
	err := p.Post(dst, b)
	p.Flush()
	return err
}

// Unreached reports whether err says that the peer is not there, or has no open mailbox.
func Unreached(err error) bool {
	return errors.Is(err, fabric.ErrPeerDown) || errors.Is(err, fabric.ErrNoRoute)
}

// Post is Send for a frame that others follow at once: the next Flush interrupts dst
// for all of them (netdev_xmit_more). A caller that gets ErrAgain calls Flush before
// it waits for credit.
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
		return p.eagerRefused(dst, b, n)
	}
	d := velo.Descriptor{Dst: dst, VPID: p.cfg.VPID, Class: b.Class, Quiet: true}
	sent, err := p.sendMessages(&d, frame, 0, hasChecksum)
	p.bells.addPeer(p.peers.peerOf(dst))
	p.unlockTx()
	if err != nil {
		// The mailbox is full, which many senders may cause in spite of credits, or the
		// peer went away. The caller may send the whole frame again; the receiver drops
		// the part it has.
		if sent > 0 {
			p.stats.TxEagerCut.Add(1)
		}
		if errors.Is(err, ErrAgain) {
			p.stats.TxAgain.Add(1)
			return ErrAgain
		}
		p.sendFailed(dst, b, err)
		return err
	}
	p.stats.TxEager.Add(1)
	p.stats.TxBytes.Add(uint64(len(frame)))
	p.Free(b)
	return nil
}

// eagerRefused handles an eager frame of n messages whose peer had fewer credits. If the
// peer is gone, it says so. Otherwise it asks the fabric to call OnCredit and
// returns ErrAgain. If credit came meanwhile, or the peer never gives n credits, the
// fabric would not call: then the frame goes by rendezvous.
func (p *Port) eagerRefused(dst fabric.NodeID, b *TxBuffer, n int) error {
	ok, err := p.velo.WantCredits(dst, p.cfg.VPID, n)
	switch {
	case err != nil:
		p.sendFailed(dst, b, err)
		return err
	case ok:
		return p.sendRendezvous(dst, b)
	}
	p.stats.TxAgain.Add(1)
	return ErrAgain
}

// sendMessages sends frame[from:] as eager messages. It returns how many bytes of frame
// are sent now, from included. The caller holds tx.
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
	// Once b is lent, a peer that guesses its address can free it by a GET.
	ad := Advert{Length: uint32(len(b.Frame())), Offload: b.Offload, Class: b.Class}
	pr := p.peers.peerOf(dst)
	b.deadline = p.now() + int64(p.cfg.TransferTimeout)
	start, err := pr.lendBuffer(b, p.peerBuffers())
	switch {
	case errors.Is(err, errShare):
		p.stats.TxAgain.Add(1)
		return ErrAgain
	case err != nil: // the Port is closed
		p.sendFailed(dst, b, err)
		return err
	}
	p.outstanding.Add(1)
	ad.NLA = start
	if err = p.sendAdvert(dst, ad); err == nil {
		p.stats.TxRendezvous.Add(1)
		p.stats.TxBytes.Add(uint64(ad.Length))
		return nil
	}
	if p.takeBack(pr, rma.LastFragment(start, int(ad.Length))) == nil {
		return errGone
	}
	if errors.Is(err, ErrAgain) {
		p.stats.TxAgain.Add(1)
		return ErrAgain
	}
	p.sendFailed(dst, b, err)
	return err
}

// sendFailed is called when b cannot be sent to dst. It drops the frame if err says that the
// Port is closed. A peer that cannot be reached reads no lent buffer either.
func (p *Port) sendFailed(dst fabric.NodeID, b *TxBuffer, err error) {
	if !Unreached(err) {
		p.Free(b)
		return
	}
	p.stats.TxNoRoute.Add(1)
	p.reclaimLent(p.peers.peerOf(dst))
}

// reclaimLent takes back the buffers lent to a peer that will not GET them: its link has ended, or
// it is gone. The next link begins with none lent.
func (p *Port) reclaimLent(pr *peer) {
	for _, last := range pr.lateLoans(math.MaxInt64) {
		if b := p.takeBack(pr, last); b != nil {
			p.stats.TxNotRead.Add(1)
			p.cfg.OnUnread(pr.node, b)
		}
	}
}

// errGone says that a frame was lost before it was advertised: a peer that guessed
// its address reads it, or its transfer timeout passed. Its loan ends as any other,
// and is counted then.
var errGone = errors.New("exteth: frame lost before it was advertised")

func (p *Port) sendAdvert(dst fabric.NodeID, a Advert) error {
	var msg [AdvertLen]byte
	if _, err := a.AppendBinary(msg[:0]); err != nil {
		return err
	}
	p.tx.Lock()
	err := p.velo.Send(velo.Descriptor{Dst: dst, VPID: p.cfg.VPID, Type: TypeAdvert, Class: a.Class, Quiet: true}, msg[:])
	p.bells.addPeer(p.peers.peerOf(dst))
	p.unlockTx()
	return err
}

// Expire takes back the buffers that their peers did not GET in time. The ATU refuses
// a later GET, because the buffer's generation has changed.
func (p *Port) Expire() {
	if p.outstanding.Load() == 0 {
		return
	}
	now := p.now()
	p.peers.eachPeer(func(pr *peer) {
		for _, last := range pr.lateLoans(now) {
			if p.freeLent(pr, last) {
				p.stats.TxTimeout.Add(1)
			}
		}
	})
}

// freeLent frees the buffer lent to a peer whose last RMA packet is at last, and
// reports whether there was one.
func (p *Port) freeLent(pr *peer, last atu.NLA) bool {
	b := p.takeBack(pr, last)
	if b == nil {
		return false
	}
	p.Free(b)
	return true
}

// takeBack ends a loan whose buffer goes to the caller. It returns nil if the loan has
// ended already, or if a GET reads the buffer now.
func (p *Port) takeBack(pr *peer, last atu.NLA) *TxBuffer {
	b, freed := pr.endLoan(last, p.peerBuffers())
	if b == nil {
		return nil
	}
	p.outstanding.Add(-1)
	if freed {
		p.onCredit(pr.node)
	}
	return b
}

// peerBuffers is how many buffers one peer may hold at a time.
func (p *Port) peerBuffers() int { return min(max(1, p.cfg.Buffers/8), maxPeerLoans) }
