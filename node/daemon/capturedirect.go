package daemon

import (
	"net"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"exnet/arp"
	"exnet/directsockets/relay"
	"exnet/exn"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/foreign"
)

// directWindow is the window of all segments that directTap makes: nobody's.
const directWindow = 65535

// directTap shows a tap what direct sockets send through the fabric, each message as the TCP
// segment that it would have been on exn0: addresses and numbers of bytes are the
// connection's, counted from 1; all else is made up.
func directTap(prefix arp.Prefix, own fabric.NodeID, t exn.Tap) relay.Tap {
	return func(s relay.Shown, data []byte) {
		d, src, dst := exn.TX, prefix.MAC(own), prefix.MAC(s.Node)
		if !s.Sent {
			d, src, dst = exn.RX, dst, src
		}
		if frame, err := tcpFrame(src, dst, s, data); err == nil {
			t.Frame(d, exteth.Offload{}, foreign.Private(frame))
		}
	}
}

// tcpFrame makes a frame of a TCP segment.
func tcpFrame(src, dst arp.MAC, s relay.Shown, data []byte) ([]byte, error) {
	eth := &layers.Ethernet{SrcMAC: src[:], DstMAC: dst[:], EthernetType: layers.EthernetTypeIPv4}
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(s.From.Port()), DstPort: layers.TCPPort(s.To.Port()), Seq: s.Seq, Ack: s.Ack, Window: directWindow,
		ACK: true, PSH: len(data) > 0, FIN: s.Fin,
	}
	from, to := s.From.Addr().Unmap(), s.To.Addr().Unmap()
	var ip gopacket.SerializableLayer
	var network gopacket.NetworkLayer
	if from.Is4() {
		v4 := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP(from.AsSlice()), DstIP: net.IP(to.AsSlice())}
		ip, network = v4, v4
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		v6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: net.IP(from.AsSlice()), DstIP: net.IP(to.AsSlice())}
		ip, network = v6, v6
	}
	if err := tcp.SetNetworkLayerForChecksum(network); err != nil {
		return nil, err
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, tcp, gopacket.Payload(data))
	return b.Bytes(), err
}
