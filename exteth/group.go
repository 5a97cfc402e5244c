package exteth

import (
	"errors"

	"exnet/fabric"
	"exnet/fabric/velo"
)

// SendGroup sends the frame in b, of any size, to every member of a fabric
// group except this node, as VELO multicast messages. It takes b, unless it
// returns ErrAgain: then b stays with the caller, and if part of it has been
// sent (Sent), no other group frame can be sent before it. A later call sends
// the rest; Free abandons it.
//
// The frame goes to the nodes that are members when its first message is sent. With
// skip, members without credit become deaf: they miss the rest of this frame, and
// each later frame at whose beginning they still have no credit. Nobody waits for
// them. TxDeaf counts the times that a member becomes deaf, and TxMissed, for each frame
// of TxGroup, the members that did not get it.
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
		b.Offload, hasChecksum = off, false
	}
	d := velo.Descriptor{Group: g, Multicast: true, VPID: p.cfg.VPID, Quiet: true}
	p.tx.Lock()
	if p.groupFrame != nil && p.groupFrame != b {
		p.unlockTx()
		return ErrAgain
	}
	p.setAudience(g, b.sent == 0, skip)
	sent, err := p.sendMessages(&d, frame, b.sent, hasChecksum)
	b.sent, p.groupFrame = sent, nil
	if errors.Is(err, ErrAgain) && sent > 0 { // otherwise no receiver knows of the frame
		p.groupFrame = b
	}
	missed := p.members - len(p.audience)
	p.unlockTx()
	p.velo.InterruptGroup(g, p.cfg.VPID)
	switch {
	case err == nil:
		p.stats.TxMissed.Add(uint64(missed))
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

// setAudience sets the audience of a group frame: the members of the group when the frame
// begins, except the deaf ones. A node that joins later has missed the beginning, and
// might take the rest for part of another frame. With skip, members without credit
// become deaf. At the beginning of a frame, deaf members with credit stop being deaf.
//
// A peer is deaf in all its groups, and a frame to a group without it does not change
// that. So the sender waits for it once, and not again whenever frames to its groups
// and to others alternate. The caller holds tx.
func (p *Port) setAudience(g fabric.GroupID, begins, skip bool) {
	if begins {
		p.audience = p.nic.Routes().Members(g)
		p.members = len(p.audience)
	}
	if !skip && (!begins || p.deaf == 0) {
		return
	}
	hearing := p.hearing[:0]
	for _, n := range p.audience {
		pr := p.peers.peerOf(n)
		ok, err := p.velo.WantCredits(n, p.cfg.VPID, 1)
		switch {
		case skip && !ok && err == nil && !pr.deaf:
			pr.deaf = true
			p.deaf++
			p.stats.TxDeaf.Add(1)
		case pr.deaf && (err != nil || begins && ok):
			pr.deaf = false
			p.deaf--
		}
		if !pr.deaf {
			hearing = append(hearing, n)
		}
	}
	p.hearing, p.audience = hearing, hearing
}
